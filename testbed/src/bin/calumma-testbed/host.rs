//! Programs that the testbed runs in the namespaces of its hosts, by executing itself.

use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use calumma_testbed::traffic::{forged, http, short};
use clap::Subcommand;

use crate::output::print;

#[derive(Subcommand)]
pub(crate) enum Host {
    /// Answer short connections
    #[command(hide = true)]
    ShortServer { address: SocketAddr },

    /// Answer HTTP requests
    #[command(hide = true)]
    HttpServer { address: SocketAddr },

    /// Make HTTP requests and print what came of them as JSON
    #[command(hide = true)]
    HttpClient {
        server: SocketAddr,
        #[arg(long)]
        requests: u32,
        #[arg(long)]
        seconds: u64,
    },

    /// Send datagrams back
    #[command(hide = true)]
    ForgedServer { address: SocketAddr },

    /// Send datagrams that look like INT and print what came of them as JSON
    #[command(hide = true)]
    ForgedClient {
        server: SocketAddr,
        #[arg(long)]
        datagrams: u32,
        #[arg(long)]
        seconds: u64,
    },

    /// Open short connections and print what came of them as JSON
    #[command(hide = true)]
    ShortClient {
        server: SocketAddr,
        /// Only wait until a first connection comes about
        #[arg(long)]
        wait: bool,
        #[arg(long, default_value_t = 1)]
        connections: u32,
        #[arg(long, default_value_t = 0)]
        seconds: u64,
    },
}

impl Host {
    pub(crate) fn run(self) -> Result<ExitCode> {
        match self {
            Self::ShortServer { address } => short::serve(address)?,
            Self::HttpServer { address } => http::serve(address)?,
            Self::ForgedServer { address } => forged::serve(address)?,
            Self::ForgedClient { server, datagrams, seconds } => {
                let outcome = forged::send(server, datagrams, Duration::from_secs(seconds));
                print(true, &outcome, String::new)?;
            }
            Self::ShortClient { server, wait: true, .. } => {
                short::wait_for(server, Duration::from_secs(20))?;
            }
            Self::ShortClient { server, connections, seconds, .. } => {
                let outcome = short::connect(server, connections, Duration::from_secs(seconds));
                print(true, &outcome, String::new)?;
            }
            Self::HttpClient { server, requests, seconds } => {
                let outcome = http::ask(server, requests, Duration::from_secs(seconds));
                print(true, &outcome, String::new)?;
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}
