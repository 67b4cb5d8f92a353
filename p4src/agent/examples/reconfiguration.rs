//! How long a change of attention takes: entries computed, and written as differences through the
//! driver's protocol, to the modelled switch. A real driver's own time comes on top, or in its
//! place.

use std::net::TcpListener;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use anyhow::Context;
use calumma_bfrt::Options;
use calumma_chamelemon::{Attention, Layout, Partition, SampleRate};
use calumma_switchd::chamelemon::entries;
use calumma_switchd::driver::Driver;
use calumma_tna::{Program, Switch};
use calumma_tna_driver::Pipe;
use tokio::runtime::Runtime;

const ROUNDS: u64 = 200;

fn main() -> anyhow::Result<()> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../edge.p4");
    let program = Program::load(source, &[])?;
    let (pipe, _) = Pipe::start(Switch::new(&program), Vec::new())?;
    let model = calumma_tna_driver::Driver::new(pipe, "edge", &program);
    let listener = TcpListener::bind("127.0.0.1:0")?;
    listener.set_nonblocking(true)?;
    let address = listener.local_addr()?.to_string();
    let runtime = Arc::new(Runtime::new()?);
    runtime.spawn(async move {
        let listener = tokio::net::TcpListener::from_std(listener)?;
        model.serve_on(listener, std::future::pending()).await
    });
    let options = Options { address, device: 0, client: 1, program: "edge".to_owned() };
    let driver = Driver::connect(&runtime, &options)?;

    let layout = Layout::default();
    let ill = Attention {
        t_h: 100,
        t_l: 5,
        sample_rate: SampleRate::new(0.3).context("a sample rate")?,
        partition: Partition { hh: 1024, hl: 2560, ll: 512 },
    };
    let healthy =
        Attention { t_h: 60, t_l: 1, partition: Partition { hh: 3072, hl: 1024, ll: 0 }, ..ill };
    let mut present = Vec::new();
    let mut rounds = Vec::new();
    for round in 0..ROUNDS {
        let attention = if round % 2 == 0 { ill } else { healthy };
        let start = Instant::now();
        // Always of one timestamp bit, so that what differs is what changed.
        let wanted = driver.numbered(&entries::epoch(&layout, &attention, 2 * round))?;
        let changed = driver.change(&present, &wanted)?;
        rounds.push((start.elapsed(), changed));
        present = wanted;
    }
    // The first round fills empty tables.
    let mut rounds = rounds.split_off(1);
    rounds.sort_unstable();
    let at = |share: f64| {
        let (time, changed) = rounds[(share * (rounds.len() - 1) as f64) as usize];
        format!("{:.2} ms ({changed} changes)", time.as_secs_f64() * 1e3)
    };
    println!(
        "{} reconfigurations: half within {}, nine of ten within {}, all within {}",
        rounds.len(),
        at(0.5),
        at(0.9),
        at(1.0)
    );
    Ok(())
}
