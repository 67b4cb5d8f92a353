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
use crate::traffic::{Iperf, Protocol, SHORT_PORT, serve, start};
use crate::workload::{host_address, host_address6};

/// The first of the ports of iperf3.
const FIRST_PORT: u16 = 5300;

/// The port of HTTP servers.
const HTTP_PORT: u16 = 80;

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
    /// One of the testbed program's own.
    Own,
}

/// A server and a client of the testbed program's own.
struct Own {
    port: u16,
    programs: [&'static str; 2],
    /// How often the client does what it does, and the option that says so.
    times: (&'static str, u32),
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
            let own = match application.kind {
                ApplicationKind::Tcp | ApplicationKind::Udp => {
                    let udp = application.kind == ApplicationKind::Udp;
                    let iperf = Iperf {
                        protocol: if udp { Protocol::Udp } else { Protocol::Tcp },
                        port: FIRST_PORT + at as u16,
                        mbit: application.mbit.max(1),
                        seconds,
                        reverse: false,
                    };
                    let address = address.to_string();
                    all.servers.push(iperf.serve(server, &address, logs)?);
                    all.clients.push((Client::Iperf(iperf), iperf.start(client, &address, logs)?));
                    continue;
                }
                ApplicationKind::Short => Own {
                    port: SHORT_PORT,
                    programs: ["short-server", "short-client"],
                    times: ("--connections", application.connections * seconds),
                },
                ApplicationKind::Http => Own {
                    port: HTTP_PORT,
                    programs: ["http-server", "http-client"],
                    times: ("--requests", application.requests * seconds),
                },
            };
            let Own { port, programs: [serving, asking], times: (option, times) } = own;
            let place = SocketAddr::new(address, port);
            all.servers.push(serve(server, serving, place, testbed, logs)?);
            let [times, seconds] = [times, seconds].map(|number| number.to_string());
            let args = [asking, &place.to_string(), option, &times, "--seconds", &seconds];
            let process = start(client, testbed, &format!("{asking}-{at}"), &args, logs)?;
            all.clients.push((Client::Own, process));
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
                Client::Own => {
                    let printed = process.finish(self.limit)?;
                    serde_json::from_str::<Outcome>(&printed)
                        .with_context(|| format!("what a client printed: {printed}"))?
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
