//! Real applications on the hosts of a live fabric.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::wiring::Wiring;
use crate::fabric::{Namespace, Process, Run};
use crate::scenario::{Application, ApplicationKind};
use crate::topology::Topology;
use crate::traffic::short::Outcome;
use crate::traffic::{Iperf, Protocol, SHORT_PORT, serve_short, start};
use crate::workload::{host_address, host_address6};

/// The first of the ports of iperf3.
const FIRST_PORT: u16 = 5300;

/// How long before the scenario's end applications end, so that their last packets are within it.
const MARGIN: Duration = Duration::from_secs(1);

/// Applications that run: servers, and clients with what they do.
#[derive(Default)]
pub(super) struct Applications {
    clients: Vec<(Client, Process)>,
    servers: Vec<Process>,
    limit: Duration,
}

enum Client {
    Iperf(Iperf),
    Short,
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
            let transfer = |protocol| Iperf {
                protocol,
                port: FIRST_PORT + at as u16,
                mbit: application.mbit.max(1),
                seconds,
                reverse: false,
            };
            let protocol = match application.kind {
                ApplicationKind::Tcp => Protocol::Tcp,
                ApplicationKind::Udp => Protocol::Udp,
                ApplicationKind::Short => {
                    let place = SocketAddr::new(address, SHORT_PORT).to_string();
                    all.servers.push(serve_short(server, &place, testbed, logs)?);
                    let connections = (application.connections * seconds).to_string();
                    let seconds = seconds.to_string();
                    let args = [
                        "short-client",
                        &place,
                        "--connections",
                        &connections,
                        "--seconds",
                        &seconds,
                    ];
                    let name = format!("short-client-{at}");
                    all.clients.push((Client::Short, start(client, testbed, &name, &args, logs)?));
                    continue;
                }
            };
            let (iperf, address) = (transfer(protocol), address.to_string());
            all.servers.push(iperf.serve(server, &address, logs)?);
            all.clients.push((Client::Iperf(iperf), iperf.start(client, &address, logs)?));
        }
        Ok(all)
    }

    /// Waits for the clients, and stops the servers. Gives whether there were any; an error where one
    /// got nothing through.
    pub(super) fn finish(self) -> Result<bool> {
        let any = !self.clients.is_empty();
        for (client, process) in self.clients {
            let bytes = match client {
                Client::Iperf(iperf) => iperf.finish(process)?.received_bytes,
                Client::Short => {
                    let printed = process.finish(self.limit)?;
                    serde_json::from_str::<Outcome>(&printed)
                        .with_context(|| format!("what short connections printed: {printed}"))?
                        .bytes
                }
            };
            ensure!(bytes > 0, "an application got nothing through the fabric");
        }
        for server in self.servers {
            server.stop(Duration::from_secs(5))?;
        }
        Ok(any)
    }
}
