//! `generate`: packets into a DPDK port.

use std::fs;
use std::num::NonZeroU16;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::mpsc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use calumma_testbed::generator::{self, Pace, Popularity, Sizes, Stacks};
use clap::Args;

use crate::output::print;

/// Send packets into a DPDK port at line rate
///
/// UDP packets of many flows over IPv4, made beforehand and sent by one lcore in poll mode. Prints
/// how many the port took, as JSON; --truth writes how many of each flow. EAL arguments come after
/// --, the device among them, as in `-- --no-huge -m 512 --no-pci --lcores 0@1
/// --vdev=net_memif0,role=client,socket=/run/e1.sock,socket-abstract=no`.
#[derive(Args)]
pub(crate) struct Generate {
    /// Number of flows
    #[arg(long, default_value_t = 100_000)]
    flows: usize,
    /// How often each flow is drawn: uniform, or zipf: and an exponent
    #[arg(long, default_value = "zipf:1.1")]
    popularity: Popularity,
    /// Length of packets in bytes, without the frame check sequence, or imix
    #[arg(long, default_value = "64")]
    size: Sizes,
    /// Share of the flows that are IPv6
    #[arg(long, default_value_t = 0.0)]
    ipv6: f64,
    /// Hops of an INT stack in each packet, on top of its length; none without
    #[arg(long, value_name = "HOPS", requires = "domain")]
    stack: Option<u8>,
    /// The deployment's number in stacks
    #[arg(long, value_name = "NUMBER", requires = "stack")]
    domain: Option<NonZeroU16>,
    /// Millions of packets a second; without, as fast as the port takes them
    #[arg(long, value_name = "MPPS", conflicts_with = "search")]
    rate: Option<f64>,
    /// Search for the highest rate at which the port refuses no packet
    #[arg(long)]
    search: bool,
    /// Seconds to send; where a rate is searched for, seconds of each trial
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
    /// Seconds to send before anything is counted
    #[arg(long, default_value_t = 0.5)]
    warm_up: f64,
    /// The same seed sends the same packets
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// DPDK's name of the port
    #[arg(long, default_value = "net_memif0", value_name = "DEVICE")]
    port: String,
    /// Write how many packets of each flow were sent to this file, a JSON object a line
    #[arg(long, value_name = "FILE")]
    truth: Option<PathBuf>,
    /// After sending, stay until SIGINT or SIGTERM: whoever polls the other side of a memif port
    /// must leave first
    #[arg(long)]
    stay: bool,
    /// EAL arguments
    #[arg(last = true)]
    eal: Vec<String>,
}

impl Generate {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let (leave, left) = mpsc::channel();
        if self.stay {
            ctrlc::set_handler(move || leave.send(()).unwrap_or_default())
                .context("a handler for SIGINT and SIGTERM")?;
        }
        generator::run(&self.plan()?, &self.port, &self.eal, |outcome| {
            if let Some(truth) = &self.truth {
                let lines = outcome.truth.iter().map(serde_json::to_string);
                let lines = lines.collect::<Result<Vec<_>, _>>()?.join("\n");
                fs::write(truth, lines + "\n")
                    .with_context(|| format!("writing {}", truth.display()))?;
            }
            print(true, outcome, String::new)?;
            if self.stay {
                left.recv().context("waiting for SIGINT")?;
            }
            Ok(ExitCode::SUCCESS)
        })
    }

    fn plan(&self) -> Result<generator::Plan> {
        let seconds = |name: &str, value: f64| {
            Duration::try_from_secs_f64(value).with_context(|| format!("--{name} {value}"))
        };
        let pace = match self.rate {
            None if self.search => Pace::Search,
            None => Pace::Flood,
            Some(mpps) if mpps > 0.0 => Pace::Rate(mpps * 1e6),
            Some(mpps) => bail!("--rate {mpps}: a rate is above 0"),
        };
        Ok(generator::Plan {
            mix: generator::Mix {
                flows: self.flows,
                popularity: self.popularity,
                sizes: self.size,
                ipv6: self.ipv6,
                stacks: self.stack.zip(self.domain).map(|(hops, domain)| Stacks { hops, domain }),
                seed: self.seed,
            },
            pace,
            duration: seconds("seconds", self.seconds)?,
            warm_up: seconds("warm-up", self.warm_up)?,
        })
    }
}
