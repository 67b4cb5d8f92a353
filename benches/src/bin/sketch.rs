//! Speed of the sketches on one core, as a table and as JSON.

use std::io::stdout;
use std::path::PathBuf;

use anyhow::{Context, Result};
use calumma_benches::{cases, cfs, chosen, measure, memory, peers, sketchint, workload};
use calumma_chamelemon::{Attention, Layout};
use calumma_sketch::{
    Arithmetic, Engine, FlowKey, HashFamily, HashKey, Insertion, KeyKind, WideKey,
};
use clap::Parser;

/// Speed of the sketches on one core, beside their peers
///
/// All cases take turns over the same seeded packets: 2.3 million of 63,000 flows, Zipf 1.1.
#[derive(Parser)]
struct Cli {
    /// Write the figures to this file, too, as a JSON list
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Readings of each case
    #[arg(long, default_value_t = 9, value_parser = clap::value_parser!(u16).range(1..))]
    rounds: u16,
    /// Only cases whose name contains this; several of it to compare some
    #[arg(long, value_name = "TEXT")]
    only: Vec<String>,
    /// Instructions to hash, record and decode with: scalar, avx2 or avx512, whichever the CPU
    /// has; the fastest when left out
    #[arg(long, value_name = "NAME", value_parser = engine)]
    engine: Option<Engine>,
}

/// The engine of this name, where the CPU has it.
fn engine(name: &str) -> Result<Engine> {
    let plain = |name: &str| name.replace('-', "").to_lowercase();
    let mut available = Engine::available();
    available.find(|engine| plain(engine.name()) == plain(name)).with_context(|| {
        let names: Vec<_> = Engine::available().map(|engine| plain(engine.name())).collect();
        format!("this CPU has {}", names.join(", "))
    })
}

