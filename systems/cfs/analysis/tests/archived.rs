//! Windows in the archive's journal, and what a controller that is killed leaves of them.

mod world;

use std::sync::Arc;
use std::time::Instant;

use calumma_analysis::{Published, System, SystemReport};
use calumma_archive::{Archive, ArchiveSection, files_of, journaled};
use calumma_cfs::frames::Entry;
use calumma_cfs_analysis::{Cfs, Found};
use serde_json::json;

use world::Network;

static SYSTEMS: &[&dyn System] = &[&Cfs];

#[test]
fn a_killed_controller_leaves_every_flow_and_not_the_listed_ones_alone() {
    let mut network = Network::new(json!({ "flows_listed": 3 }));
    for flow in 1..=10 {
        network.count("e1", flow, flow.into());
    }
    network.count("e2", 10, 4);
    let ttls = |entry: &mut Entry| (entry.differences, entry.looped) = (1 << 3, 5);
    ttls(network.count("e1", 11, 10));
    network.count("e1", 12, 10).exact = false;
    let report = network.report();
    assert_eq!((report.findings.flows.len(), report.findings.counted().len()), (3, 12));
    let json = serde_json::to_string(&report).unwrap();
    let published = Arc::new(Published::new(report.clone(), json.clone()));

    let dir = std::env::temp_dir().join(format!("calumma-cfs-archived-{}", std::process::id()));
    let section = ArchiveSection {
        dir: dir.clone(),
        roll_seconds: 300,
        roll_mib: 32,
        keep_days: 0,
        keep_mib: 0,
    };
    let mut archive = Archive::open(&section, SYSTEMS).unwrap();
    archive.append(&published, Instant::now()).unwrap();
    drop(archive);
    let left = journaled(&dir, SYSTEMS).unwrap();
    let [read] = &left.reports[..] else { panic!("{} reports", left.reports.len()) };
    assert_eq!(read.as_type::<SystemReport<Found>>(), Some(&report));

    // The next one brings them into a file, as it is when nobody is killed.
    drop(Archive::open(&section, SYSTEMS).unwrap());
    let files = || files_of(&dir, "cfs_flows").unwrap();
    let [(_, path)] = files().try_into().unwrap();
    let recovered = std::fs::read(&path).unwrap();
    std::fs::remove_dir_all(&dir).unwrap();
    let mut archive = Archive::open(&section, SYSTEMS).unwrap();
    archive.append(&published, Instant::now()).unwrap();
    archive.finish(Instant::now()).unwrap();
    assert_eq!(std::fs::read(&files()[0].1).unwrap(), recovered);
    std::fs::remove_dir_all(&dir).unwrap();

    // What is published has no more than before, and a journal of an older release is read.
    let keys: serde_json::Map<_, _> = serde_json::from_str(&json).unwrap();
    assert!(!keys.contains_key("counted"));
    let read = Cfs.read(&json).unwrap();
    let read = read.as_type::<SystemReport<Found>>().unwrap();
    assert_eq!(read.findings.counted().len(), 3);
}
