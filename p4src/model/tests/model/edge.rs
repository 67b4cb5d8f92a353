//! The edge switch's own programs load, with either arithmetic.

use calumma_tna::Program;

#[test]
fn the_edge_program_loads_with_both_arithmetics() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../edge.p4");
    let prime = Program::load(path, &[]).unwrap_or_else(|error| panic!("{error}"));
    let define = [("WRAPPING_ARITHMETIC".to_owned(), "1".to_owned())];
    let wrapping = Program::load(path, &define).unwrap_or_else(|error| panic!("{error}"));
    // Stateful ALUs: two for the classifier, five or four for each of six bucket arrays, one for
    // the numbers of notices.
    assert_eq!(prime.registers().len(), 2 + 6 * 5 + 1);
    assert_eq!(wrapping.registers().len(), 2 + 6 * 4 + 1);
    let marks = ("CARRIER_IP_ID".to_owned(), "1".to_owned());
    for defines in [vec![marks.clone()], vec![marks, define[0].clone()]] {
        let program = Program::load(path, &defines).unwrap_or_else(|error| panic!("{error}"));
        let without = if defines.len() == 1 { &prime } else { &wrapping };
        // One more: fresh identifications.
        assert_eq!(program.registers().len(), without.registers().len() + 1);
    }
}

#[test]
fn the_table_of_flows_loads_in_all_its_sizes() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../cfs.p4");
    for (bits, columns) in [(1, 4), (4, 6), (12, 6), (13, 4)] {
        let mut define = vec![("ROW_BITS".to_owned(), bits.to_string())];
        if columns != 4 {
            define.push(("COLUMNS".to_owned(), columns.to_string()));
        }
        if bits > 4 {
            define.push(("WIDE_KEYS".to_owned(), "1".to_owned()));
        }
        let program = Program::load(path, &define).unwrap_or_else(|error| panic!("{error}"));
        // Stateful ALUs: five for each column, those beside the table, and at egress those of the
        // guard and of its notices.
        assert_eq!(program.registers().len(), columns * 5 + 7 + 5);
    }
}

#[test]
fn the_switch_that_pushes_into_stacks_loads() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../sketchint.p4");
    let define = |name: &str| [(name.to_owned(), "1".to_owned())];
    let [transit, acu] = ["ROLE_TRANSIT", "ACU"].map(define);
    // A sink has three arrays of sizes, three of pairs for each place, two of whose large flows'
    // entries are and one of the rest of their keys, and one of what became of packets.
    let sink = 3 + 6 * 3 + 2 + 1 + 1;
    for (defines, registers) in [(&[][..], sink), (&acu[..], sink), (&transit[..], 0)] {
        let program = Program::load(path, defines).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(program.registers().len(), registers);
    }
}