fn main() -> Result<()> {
    let cli = Cli::parse();
    let packets = workload::zipf(63_000, 2_300_000, 1.1, 1);
    let family = HashFamily::new(&HashKey::from_bytes([7; 32]));
    let family = cli.engine.into_iter().fold(family, HashFamily::with_engine);
    let layout = Layout::default();
    let wrapping = Layout { arithmetic: Arithmetic::Wrapping, ..Layout::default() };
    let healthy = Attention::healthy(&layout, 512);
    let dual = Layout { keys: KeyKind::Dual, ..Layout::default() };
    let wide: Vec<WideKey> = packets.iter().map(|&key| key.into()).collect();
    // As hosts send what their applications write at once: eight packets of a flow back to back.
    let trains: Vec<FlowKey> =
        packets.iter().flat_map(|&key| [key; 8]).take(packets.len()).collect();
    let one_flow = vec![packets[0]; packets.len()];
    let plain = || family.clone().scalar();
    eprintln!("instructions: {}", family.engine().name());

    let mut all = vec![
        cases::hash("sketch.hash.ns", family.clone(), &packets),
        cases::hash("sketch.hash.scalar.ns", plain(), &packets),
        cases::ingress("sketch.ingress.mpps", family.clone(), &layout, healthy, &packets),
        cases::ingress(
            "sketch.ingress.wrapping.mpps",
            family.clone(),
            &wrapping,
            healthy,
            &packets,
        ),
        cases::ingress("sketch.ingress.scalar.mpps", plain(), &layout, healthy, &packets),
        cases::ingress("sketch.ingress.trains.mpps", family.clone(), &layout, healthy, &trains),
        cases::ingress("sketch.ingress.one_flow.mpps", family.clone(), &layout, healthy, &one_flow),
        cases::egress("sketch.egress.mpps", family.clone(), &layout, healthy, &packets),
        cases::egress("sketch.egress.wrapping.mpps", family.clone(), &wrapping, healthy, &packets),
        cases::egress("sketch.egress.scalar.mpps", plain(), &layout, healthy, &packets),
        cases::hash("sketch.hash.wide.ns", family.clone(), &wide),
        cases::ingress("sketch.ingress.wide.mpps", family.clone(), &dual, healthy, &wide),
        cases::egress("sketch.egress.wide.mpps", family.clone(), &dual, healthy, &wide),
        cases::em("sketch.em.ms", &family, &layout, &packets),
    ];
    all.extend([
        cases::hash("sketch.hash.ns", family.clone(), &packets).in_cycles("sketch.hash.cycles"),
        cases::ingress("sketch.ingress.mpps", family.clone(), &layout, healthy, &packets)
            .in_cycles("sketch.ingress.cycles"),
        cases::egress("sketch.egress.mpps", family.clone(), &layout, healthy, &packets)
            .in_cycles("sketch.egress.cycles"),
    ]);
    let conservative = Layout { insertion: Insertion::Cu, ..layout.clone() };
    all.push(cases::ingress(
        "sketch.ingress.cu.mpps",
        family.clone(),
        &conservative,
        healthy,
        &packets,
    ));
    for (mpps, cycles, layout) in [
        ("sketch.tower.mpps", "sketch.tower.cycles", &layout),
        ("sketch.tower.cu.mpps", "sketch.tower.cu.cycles", &conservative),
    ] {
        let case = || cases::classify(mpps, family.clone(), layout, &packets);
        all.extend([case(), case().in_cycles(cycles)]);
    }
    use Arithmetic::{Prime, Wrapping};
    for (name, arithmetic, flows, by_key) in [
        ("sketch.decode.ns_per_flow", Prime, 8_600, false),
        ("sketch.decode.by_key.ns_per_flow", Prime, 8_600, true),
        ("sketch.decode.1k.ns_per_flow", Prime, 1_000, false),
        ("sketch.decode.100k.ns_per_flow", Prime, 100_000, false),
        ("sketch.decode.1m.ns_per_flow", Prime, 1_000_000, false),
        ("sketch.decode.wrapping.ns_per_flow", Wrapping, 8_600, false),
        ("sketch.decode.wrapping.1m.ns_per_flow", Wrapping, 1_000_000, false),
    ] {
        all.push(cases::decode::<FlowKey>(name, family.clone(), arithmetic, flows, by_key));
    }
    all.extend([
        cases::decode::<FlowKey>("sketch.decode.scalar.ns_per_flow", plain(), Prime, 8_600, false),
        cases::decode::<WideKey>(
            "sketch.decode.wide.ns_per_flow",
            family.clone(),
            Prime,
            8_600,
            false,
        ),
    ]);
    for (name, arithmetic, load, hinted, stale) in [
        ("sketch.hinted.half.ns_per_flow", Prime, 0.95, 0.5, 0.0),
        ("sketch.hinted.most.ns_per_flow", Prime, 1.4, 0.8, 0.2),
        ("sketch.hinted.all.ns_per_flow", Prime, 2.5, 1.0, 0.0),
        ("sketch.hinted.wrapping.most.ns_per_flow", Wrapping, 1.4, 0.8, 0.2),
        ("sketch.hinted.wrapping.all.ns_per_flow", Wrapping, 3.6, 1.0, 0.0),
    ] {
        all.push(memory::hinted(name, family.clone(), arithmetic, load, hinted, stale));
    }
    for buckets in [4096, 1 << 20] {
        all.extend(cases::algebra(Prime, buckets));
    }
    all.extend(cases::algebra(Wrapping, 4096));
    let eal = peers::eal()?;
    all.extend(peers::inserts(&eal, &packets)?);
    all.extend(peers::decodes());
    all.extend(chosen::cases(&family, &eal));
    all.extend(cfs::cases());
    all.extend(sketchint::cases(&family, &packets));
    all.retain(|case| {
        cli.only.is_empty() || cli.only.iter().any(|text| case.name().contains(text))
    });

    let figures = measure::in_turns(all, cli.rounds.into());
    measure::write_table(&figures, &mut stdout().lock())?;
    if let Some(file) = cli.json {
        measure::write_json(&figures, &file)?;
    }
    Ok(())
}
