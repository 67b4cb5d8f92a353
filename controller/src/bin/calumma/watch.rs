//! Epochs on a terminal: the same tables that the controller itself draws.

use std::io::{Write, stdout};

use anyhow::Context;
use calumma_controller::EpochReport;
use calumma_controller::output::{LiveTable, Output, PlainLines};

use crate::Window;
use crate::client::Client;

/// A table redrawn with every epoch, until Ctrl-C.
pub(crate) fn top(client: &Client) -> anyhow::Result<()> {
    let mut table = LiveTable::new(stdout());
    let mut events = client.events("report", 200);
    loop {
        let (_, json) = events.next()?;
        table.report(&read(&json)?, &json);
    }
}

/// A line an epoch.
pub(crate) fn epochs(client: &Client, window: Window) -> anyhow::Result<()> {
    let mut lines = PlainLines::new(stdout());
    let mut say = |report: &EpochReport| {
        if window.json {
            writeln!(stdout(), "{}", serde_json::to_string(report)?)?;
        } else {
            lines.report(report, "");
            // The table forgives a closed pipe; here it is the end.
            stdout().flush()?;
        }
        anyhow::Ok(())
    };
    if window.follow {
        let mut events = client.events("report", window.last);
        loop {
            say(&read(&events.next()?.1)?)?;
        }
    }
    let reports: Vec<EpochReport> = client.get(&format!("/api/v1/epochs?last={}", window.last))?;
    reports.iter().try_for_each(say)
}

fn read(json: &str) -> anyhow::Result<EpochReport> {
    serde_json::from_str(json)
        .context("the controller is of another version: its report reads else")
}
