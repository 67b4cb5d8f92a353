//! Every example of docs/query.md, on an archive that a controller left behind.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;
use std::time::Instant;

use calumma_analysis::{Published, tables_of};
use calumma_archive::{Archive, ArchiveSection, files_of};
use calumma_chamelemon_analysis::EpochReport;
use calumma_systems::SYSTEMS;
use datafusion::parquet::arrow::ArrowWriter;
use datafusion::parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

/// A folder of one test's own, removed when it ends.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// An epoch in which one flow lost `lost` packets of 1000, and another was large.
fn report(epoch: u64, lost: u64) -> EpochReport {
    let flow = r#""src":"10.1.0.2","dst":"10.2.0.2","sport":40000,"dport":5201,"proto":6"#;
    let start = epoch * 50_000_000;
    let config =
        r#"{"t_h":1,"t_l":1,"sample_rate":1.0,"hh_buckets":3584,"hl_buckets":512,"ll_buckets":0}"#;
    let json = format!(
        r#"{{"epoch":{epoch},"start_unix_ns":{start},"length_ms":50,"complete":true,
        "missing_edges":[],"incomplete_because":[],"state":"healthy","config":{config},
        "decode":{{"hl":"complete","ll":"absent","hl_load_factor":0.03}},
        "loss":[{{{flow},"lost":{lost},"class":"HL"}}],
        "plan":{{"effective_epoch":{epoch},"state":"healthy","config":{config},"applied":true,
                 "reasons":["HL at 3 %","kept"]}},
        "edges":[{{"edge":"e1","packets_in":1000,"packets_out":0,"cardinality":412.0,
                   "cardinality_error":0.0,"entropy":5.91,"hh_decode":"complete",
                   "hh_load_factor":0.04,"heavy_hitters":[{{{flow},"size":700}}],
                   "heavy_changes_since":null,"heavy_changes":[],
                   "size_distribution":[[1,210.4],[2,55.0]]}}]}}"#
    );
    serde_json::from_str(&json).unwrap()
}

/// An archive of epochs `0..60` from noon of 31 January 2026 on, of which the last twenty are in
/// the journal of a controller that was killed.
fn archive(name: &str) -> Folder {
    const NOON: u64 = 35_397_216_000;
    let folder =
        Folder(std::env::temp_dir().join(format!("calumma-{name}-{}", std::process::id())));
    let section = ArchiveSection {
        dir: folder.0.clone(),
        roll_seconds: 300,
        roll_mib: 32,
        keep_days: 0,
        keep_mib: 0,
    };
    let mut archive = Archive::open(&section, SYSTEMS).unwrap();
    for n in 0..60 {
        let report = report(NOON + n, n);
        let json = serde_json::to_string(&report).unwrap();
        archive.append(&Arc::new(Published::new(report, json)), Instant::now()).unwrap();
        if n == 19 || n == 39 {
            archive.finish(Instant::now()).unwrap();
        }
    }
    folder
}

fn query(arguments: &[&str], dir: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_calumma-query"));
    command.args(arguments).arg("--dir").arg(dir).output().unwrap()
}

