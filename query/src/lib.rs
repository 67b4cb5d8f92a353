//! SQL over the controller's archive.
//!
//! [`Archive`] opens an archive's folder and answers queries: rows of whole Parquet files, and
//! those of the last minutes that are still in the journal. The controller may be writing
//! meanwhile. A crate of its own so that the controller is built and started without an SQL engine;
//! it writes nothing, and is no server.

mod print;

pub use print::{Format, print};

use std::path::Path;

use anyhow::Context;
use calumma_analysis::{Report, Table};
use calumma_archive::{Journaled, files_of, journaled};
use calumma_systems::SYSTEMS;
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::execution::context::SQLOptions;
use datafusion::prelude::{DataFrame, ParquetReadOptions, SessionConfig, SessionContext};

/// An archive that can be queried: what was in it when it was opened.
pub struct Archive {
    context: SessionContext,
}

/// What a query answers.
#[derive(Debug)]
pub struct Answer {
    /// The columns, also where there are no rows.
    pub schema: SchemaRef,
    /// The rows, in order.
    pub rows: Vec<RecordBatch>,
}

impl Archive {
    /// Opens the archive in `dir`.
    ///
    /// # Errors
    /// When the folder is no archive or can't be read.
    pub async fn open(dir: &Path) -> anyhow::Result<Self> {
        anyhow::ensure!(
            dir.is_dir(),
            "{}: there is no such folder; give [archive] dir of the controller's configuration \
             with --dir",
            dir.display()
        );
        let context = SessionContext::new_with_config(SessionConfig::from_env()?);
        // The journal first: what is moved to files meanwhile is then passed over there.
        let recent = journaled(dir, SYSTEMS)?;
        for system in SYSTEMS {
            for table in system.tables() {
                let rows = rows_of(&context, dir, *table, system.name(), &recent).await?;
                context.register_table(table.name(), rows.into_view())?;
            }
        }
        Ok(Self { context })
    }

    /// Answers a query.
    ///
    /// # Errors
    /// What is wrong with the query, in the engine's words; that it would change something.
    pub async fn query(&self, sql: &str) -> anyhow::Result<Answer> {
        let reading = SQLOptions::new()
            .with_allow_ddl(false)
            .with_allow_dml(false)
            .with_allow_statements(false);
        let frame = self.context.sql_with_options(sql, reading).await?;
        let schema = frame.schema().inner().clone();
        Ok(Answer { schema, rows: frame.collect().await? })
    }
}

/// All rows of a table: those of files, and those of the journal that are in none yet.
async fn rows_of(
    context: &SessionContext,
    dir: &Path,
    table: &dyn Table,
    system: &str,
    journal: &Journaled,
) -> anyhow::Result<DataFrame> {
    let recent = journal.reports.iter().map(|report| &**report);
    let recent: Vec<&dyn Report> = recent.filter(|report| report.system() == system).collect();
    let recent = context.read_batch(table.batch(&recent)?)?;
    let files: Vec<String> = files_of(dir, table.name())?
        .into_iter()
        .filter(|(name, _)| !journal.is_in(system, name))
        .map(|(_, path)| path.display().to_string())
        .collect();
    if files.is_empty() {
        return Ok(recent);
    }
    let schema = table.schema();
    let options = ParquetReadOptions::default().schema(&schema);
    let whole = context.read_parquet(files, options).await;
    let whole = whole.with_context(|| format!("{}: can't be read", dir.display()))?;
    Ok(whole.union(recent)?)
}
