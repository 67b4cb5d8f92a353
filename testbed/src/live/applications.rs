//! Real applications on the hosts of a live fabric.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::fabric::wiring::Wiring;
use crate::fabric::{Namespace, Process, Run};
use crate::scenario::{Application, ApplicationKind};
use crate::topology::Topology;
use crate::traffic::short::Outcome;
use crate::traffic::{Iperf, Protocol, serve, start};
use crate::workload::{host_address, host_address6};

/// The port of the first application's server; others have the next ones.
const FIRST_PORT: u16 = 5300;

/// How long before the scenario's end applications end, so that their last packets are within it.
const MARGIN: Duration = Duration::from_secs(1);

/// Applications that run: clients with what they do, servers of the testbed program's own and
/// iperf3's.
#[derive(Default)]
pub(super) struct Applications {
    clients: Vec<(Client, Process)>,
    servers: Vec<Process>,
    iperf_servers: Vec<Process>,
    limit: Duration,
}

enum Client {
    Iperf(Iperf),
    /// It fails where nothing comes back.
    Ping,
    /// One of the testbed program's own.
    Own,
}

impl Applications {
    /// Starts them all, to end within `time`.
    pub(super) fn start(
        wanted: &[Application],
        topology: &Topology,
        wiring: &Wiring,
        time: Duration,
        run: &Run,
        testbed: &Path,
    ) -> Result<Self> {
        let logs = run.directory();
        let seconds = time.saturating_sub(MARGIN).as_secs().max(1) as u32;
        let limit = Duration::from_secs(u64::from(seconds) + 60);
        let mut all = Self { limit, ..Self::default() };
        for (at, application) in wanted.iter().enumerate() {
            let (from, to) = (topology.edge(&application.from)?, topology.edge(&application.to)?);
            let client: &Namespace = wiring.hosts()[from].first().context("no host")?;
            let server: &Namespace = wiring.hosts()[to].last().context("no host")?;
            let number = wiring.hosts()[to].len() as u32 - 1;
            let address: IpAddr = match application.ipv6 {
                false => host_address(to, number).into(),
                true => host_address6(to, number).into(),
            };
            let port = FIRST_PORT + at as u16;
            // Of the testbed's own: server, client, and how often that does what it does in a
            // second.
            let (serving, asking, option, often) = match application.kind {
                ApplicationKind::Tcp | ApplicationKind::Udp => {
                    let udp = application.kind == ApplicationKind::Udp;
                    let iperf = Iperf {
                        protocol: if udp { Protocol::Udp } else { Protocol::Tcp },
                        port,
                        mbit: application.mbit.max(1),
                        seconds,
                        reverse: false,
                    };
                    let address = address.to_string();
                    all.iperf_servers.push(iperf.serve(server, &address, logs)?);
                    all.clients.push((Client::Iperf(iperf), iperf.start(client, &address, logs)?));
                    continue;
                }
                ApplicationKind::Ping => {
                    let mut command = client.command("ping");
                    let gap = 1.0 / f64::from(application.datagrams.max(1));
                    command.args(["-q", "-i", &gap.to_string(), "-w", &seconds.to_string()]);
                    command.arg(address.to_string());
                    let process = Process::start(&format!("ping-{at}"), command, logs)
                        .context("starting ping (Debian and Ubuntu package iputils-ping)")?;
                    all.clients.push((Client::Ping, process));
                    continue;
                }
                ApplicationKind::Short => {
                    ("short-server", "short-client", "--connections", application.connections)
                }
                ApplicationKind::Forged => {
                    ("forged-server", "forged-client", "--datagrams", application.datagrams)
                }
                ApplicationKind::Http => {
                    ("http-server", "http-client", "--requests", application.requests)
                }
            };
            let place = SocketAddr::new(address, port);
            all.servers.push(serve(server, serving, place, testbed, logs)?);
            let [times, seconds] = [often * seconds, seconds].map(|number| number.to_string());
            let args = [asking, &place.to_string(), option, &times, "--seconds", &seconds];
            let process = start(client, testbed, &format!("{asking}-{at}"), &args, logs)?;
            all.clients.push((Client::Own, process));
        }
        Ok(all)
    }

    /// Waits for the clients, and stops the servers. Gives whether there were any; an error where
    /// one got nothing through.
    pub(super) fn finish(self) -> Result<bool> {
        let any = !self.clients.is_empty();
        for (number, (client, process)) in (1..).zip(self.clients) {
            let bytes = match client {
                Client::Iperf(iperf) => iperf.finish(process)?.received_bytes,
                Client::Ping => process.finish(self.limit)?.len() as u64,
                Client::Own => {
                    let printed = process.finish(self.limit)?;
                    serde_json::from_str::<Outcome>(&printed)
                        .with_context(|| format!("what a client printed: {printed}"))?
                        .bytes
                }
            };
            ensure!(bytes > 0, "application {number} got nothing through the fabric");
        }
        drop(self.iperf_servers);
        for server in self.servers {
            server.stop(Duration::from_secs(5))?;
        }
        Ok(any)
    }
}
