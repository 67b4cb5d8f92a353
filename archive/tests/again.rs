//! Reports that come again, of every system: each row is there once, also where the files that have
//! it are those of an older release.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use arrow_array::RecordBatch;
use arrow_array::cast::AsArray;
use arrow_array::types::UInt64Type;
use calumma_analysis::{Published, System};
use calumma_archive::{Archive, ArchiveSection, files_of};
use calumma_cfs_analysis::Cfs;
use calumma_chamelemon_analysis::ChameleMon;
use calumma_hops_analysis::Hops;
use calumma_sketchint_analysis::SketchInt;
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use serde_json::{Value, json};

static SYSTEMS: &[&dyn System] = &[&ChameleMon, &SketchInt, &Cfs, &Hops];

const FLOW: &str = r#""src":"10.1.0.2","dst":"10.2.0.2","sport":40000,"dport":5201,"proto":6"#;

/// A folder of one test's own, removed when it ends.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

impl Folder {
    fn new(name: &str) -> Self {
        let folder = format!("calumma-archive-{name}-{}", std::process::id());
        Self(std::env::temp_dir().join(folder))
    }

    fn open(&self) -> Archive {
        let section = ArchiveSection {
            dir: self.0.clone(),
            roll_seconds: 300,
            roll_mib: 32,
            keep_days: 0,
            keep_mib: 0,
        };
        Archive::open(&section, SYSTEMS).unwrap()
    }
}

/// What a system found, in which something is lost, slow or counted.
fn found(system: &str) -> Value {
    let flow: Value = serde_json::from_str(&format!("{{{FLOW}}}")).unwrap();
    let with = |more: Value| {
        let mut of = flow.clone();
        of.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        of
    };
    let config = json!({
        "t_h": 1, "t_l": 1, "sample_rate": 1.0, "hh_buckets": 3584, "hl_buckets": 512,
        "ll_buckets": 0
    });
    let coverage = json!({
        "packets": 9, "int_packets": 9, "partial": 0, "mtu_exceeded": 0, "hops_exceeded": 0,
        "unmarked": 0
    });
    match system {
        "chamelemon" => json!({
            "missing_edges": [], "state": "healthy", "config": config, "plan": null, "edges": [],
            "decode": { "hl": "complete", "ll": "absent", "hl_load_factor": 0.03 },
            "loss": [with(json!({ "lost": 7, "class": "HL" }))]
        }),
        "cfs" => json!({
            "window": 7, "monitored": 1, "monitored_exactly": 1, "coverage": 1.0,
            "thresholds": {
                "heavy_packets": 1, "heavy_change_packets": 1, "superspreader": 1,
                "coverage_wanted": 0.9
            },
            "nodes": [{
                "node": "e1", "role": "edge", "entries": 256, "used": 1, "packets": 9,
                "counted": 9, "unmarked": 0, "admitted": 1, "evicted": 0, "refused": 0,
                "filtered": 0, "crowded": 0, "claimed_in": 0, "claimed_out": 0,
                "threshold_class": "all", "threshold": 1.0, "theta": 1.0, "flows": 1.0,
                "flows_error": 0.0, "routes_changed": false, "sound": true, "bytes": 4096
            }],
            "flows": [with(json!({
                "packets": 9, "bytes": 900, "exact": true, "at": "e1", "hops": []
            }))],
            "heavy_hitters": [], "heavy_changes": [], "superspreaders": [], "flooded": [],
            "losses": [with(json!({ "place": { "from": "e1:in", "to": "e2:in" }, "lost": 2 }))],
            "loops": [], "path_changes": []
        }),
        "sketchint" => {
            let mut sinks = [json!({ "edge": "e1" }), json!({ "edge": "e2" })];
            let of_sink = json!({
                "sound": true, "heavy_hitters": [], "heavy_hitters_complete": true, "flows": 1,
                "flows_exact": 1, "rows_refused": 0, "rows_evicted": 0, "paths_full": 0,
                "paths": [], "bytes": 4096
            });
            for sink in &mut sinks {
                let sink = sink.as_object_mut().unwrap();
                sink.extend(coverage.as_object().unwrap().clone());
                sink.extend(of_sink.as_object().unwrap().clone());
            }
            let mut of_all = coverage;
            of_all.as_object_mut().unwrap().insert("not_carried".into(), json!({ "mtu": 1 }));
            json!({
                "window": [140, 159], "state": "on", "coverage": of_all, "sinks": sinks,
                "config": {
                    "insertion": "cu", "rows": 64, "unit_ns": 256, "heavy_packets": 1,
                    "heavy_change_packets": 1, "inflation_percent": 200, "coverage_wanted": 0.9
                },
                "nodes": [], "links": [], "flows": [], "path_changes": [], "loops": [],
                "inflated": []
            })
        }
        _ => {
            let count = json!({
                "node": "e1", "side": "ingress", "packets": 9, "at_most": 9, "refused": 0
            });
            json!({ "nodes": [], "counts": [with(count)] })
        }
    }
}

fn report(system: &dyn System, epoch: u64, complete: bool) -> Arc<Published> {
    let mut report = json!({
        "system": system.name(), "epoch": epoch, "start_unix_ns": epoch * 50_000_000,
        "length_ms": 50, "complete": complete, "missing_nodes": [], "incomplete_because": []
    });
    let found = found(system.name());
    report.as_object_mut().unwrap().extend(found.as_object().unwrap().clone());
    let json = report.to_string();
    let report = system.read(&json).unwrap_or_else(|| panic!("{}: {json}", system.name()));
    Arc::new(Published { report, json })
}

