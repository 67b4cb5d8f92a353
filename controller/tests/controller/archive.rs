//! What was written is what is read, whatever happened to the controller in between.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, UInt8Type, UInt16Type, UInt64Type};
use arrow_array::{Array, RecordBatch};
use calumma_analysis::Published;
use calumma_archive::{Archive, ArchiveSection, files_of, journaled};
use calumma_chamelemon::Layout;
use calumma_chamelemon::frames::{FrameReader, Message};
use calumma_chamelemon_analysis::TABLES;
use calumma_controller::report::{Amendment, EpochReport, Flow, HeavyChange, Rewritten};
use calumma_systems::SYSTEMS;
use calumma_wire::{Marking, SwitchKind};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use proptest::prelude::*;

use crate::any::{quiet, reports};
use crate::program::{Folder, controller};
use crate::world::World;

fn section(dir: &Path) -> ArchiveSection {
    // Reports of these tests are of long ago, and stay.
    let text = format!("dir = '{}'\nkeep_days = 0", dir.display());
    toml::from_str(&text).unwrap()
}

fn published(report: &EpochReport) -> Arc<Published> {
    let json = serde_json::to_string(report).unwrap();
    Arc::new(Published::new(report.clone(), json))
}

/// All rows of a table that whole files hold.
fn rows(dir: &Path, table: &str) -> Vec<RecordBatch> {
    let files = files_of(dir, table).unwrap();
    files
        .into_iter()
        .flat_map(|(_, path)| {
            let builder = ParquetRecordBatchReaderBuilder::try_new(File::open(path).unwrap());
            builder.unwrap().build().unwrap().map(Result::unwrap)
        })
        .collect()
}

/// What each table says, a line of text a row: what tests compare.
type Lines = BTreeMap<&'static str, Vec<String>>;

fn flow_in(batch: &RecordBatch, row: usize) -> Flow {
    let column = |name| batch.column_by_name(name).unwrap();
    Flow {
        src: column("src").as_string::<i32>().value(row).parse().unwrap(),
        dst: column("dst").as_string::<i32>().value(row).parse().unwrap(),
        sport: column("sport").as_primitive::<UInt16Type>().value(row),
        dport: column("dport").as_primitive::<UInt16Type>().value(row),
        proto: column("proto").as_primitive::<UInt8Type>().value(row),
    }
}

fn u64_in(batch: &RecordBatch, name: &str, row: usize) -> Option<u64> {
    let column = batch.column_by_name(name).unwrap().as_primitive::<UInt64Type>();
    column.is_valid(row).then(|| column.value(row))
}

fn f64_in(batch: &RecordBatch, name: &str, row: usize) -> Option<f64> {
    let column = batch.column_by_name(name).unwrap().as_primitive::<Float64Type>();
    column.is_valid(row).then(|| column.value(row))
}

fn text_in<'a>(batch: &'a RecordBatch, name: &str, row: usize) -> &'a str {
    batch.column_by_name(name).unwrap().as_string::<i32>().value(row)
}

/// What an archive's files say.
fn read(dir: &Path) -> Lines {
    let mut lines = Lines::new();
    for table in TABLES {
        let name = table.name();
        let said: Vec<String> = rows(dir, name)
            .iter()
            .flat_map(|batch| (0..batch.num_rows()).map(move |row| line(name, batch, row)))
            .collect();
        lines.insert(name, said);
    }
    lines
}

