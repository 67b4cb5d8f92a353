//! The edge switch's own programs load.
use calumma_tna::Program;
#[test]
fn the_edge_program_loads() {
    for defines in [vec![], vec![("WRAPPING_ARITHMETIC".to_owned(), "1".to_owned())]] {
        let p = Program::load(concat!(env!("CARGO_MANIFEST_DIR"), "/../edge.p4"), &defines)
            .unwrap_or_else(|e| panic!("{e}"));
        println!("{:#?}", p.registers().iter().map(|r| &r.name).collect::<Vec<_>>());
        println!(
            "{:#?}",
            p.tables()
                .iter()
                .map(|r| (&r.name, r.keys.iter().map(|k| &k.name).collect::<Vec<_>>()))
                .collect::<Vec<_>>()
        );
    }
}