/// Has an archive take reports of every system: epochs, and whether each is complete.
fn append(archive: &mut Archive, reports: &[(u64, bool)]) {
    for (system, &(epoch, complete)) in
        SYSTEMS.iter().flat_map(|system| reports.iter().map(move |report| (system, report)))
    {
        archive.append(&report(*system, epoch, complete), Instant::now()).unwrap();
    }
}

fn batches(path: &Path) -> Vec<RecordBatch> {
    let builder = ParquetRecordBatchReaderBuilder::try_new(File::open(path).unwrap()).unwrap();
    builder.build().unwrap().map(Result::unwrap).collect()
}

/// Of each table that has any, how many rows whole files have of each epoch.
fn rows(dir: &Path) -> BTreeMap<&'static str, BTreeMap<u64, usize>> {
    let mut rows = BTreeMap::new();
    for table in calumma_analysis::tables_of(SYSTEMS) {
        for (_, path) in files_of(dir, table.name()).unwrap() {
            for batch in batches(&path) {
                let epochs = batch.column_by_name("epoch").unwrap().as_primitive::<UInt64Type>();
                let of: &mut BTreeMap<u64, usize> = rows.entry(table.name()).or_default();
                epochs.values().iter().for_each(|epoch| *of.entry(*epoch).or_default() += 1);
            }
        }
    }
    rows
}

/// Holds what files have against reports: how often each epoch was to be written.
fn check(dir: &Path, written: &[(u64, usize)]) {
    let rows = rows(dir);
    let tables: Vec<_> = rows.keys().copied().collect();
    let some = ["cfs_flows", "cfs_losses", "cfs_nodes", "cfs_windows", "epochs", "hops_counts"];
    assert_eq!(
        tables,
        [&some[..], &["losses", "sketchint_not_carried", "sketchint_windows"]].concat()
    );
    for (table, of) in rows {
        let sinks = if table == "sketchint_windows" { 2 } else { 1 };
        let wanted = written.iter().map(|&(epoch, times)| (epoch, sinks * times)).collect();
        assert_eq!(of, wanted, "{table}");
    }
}

#[test]
fn reports_of_every_system_are_there_once_unless_they_were_incomplete() {
    let folder = Folder::new("again");
    let mut archive = folder.open();
    append(&mut archive, &[(1, true), (2, false), (3, false), (4, true)]);
    // Killed before nodes were sent that these are there; the next one has them in files.
    drop(archive);
    let mut archive = folder.open();
    append(&mut archive, &[(1, true), (2, true), (3, false), (4, false), (5, true)]);
    archive.finish(Instant::now()).unwrap();
    // Killed once more, with nothing in the journal.
    drop(archive);
    let mut archive = folder.open();
    append(&mut archive, &[(2, true), (4, true), (5, true), (6, true)]);
    archive.finish(Instant::now()).unwrap();
    check(&folder.0, &[(1, 1), (2, 2), (3, 1), (4, 1), (5, 1), (6, 1)]);
}

/// Of a window that no sink's numbers are sound of, there may be what sources say alone.
#[test]
fn a_report_without_a_row_where_reports_are_looked_for_is_there_once() {
    let folder = Folder::new("sourceless");
    let without_sinks = || {
        let mut of: Value = serde_json::from_str(&report(&SketchInt, 2, false).json).unwrap();
        of["sinks"] = json!([]);
        let json = of.to_string();
        Arc::new(Published { report: SketchInt.read(&json).unwrap(), json })
    };
    for _ in 0..2 {
        let mut archive = folder.open();
        archive.append(&report(&SketchInt, 1, true), Instant::now()).unwrap();
        archive.append(&without_sinks(), Instant::now()).unwrap();
        archive.finish(Instant::now()).unwrap();
    }
    let rows = rows(&folder.0);
    assert_eq!(rows["sketchint_windows"], [(1, 2)].into());
    assert_eq!(rows["sketchint_not_carried"], [(1, 1), (2, 1)].into());
}

/// An older release did not say which windows are complete, or had no table of windows at all.
#[test]
fn what_files_of_older_releases_have_is_not_written_again() {
    for without_table in [false, true] {
        let folder = Folder::new(if without_table { "tableless" } else { "older" });
        let mut archive = folder.open();
        append(&mut archive, &[(1, true), (2, false), (3, true)]);
        archive.finish(Instant::now()).unwrap();
        append(&mut archive, &[(4, true)]);
        drop(archive);
        let mut moved = Vec::new();
        for system in SYSTEMS {
            let table = system.reports().name();
            for (_, path) in files_of(&folder.0, table).unwrap() {
                // That of hops is its only one.
                if without_table && system.tables().len() > 1 {
                    let away = folder.0.join(format!("{table}.away"));
                    fs::rename(&path, &away).unwrap();
                    moved.push((away, path));
                } else {
                    forget_what_is_complete(&path);
                }
            }
        }
        let mut archive = folder.open();
        append(&mut archive, &[(1, true), (2, true), (3, false), (4, true), (5, true)]);
        archive.finish(Instant::now()).unwrap();
        moved.iter().for_each(|(away, path)| fs::rename(away, path).unwrap());
        check(&folder.0, &[(1, 1), (2, 1), (3, 1), (4, 1), (5, 1)]);
    }
}

/// Writes a file anew without its column `complete`.
fn forget_what_is_complete(path: &Path) {
    let older: Vec<RecordBatch> = batches(path)
        .into_iter()
        .map(|batch| {
            let (schema, _, _) = batch.clone().into_parts();
            let kept = |at: &usize| schema.field(*at).name() != "complete";
            batch.project(&(0..schema.fields().len()).filter(kept).collect::<Vec<_>>()).unwrap()
        })
        .collect();
    let mut writer =
        ArrowWriter::try_new(File::create(path).unwrap(), older[0].schema(), None).unwrap();
    older.iter().for_each(|batch| writer.write(batch).unwrap());
    writer.close().unwrap();
}