fn line(table: &str, batch: &RecordBatch, row: usize) -> String {
    let u64_of = |name| u64_in(batch, name, row);
    let f64_of = |name| f64_in(batch, name, row);
    let text_of = |name| text_in(batch, name, row);
    let truth = |name| batch.column_by_name(name).unwrap().as_boolean().value(row);
    let what = match table {
        "epochs" => format!(
            "{} {} {} {:?} {:?}",
            truth("complete"),
            text_of("incomplete_because"),
            text_of("hl_decode"),
            f64_of("hl_load_factor"),
            f64_of("published_ms"),
        ),
        "losses" => {
            let doubts = [truth("partial"), truth("at_least")];
            format!("{} {:?} {doubts:?}", flow_in(batch, row), u64_of("lost"))
        }
        "surplus" => {
            let packets = u64_of("packets");
            format!("{} {packets:?} {}", flow_in(batch, row), truth("stranger"))
        }
        "rewritten" => {
            let to = batch.column_by_name("to_src").unwrap().is_valid(row);
            let to = to.then(|| text_of("to_src"));
            let packets = u64_of("packets");
            format!("{} {to:?} {packets:?} {}", flow_in(batch, row), text_of("what"))
        }
        "amendments" => format!(
            "{} {:?} {:?} {:?} {}",
            flow_in(batch, row),
            u64_of("amended_epoch"),
            u64_of("lost"),
            u64_of("at_most_late"),
            text_of("why"),
        ),
        "edges" => format!(
            "{} {:?} {:?} {:?}",
            text_of("edge"),
            u64_of("packets_in"),
            f64_of("entropy"),
            u64_of("heavy_changes_since"),
        ),
        "heavy_hitters" => {
            let (size, least) = (u64_of("size"), u64_of("size_min"));
            format!("{} {} {size:?} {least:?}", text_of("edge"), flow_in(batch, row))
        }
        "heavy_changes" => {
            let sizes = ["before", "before_min", "after", "after_min"].map(u64_of);
            format!("{} {} {sizes:?}", text_of("edge"), flow_in(batch, row))
        }
        "size_distribution" => {
            format!("{} {:?} {:?}", text_of("edge"), u64_of("size"), f64_of("flows"))
        }
        "plans" => format!("{:?} {}", u64_of("effective_epoch"), text_of("reasons")),
        other => panic!("table {other} is not compared"),
    };
    format!("{:?} {what}", u64_of("epoch"))
}

/// What they should say.
fn wanted(reports: &[EpochReport]) -> Lines {
    let mut lines: Lines = TABLES.iter().map(|table| (table.name(), Vec::new())).collect();
    let mut add = |table: &str, report: &EpochReport, what: String| {
        lines.get_mut(table).unwrap().push(format!("{:?} {what}", Some(report.epoch)));
    };
    for report in reports {
        let because = report.incomplete_because.join("; ");
        let decode = serde_json::to_value(report.decode.hl).unwrap();
        let (decode, load) = (decode.as_str().unwrap(), report.decode.hl_load_factor);
        let published = report.timing.map(|timing| timing.published_ms);
        let complete = report.complete;
        add("epochs", report, format!("{complete} {because} {decode} {load:?} {published:?}"));
        for loss in &report.loss {
            let doubts = [loss.partial, loss.at_least];
            add("losses", report, format!("{} {:?} {doubts:?}", loss.flow, Some(loss.lost)));
        }
        for surplus in &report.surplus {
            let (packets, stranger) = (Some(surplus.packets), surplus.stranger);
            add("surplus", report, format!("{} {packets:?} {stranger}", surplus.flow));
        }
        for Rewritten { from, to, packets, what } in &report.rewritten {
            let (to, what) = (to.map(|to| to.src.to_string()), what.name());
            add("rewritten", report, format!("{from} {to:?} {:?} {what}", Some(packets)));
        }
        for Amendment { epoch, flow, lost, at_most_late, why, .. } in &report.amendments {
            let (epoch, lost) = (Some(epoch), Some(lost));
            add("amendments", report, format!("{flow} {epoch:?} {lost:?} {at_most_late:?} {why}"));
        }
        for edge in &report.edges {
            let (name, since) = (&edge.edge, edge.heavy_changes_since);
            let (packets, entropy) = (edge.packets_in, edge.entropy);
            add("edges", report, format!("{name} {packets:?} {entropy:?} {since:?}"));
            for hitter in &edge.heavy_hitters {
                let least = hitter.size_min.unwrap_or(hitter.size);
                let sizes = format!("{:?} {:?}", Some(hitter.size), Some(least));
                add("heavy_hitters", report, format!("{name} {} {sizes}", hitter.flow));
            }
            for change in &edge.heavy_changes {
                let HeavyChange { flow, before, before_min, after, after_min } = *change;
                let least = [before_min.unwrap_or(before), after_min.unwrap_or(after)];
                let sizes = [before, least[0], after, least[1]].map(Some);
                add("heavy_changes", report, format!("{name} {flow} {sizes:?}"));
            }
            for (size, flows) in &edge.size_distribution {
                let counts = format!("{:?} {:?}", Some(size), Some(flows));
                add("size_distribution", report, format!("{name} {counts}"));
            }
        }
        if let Some(plan) = &report.plan {
            let (epoch, reasons) = (Some(plan.effective_epoch), plan.reasons.join("; "));
            add("plans", report, format!("{epoch:?} {reasons}"));
        }
    }
    lines
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    /// A controller is killed, twice, at any point, and started again.
    #[test]
    fn what_was_written_is_what_is_read(
        reports in reports(80),
        deaths in prop::array::uniform2(0.0..1.0),
        seconds in 1u64..60,
    ) {
        let folder = Folder::new("archive");
        let section = section(folder.path());
        let mut now = Instant::now();
        let deaths = deaths.map(|share| (share * reports.len() as f64) as usize);
        let mut archive = Archive::open(&section, SYSTEMS).unwrap();
        for (at, report) in reports.iter().enumerate() {
            if deaths.contains(&at) {
                // Dropped without a word, as a killed process would leave it.
                drop(archive);
                archive = Archive::open(&section, SYSTEMS).unwrap();
            }
            archive.append(&published(report), now).unwrap();
            now += Duration::from_secs(seconds);
        }
        archive.finish(Instant::now()).unwrap();
        prop_assert_eq!(read(folder.path()), wanted(&reports));
        prop_assert!(journaled(folder.path(), SYSTEMS).unwrap().reports.is_empty());
    }
}

