//! iperf3 between the hosts, its results read from its JSON.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::fabric::{Namespace, Process};

/// What iperf3 sends over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// One TCP connection.
    Tcp,
    /// Datagrams of 1200 bytes.
    Udp,
}

/// One iperf3 transfer between two hosts, held to a rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Iperf {
    /// TCP or UDP.
    pub protocol: Protocol,
    /// The server's port; no two transfers at once have the same.
    pub port: u16,
    /// Megabits a second.
    pub mbit: u32,
    /// How long, in seconds.
    pub seconds: u32,
    /// From the server to the client instead of from the client to the server.
    pub reverse: bool,
}

/// What iperf3 counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Totals {
    /// Bytes the sender's application wrote.
    pub sent_bytes: u64,
    /// Bytes the receiver's application read.
    pub received_bytes: u64,
    /// TCP segments sent again; 0 for UDP.
    pub retransmits: u64,
    /// UDP datagrams the receiver missed, in the network or in its own full socket buffer; 0 for
    /// TCP. Releases before 3.12 miss those behind the last one that arrived.
    pub lost_datagrams: u64,
}

/// Bytes of a UDP datagram that iperf3 sends.
const DATAGRAM: u64 = 1200;

impl Iperf {
    fn name(&self) -> String {
        let protocol = match self.protocol {
            Protocol::Tcp => "tcp",
            Protocol::Udp => "udp",
        };
        format!("iperf3-{protocol}-{}", self.port)
    }

    /// Starts the server on `host`, which has `address`, and waits until it listens. It is stopped
    /// by dropping it, which kills it where need be: iperf3 says at times that it has
    /// terminated, and has not.
    pub(crate) fn serve(&self, host: &Namespace, address: &str, logs: &Path) -> Result<Process> {
        let mut command = host.command("iperf3");
        command.args(["--server", "--bind", address, "--port", &self.port.to_string()]);
        let mut server = Process::start(&format!("{}-server", self.name()), command, logs)
            .context("starting iperf3 (Debian and Ubuntu package iperf3)")?;
        server.wait_listening(self.port)?;
        Ok(server)
    }

    /// Starts the client on `host`; the server has `address`.
    pub(crate) fn start(&self, host: &Namespace, address: &str, logs: &Path) -> Result<Process> {
        let mut command = host.command("iperf3");
        command.args(["--client", address, "--port", &self.port.to_string(), "--json"]);
        command.args(["--time", &self.seconds.to_string()]);
        command.args(["--bitrate", &format!("{}M", self.mbit)]);
        if self.protocol == Protocol::Udp {
            command.args(["--udp", "--length", &DATAGRAM.to_string()]);
        }
        if self.reverse {
            command.arg("--reverse");
        }
        Process::start(&format!("{}-client", self.name()), command, logs)
    }

    /// Waits for the client and reads what it counted.
    pub(crate) fn finish(&self, client: Process) -> Result<Totals> {
        // Its control connection crosses the lossy core too, and may wait for retransmissions at
        // either end. By default iperf3 waits two minutes for data itself.
        let limit = Duration::from_secs(u64::from(self.seconds) + 150);
        let json = client.finish(limit)?;
        Totals::parse(&json).with_context(|| format!("what {} printed: {json}", self.name()))
    }
}

impl Totals {
    fn parse(json: &str) -> Result<Self> {
        #[derive(Deserialize)]
        struct Document {
            end: End,
        }
        #[derive(Deserialize)]
        struct End {
            sum_sent: Option<Sum>,
            sum_received: Option<Sum>,
            sum: Option<Sum>,
        }
        #[derive(Deserialize, Default, Clone, Copy)]
        #[serde(default)]
        struct Sum {
            bytes: u64,
            retransmits: u64,
            lost_packets: u64,
        }
        let Document { end } = serde_json::from_str(json)?;
        // Releases before 3.12 sum UDP in "sum" alone.
        let sent = end.sum_sent.or(end.sum).context("no sum of what was sent")?;
        let received = end.sum_received.or(end.sum).context("no sum of what was received")?;
        // The receiver sees the gap that lost datagrams leave only when another one follows:
        // `lost_packets` is without those at the end, the difference of bytes is not.
        let lost = match (end.sum, end.sum_received) {
            (Some(_), Some(_)) => sent.bytes.saturating_sub(received.bytes) / DATAGRAM,
            (Some(sum), None) => sum.lost_packets,
            (None, _) => 0,
        };
        Ok(Self {
            sent_bytes: sent.bytes,
            received_bytes: received.bytes,
            retransmits: sent.retransmits,
            lost_datagrams: lost,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tcp_totals_are_read() {
        let json = r#"{"start": {}, "end": {
            "sum_sent": {"bytes": 1000, "retransmits": 7, "sender": true},
            "sum_received": {"bytes": 990, "sender": true}}}"#;
        let expected =
            Totals { sent_bytes: 1000, received_bytes: 990, retransmits: 7, lost_datagrams: 0 };
        assert_eq!(Totals::parse(json).unwrap(), expected);
    }

    #[test]
    fn udp_totals_are_read_from_old_and_new_releases() {
        let sum = r#""sum": {"bytes": 4800, "packets": 4, "lost_packets": 1}"#;
        let old = format!(r#"{{"end": {{{sum}}}}}"#);
        assert_eq!(Totals::parse(&old).unwrap().lost_datagrams, 1);
        let new = format!(
            r#"{{"end": {{{sum}, "sum_sent": {{"bytes": 4800, "lost_packets": 0}},
                "sum_received": {{"bytes": 2400, "lost_packets": 1}}}}}}"#
        );
        let expected =
            Totals { sent_bytes: 4800, received_bytes: 2400, retransmits: 0, lost_datagrams: 2 };
        assert_eq!(Totals::parse(&new).unwrap(), expected, "the last of four is lost as well");
    }

    #[test]
    fn a_failed_client_is_an_error() {
        let json = r#"{"start": {}, "end": {}, "error": "unable to connect to server"}"#;
        assert!(Totals::parse(json).is_err());
    }
}
