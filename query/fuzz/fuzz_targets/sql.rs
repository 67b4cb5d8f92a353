//! Any text as a query of an archive: an answer with its columns or an error with words, and
//! nothing is written. No panic.
//!
//! Bytes are text as they stand; behind a byte that no text begins with, each is a word of those
//! that queries consist of, so that more of them mean something. Run with
//! `cargo +nightly fuzz run fuzz-query-sql` in `query/`. The examples of `docs/query.md` are
//! written to the folder that `CALUMMA_SEEDS` names.
#![no_main]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

use calumma_query::{Archive, Format, print};
use libfuzzer_sys::fuzz_target;
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;

/// The byte before words.
const WORDS: u8 = 0xFF;

/// Two epochs with losses, as a controller keeps them before they are in a file.
const JOURNAL: &str = include_str!("../journal.jsonl");

/// The documentation of queries.
const PAGE: &str = include_str!("../../../docs/query.md");

/// Words that its examples do not have.
const MORE: &str = "'2026-01-31' '10.1.0.2' '%' '' -1 0 1e308 9223372036854775807 0x0 NULL TRUE \
    ARRAY[1,2] CASE WHEN THEN ELSE END CAST( AS BIGINT) BETWEEN IN EXISTS NOT IS DISTINCT UNION ALL EXCEPT \
    INTERSECT LEFT JOIN FULL CROSS LATERAL ON USING(epoch) HAVING OFFSET WITH RECURSIVE t AS ( ) \
    OVER PARTITION ROWS UNBOUNDED PRECEDING INTERVAL '1 second' EXTRACT( date_bin( substr( \
    regexp_replace( repeat( lpad( sum( avg( stddev( median( array_agg( row_number() lag( \
    generate_series( VALUES unnest( COPY TO INSERT INTO CREATE EXTERNAL TABLE DROP SET EXPLAIN \
    ANALYZE DESCRIBE || / % * + - < <> >= ~ :: . ; \" ` -- /* */ $1 ?";

/// Words that a query may have only so many of in all: with each one within another the engine's
/// parser takes twice as long, more than a fuzzer waits.
const DOUBLING: [&str; 5] = ["cast", "interval", "substr", "substring", "try_cast"];

/// How many of those.
const DOUBLED: usize = 10;

struct Opened {
    runtime: Runtime,
    archive: Archive,
    folder: PathBuf,
    words: Vec<&'static str>,
}

static OPENED: OnceLock<Opened> = OnceLock::new();

fn opened() -> &'static Opened {
    OPENED.get_or_init(|| {
        let folder = std::env::temp_dir().join(format!("calumma-fuzz-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("journal.jsonl"), JOURNAL).unwrap();
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let archive = runtime.block_on(Archive::open(&folder)).unwrap();
        let rows = runtime.block_on(archive.query("SELECT * FROM losses")).unwrap().rows;
        assert!(rows.iter().any(|batch| batch.num_rows() > 0), "the journal has losses");
        let words: BTreeSet<_> = examples().chain([MORE]).flat_map(str::split_whitespace).collect();
        Opened { runtime, archive, folder, words: words.into_iter().collect() }
    })
}

fn examples() -> impl Iterator<Item = &'static str> {
    PAGE.split("```sql\n").skip(1).filter_map(|rest| rest.split("```").next())
}

/// The query that these bytes are.
fn text(input: &[u8], words: &[&str]) -> Option<String> {
    let [WORDS, of_words @ ..] = input else { return String::from_utf8(input.to_vec()).ok() };
    let word = |&byte: &u8| words[usize::from(byte) % words.len()];
    Some(of_words.iter().map(word).collect::<Vec<_>>().join(" "))
}

/// The bytes of a query by words.
fn bytes(query: &str, words: &[&str]) -> Vec<u8> {
    let place = |word| words.binary_search(&word).ok().and_then(|at| u8::try_from(at).ok());
    [WORDS].into_iter().chain(query.split_whitespace().filter_map(place)).collect()
}

fuzz_target!(
    init: {
        if let Some(folder) = std::env::var_os("CALUMMA_SEEDS").as_deref().map(Path::new) {
            for (number, example) in examples().enumerate() {
                let of_words = bytes(example, &opened().words);
                fs::write(folder.join(number.to_string()), example).unwrap();
                fs::write(folder.join(format!("{number}-words")), of_words).unwrap();
            }
        }
    },
    |input: &[u8]| {
        let Opened { runtime, archive, folder, words } = opened();
        let Some(text) = text(input, words) else { return };
        let lower = text.to_lowercase();
        let words = lower.split(|of: char| !of.is_alphanumeric() && of != '_');
        if words.filter(|word| DOUBLING.contains(word)).count() > DOUBLED {
            return;
        }
        // `generate_series` makes rows of nothing, as many as it is asked for.
        let asked = async { timeout(Duration::from_secs(2), archive.query(&text)).await };
        let answered = runtime.block_on(asked);
        match answered {
            Ok(Ok(answer)) => {
                for format in [Format::Table, Format::Json, Format::Csv] {
                    let _ = print(&answer, format, &mut Vec::new());
                }
            }
            Ok(Err(problem)) => assert!(!problem.to_string().is_empty()),
            Err(_) => {}
        }
        assert_eq!(fs::read_dir(folder).unwrap().count(), 1, "a query has written something");
    }
);