#[test]
fn files_are_rolled_by_age_and_half_written_ones_are_never_seen() {
    let folder = Folder::new("roll");
    let mut archive = Archive::open(&section(folder.path()), SYSTEMS).unwrap();
    let mut report = quiet();
    let mut now = Instant::now();
    // 300 seconds a file by default: three files of three epochs, and one epoch that waits.
    for epoch in 0..10u64 {
        report.epoch = epoch;
        report.start_unix_ns = epoch * 150_000_000_000;
        archive.append(&published(&report), now).unwrap();
        now += Duration::from_secs(150);
    }
    let names = |table| {
        let files = files_of(folder.path(), table).unwrap().into_iter();
        files.map(|(name, _)| name.epoch).collect::<Vec<_>>()
    };
    assert_eq!(names("epochs"), [0, 3, 6]);
    assert!(names("losses").is_empty(), "no rows, no file");
    let waiting = journaled(folder.path(), SYSTEMS).unwrap();
    assert_eq!(waiting.reports.iter().map(|report| report.head().epoch).collect::<Vec<_>>(), [9]);

    // Killed while writing: half a line in the journal, half a file in a folder.
    drop(archive);
    let journal = folder.path().join("journal.jsonl");
    let mut text = fs::read_to_string(&journal).unwrap();
    text.push_str("{\"epoch\":10,\"start");
    fs::write(&journal, text).unwrap();
    let part = folder.path().join("epochs/19700101T002230Z-9.parquet.part");
    fs::write(&part, b"PAR1").unwrap();
    drop(Archive::open(&section(folder.path()), SYSTEMS).unwrap());
    assert_eq!(names("epochs"), [0, 3, 6, 9]);
    assert!(!part.exists());
    assert_eq!(fs::metadata(&journal).unwrap().len(), 0);
}

#[test]
fn an_epoch_that_is_reported_again_is_there_once_unless_it_was_incomplete() {
    let folder = Folder::new("again");
    let section = section(folder.path());
    let now = Instant::now();
    let report = |epoch: u64, complete: bool| {
        let mut report = quiet();
        (report.epoch, report.complete) = (epoch, complete);
        report
    };
    let mut archive = Archive::open(&section, SYSTEMS).unwrap();
    let append = |archive: &mut Archive, reports: &[(u64, bool)]| {
        for &(epoch, complete) in reports {
            archive.append(&published(&report(epoch, complete)), now).unwrap();
        }
    };
    append(&mut archive, &[(1, true), (2, false), (3, false), (4, true)]);
    // Killed before nodes were sent that these are there; the next one has them in a file.
    drop(archive);
    let mut archive = Archive::open(&section, SYSTEMS).unwrap();
    append(&mut archive, &[(1, true), (2, true), (3, false), (4, false), (5, true)]);
    archive.finish(Instant::now()).unwrap();
    // Killed once more, with nothing in the journal.
    drop(archive);
    let mut archive = Archive::open(&section, SYSTEMS).unwrap();
    append(&mut archive, &[(2, true), (5, true), (6, true)]);
    archive.finish(Instant::now()).unwrap();
    let all = rows(folder.path(), "epochs");
    let rows = all.iter().flat_map(|batch| (0..batch.num_rows()).map(move |row| (batch, row)));
    let complete = |batch: &RecordBatch, row| {
        batch.column_by_name("complete").unwrap().as_boolean().value(row)
    };
    let there: Vec<(u64, bool)> = rows
        .map(|(batch, row)| (u64_in(batch, "epoch", row).unwrap(), complete(batch, row)))
        .collect();
    let expected = [(1, true), (2, false), (3, false), (4, true), (2, true), (5, true), (6, true)];
    assert_eq!(there, expected);
}

