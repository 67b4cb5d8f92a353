//! Any text as a query of an archive without epochs: an answer with its columns or an error with
//! words, and nothing is written. No panic.
//!
//! Run with `cargo +nightly fuzz run fuzz-query-sql` in `query/`. The examples of `docs/query.md`
//! are written to the folder that `CALUMMA_SEEDS` names.
#![no_main]

use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

use calumma_query::{Archive, Format, print};
use libfuzzer_sys::fuzz_target;
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;

struct Opened {
    runtime: Runtime,
    archive: Archive,
    folder: PathBuf,
}

static OPENED: OnceLock<Opened> = OnceLock::new();

/// An archive's folder before its first epoch.
fn opened() -> &'static Opened {
    OPENED.get_or_init(|| {
        let folder = std::env::temp_dir().join(format!("calumma-fuzz-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let archive = runtime.block_on(Archive::open(&folder)).unwrap();
        Opened { runtime, archive, folder }
    })
}

fuzz_target!(
    init: {
        if let Some(folder) = std::env::var_os("CALUMMA_SEEDS") {
            let page = include_str!("../../../docs/query.md");
            let examples = page.split("```sql\n").skip(1).filter_map(|rest| rest.split("```").next());
            for (number, example) in examples.enumerate() {
                std::fs::write(Path::new(&folder).join(number.to_string()), example).unwrap();
            }
        }
    },
    |input: &[u8]| {
        let Ok(text) = std::str::from_utf8(input) else { return };
        let Opened { runtime, archive, folder } = opened();
        // `generate_series` makes rows of nothing, as many as it is asked for.
        let asked = async { timeout(Duration::from_secs(2), archive.query(text)).await };
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
        assert_eq!(std::fs::read_dir(folder).unwrap().count(), 0, "a query has written something");
    }
);
