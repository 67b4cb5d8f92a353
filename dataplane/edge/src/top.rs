//! `calumma-edge top`: a running switch on a terminal, from what it serves under `[metrics]
//! listen`.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io::{IsTerminal, Write, stdout};
use std::time::Duration;

use calumma_ports::client::{Client, remedy};
use serde::Serialize;

use crate::profile::Stage;
use crate::status::{Named, Status, SystemStatus};

/// Clears a terminal and goes to its upper left corner.
const CLEAR: &str = "\x1b[H\x1b[2J";

/// What is asked for.
#[derive(Debug)]
pub struct Options {
    /// The switch's port for metrics.
    pub client: Client,
    /// How long a line or a screen stands.
    pub interval: Duration,
    /// How many of them; without, for ever.
    pub times: Option<u64>,
    /// An object a line instead of a table.
    pub json: bool,
}

/// What happened between two readings of the status.
#[derive(Debug, Serialize)]
struct Activity {
    edge: String,
    unix_ns: u64,
    /// Whether the controller's connection stands.
    connected: bool,
    held_bytes: u64,
    last_epoch: Option<u64>,
    /// Each counter's rate a second.
    rates: std::collections::BTreeMap<String, f64>,
    /// What there is at present, by name.
    gauges: Named,
    lcores: Vec<LcoreActivity>,
}

#[derive(Debug, Serialize)]
struct LcoreActivity {
    /// Packets received a second.
    pps: f64,
    /// Share of the time that went into packets.
    busy: f64,
    /// Cycles a packet by stage.
    cycles: std::collections::BTreeMap<&'static str, f64>,
    /// 99.9th percentile of the bursts' times since the start, in nanoseconds.
    burst_p999_ns: u64,
    /// The same of the bursts in which something happened to an epoch.
    burst_at_flip_p999_ns: u64,
}

/// Shows the switch as the options say.
///
/// # Errors
/// When the switch can't be reached, or the terminal is gone.
pub fn run(options: &Options) -> anyhow::Result<()> {
    let clear = stdout().is_terminal() && !options.json;
    let mut before = read_status(&options.client)?;
    let mut shown = 0;
    while options.times.is_none_or(|times| shown < times) {
        std::thread::sleep(options.interval);
        let now = read_status(&options.client)?;
        let activity = Activity::between(&before, &now);
        let mut out = stdout().lock();
        if options.json {
            writeln!(out, "{}", serde_json::to_string(&activity)?)?;
        } else {
            write!(out, "{}{}", if clear { CLEAR } else { "" }, table(&activity, &now))?;
        }
        out.flush()?;
        before = now;
        shown += 1;
    }
    Ok(())
}

fn read_status(client: &Client) -> anyhow::Result<Status> {
    let answer = client.get("/status").call();
    answer.and_then(|mut answer| answer.body_mut().read_json()).map_err(|problem| {
        let else_ = "no switch answers; is it running, with this address as metrics.listen?";
        let remedy = remedy(&problem, else_);
        anyhow::Error::from(problem).context(format!("{}/status: {remedy}", client.address()))
    })
}

impl Activity {
    fn between(before: &Status, now: &Status) -> Self {
        let seconds = now.unix_ns.saturating_sub(before.unix_ns) as f64 / 1e9;
        // Of the same status twice there are no rates.
        let rate = |more: u64| if seconds > 0.0 { more as f64 / seconds } else { 0.0 };
        let rates = now
            .counters
            .iter()
            .map(|(name, &total)| {
                (name.clone(), rate(total - of(&before.counters, name).min(total)))
            })
            .collect();
        let lcores = before.lcores.iter().zip(&now.lcores);
        Self {
            edge: now.edge.clone(),
            unix_ns: now.unix_ns,
            connected: now.controller.connected,
            held_bytes: now.controller.held_bytes,
            last_epoch: now.last_epoch(),
            rates,
            gauges: now.gauges.clone(),
            lcores: lcores.map(|(before, now)| LcoreActivity::between(before, now, rate)).collect(),
        }
    }
}

impl LcoreActivity {
    fn between(before: &Named, now: &Named, rate: impl Fn(u64) -> f64) -> Self {
        let more = |name: &str| of(now, name).saturating_sub(of(before, name));
        let packets = more("received.host") + more("received.fabric");
        let cycles = |stage: Stage| more(&format!("cycles.{}", stage.name()));
        let total: u64 = Stage::ALL.into_iter().map(cycles).sum();
        let share = |part: u64, whole: u64| part as f64 / whole.max(1) as f64;
        let working = Stage::ALL.into_iter().filter(|&stage| stage != Stage::Idle);
        Self {
            pps: rate(packets),
            busy: share(total - cycles(Stage::Idle), total),
            cycles: working.map(|stage| (stage.name(), share(cycles(stage), packets))).collect(),
            burst_p999_ns: of(now, "burst.p999_ns"),
            burst_at_flip_p999_ns: of(now, "burst_at_flip.p999_ns"),
        }
    }
}

fn of(named: &Named, name: &str) -> u64 {
    named.get(name).copied().unwrap_or_default()
}