#[test]
fn an_archive_belongs_to_one_controller_at_a_time() {
    let folder = Folder::new("lock");
    let first = Archive::open(&section(folder.path()), SYSTEMS).unwrap();
    let problem = Archive::open(&section(folder.path()), SYSTEMS).unwrap_err().to_string();
    assert!(problem.contains("give each its own [archive] dir"), "{problem}");
    drop(first);
    Archive::open(&section(folder.path()), SYSTEMS).unwrap();
}

#[test]
fn rows_that_the_disk_refuses_are_counted_and_later_ones_are_kept() {
    let folder = Folder::new("full");
    let mut archive = Archive::open(&section(folder.path()), SYSTEMS).unwrap();
    let report = quiet();
    // A file where the table's folder should be: nothing can be written there.
    let obstacle = folder.path().join("epochs");
    fs::write(&obstacle, "").unwrap();
    archive.append(&published(&report), Instant::now()).unwrap();
    let problem = format!("{:#}", archive.finish(Instant::now()).unwrap_err());
    assert!(problem.contains("1 epochs are in the journal and not in files yet"), "{problem}");
    fs::remove_file(&obstacle).unwrap();
    archive.append(&published(&report), Instant::now()).unwrap();
    archive.finish(Instant::now()).unwrap();
    assert_eq!(read(folder.path())["epochs"].len(), 1);
}

/// Whatever byte is the last one that a disk has kept, and whatever byte it has changed.
#[test]
fn files_torn_at_any_byte_are_recovered_or_set_aside() {
    let folder = Folder::new("torn");
    let section = section(folder.path());
    let append = |archive: &mut Archive, epochs: std::ops::Range<u64>| {
        for epoch in epochs {
            let mut report = quiet();
            (report.epoch, report.start_unix_ns) = (epoch, epoch * 50_000_000);
            archive.append(&published(&report), Instant::now()).unwrap();
        }
    };
    let mut archive = Archive::open(&section, SYSTEMS).unwrap();
    append(&mut archive, 1..3);
    archive.finish(Instant::now()).unwrap();
    append(&mut archive, 3..6);
    drop(archive);
    let path = folder.path().join("journal.jsonl");
    let journal = fs::read(&path).unwrap();
    let [(_, file)] = files_of(folder.path(), "epochs").unwrap().try_into().unwrap();
    let whole = fs::read(&file).unwrap();
    let ends: Vec<usize> = (0..journal.len()).filter(|&at| journal[at] == b'\n').collect();
    assert_eq!(ends.len(), 3);
    let aside = folder.path().join("damaged.jsonl");
    let read_again = |bytes: &[u8]| {
        files_of(folder.path(), "epochs").unwrap().iter().for_each(|(_, path)| {
            fs::remove_file(path).unwrap();
        });
        fs::write(&file, &whole).unwrap();
        fs::write(&path, bytes).unwrap();
        drop(Archive::open(&section, SYSTEMS).unwrap());
        epochs_in(folder.path())
    };
    let near = |at: usize| ends.iter().any(|end| at.abs_diff(*end) < 4);
    for cut in (0..=journal.len()).filter(|&cut| cut % 41 == 0 || near(cut)) {
        // A line that lacks nothing but its break says all it has to say.
        let lines = ends.iter().filter(|&&end| end <= cut).count() as u64;
        assert_eq!(read_again(&journal[..cut]), (1..3 + lines).collect::<Vec<_>>(), "{cut}");
    }
    assert!(!aside.exists(), "nobody relies on the end of a line");
    for at in (0..journal.len()).filter(|&at| at % 41 == 0 || near(at)) {
        let mut damaged = journal.clone();
        damaged[at] = 0;
        let there = read_again(&damaged);
        let line = 3 + ends.iter().filter(|&&end| end < at).count() as u64;
        // Without the break between them, two lines are none.
        let lost = if ends[..2].contains(&at) { line..line + 2 } else { line..line + 1 };
        let rest: Vec<u64> = (1..6).filter(|epoch| !lost.contains(epoch)).collect();
        assert!(rest.iter().all(|epoch| there.contains(epoch)), "{at}: {there:?}");
    }
    assert!(fs::metadata(&aside).unwrap().len() > 0);

    for cut in (0..whole.len()).step_by(29) {
        fs::write(&file, &whole[..cut]).unwrap();
        fs::write(&path, &journal).unwrap();
        drop(Archive::open(&section, SYSTEMS).unwrap());
        assert_eq!(epochs_in(folder.path()), [3, 4, 5], "{cut}");
        let damaged = file.with_added_extension("damaged");
        assert_eq!(fs::read(&damaged).unwrap().len(), cut);
        fs::remove_file(damaged).unwrap();
    }
}

