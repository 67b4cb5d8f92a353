//! Runs every program in `tests/programs` against the packets in its comments.
//!
//! Lines that begin with `//:` are commands; numbers are decimal or 0x, packets are hexadecimal:
//!
//! - `send PORT HEX` sends a packet; `expect PORT HEX` is what must come out next; when the next
//!   command is no `expect`, nothing more may be left
//! - `add|modify|delete TABLE key=MATCH ... [@PRIORITY] [-> ACTION name=value ...]`, where MATCH is
//!   `5`, `5&&&7`, `5/8` or `1..4`
//! - `default TABLE ACTION name=value ...`
//! - `register NAME INDEX = V [V]` checks, `write NAME INDEX = V [V]` writes
//! - `counter NAME INDEX = PACKETS BYTES`, `entries TABLE PACKETS` for the sum of direct counters
//! - `set VALUE_SET HEX ...`, `mirror SESSION PORT LENGTH`, `group ID RID:PORT ...`, `cpu PORT`,
//!   `metadata PORT HEX`, `time NS`
//! - `digest NAME field=value ...` is the next digest

use std::collections::VecDeque;
use std::path::Path;

use calumma_tna::{DigestRecord, Entry, FieldMatch, MirrorSession, Program, Switch};

fn run(name: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs").join(name);
    let program = Program::load(&path, &[]).unwrap_or_else(|error| panic!("{error}"));
    let text = std::fs::read_to_string(&path).unwrap();
    let mut bench =
        Bench { switch: Switch::new(&program), waiting: VecDeque::new(), digests: VecDeque::new() };
    let mut commands = 0;
    for (line, command) in (1..).zip(text.lines()) {
        let Some(command) = command.strip_prefix("//:") else { continue };
        bench.command(command.trim(), &format!("{name}:{line}"));
        commands += 1;
    }
    bench.nothing_left(name);
    assert!(commands > 0, "{name} has no commands");
}

struct Bench {
    switch: Switch,
    waiting: VecDeque<(u16, Vec<u8>)>,
    digests: VecDeque<DigestRecord>,
}

impl Bench {
    fn nothing_left(&mut self, place: &str) {
        assert!(self.waiting.is_empty(), "{place}: unexpected packets {:02x?}", self.waiting);
    }

    fn command(&mut self, text: &str, place: &str) {
        let (verb, rest) = text.split_once(' ').unwrap_or((text, ""));
        let words: Vec<&str> = rest.split_whitespace().collect();
        if !matches!(verb, "expect" | "digest" | "#" | "register" | "counter") {
            self.nothing_left(place);
        }
        match verb {
            "#" => {}
            "send" => {
                let sent = self.switch.inject(number(words[0]) as u16, &hex(&words[1..]));
                self.waiting.extend(sent);
                self.digests.extend(self.switch.take_digests());
            }
            "expect" => {
                let wanted = (number(words[0]) as u16, hex(&words[1..]));
                match self.waiting.pop_front() {
                    Some(found) => assert!(
                        found == wanted,
                        "{place}: expected port {} {:02x?}\n found port {} {:02x?}",
                        wanted.0,
                        wanted.1,
                        found.0,
                        found.1
                    ),
                    None => panic!("{place}: no packet came out"),
                }
            }
            "add" | "modify" | "delete" => {
                let (table, entry) = entry(&words);
                let done = match verb {
                    "add" => self.switch.add_entry(table, &entry),
                    "modify" => self.switch.modify_entry(table, &entry),
                    _ => self.switch.delete_entry(table, &entry),
                };
                done.unwrap_or_else(|error| panic!("{place}: {error}"));
            }
            "default" => {
                let args: Vec<_> = words[2..].iter().map(|word| assignment(word)).collect();
                self.switch
                    .set_default_action(words[0], words[1], &args)
                    .unwrap_or_else(|error| panic!("{place}: {error}"));
            }
            "register" => {
                let found = self.switch.read_register(words[0], number(words[1]) as usize);
                let wanted: Vec<u32> = words[3..].iter().map(|w| number(w) as u32).collect();
                assert_eq!(found.unwrap(), wanted, "{place}");
            }
            "write" => {
                let values: Vec<u32> = words[3..].iter().map(|w| number(w) as u32).collect();
                self.switch
                    .write_register(words[0], number(words[1]) as usize, &values)
                    .unwrap_or_else(|error| panic!("{place}: {error}"));
            }
            "counter" => {
                let found = self.switch.read_counter(words[0], number(words[1]) as usize).unwrap();
                let wanted = (number(words[3]) as u64, number(words[4]) as u64);
                assert_eq!((found.packets, found.bytes), wanted, "{place}");
            }
            "entries" => {
                let entries = self.switch.entries(words[0]).unwrap();
                let counted: u64 = entries.iter().map(|entry| entry.count.packets).sum();
                assert_eq!(u128::from(counted), number(words[1]), "{place}");
            }
            "set" => {
                let members: Vec<_> =
                    words[1..].iter().map(|w| (from_hex(w), u128::MAX >> 120)).collect();
                self.switch.set_value_set(words[0], &members).unwrap();
            }
            "mirror" => {
                let port = number(words[1]) as u16;
                let max_length = number(words[2]) as usize;
                let session = MirrorSession { port, max_length };
                self.switch.set_mirror(number(words[0]) as u16, Some(session));
            }
            "group" => {
                let copies: Vec<_> = words[1..]
                    .iter()
                    .map(|word| word.split_once(':').unwrap())
                    .map(|(copy, port)| (number(copy) as u16, number(port) as u16))
                    .collect();
                self.switch.set_multicast_group(number(words[0]) as u16, &copies);
            }
            "cpu" => self.switch.set_cpu_port(Some(number(words[0]) as u16)),
            "metadata" => {
                let metadata = from_hex(&words[1..].concat()) as u64;
                self.switch.set_port_metadata(number(words[0]) as u16, metadata);
            }
            "time" => self.switch.set_time(number(words[0]) as u64),
            "digest" => {
                let digest = self.digests.pop_front().expect("a digest");
                assert!(digest.name.ends_with(words[0]), "{place}: {}", digest.name);
                let fields: Vec<_> =
                    digest.fields.iter().map(|(name, value)| (&**name, *value)).collect();
                let wanted: Vec<_> = words[1..].iter().map(|word| assignment(word)).collect();
                assert_eq!(fields, wanted, "{place}");
            }
            _ => panic!("{place}: no command `{verb}`"),
        }
    }
}

