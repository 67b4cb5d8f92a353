//! The switch on DPDK's telemetry socket: `dpdk-telemetry.py` shows totals, epochs and sketches beside
//! what DPDK itself tells.

use dpdk::{Answer, Eal, Value};

use crate::status::{Board, Epoch, Named, Sketches};

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
    let help = "Totals, cycles by stage and times of bursts of an lcore. Parameters: number from 0";
    eal.tell("/calumma/lcores", help, move |which| {
        let status = shown.read();
        if which.is_empty() {
            return Some(Answer::List((0..status.lcores.len() as u64).collect()));
        }
        status.lcores.get(which.parse::<usize>().ok()?).map(named)
    })?;
    let shown = board();
    let help = "The epochs finished last, or what was measured in one. Parameters: epoch";
    eal.tell("/calumma/epochs", help, move |which| {
        let status = shown.read();
        if which.is_empty() {
            return Some(Answer::List(status.epochs.iter().map(|epoch| epoch.epoch).collect()));
        }
        let which: u64 = which.parse().ok()?;
        status.epochs.iter().find(|epoch| epoch.epoch == which).map(epoch)
    })?;
    let shown = board();
    let help = "What the edge switch measures with at present. No parameters";
    eal.tell("/calumma/sketches", help, move |_| {
        let status = shown.read();
        Some(Answer::Named(status.sketches.as_ref().map(sketches).unwrap_or_default()))
    })
}

fn named(values: &Named) -> Answer {
    Answer::Named(
        values.iter().map(|(name, &value)| (name.clone(), Value::Number(value))).collect(),
    )
}

fn epoch(epoch: &Epoch) -> Answer {
    let numbers = [
        ("ingress_packets", Some(epoch.ingress_packets)),
        ("egress_packets", Some(epoch.egress_packets)),
        ("late_packets", epoch.late_packets),
        ("foreign_packets", Some(epoch.foreign_packets)),
        ("stall_ns", Some(epoch.stall_ns)),
        ("hh_flows", epoch.hh_flows),
        ("frame_bytes", Some(epoch.frame_bytes)),
    ];
    let known = |(name, number): (&str, Option<u64>)| {
        let value = number.map_or(Value::Text("unknown".to_owned()), Value::Number);
        (name.to_owned(), value)
    };
    Answer::Named(numbers.into_iter().map(known).collect())
}

fn sketches(sketches: &Sketches) -> Vec<(String, Value)> {
    let attention = &sketches.attention;
    let numbers = [
        ("epoch_ms", sketches.epoch_ms),
        ("classifier_bytes", sketches.classifier_bytes),
        ("upstream_bytes", sketches.upstream_bytes),
        ("downstream_bytes", sketches.downstream_bytes),
        ("t_h", attention.t_h.into()),
        ("t_l", attention.t_l.into()),
        ("hh_buckets", attention.partition.hh.into()),
        ("hl_buckets", attention.partition.hl.into()),
        ("ll_buckets", attention.partition.ll.into()),
        ("effective_epoch", sketches.effective_epoch),
    ];
    let mut values: Vec<_> = numbers
        .into_iter()
        .map(|(name, number)| (name.to_owned(), Value::Number(number)))
        .collect();
    let share = attention.sample_rate.as_f64();
    values.push(("sample_rate".to_owned(), Value::Text(format!("{share:.5}"))));
    values
}
