//! `traffic`: made-up traffic as a capture.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Result;
use calumma_testbed::topology::{LinkQuality, Topology};
use calumma_testbed::workload::{self, pcap};
use clap::Args;

/// Make up traffic as a capture, with the truth about each flow
///
/// Every flow sends all its packets in every epoch. Packets of victim flows that are to be lost
/// carry the ECN field "congestion experienced": `replay --drop-ce` loses them. For traffic
/// straight into a DPDK port, see `generate`; into a simulated network, see `run`.
#[derive(Args)]
pub(crate) struct Traffic {
    /// Flows in every epoch
    #[arg(long, default_value_t = 1000)]
    flows: u32,
    /// Packets of a flow in an epoch: dctcp, vl2, hadoop, cache, constant:PACKETS or
    /// zipf:SKEW:LARGEST
    #[arg(long, default_value = "dctcp")]
    sizes: workload::Sizes,
    /// Share of the flows that lose packets, each 1 to 20 % of them
    #[arg(long, default_value_t = 0.0)]
    victims: f64,
    /// Share of the flows that are TCP; the others are UDP
    #[arg(long, default_value_t = 0.0)]
    tcp: f64,
    /// Share of the flows that are IPv6; the others are IPv4
    #[arg(long, default_value_t = 0.0)]
    ipv6: f64,
    /// Share of the flows that other ones take the place of in every epoch
    #[arg(long, default_value_t = 0.0)]
    churn: f64,
    /// The hosts: pair, leaf-spine:LxS, fat-tree:K, or a topology's file
    #[arg(long, default_value = "fat-tree:4x2")]
    topology: String,
    /// How many epochs
    #[arg(long, default_value_t = 1)]
    epochs: u32,
    /// Length of an epoch in milliseconds
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u64).range(1..=3_600_000))]
    epoch_ms: u64,
    /// Share of an epoch over which a flow spreads its packets
    #[arg(long, default_value_t = 0.5)]
    spread: f64,
    /// Bytes of every packet on the wire, without its checksum
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u16).range(60..=9000))]
    packet_bytes: u16,
    /// The same seed makes the same traffic
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Where the capture goes
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// Where the list of flows goes: packets sent, and those of them that are marked, as JSON
    #[arg(long, value_name = "FILE")]
    truth: Option<PathBuf>,
}

impl Traffic {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let Self { flows, sizes, victims, tcp, ipv6, churn, .. } = self;
        let kind =
            workload::Traffic { flows, sizes, victims, tcp, ipv6, churn, ..Default::default() };
        let topology = Topology::load(&self.topology, Path::new("."), LinkQuality::default())?;
        let recording = pcap::Recording {
            epochs: self.epochs,
            length_ns: self.epoch_ms * 1_000_000,
            spread: self.spread,
            packet_bytes: self.packet_bytes,
            seed: self.seed,
        };
        let packets = pcap::record(kind, &topology, &recording, &self.out, self.truth.as_deref())?;
        println!("{packets} packets in {}", self.out.display());
        Ok(ExitCode::SUCCESS)
    }
}
