//! Every ready configuration starts with the command that stands in it, where its devices can be
//! had: all but those of NICs.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::{Edge, Folder};

fn configurations() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../dpdk-config");
    let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<PathBuf> = files
        .filter(|path| path.extension().is_some_and(|extension| extension == "toml"))
        .collect();
    files.sort();
    files
}

/// DPDK's arguments in the command that a configuration's comment shows.
fn eal_arguments(path: &Path) -> Vec<String> {
    let text = fs::read_to_string(path).unwrap();
    let mut command = String::new();
    for line in text.lines().skip_while(|line| !line.contains("calumma-edge --config")) {
        let line = line.trim_start_matches('#').trim();
        command += line.trim_end_matches('\\');
        command.push(' ');
        if !line.ends_with('\\') {
            break;
        }
    }
    let (_, arguments) = command.split_once(" -- ").unwrap_or_else(|| panic!("{}", path.display()));
    arguments.split_whitespace().map(str::to_owned).collect()
}

/// Interfaces of the kernel, a pair for each name that stands for one in a command; gone when this
/// is dropped.
#[derive(Default)]
struct Interfaces(BTreeMap<String, String>);

impl Interfaces {
    /// The interface that `stands_for` an operator's.
    fn of(&mut self, stands_for: &str) -> String {
        let number = self.0.len();
        let there = self.0.entry(stands_for.to_owned()).or_insert_with(|| {
            let here = format!("cal{}i{number}", std::process::id() % 1_000_000);
            let far = format!("{here}p");
            ip(&["link", "add", &here, "type", "veth", "peer", "name", &far]);
            ip(&["link", "set", &here, "up"]);
            ip(&["link", "set", &far, "up"]);
            here
        });
        there.clone()
    }

    /// A word of a command with its interface put in: those that are to be there have names in
    /// capitals.
    fn put_into(&mut self, word: &str) -> String {
        let Some((before, after)) = word.split_once("iface=") else { return word.to_owned() };
        let end = after.find(',').unwrap_or(after.len());
        let (name, rest) = after.split_at(end);
        if !name.chars().all(|char| char.is_ascii_uppercase() || char == '_') {
            return word.to_owned();
        }
        format!("{before}iface={}{rest}", self.of(name))
    }
}

impl Drop for Interfaces {
    fn drop(&mut self) {
        for here in self.0.values() {
            let _ = Command::new("ip").args(["link", "del", here]).status();
        }
    }
}

fn ip(arguments: &[&str]) {
    let done = Command::new("ip").args(arguments).status().unwrap();
    assert!(done.success(), "ip {arguments:?}");
}

#[test]
#[ignore = "end to end: needs root and DPDK; `cargo xtask test` runs it"]
fn every_configuration_starts_with_the_command_that_stands_in_it() {
    let folder = Folder::new("dpdk-config");
    let mut interfaces = Interfaces::default();
    // A capture without packets.
    let mut empty = Vec::new();
    for word in [0xA1B2_C3D4, 2 | 4 << 16, 0, 0, 2000, 1_u32] {
        empty.extend_from_slice(&word.to_le_bytes());
    }
    folder.write("in.pcap", empty);
    let mut started = Vec::new();
    for path in configurations() {
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        let mut eal = eal_arguments(&path);
        if eal.iter().any(|word| word == "-a") {
            continue;
        }
        let without_hugepages = eal.iter().any(|word| word == "--no-huge");
        for word in &mut eal {
            *word = interfaces
                .put_into(word)
                .replace("/run/", &folder.file(""))
                .replace("_pcap=", &format!("_pcap={}", folder.file("")));
        }
        // Next to other DPDK programs, on whatever CPUs and memory there are.
        let cpus = eal.iter().position(|word| word == "-l").unwrap();
        eal[cpus + 1] = "0".to_owned();
        eal.retain(|word| !word.starts_with("--file-prefix"));
        eal.retain(|word| word != "e1");
        eal.push(format!("--file-prefix=calumma-{name}-{}", std::process::id()));
        if !without_hugepages && free_hugepages() < 256 {
            assert_ne!(name, "virtio", "needs 256 free hugepages of 2 MiB");
            eal.extend(["--no-huge", "-m", "512"].map(str::to_owned));
        } else if !without_hugepages && !eal.iter().any(|word| word == "--in-memory") {
            eal.push("--in-memory".to_owned());
        }
        let config = path.to_str().unwrap();
        let edge = Edge::start(&["--config", config], &eal);
        edge.signal("TERM");
        let (ended, said) = edge.ended();
        assert!(ended.success(), "{name}: {said}");
        started.push(name);
    }
    for name in ["af_packet", "af_xdp", "host-sink", "memif", "pcap", "tap", "virtio"] {
        assert!(started.iter().any(|other| other == name), "{name} is among {started:?}");
    }
}

fn free_hugepages() -> u64 {
    let text = fs::read_to_string("/proc/meminfo").unwrap();
    let free = text.lines().find_map(|line| line.strip_prefix("HugePages_Free:"));
    free.map_or(0, |free| free.trim().parse().unwrap())
}
