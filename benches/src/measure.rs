//! Measuring cases in turns, so that whatever slows the machine for a while slows all alike.

use std::fs;
use std::hint::black_box;
use std::io::Write;
use std::path::Path;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use nix::sys::time::TimeSpec;
use nix::time::{ClockId, clock_gettime};
use serde::Serialize;

/// A stopwatch of the time that this thread has the CPU, which other work on the machine lengthens
/// by what it does to the caches only.
#[derive(Debug)]
pub struct Watch(TimeSpec);

impl Watch {
    /// Starts one.
    pub fn start() -> Self {
        Self(now())
    }

    /// Nanoseconds since the start.
    pub fn nanos(&self) -> f64 {
        let past = now() - self.0;
        past.tv_sec() as f64 * 1e9 + past.tv_nsec() as f64
    }
}

fn now() -> TimeSpec {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).expect("Linux has a CPU clock for each thread")
}

/// Something to measure: each call runs it once and gives one reading in `unit`.
pub struct Case<'a> {
    name: String,
    unit: &'static str,
    run: Box<dyn FnMut() -> f64 + 'a>,
}

impl<'a> Case<'a> {
    /// A case of this name and unit.
    pub fn new(name: &str, unit: &'static str, run: impl FnMut() -> f64 + 'a) -> Self {
        Self { name: name.into(), unit, run: Box::new(run) }
    }

    /// The same, read in cycles of the core for each packet or flow, not in nanoseconds or millions
    /// a second; the clock is measured beside every reading.
    ///
    /// # Panics
    /// When a reading is of another unit than `Mpps` or one that begins with `ns/`.
    pub fn in_cycles(self, name: &str) -> Self {
        let Self { unit, mut run, .. } = self;
        let cycles = match unit {
            "Mpps" => "cycles/packet",
            "ns/packet" => "cycles/packet",
            "ns/flow" => "cycles/flow",
            _ => panic!("{unit}: not the time of one packet or flow"),
        };
        Self::new(name, cycles, move || {
            let reading = run();
            let nanos = if unit == "Mpps" { 1_000.0 / reading } else { reading };
            nanos * cycles_per_nano()
        })
    }

    /// What is measured, as it will stand in the table.
    pub fn name(&self) -> &str {
        &self.name
    }
}

/// Ticks of the time stamp counter in a nanosecond, by the system's clock: DPDK knows them only
/// once an EAL is there, and most steps are measured without one.
pub fn tsc_per_nano() -> f64 {
    static TICKS: OnceLock<f64> = OnceLock::new();
    *TICKS.get_or_init(|| {
        let (began, first) = (Instant::now(), dpdk::tsc());
        std::thread::sleep(Duration::from_millis(50));
        let (nanos, last) = (began.elapsed().as_nanos(), dpdk::tsc());
        (last - first) as f64 / nanos as f64
    })
}

/// Cycles of this core in a nanosecond, from a chain of multiplications that wait for each other.
/// Assumes that each takes three cycles, which holds for the x86-64 cores of Intel since 2008 and
/// of AMD since 2017. The time stamp counter would not do: it does not follow the core's clock.
pub fn cycles_per_nano() -> f64 {
    const STEPS: u32 = 1_000_000;
    let start = Watch::start();
    let mut value = black_box(3_u64);
    for _ in 0..STEPS / 8 {
        for _ in 0..8 {
            value = value.wrapping_mul(value);
        }
        value = black_box(value);
    }
    f64::from(3 * STEPS) / start.nanos()
}

/// The readings of a case.
#[derive(Clone, Debug, Serialize)]
pub struct Figure {
    /// What was measured, its parts separated by dots.
    pub name: String,
    /// Of what the numbers are.
    pub unit: &'static str,
    /// The middle reading.
    pub median: f64,
    /// The lowest reading.
    pub min: f64,
    /// The highest reading.
    pub max: f64,
}

impl Figure {
    /// The figure of some readings.
    ///
    /// # Panics
    /// When there is none.
    pub fn of(name: String, unit: &'static str, mut readings: Vec<f64>) -> Self {
        readings.sort_by(f64::total_cmp);
        let (min, max) = (readings[0], readings[readings.len() - 1]);
        Self { name, unit, median: readings[readings.len() / 2], min, max }
    }

