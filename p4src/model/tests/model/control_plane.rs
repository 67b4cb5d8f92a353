//! What the control plane can do, and the errors it gets.

use std::path::Path;

use calumma_tna::{ControlError, Entry, FieldMatch, MatchKind, Program, Switch};

fn load(name: &str) -> Program {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs").join(name);
    Program::load(path, &[]).unwrap()
}

fn exact(x: u8, y: u16) -> Entry {
    Entry::new("set").exact("hdr.data.x", x).exact("hdr.data.y", y)
}

#[test]
fn a_program_tells_its_tables_and_registers() {
    let program = load("tables.p4");
    let table = program.table("lpm_table").unwrap();
    assert_eq!(table.name, "Ingress.lpm_table");
    let keys: Vec<_> = table.keys.iter().map(|k| (&*k.name, k.kind, k.width)).collect();
    assert_eq!(keys, [("hdr.data.x", MatchKind::Exact, 8), ("hdr.data.a", MatchKind::Lpm, 32)]);
    assert_eq!(table.actions[0].name, "Ingress.set");
    assert_eq!(table.actions[0].params, [("value".to_owned(), 32)]);
    assert_eq!(table.size, 16);
    assert!(program.table("range_table").unwrap().const_entries);
    let registers = load("registers.p4").registers();
    let pair = registers.iter().find(|r| r.name == "Ingress.pair").unwrap();
    assert_eq!(pair.size, 4);
    assert_eq!(pair.fields, [("first".to_owned(), 32), ("second".to_owned(), 32)]);
}

#[test]
fn names_may_be_short_if_they_are_clear() {
    let program = load("controls.p4");
    for name in ["pipe.Ingress.outer.inner.pick", "Ingress.outer.inner.pick", "inner.pick", "pick"]
    {
        assert_eq!(program.table(name).unwrap().name, "Ingress.outer.inner.pick");
    }
    let switch = Switch::new(&program);
    let error = switch.read_register("cells", 0).unwrap_err();
    let text = "register `cells`: ambiguous: Ingress.first.cells, Ingress.second.cells";
    assert_eq!(error.to_string(), text);
    let error = program.table("ick").unwrap_err();
    assert!(matches!(error, ControlError::Name { kind: "table", .. }), "{error}");
}

#[test]
fn a_table_holds_what_its_size_says() {
    let mut switch = Switch::new(&load("tables.p4"));
    for y in 0..16 {
        switch.add_entry("exact_table", &exact(1, y).arg("value", y)).unwrap();
    }
    let error = switch.add_entry("exact_table", &exact(1, 16).arg("value", 0u8)).unwrap_err();
    assert_eq!(error.to_string(), "table `Ingress.exact_table` is full: it has 16 entries");
    let error = switch.add_entry("exact_table", &exact(1, 3).arg("value", 0u8)).unwrap_err();
    assert!(matches!(error, ControlError::Exists { .. }), "{error}");
    switch.delete_entry("exact_table", &exact(1, 3)).unwrap();
    switch.add_entry("exact_table", &exact(1, 99).arg("value", 5u8)).unwrap();
    let entries = switch.entries("exact_table").unwrap();
    assert_eq!(entries.len(), 16);
    let last = entries.iter().find(|e| e.keys[1] == FieldMatch::Exact(99)).unwrap();
    assert_eq!((&*last.action, &last.args[..]), ("Ingress.set", &[5][..]));
    switch.clear_table("exact_table").unwrap();
    assert!(switch.entries("exact_table").unwrap().is_empty());
}

#[test]
fn what_does_not_fit_is_refused() {
    let mut switch = Switch::new(&load("tables.p4"));
    let mut refused = |entry: Entry, message: &str| {
        let error = switch.add_entry("exact_table", &entry).unwrap_err().to_string();
        assert!(error.contains(message), "{error}");
    };
    refused(exact(1, 2), "`value` is missing");
    refused(exact(1, 2).arg("value", 1u64 << 32), "does not fit in 32 bits");
    refused(exact(1, 2).arg("value", 1u8).arg("other", 1u8), "no parameter `other`");
    refused(Entry::new("set").exact("hdr.data.x", 1u8).arg("value", 1u8), "no value is given");
    refused(
        Entry::new("set").exact("hdr.data.x", 256u16).exact("hdr.data.y", 1u8).arg("value", 1u8),
        "0x100 does not fit in 8 bits",
    );
    refused(
        Entry::new("set").range("hdr.data.x", 1u8, 2u8).exact("hdr.data.y", 1u8).arg("value", 1u8),
        "matched Exact",
    );
    refused(Entry::new("nope").exact("hdr.data.x", 1u8).exact("hdr.data.y", 1u8), "action `nope`");
    refused(Entry::new("set").exact("hdr.data.q", 1u8), "key field `hdr.data.q`");
    let error = switch.delete_entry("exact_table", &exact(1, 2)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "table `Ingress.exact_table` has no entry for hdr.data.x = 0x1, hdr.data.y = 0x2"
    );
    let any = Entry::new("set").range("hdr.data.y", 1u8, 2u8).arg("value", 1u8);
    let error = switch.add_entry("range_table", &any).unwrap_err();
    assert!(error.to_string().contains("its entries are const"), "{error}");
    let error = switch.set_default_action("lpm_table", "clear", &[]).unwrap_err();
    assert!(error.to_string().contains("its default action is const"), "{error}");
    let only = Entry::new("clear").exact("hdr.data.x", 1u8);
    let error = switch.add_entry("lpm_table", &only).unwrap_err();
    assert!(error.to_string().contains("for the default only"), "{error}");
}

