//! The switch on DPDK's telemetry socket: `dpdk-telemetry.py` shows totals, epochs and systems
//! beside what DPDK itself tells.

use dpdk::{Answer, Eal, Value};

use crate::status::{Board, Epoch, Named, SystemStatus};

/// Lets DPDK's telemetry socket answer for the switch with what hangs on `board`.
///
/// # Errors
/// When DPDK refuses a command.
pub fn answer(eal: &Eal, board: &Board) -> dpdk::Result<()> {
    let board = || board.clone();
    let shown = board();
    eal.tell("/calumma/counters", "Totals of the edge switch. No parameters", move |_| {
        Some(named(&shown.read().counters))
    })?;
    let shown = board();
    eal.tell("/calumma/gauges", "What the edge switch has at present. No parameters", move |_| {
        Some(named(&shown.read().gauges))
    })?;
    let shown = board();
    let help = "Totals, cycles by stage and times of bursts of an lcore. Parameters: number from 0";
    eal.tell("/calumma/lcores", help, move |which| {
        let status = shown.read();
        if which.is_empty() {
            return Some(Answer::List((0..status.lcores.len() as u64).collect()));
        }
        status.lcores.get(which.parse::<usize>().ok()?).map(named)
    })?;
    let shown = board();
    let help = "A system's epochs finished last, or one of them. Parameters: system, epoch";
    eal.tell("/calumma/epochs", help, move |which| {
        let status = shown.read();
        let (system, epoch) = which.split_once(',').unwrap_or((which, ""));
        let epochs = &status.systems.get(system)?.epochs;
        if epoch.is_empty() {
            return Some(Answer::List(epochs.iter().map(|epoch| epoch.epoch).collect()));
        }
        let epoch: u64 = epoch.parse().ok()?;
        epochs.iter().find(|of| of.epoch == epoch).map(of_epoch)
    })?;
    let shown = board();
    let help = "The systems that measure, or what one of them measures with. Parameters: system";
    eal.tell("/calumma/systems", help, move |which| {
        let status = shown.read();
        if which.is_empty() {
            let of = |(name, of): (&String, &SystemStatus)| {
                (name.clone(), Value::Number(of.epochs.back().map_or(0, |epoch| epoch.epoch)))
            };
            return Some(Answer::Named(status.systems.iter().map(of).collect()));
        }
        let gauge = |(name, &value): (&String, &f64)| {
            let whole = value >= 0.0 && value.fract() == 0.0;
            let number = || Value::Number(value as u64);
            let value = if whole { number() } else { Value::Text(format!("{value:.5}")) };
            (name.clone(), value)
        };
        Some(Answer::Named(status.systems.get(which)?.gauges.iter().map(gauge).collect()))
    })
}

fn named(values: &Named) -> Answer {
    Answer::Named(
        values.iter().map(|(name, &value)| (name.clone(), Value::Number(value))).collect(),
    )
}

fn of_epoch(epoch: &Epoch) -> Answer {
    let packets = epoch.packets.iter().map(|(side, &n)| (format!("{side}_packets"), Some(n)));
    let fixed = [
        ("late_packets".to_owned(), epoch.late_packets),
        ("stall_ns".to_owned(), Some(epoch.stall_ns)),
        ("frame_bytes".to_owned(), Some(epoch.frame_bytes)),
    ];
    let notes = epoch.notes.iter().map(|(name, &value)| (name.clone(), value));
    let known = |(name, number): (String, Option<u64>)| {
        (name, number.map_or(Value::Text("unknown".to_owned()), Value::Number))
    };
    Answer::Named(packets.chain(fixed).chain(notes).map(known).collect())
}