    /// The figure of what can't be measured on this machine: null in JSON.
    pub fn missing(name: String, unit: &'static str) -> Self {
        Self { name, unit, median: f64::NAN, min: f64::NAN, max: f64::NAN }
    }

    /// Whether there is no value.
    pub fn is_missing(&self) -> bool {
        self.median.is_nan()
    }
}

/// Runs every case once to warm up and then `rounds` times, all of them taking turns.
///
/// # Panics
/// When there is no round.
pub fn in_turns(mut cases: Vec<Case<'_>>, rounds: usize) -> Vec<Figure> {
    assert!(rounds > 0, "at least one round");
    let mut readings = vec![Vec::with_capacity(rounds); cases.len()];
    for case in &mut cases {
        (case.run)();
    }
    for _ in 0..rounds {
        for (case, readings) in cases.iter_mut().zip(&mut readings) {
            readings.push((case.run)());
        }
    }
    let figure = |(case, readings): (Case<'_>, _)| Figure::of(case.name, case.unit, readings);
    cases.into_iter().zip(readings).map(figure).collect()
}

/// Writes the figures as a table.
///
/// # Errors
/// When `out` can't be written to.
pub fn write_table(figures: &[Figure], out: &mut impl Write) -> std::io::Result<()> {
    let width = figures.iter().map(|figure| figure.name.len()).max().unwrap_or(0);
    writeln!(out, "{:width$}  {:>10}  {:>10}  {:>10}  unit", "", "median", "min", "max")?;
    for figure in figures {
        let Figure { name, unit, median, min, max } = figure;
        if figure.is_missing() {
            writeln!(out, "{name:width$}  {0:>10}  {0:>10}  {0:>10}  {unit}", "null")?;
        } else {
            writeln!(out, "{name:width$}  {median:>10.2}  {min:>10.2}  {max:>10.2}  {unit}")?;
        }
    }
    Ok(())
}

/// Writes the figures as a JSON list.
///
/// # Errors
/// When the file can't be written.
pub fn write_json(figures: &[Figure], file: &Path) -> Result<()> {
    let mut json = serde_json::to_vec_pretty(figures).context("figures as JSON")?;
    json.push(b'\n');
    fs::write(file, json).with_context(|| format!("writing {}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_and_a_time_give_the_same_cycles() {
        let rate = Case::new("a.mpps", "Mpps", || 100.0).in_cycles("a.cycles");
        let time = Case::new("a.ns", "ns/packet", || 10.0).in_cycles("b.cycles");
        for figure in in_turns(vec![rate, time], 3) {
            assert_eq!(figure.unit, "cycles/packet");
            assert!((1.0..100.0).contains(&figure.median), "{figure:?}");
        }
    }

    #[test]
    fn the_time_stamp_counter_ticks_without_an_eal() {
        assert!((0.5..10.0).contains(&tsc_per_nano()), "{}", tsc_per_nano());
    }

    #[test]
    fn a_figure_is_the_middle_of_what_was_read_after_the_warm_up() {
        let mut readings = [99.0, 3.0, 1.0, 2.0].into_iter();
        let case = Case::new("a.b", "ns", || readings.next().unwrap());
        let figures = in_turns(vec![case], 3);
        assert_eq!((figures[0].median, figures[0].min, figures[0].max), (2.0, 1.0, 3.0));
        let mut table = Vec::new();
        write_table(&figures, &mut table).unwrap();
        assert!(String::from_utf8(table).unwrap().contains("a.b"));
    }

    #[test]
    fn what_could_not_be_measured_is_null() {
        let figure = Figure::missing("a.b".to_owned(), "ns");
        let json = serde_json::to_value(&figure).unwrap();
        assert!(json["median"].is_null() && json["min"].is_null() && json["max"].is_null());
        let mut table = Vec::new();
        write_table(&[figure], &mut table).unwrap();
        let table = String::from_utf8(table).unwrap();
        assert!(table.contains("null") && !table.contains("NaN"), "{table}");
    }
}