/// Has a controller report eight epochs up to about now, kills it when it has acknowledged the
/// `last`th, and gives those that it has acknowledged.
fn acknowledged_before_a_kill(config: &str, last: u64) -> Vec<u64> {
    let mut child = controller(&["--config", config, "--listen", "127.0.0.1:0", "--quiet"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut ready = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut ready).unwrap();
    let ready: serde_json::Value = serde_json::from_str(&ready).unwrap();
    let mut stream = TcpStream::connect(ready["listen"].as_str().unwrap()).unwrap();
    let send = |mut stream: &TcpStream, message: &Message| {
        let mut frame = Vec::new();
        message.encode(&mut frame);
        stream.write_all(&frame).unwrap();
    };
    let (edge, program) = ("e1".to_owned(), "a test".to_owned());
    let (kind, marking) = (SwitchKind::Software, Marking::default());
    send(&stream, &Message::Hello { edge, kind, program, holding: None, marking });

    let (mut reader, mut bytes) = (FrameReader::new(), [0; 4096]);
    let mut first = None;
    loop {
        match reader.next(None).unwrap() {
            Some(Message::Welcome { hash_key, attention, effective_epoch, .. }) => {
                let epochs = effective_epoch - 12..effective_epoch - 4;
                first = Some(epochs.start);
                for epoch in epochs {
                    let layout = Layout::default();
                    let world: World = World::new(&["e1"], &layout, &hash_key, attention, epoch);
                    let input = world.inputs().remove(0);
                    send(&stream, &Message::Ingress(input.ingress.unwrap()));
                    send(&stream, &Message::Egress(input.egress.unwrap()));
                    send(&stream, &Message::Sealed { epoch, late_packets: 0, late: Vec::new() });
                }
            }
            Some(Message::Reported { epoch }) if Some(epoch) >= first.map(|of| of + last) => {
                child.kill().unwrap();
                child.wait().unwrap();
                return (first.unwrap()..=epoch).collect();
            }
            Some(_) => {}
            None => {
                let read = stream.read(&mut bytes).unwrap();
                assert!(read > 0, "a controller that runs");
                reader.push(&bytes[..read]);
            }
        }
    }
}

#[test]
fn every_epoch_that_was_acknowledged_outlives_a_kill() {
    let folder = Folder::new("acknowledged");
    let dir = folder.path().join("archive");
    let text = format!("edges = ['e1']\ngrace_ms = 60000\n[archive]\ndir = '{}'", dir.display());
    let config = folder.file("c.toml", &text);
    let mut acknowledged = Vec::new();
    for last in [0, 3, 7] {
        let epochs = acknowledged_before_a_kill(&config, last);
        let journal = journaled(&dir, SYSTEMS).unwrap();
        let mut kept: Vec<u64> = journal.reports.iter().map(|report| report.head().epoch).collect();
        // One that an earlier controller had reported as well is where that one wrote it.
        kept.extend(epochs_in(&dir));
        assert!(epochs.iter().all(|epoch| kept.contains(epoch)), "{epochs:?} in {kept:?}");
        acknowledged.extend(epochs);
    }
    // The next start brings them into files.
    drop(Archive::open(&section(&dir), SYSTEMS).unwrap());
    let kept = epochs_in(&dir);
    assert!(acknowledged.iter().all(|epoch| kept.contains(epoch)), "{kept:?}");
}

/// The epochs that whole files hold.
fn epochs_in(dir: &Path) -> Vec<u64> {
    let in_batch = |batch: &RecordBatch| -> Vec<u64> {
        (0..batch.num_rows()).filter_map(|row| u64_in(batch, "epoch", row)).collect()
    };
    rows(dir, "epochs").iter().flat_map(in_batch).collect()
}
