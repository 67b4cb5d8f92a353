//! The traffic of the demo, all at once: TCP and UDP transfers and short connections, for some
//! seconds.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use serde::Serialize;

use super::iperf::{Iperf, Protocol, Totals};
use super::short::Outcome;
use crate::fabric::{Namespace, Pair, Process};

const SHORT_PORT: u16 = 7000;
const TCP_PORT: u16 = 5201;
const UDP_PORT: u16 = 5202;
const REVERSE_PORT: u16 = 5203;

/// How long the server of the short connections may take to stop, on a machine with much else to
/// do.
const STOP_LIMIT: Duration = Duration::from_secs(30);

/// How long the edges may take until the first connection gets through them.
const PATH_LIMIT: Duration = Duration::from_secs(20);

/// What to send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mix {
    /// How long, in seconds.
    pub seconds: u32,
    /// Rate of the TCP transfer from h1 to h2, in megabits a second. A quarter of it goes from h2
    /// to h1.
    pub tcp_mbit: u32,
    /// Rate of the UDP transfer from h1 to h2, in megabits a second.
    pub udp_mbit: u32,
    /// Short TCP connections from h1 to h2, spread over the time.
    pub connections: u32,
    /// Whether the transfers go over IPv6; short connections never do.
    pub ipv6: bool,
}

/// What the applications say happened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Report {
    /// TCP from h1 to h2.
    pub tcp: Totals,
    /// TCP from h2 to h1.
    pub tcp_reverse: Totals,
    /// UDP from h1 to h2.
    pub udp: Totals,
    /// The short connections.
    pub short: Outcome,
}

impl Mix {
    /// Waits until the edges let a connection through, sends everything, and waits until it is
    /// over. `testbed` is the calumma-testbed program, whose hidden commands are the client and
    /// server of the short connections.
    pub fn run(&self, pair: &Pair, testbed: &Path, logs: &Path) -> Result<Report> {
        let transfer = |protocol, port, mbit: u32, reverse| Iperf {
            protocol,
            port,
            mbit: mbit.max(1),
            seconds: self.seconds,
            reverse,
        };
        let transfers = [
            transfer(Protocol::Tcp, TCP_PORT, self.tcp_mbit, false),
            transfer(Protocol::Tcp, REVERSE_PORT, self.tcp_mbit / 4, true),
            transfer(Protocol::Udp, UDP_PORT, self.udp_mbit, false),
        ];
        let (h1, h2) = (pair.host(0), pair.host(1));
        let short = SocketAddr::new(pair.address(1, false), SHORT_PORT);
        let short_server = serve(h2, "short-server", short, testbed, logs)?;
        let server = short.to_string();
        let address = pair.address(1, self.ipv6).to_string();
        let mut transfer_servers = Vec::new();
        for transfer in &transfers {
            transfer_servers.push(transfer.serve(h2, &address, logs)?);
        }
        let client = |name: &str, args: &[&str]| start(h1, testbed, name, args, logs);
        client("short-probe", &["short-client", &server, "--wait"])?
            .finish(PATH_LIMIT + Duration::from_secs(5))
            .context("the edges let nothing through")?;

        let connections = self.connections.to_string();
        let seconds = self.seconds.to_string();
        let args = ["short-client", &server, "--connections", &connections, "--seconds", &seconds];
        let short = client("short-client", &args)?;
        let mut clients = Vec::new();
        for transfer in &transfers {
            clients.push(transfer.start(h1, &address, logs)?);
        }
        let mut totals = [Totals::default(); 3];
        for ((transfer, client), total) in transfers.iter().zip(clients).zip(&mut totals) {
            *total = transfer.finish(client)?;
        }
        let outcome = short.finish(Duration::from_secs(u64::from(self.seconds) + 60))?;
        let short = serde_json::from_str(&outcome).with_context(|| {
            format!("what the client of the short connections printed: {outcome}")
        })?;
        short_server.stop(STOP_LIMIT)?;
        let [tcp, tcp_reverse, udp] = totals;
        Ok(Report { tcp, tcp_reverse, udp, short })
    }
}

/// Starts a server of the testbed program (`short-server`, `http-server`) on `host` at `address`
/// and waits until it listens.
pub(crate) fn serve(
    host: &Namespace,
    server: &str,
    address: SocketAddr,
    testbed: &Path,
    logs: &Path,
) -> Result<Process> {
    let name = format!("{server}-{}-{}", address.ip(), address.port());
    let mut process = start(host, testbed, &name, &[server, &address.to_string()], logs)?;
    process.wait_listening(address.port())?;
    Ok(process)
}

/// Starts a command of the testbed program on `host`.
pub(crate) fn start(
    host: &Namespace,
    testbed: &Path,
    name: &str,
    args: &[&str],
    logs: &Path,
) -> Result<Process> {
    let testbed = testbed.to_str().context("the path of calumma-testbed is not UTF-8")?;
    let mut command = host.command(testbed);
    command.args(args);
    Process::start(name, command, logs)
}
