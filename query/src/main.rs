//! `calumma-query`: see `--help` and `docs/query.md`.

use std::io::{BufWriter, ErrorKind, Write, stdout};
use std::path::PathBuf;
use std::process::ExitCode;

use calumma_analysis::tables_of;
use calumma_query::{Archive, Format, print};
use calumma_systems::SYSTEMS;
use clap::Parser;

/// Answers SQL queries about past epochs from the controller's archive.
///
/// Whole files and the last minutes' journal are read; the controller may be running. Times are in
/// UTC. docs/query.md shows every table.
#[derive(Parser)]
#[command(
    version,
    after_help = "\
Examples:
  calumma-query --tables
      every table and column, with what they mean
  calumma-query \"SELECT src, dst, sport, dport, sum(lost) AS lost FROM losses
                 GROUP BY src, dst, sport, dport ORDER BY lost DESC LIMIT 10\"
      the flows that lost most
  calumma-query \"SELECT date_trunc('minute', start) AS minute, sum(lost_packets) AS lost,
                 sum(packets_in) AS packets FROM epochs GROUP BY minute ORDER BY minute\"
      losses by the minute
  calumma-query \"SELECT start, edge, size FROM heavy_hitters
                 WHERE src = '10.1.0.2' ORDER BY start\" --format csv
      the size of one host's large flows over time"
)]
struct Arguments {
    /// The query
    #[arg(value_name = "SQL", required_unless_present = "tables")]
    sql: Option<String>,
    /// The archive: [archive] dir of the controller's configuration
    #[arg(long, value_name = "DIR", default_value = "/var/lib/calumma/archive")]
    dir: PathBuf,
    /// How the answer is printed
    #[arg(long, short, value_enum, default_value_t = Format::Table)]
    format: Format,
    /// List tables and columns, and end
    #[arg(long)]
    tables: bool,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            // `| head` has seen enough.
            let closed = problem.downcast_ref::<std::io::Error>();
            if closed.is_some_and(|problem| problem.kind() == ErrorKind::BrokenPipe) {
                return ExitCode::SUCCESS;
            }
            eprintln!("calumma-query: {problem:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let mut out = BufWriter::new(stdout().lock());
    if arguments.tables {
        list_tables(&mut out)?;
    }
    if let Some(sql) = &arguments.sql {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        let answer = runtime.block_on(async {
            let archive = Archive::open(&arguments.dir).await?;
            archive.query(sql).await
        })?;
        print(&answer, arguments.format, &mut out)?;
    }
    Ok(out.flush()?)
}

fn list_tables(out: &mut impl Write) -> std::io::Result<()> {
    for table in tables_of(SYSTEMS) {
        writeln!(out, "{}: a row is {}", table.name(), table.help())?;
        for column in table.columns() {
            writeln!(out, "  {:<20} {:<10} {}", column.name, column.sql_type, column.help)?;
        }
        writeln!(out)?;
    }
    Ok(())
}