fn entry<'a>(words: &[&'a str]) -> (&'a str, Entry) {
    let arrow = words.iter().position(|word| *word == "->");
    let (keys, action) = words.split_at(arrow.unwrap_or(words.len()));
    let mut entry = Entry::new(action.get(1).copied().unwrap_or(""));
    for word in &keys[1..] {
        if let Some(priority) = word.strip_prefix('@') {
            entry = entry.priority(number(priority) as u32);
            continue;
        }
        let (key, value) = word.split_once('=').unwrap();
        let field = if let Some((value, mask)) = value.split_once("&&&") {
            FieldMatch::Ternary { value: number(value), mask: number(mask) }
        } else if let Some((value, length)) = value.split_once('/') {
            FieldMatch::Lpm { value: number(value), length: number(length) as u16 }
        } else if let Some((low, high)) = value.split_once("..") {
            FieldMatch::Range { low: number(low), high: number(high) }
        } else {
            FieldMatch::Exact(number(value))
        };
        entry = entry.field(key, field);
    }
    for word in action.iter().skip(2) {
        let (name, value) = assignment(word);
        entry = entry.arg(name, value);
    }
    (keys[0], entry)
}

fn assignment(word: &str) -> (&str, u128) {
    let (name, value) = word.split_once('=').unwrap();
    (name, number(value))
}

fn number(text: &str) -> u128 {
    match text.strip_prefix("0x") {
        Some(digits) => from_hex(digits),
        None => text.parse().unwrap(),
    }
}

fn from_hex(digits: &str) -> u128 {
    u128::from_str_radix(digits, 16).unwrap()
}

fn hex(words: &[&str]) -> Vec<u8> {
    let digits = words.concat();
    (0..digits.len()).step_by(2).map(|at| from_hex(&digits[at..at + 2]) as u8).collect()
}

macro_rules! programs {
    ($($name:ident: $file:literal,)*) => {
        $(#[test]
        fn $name() {
            run($file);
        })*

        #[test]
        fn every_program_in_the_folder_is_run() {
            let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs");
            for file in std::fs::read_dir(folder).unwrap() {
                let name = file.unwrap().file_name().into_string().unwrap();
                let listed = [$($file),*].contains(&&*name) || !name.ends_with(".p4");
                assert!(listed || name == "forward.p4", "{name} is run by no test");
            }
        }
    };
}

programs! {
    arithmetic_wraps_saturates_and_knows_signs: "arithmetic.p4",
    expressions_slice_join_cast_and_choose: "expressions.p4",
    parsers_select_look_ahead_and_report_errors: "parsing.p4",
    headers_are_copied_with_their_validity: "headers.p4",
    tables_match_by_kind_and_priority: "tables.p4",
    actions_and_functions_copy_in_and_out: "actions.p4",
    registers_run_what_a_stateful_alu_runs: "registers.p4",
    hashes_have_their_published_values: "hashes.p4",
    checksums_are_computed_and_updated: "checksums.p4",
    packets_travel_between_the_gresses: "traffic.p4",
    controls_nest_with_state_of_their_own: "controls.p4",
}
