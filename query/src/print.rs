//! Answers as text: a table for people, CSV and JSON for programs.

use std::io::Write;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::csv::WriterBuilder;
use datafusion::arrow::json::LineDelimitedWriter;
use datafusion::arrow::util::pretty::pretty_format_batches_with_schema;

use crate::Answer;

/// How an answer is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// A table, for people
    Table,
    /// One JSON object a row
    Json,
    /// Comma-separated values with a line of names
    Csv,
}

/// Prints an answer.
///
/// # Errors
/// When it can't be written.
pub fn print(answer: &Answer, format: Format, out: &mut impl Write) -> anyhow::Result<()> {
    match format {
        Format::Table => {
            let table = pretty_format_batches_with_schema(answer.schema.clone(), &answer.rows)?;
            let rows: usize = answer.rows.iter().map(|batch| batch.num_rows()).sum();
            writeln!(out, "{table}\n{rows} rows")?;
        }
        Format::Json => {
            let mut writer = LineDelimitedWriter::new(out);
            writer.write_batches(&answer.rows.iter().collect::<Vec<_>>())?;
            writer.finish()?;
        }
        Format::Csv => {
            let mut writer = WriterBuilder::new().with_header(true).build(out);
            // Without rows there are names all the same.
            writer.write(&RecordBatch::new_empty(answer.schema.clone()))?;
            answer.rows.iter().try_for_each(|batch| writer.write(batch))?;
        }
    }
    Ok(())
}