fn table(activity: &Activity, status: &Status) -> String {
    let mut text = String::new();
    let link = if activity.connected { "connected" } else { "away" };
    let epoch = activity.last_epoch.map_or("none".to_owned(), |epoch| epoch.to_string());
    let _ = writeln!(
        text,
        "edge {}   controller {} ({link}, {} KiB held)   last epoch {epoch}\n",
        activity.edge,
        status.controller.address,
        activity.held_bytes / 1024,
    );
    let _ = writeln!(
        text,
        "{:>5} {:>9} {:>6} {:>9} {:>9} {:>9} {:>13} {:>13}",
        "lcore", "Mpps", "busy", "receive", "work", "transmit", "burst p999", "at flips"
    );
    for (at, lcore) in activity.lcores.iter().enumerate() {
        let cycles = |stage: Stage| lcore.cycles.get(stage.name()).copied().unwrap_or_default();
        let _ = writeln!(
            text,
            "{at:>5} {:>9.3} {:>5.0}% {:>9.1} {:>9.1} {:>9.1} {:>10.1} us {:>10.1} us",
            lcore.pps / 1e6,
            lcore.busy * 100.0,
            cycles(Stage::Receive),
            cycles(Stage::Work),
            cycles(Stage::Transmit),
            lcore.burst_p999_ns as f64 / 1e3,
            lcore.burst_at_flip_p999_ns as f64 / 1e3,
        );
    }
    let _ = writeln!(text, "\n{:<34} {:>16} {:>14}", "", "total", "a second");
    for (name, total) in status.counters.iter().filter(|&(_, &total)| total > 0) {
        let rate = activity.rates.get(name).copied().unwrap_or_default();
        let _ = writeln!(text, "{name:<34} {total:>16} {rate:>14.0}");
    }
    if !status.gauges.is_empty() {
        let _ = writeln!(text, "\n{:<34} {:>16}", "", "at present");
    }
    for (name, value) in &status.gauges {
        let _ = writeln!(text, "{name:<34} {value:>16}");
    }
    status.systems.iter().for_each(|(name, system)| epochs(&mut text, name, system));
    text
}

/// The epochs that a system finished last.
fn epochs(text: &mut String, name: &str, system: &SystemStatus) {
    // A switch sends the same sides all the time, as its role wants.
    let sides: BTreeSet<&String> = system.epochs.iter().flat_map(|of| of.packets.keys()).collect();
    let header: String = sides.iter().map(|side| format!(" {side:>12}")).collect();
    let _ = writeln!(text, "\n{name:>12}{header} {:>8} {:>9}", "late", "stall");
    for epoch in system.epochs.iter().rev().take(5) {
        let packets = |side: &&String| format!(" {:>12}", of(&epoch.packets, side));
        let packets: String = sides.iter().map(packets).collect();
        let late = epoch.late_packets.map_or("open".to_owned(), |late| late.to_string());
        let (number, stall_us) = (epoch.epoch, epoch.stall_ns / 1000);
        let _ = writeln!(text, "{number:>12}{packets} {late:>8} {stall_us:>6} us");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::Epoch;

    fn status(second: u64, packets: u64) -> Status {
        let named = |values: &[(&str, u64)]| -> Named {
            values.iter().map(|&(name, value)| (name.to_owned(), value)).collect()
        };
        Status {
            edge: "e1".to_owned(),
            unix_ns: second * 1_000_000_000,
            counters: named(&[("received.host", packets)]),
            gauges: named(&[("neighbours", 12)]),
            lcores: vec![named(&[
                ("received.host", packets),
                ("cycles.idle", 100 * packets),
                ("cycles.work", 60 * packets),
                ("cycles.receive", 40 * packets),
                ("burst.p999_ns", 3_300),
            ])],
            ..Status::default()
        }
    }

    #[test]
    fn rates_are_of_what_happened_since_the_last_status() {
        let (before, now) = (status(10, 1_000), status(12, 5_001_000));
        let activity = Activity::between(&before, &now);
        assert!((activity.rates["received.host"] - 2.5e6).abs() < 1.0);
        let lcore = &activity.lcores[0];
        assert!((lcore.busy - 0.5).abs() < 1e-9 && (lcore.cycles["work"] - 60.0).abs() < 1e-9);
        let table = table(&activity, &now);
        assert!(table.contains("2.500") && table.contains("3.3 us"), "{table}");
        let neighbours = table.lines().find(|line| line.starts_with("neighbours"));
        assert_eq!(neighbours.unwrap().split_whitespace().last(), Some("12"), "no rate");
        let mut chamelemon = SystemStatus::default();
        let packets = [("ingress".to_owned(), 7), ("egress".to_owned(), 6)].into();
        chamelemon.epochs.push_back(Epoch { epoch: 9, packets, ..Epoch::default() });
        let mut shown = String::new();
        epochs(&mut shown, "chamelemon", &chamelemon);
        let words: Vec<Vec<&str>> =
            shown.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(words[1], ["chamelemon", "egress", "ingress", "late", "stall"]);
        assert_eq!(words[2][..4], ["9", "6", "7", "open"]);
        let still = Activity::between(&now, &now);
        assert!(still.rates["received.host"] == 0.0 && still.lcores[0].busy == 0.0);
    }
}
