//! The checked-in constants of the P4 program are those of the contract.

use std::path::Path;

use calumma_sketch::Layout;
use calumma_switchd::program;

#[test]
fn the_generated_file_is_up_to_date() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../include/generated/contract.p4");
    let wanted = program::contract(&Layout::default()).unwrap();
    if std::env::var_os("CALUMMA_BLESS").is_some() {
        std::fs::write(&path, &wanted).unwrap();
    }
    let found = std::fs::read_to_string(&path).unwrap();
    assert_eq!(found, wanted, "CALUMMA_BLESS=1 cargo test -p calumma-switchd writes it anew");
}