fn answer(sql: &str, dir: &Path) -> String {
    let output = query(&[sql, "--format", "csv"], dir);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{sql}: {said}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn files_and_journal_are_one_table_in_which_nothing_is_missing_or_double() {
    let folder = archive("query-whole");
    let sql =
        "SELECT count(*) AS n, count(DISTINCT epoch) AS epochs, sum(lost) AS lost FROM losses";
    assert_eq!(answer(sql, &folder.0), "n,epochs,lost\n60,60,1770\n");

    // A roll has been given its name, and the journal has not been emptied yet.
    let journal = folder.0.join("journal.jsonl");
    let lines = fs::read(&journal).unwrap();
    let section = format!("dir = '{}'\nkeep_days = 0", folder.0.display());
    let section: ArchiveSection = toml::from_str(&section).unwrap();
    drop(Archive::open(&section, SYSTEMS).unwrap());
    fs::write(&journal, lines).unwrap();
    assert_eq!(answer(sql, &folder.0), "n,epochs,lost\n60,60,1770\n");
}

/// Files of an older release lack columns that were added since.
#[test]
fn a_column_that_a_file_lacks_is_null_there() {
    let folder = archive("query-older");
    let cfs = SYSTEMS.iter().find(|system| system.name() == "cfs").unwrap();
    let write = |epoch: u64| {
        let section = format!("dir = '{}'\nkeep_days = 0", folder.0.display());
        let mut archive = Archive::open(&toml::from_str(&section).unwrap(), SYSTEMS).unwrap();
        let thresholds = r#"{"heavy_packets":1,"heavy_change_packets":1,"superspreader":1,"coverage_wanted":0.9}"#;
        let json = format!(
            r#"{{"system":"cfs","epoch":{epoch},"start_unix_ns":{},"length_ms":1000,"complete":true,
            "missing_nodes":[],"incomplete_because":[],"window":1,"monitored":{epoch},
            "monitored_exactly":0,"thresholds":{thresholds},"nodes":[],"flows":[],
            "heavy_hitters":[],"heavy_changes":[],"superspreaders":[],"flooded":[],"losses":[],
            "loops":[],"path_changes":[]}}"#,
            epoch * 50_000_000
        )
        .replace('\n', "");
        let report = cfs.read(&json).unwrap();
        archive.append(&Arc::new(Published { report, json }), Instant::now()).unwrap();
        archive
    };
    write(20).finish(Instant::now()).unwrap();
    let [(_, path)] = files_of(&folder.0, "cfs_windows").unwrap().try_into().unwrap();
    let file = fs::File::open(&path).unwrap();
    let reader = ParquetRecordBatchReaderBuilder::try_new(file).unwrap().build().unwrap();
    let batches = reader.map(|batch| {
        let batch = batch.unwrap();
        let others = batch.num_columns() - 1;
        assert_eq!(batch.schema().field(others).name(), "complete");
        batch.project(&(0..others).collect::<Vec<_>>()).unwrap()
    });
    let older: Vec<_> = batches.collect();
    let file = fs::File::create(&path).unwrap();
    let mut writer = ArrowWriter::try_new(file, older[0].schema(), None).unwrap();
    older.iter().for_each(|batch| writer.write(batch).unwrap());
    writer.close().unwrap();

    // A whole file that has the column, and one in the journal.
    write(40).finish(Instant::now()).unwrap();
    drop(write(60));
    let sql = "SELECT epoch, complete, monitored FROM cfs_windows ORDER BY epoch";
    let rows = "20,,20\n40,true,40\n60,true,60\n";
    assert_eq!(answer(sql, &folder.0), format!("epoch,complete,monitored\n{rows}"));
    let sql = "SELECT count(*) AS n FROM cfs_windows WHERE complete IS NULL";
    assert_eq!(answer(sql, &folder.0), "n\n1\n");
}

#[test]
fn answers_come_as_a_table_as_json_and_as_csv() {
    let folder = archive("query-formats");
    let sql = "SELECT start, lost, src FROM losses WHERE lost >= 58 ORDER BY epoch";
    let table = String::from_utf8(query(&[sql], &folder.0).stdout).unwrap();
    assert!(table.contains("| start ") && table.contains("2026-01-31T12:00:02.900Z"), "{table}");
    assert!(table.ends_with("2 rows\n"), "{table}");
    let json = String::from_utf8(query(&[sql, "--format", "json"], &folder.0).stdout).unwrap();
    let rows: Vec<serde_json::Value> =
        json.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((&rows[1]["lost"], &rows[1]["src"]), (&59.into(), &"10.1.0.2".into()));
    let none = "SELECT src, lost FROM losses WHERE lost > 100";
    assert_eq!(answer(none, &folder.0), "src,lost\n");
}

#[test]
fn what_is_wrong_is_said_and_nothing_can_be_changed() {
    let folder = archive("query-errors");
    let problem = |arguments: &[&str], dir: &Path| {
        let output = query(arguments, dir);
        assert!(!output.status.success());
        String::from_utf8(output.stderr).unwrap()
    };
    let typo = problem(&["SELECT lots FROM losses"], &folder.0);
    assert!(typo.contains("lots") && typo.contains("losses.lost"), "{typo}");
    let write = problem(&["COPY losses TO '/tmp/calumma-copy.csv'"], &folder.0);
    assert!(write.contains("DML not supported"), "{write}");
    let nowhere = problem(&["SELECT 1"], Path::new("/nonexistent"));
    assert!(nowhere.contains("/nonexistent") && nowhere.contains("--dir"), "{nowhere}");
}

fn page() -> String {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/query.md");
    fs::read_to_string(page).unwrap()
}

#[test]
fn every_example_of_the_page_has_an_answer() {
    let folder = archive("query-page");
    let page = page();
    let examples: Vec<&str> = page
        .split("```sql\n")
        .skip(1)
        .map(|rest| rest.split_once("```").expect("the end of an example").0)
        .collect();
    assert!(examples.len() >= 8, "{} examples", examples.len());
    for sql in examples {
        answer(sql, &folder.0);
    }
}

#[test]
fn the_page_and_the_program_list_every_table_and_column() {
    let (page, folder) = (page(), archive("query-tables"));
    let listed = String::from_utf8(query(&["--tables"], &folder.0).stdout).unwrap();
    for table in tables_of(SYSTEMS) {
        assert!(page.contains(&format!("### `{}`", table.name())), "{}", table.name());
        assert!(listed.contains(&format!("{}: a row is", table.name())));
        for column in table.columns() {
            let row = format!("| `{}` | {} |", column.name, column.sql_type);
            assert!(page.contains(&row), "{}: {row}", table.name());
            assert!(listed.contains(column.help));
        }
    }
}
