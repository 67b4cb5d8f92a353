//! The daemon's counters over HTTP for Prometheus. What the switch counts is read from it when
//! it is scraped.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::response::Response;
use axum::routing::get;
use calumma_bfrt::ClientError;
use calumma_switch_host::metrics::{self as host, Page, Readers};

use crate::config::Config;
use crate::counters::{Counters, packets};
use crate::driver::Driver;
use crate::ports;

/// How long the switch is given to say what it counts: a scrape must not wait for a driver that has
/// gone.
const PATIENCE: Duration = Duration::from_secs(1);

/// What can change from one scrape to the next beside the totals.
#[derive(Clone, Debug, Default)]
pub(crate) struct Snapshot {
    /// The driver; none while it is away.
    pub(crate) driver: Option<Driver>,
    /// The numbers of the ports.
    pub(crate) ports: Vec<u16>,
    /// Whether the controller's connection stands.
    pub(crate) connected: bool,
    /// Bytes that wait for it.
    pub(crate) held_bytes: u64,
}

/// What a scrape shows.
#[derive(Debug, Default)]
pub(crate) struct Shown {
    pub(crate) counters: Arc<Counters>,
    snapshot: Mutex<Snapshot>,
}

impl Shown {
    pub(crate) fn new(counters: Arc<Counters>) -> Shown {
        Shown { counters, snapshot: Mutex::default() }
    }

    pub(crate) fn publish(&self, snapshot: Snapshot) {
        *self.snapshot.lock().unwrap_or_else(PoisonError::into_inner) = snapshot;
    }

    fn snapshot(&self) -> Snapshot {
        self.snapshot.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// What the switch counts.
struct OfSwitch {
    packets: [(&'static str, u64); 6],
    ports: Vec<(String, &'static str, u64)>,
}

/// Serves `/metrics`, where `config` says so, from a thread of its own, for as long as the process
/// lives. Gives what to reload.
///
/// # Errors
/// When the address can't be listened on, or a file can't be used.
pub(crate) fn serve(config: &Config, shown: Arc<Shown>) -> anyhow::Result<Option<Arc<Readers>>> {
    let routes = Router::new().route("/metrics", get(metrics)).with_state(shown);
    let server = host::server(&config.metrics, config.insecure, routes)?;
    let Some((access, serve)) = server else { return Ok(None) };
    std::thread::Builder::new().name("metrics".to_owned()).spawn(serve)?;
    Ok(Some(access))
}

async fn metrics(State(shown): State<Arc<Shown>>) -> Response {
    let snapshot = shown.snapshot();
    let of_switch = match snapshot.driver.clone() {
        None => None,
        Some(driver) => {
            let ports = snapshot.ports.clone();
            let reading = tokio::task::spawn_blocking(move || of_switch(&driver, &ports));
            // What can't be read is not shown.
            let read = tokio::time::timeout(PATIENCE, reading).await;
            read.ok().and_then(Result::ok).and_then(Result::ok)
        }
    };
    host::answer(page(&shown.counters, &snapshot, of_switch.as_ref()))
}

fn of_switch(driver: &Driver, numbers: &[u16]) -> Result<OfSwitch, ClientError> {
    let packets = packets(driver)?;
    let mut of_ports = Vec::new();
    for &number in numbers {
        let counts = ports::counts(driver, number)?;
        of_ports.extend(counts.map(|(kind, count)| (number.to_string(), kind, count)));
    }
    Ok(OfSwitch { packets, ports: of_ports })
}

fn page(
    counters: &Counters,
    snapshot: &Snapshot,
    of_switch: Option<&OfSwitch>,
) -> prometheus::Result<String> {
    let page = Page::default();
    let packets = of_switch.iter().flat_map(|switch| switch.packets);
    page.totals(counters.named().into_iter().chain(packets))?;
    let ports = of_switch.iter().flat_map(|switch| &switch.ports);
    page.ports(ports.map(|(port, kind, count)| (port.as_str(), *kind, *count)))?;
    page.controller(snapshot.connected, snapshot.held_bytes)?;
    let answers = f64::from(u8::from(of_switch.is_some()));
    page.gauge("driver_connected", "1 where the switch's driver answers.", answers)?;
    match counters.last_epoch.load(Ordering::Relaxed) {
        0 => {}
        epoch => page.last_epoch(epoch)?,
    }
    page.text()
}