#[test]
fn registers_are_read_and_written_whole() {
    let mut switch = Switch::new(&load("registers.p4"));
    switch.fill_register("pair", &[1, 2]).unwrap();
    switch.write_register("pair", 3, &[7, 8]).unwrap();
    assert_eq!(switch.read_register_lanes("pair").unwrap(), [[1, 1, 1, 7], [2, 2, 2, 8]]);
    assert!(switch.write_register("pair", 4, &[0, 0]).is_err());
    assert!(switch.write_register("pair", 0, &[0]).is_err());
    let error = switch.write_register("small", 0, &[256]).unwrap_err();
    assert_eq!(error.to_string(), "Ingress.small: [256] does not fit an element of bit<8>");
}

#[test]
fn a_program_that_recirculates_for_ever_is_stopped() {
    let program = load("forward.p4");
    let mut switch = Switch::new(&program);
    let back = |port: u16| Entry::new("send").exact("ingress_port", port).arg("port", 68u8);
    switch.add_entry("forward", &back(1)).unwrap();
    switch.add_entry("forward", &back(68)).unwrap();
    switch.set_max_passes(1000);
    assert!(switch.inject(1, &[0; 64]).is_empty());
    let statistics = switch.statistics();
    assert_eq!((statistics.endless, statistics.recirculations), (1, 999));
}

#[test]
fn two_switches_share_a_program_but_no_state() {
    let program = load("registers.p4");
    let mut one = Switch::new(&program);
    let two = Switch::new(&program);
    one.write_register("sum", 0, &[5]).unwrap();
    assert_eq!(two.read_register("sum", 0).unwrap(), [0]);
}

#[test]
fn a_hash_is_given_another_polynomial() {
    let program = load("hashes.p4");
    let names: Vec<_> = program.hashes().into_iter().map(|hash| hash.name).collect();
    assert!(names.contains(&"Ingress.first.hash".to_owned()), "{names:?}");
    assert!(!names.contains(&"Ingress.xor16".to_owned()), "{names:?}");
    let mut switch = Switch::new(&program);
    let packet = [&[7, 0, 0, 0], &[1, 2, 3, 4, 5, 6, 7, 8][..]].concat();
    let hashes = |switch: &mut Switch| switch.inject(1, &packet).remove(0).1[12..].to_vec();
    let (castagnoli, ethernet) = ([0x46, 0x89, 0x1f, 0x81], [0x3f, 0xca, 0x88, 0xc5]);
    assert_eq!(hashes(&mut switch), [castagnoli, ethernet].concat());
    let ones = u128::from(u32::MAX);
    let crc = |polynomial| {
        [("polynomial", polynomial), ("reverse", 1), ("init", ones), ("final_xor", ones)]
    };
    let table = "Ingress.first.hash.algorithm";
    switch.set_default_action(table, "user_defined", &crc(0x04c1_1db7)).unwrap();
    assert_eq!(hashes(&mut switch), [ethernet, ethernet].concat());

    let mut refused = |table: &str, args: &[(&str, u128)]| {
        switch.set_default_action(table, "user_defined", args).unwrap_err().to_string()
    };
    assert!(refused(table, &crc(0x04c1_1db6)).contains("a polynomial is odd"));
    assert!(refused(table, &crc(0x1_04c1_1db7)).contains("does not fit in 32 bits"));
    assert!(refused(table, &[("polynomial", 7), ("seed", 1)]).contains("`seed` = 1"));
    assert!(refused("Ingress.xor16.algorithm", &crc(7)).contains("only CRCs"));
    assert!(refused("Ingress.third.algorithm", &crc(7)).contains("hash `Ingress.third`"));
    assert_eq!(hashes(&mut switch), [ethernet, ethernet].concat());
}
