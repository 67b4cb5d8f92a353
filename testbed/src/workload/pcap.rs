//! Made-up traffic as a capture, with a list of what each flow sent.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use anyhow::{Context, Result};
use calumma_controller::report::Flow as FlowReport;
use serde::Serialize;

use super::{Flow, FlowSet, Traffic};
use crate::capture::PcapWriter;
use crate::topology::{Routes, Topology};

/// What to write.
#[derive(Clone, Copy, Debug)]
pub struct Recording {
    /// Epochs, in each of which every flow sends all its packets.
    pub epochs: u32,
    /// Length of an epoch, in nanoseconds.
    pub length_ns: u64,
    /// Share of an epoch over which a flow spreads its packets.
    pub spread: f64,
    /// Length of every packet on the wire, in bytes.
    pub packet_bytes: u16,
    /// Where flows and victims are drawn from.
    pub seed: u64,
}

/// What a flow sent, and which of it is to be lost.
#[derive(Debug, Serialize)]
struct Sent {
    #[serde(flatten)]
    flow: FlowReport,
    packets: u64,
    marked: u64,
}

/// When the capture begins: a round number of seconds since 1970.
const BEGIN_NS: u64 = 1_700_000_000_000_000_000;

/// Writes the traffic to the capture `out`. Packets that are to be lost carry the ECN field
/// "congestion experienced", as on the ChameleMon paper's testbed: `replay --drop-ce` loses them.
/// The list of flows goes to `truth`, where there is one. Gives the number of packets.
///
/// # Errors
/// When the traffic can't be made or the files can't be written.
pub fn record(
    traffic: Traffic,
    topology: &Topology,
    recording: &Recording,
    out: &Path,
    truth: Option<&Path>,
) -> Result<u64> {
    let writing = || format!("writing {}", out.display());
    let file = File::create(out).with_context(writing)?;
    let mut writer = PcapWriter::new(BufWriter::new(file)).with_context(writing)?;
    let routes = Routes::new(topology);
    let mut set = FlowSet::new(recording.seed, vec![traffic], topology, &routes)?;
    let mut sent: HashMap<_, Sent> = HashMap::new();
    let mut packets = 0;
    for epoch in 0..u64::from(recording.epochs) {
        set.renew(epoch, topology, &routes)?;
        let begin = BEGIN_NS + epoch * recording.length_ns;
        let Recording { length_ns, spread, .. } = *recording;
        for (at_ns, flow, number) in packets_of(set.flows(), epoch, length_ns, spread) {
            let flow = &set.flows()[flow as usize];
            let lost = flow.loses(topology, epoch, number);
            let mut bytes = flow.frame(recording.packet_bytes);
            if lost {
                bytes.mark_congestion();
            }
            let length = u32::from(recording.packet_bytes).max(bytes.len() as u32);
            writer.write(begin + at_ns, length, &bytes).with_context(writing)?;
            let of_flow = sent.entry(flow.key).or_insert_with(|| Sent {
                flow: (&flow.key).into(),
                packets: 0,
                marked: 0,
            });
            of_flow.packets += 1;
            of_flow.marked += u64::from(lost);
            packets += 1;
        }
    }
    writer.finish().with_context(writing)?.flush().with_context(writing)?;
    if let Some(path) = truth {
        let mut flows: Vec<Sent> = sent.into_values().collect();
        flows.sort_by_key(|sent| sent.flow);
        let writing = || format!("writing {}", path.display());
        let file = BufWriter::new(File::create(path).with_context(writing)?);
        serde_json::to_writer_pretty(file, &flows).with_context(writing)?;
    }
    Ok(packets)
}

/// Every packet of `epoch` in the order in which they are sent: its time since the epoch's
/// beginning, its flow by position, and its number in the flow. A flow spreads its packets over the
/// share `spread` of an epoch; where they all begin at once, flows come one after another.
pub fn packets_of(flows: &[Flow], epoch: u64, length_ns: u64, spread: f64) -> Vec<(u64, u32, u32)> {
    let mut packets = Vec::with_capacity(flows.iter().map(|flow| flow.packets as usize).sum());
    for (at, flow) in flows.iter().enumerate() {
        let times = (0..).zip(flow.times(epoch, length_ns, spread));
        packets.extend(times.map(|(number, at_ns)| (at_ns, at as u32, number)));
    }
    packets.sort_unstable();
    packets
}
