//! Whatever comes in, the model does not panic: packets through every program, and programs that
//! are damaged in any place.

use std::path::{Path, PathBuf};

use calumma_tna::{MirrorSession, Program, Switch};
use proptest::prelude::*;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs")
}

fn programs() -> Vec<PathBuf> {
    let files = std::fs::read_dir(folder()).unwrap().map(|file| file.unwrap().path());
    let mut programs: Vec<_> =
        files.filter(|path| path.extension().is_some_and(|e| e == "p4")).collect();
    programs.sort();
    programs
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..Default::default() })]

    #[test]
    fn any_packet_is_survived(
        packets in prop::collection::vec(
            (0u16..600, prop::collection::vec(any::<u8>(), 0..80)), 1..20),
        first in 0u8..16,
    ) {
        for path in programs() {
            let mut switch = Switch::new(&Program::load(&path, &[]).unwrap());
            switch.set_max_passes(100);
            switch.set_multicast_group(3, &[(1, 2), (2, 68)]);
            switch.set_mirror(9, Some(MirrorSession { port: 3, max_length: 20 }));
            for (port, packet) in &packets {
                let mut packet = packet.clone();
                if let Some(byte) = packet.first_mut() {
                    *byte = first;
                }
                for (_, sent) in switch.inject(*port, &packet) {
                    // Each pass adds at most a trailer of four bytes.
                    prop_assert!(sent.len() < 100 + 100 * 4);
                }
            }
        }
    }
}

/// Every way to cut a program short, and every token left out or doubled, is an error or a
/// program, never a panic.
#[test]
fn damaged_programs_are_survived() {
    for path in programs() {
        let text = std::fs::read_to_string(&path).unwrap();
        let text = inline(&text);
        let code: Vec<&str> = text.lines().filter(|line| !line.starts_with("//")).collect();
        let code = code.join("\n");
        Program::from_text("whole.p4", &code, &[]).unwrap_or_else(|e| panic!("{e}\n{code}"));
        let cuts: Vec<usize> = (0..code.len())
            .filter(|&at| {
                !code.is_char_boundary(at) || !code.as_bytes()[at].is_ascii_alphanumeric()
            })
            .collect();
        for pair in cuts.windows(2).step_by(17) {
            let (from, to) = (pair[0], pair[1]);
            let _ = Program::from_text("cut.p4", &code[..from], &[]);
            let without = format!("{}{}", &code[..from], &code[to..]);
            let _ = Program::from_text("without.p4", &without, &[]);
            let doubled = format!("{}{}", &code[..to], &code[from..]);
            let _ = Program::from_text("doubled.p4", &doubled, &[]);
        }
    }
}

#[test]
fn nesting_without_end_is_an_error() {
    for (open, close) in [("(", ")"), ("{", "}"), ("~", ""), ("(bit<8>)", "")] {
        let text = format!("const int X = {}1{};", open.repeat(100_000), close.repeat(100_000));
        assert!(Program::from_text("deep.p4", &text, &[]).is_err());
    }
}

/// The program with the files of `common/` put in place.
fn inline(text: &str) -> String {
    let mut out = String::new();
    for line in text.lines() {
        match line.strip_prefix("#include \"").and_then(|rest| rest.strip_suffix('"')) {
            Some(file) => {
                out.push_str(&inline(&std::fs::read_to_string(folder().join(file)).unwrap()));
            }
            None => out.push_str(line),
        }
        out.push('\n');
    }
    out
}
