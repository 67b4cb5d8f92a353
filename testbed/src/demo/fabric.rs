//! The demo of a system that counts flows at every switch: leaves and spines that are all real
//! switches, one wire between two of them that loses packets, and what the system counted of each
//! flow beside what the kernel logged on the wires.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Result, ensure};
use calumma_analysis::{Flow, Report, SystemReport};
use calumma_cfs_analysis::{Found, Loss};
use calumma_sketch::WideKey;

use crate::live::Live;
use crate::scenario::{Scenario, play_in};
use crate::simulate::{Came, EpochTruth};
use crate::table::table;
use crate::topology::{Place, Point, Topology};

/// The fabric and its traffic; how long it lasts is the operator's to say.
const SCENARIO: &str = include_str!("fabric.toml");

/// Epochs of the scenario in a second.
const EPOCHS_A_SECOND: u64 = 10;

/// Flows that are printed before they are only counted.
const ROWS: usize = 40;

/// A flow in all windows of which every flow was counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Row {
    /// Packets that entered the network by the wires, and those that routers then lost while others
    /// came through, or where the system names flows of which none did.
    wires: [u64; 2],
    /// The same by the system.
    system: [u64; 2],
    /// Where routers lost packets, and where the system says that they were lost.
    lost_at: BTreeSet<String>,
    named: BTreeSet<String>,
}

impl Row {
    fn is_equal(&self) -> bool {
        self.wires == self.system && self.lost_at == self.named
    }
}

/// What windows have shown.
#[derive(Debug, Default)]
struct Sums {
    rows: BTreeMap<WideKey, Row>,
    /// Packets lost of flows of which none came behind the wire in that window, where the system
    /// could not prove it.
    unseen: u64,
    /// Windows that are in the rows, and why others are not.
    windows: usize,
    others: BTreeMap<String, usize>,
}

impl Sums {
    /// Adds a report, with what happened in its window.
    fn add(&mut self, report: &dyn Report, truth: &EpochTruth, topology: &Topology) {
        let Some(report) = report.as_type::<SystemReport<Found>>() else { return };
        let found = &report.findings;
        if !report.complete || found.flows_total_error != Some(0.0) {
            let because = match report.incomplete_because.first() {
                Some(because) => because.clone(),
                None => "not every flow has an entry".to_owned(),
            };
            *self.others.entry(because).or_default() += 1;
            return;
        }
        self.windows += 1;
        let counts =
            found.flows.iter().map(|count| (count.flow, count)).collect::<BTreeMap<_, _>>();
        let mut vanished = BTreeSet::new();
        for (key, came) in truth.came.iter().flatten() {
            let row = self.rows.entry(*key).or_default();
            row.wires[0] += came.values().map(|came| came.entered).sum::<u64>();
            let count = counts.get(&Flow::from(key)).filter(|count| count.exact);
            row.system[0] += count.map_or(0, |count| count.packets);
            for loss in found.losses.iter().filter(|loss| loss.flow == Flow::from(key)) {
                row.system[1] += loss.lost;
                if has_vanished(loss, came, topology) {
                    // Between where it was last and where it should have left: several wires.
                    vanished.insert(*key);
                } else {
                    row.named.insert(wire(&loss.place));
                }
            }
        }
        for flow in &truth.flows {
            let came = truth.came.as_ref().and_then(|came| came.get(&flow.key));
            for &(segment, lost) in &flow.losses {
                let (Point::In(behind) | Point::Out(behind)) = segment.to;
                let is_behind = came.is_some_and(|switches| switches.contains_key(&behind));
                if !is_behind && !vanished.contains(&flow.key) {
                    self.unseen += u64::from(lost);
                    continue;
                }
                let row = self.rows.entry(flow.key).or_default();
                row.wires[1] += u64::from(lost);
                if !is_behind {
                    continue;
                }
                row.lost_at.insert(wire(&topology.place(segment)));
            }
        }
    }
}

/// Whether nothing of a flow that came by these switches came to where a loss ends.
fn has_vanished(loss: &Loss, came: &BTreeMap<usize, Came>, topology: &Topology) -> bool {
    let to = loss.place.to.split(':').next().and_then(|name| topology.position(name));
    to.is_none_or(|to| came.get(&to).is_none_or(|came| came.packets == 0))
}

/// The wire between two switches, in one direction.
fn wire(place: &Place) -> String {
    let node = |point: &str| point.split(':').next().unwrap_or_default().to_owned();
    format!("{} > {}", node(&place.from), node(&place.to))
}

/// What the demo showed.
#[derive(Debug)]
pub struct FabricDemo {
    sums: Sums,
    /// What reports claimed that is not so.
    wrong: Vec<String>,
    doubts: Vec<String>,
}

/// Plays the demo for so many seconds, prints a line for each window, and writes the system's
/// reports and what wires say to `out`. `testbed` is the calumma-testbed program, beside which
/// those of switches and the controller lie.
///
/// # Errors
/// When the user is not root, or something breaks down.
pub fn run(seconds: u32, testbed: &Path, out: &Path) -> Result<FabricDemo> {
    let mut scenario = Scenario::parse(SCENARIO, Path::new("."))?;
    scenario.epochs = scenario.epochs.max(u64::from(seconds) * EPOCHS_A_SECOND);
    let mut live = Live::start(&scenario, testbed)?;
    live.write_to(out)?;
    let sums = Arc::new(Mutex::new(Sums::default()));
    let topology = scenario.topology()?;
    live.watch_systems({
        let sums = sums.clone();
        move |report, reported, truth| {
            println!("{}", reported.to_line());
            let mut sums = sums.lock().unwrap_or_else(PoisonError::into_inner);
            sums.add(report, truth, &topology);
        }
    });
    let played = play_in(&mut live, &scenario, |_, _| Ok(()))?;
    let wrong = played.contradictions().map(|(epoch, wrong)| format!("epoch {epoch}: {wrong}"));
    let (wrong, doubts) = (wrong.collect(), played.doubts.clone());
    let sums = std::mem::take(&mut *sums.lock().unwrap_or_else(PoisonError::into_inner));
    ensure!(sums.windows > 0, "no window was whole: {:?}, {doubts:?}", sums.others);
    Ok(FabricDemo { sums, wrong, doubts })
}

impl FabricDemo {
    /// Whether both sides agree on every flow, packets were lost, and nothing else was wrong.
    pub fn is_equal(&self) -> bool {
        let mut rows = self.sums.rows.values();
        let any_lost = self.sums.rows.values().any(|row| row.wires[1] > 0);
        self.wrong.is_empty() && any_lost && rows.all(Row::is_equal)
    }

    /// The result for a terminal: flows that differ first, then those that lost most.
    pub fn to_text(&self) -> String {
        let mut rows: Vec<(&WideKey, &Row)> = self.sums.rows.iter().collect();
        rows.sort_by_key(|(_, row)| (row.is_equal(), Reverse(row.wires[1]), Reverse(row.wires[0])));
        let cells: Vec<_> = rows.iter().take(ROWS).map(|(key, row)| cells(key, row)).collect();
        let mut text = table(
            ["flow", "wires: packets", "lost", "CFS: packets", "lost", "where, by CFS", ""],
            &cells,
        );
        if rows.len() > ROWS {
            text += &format!("... and {} flows more\n", rows.len() - ROWS);
        }
        let sum = |of: fn(&Row) -> u64| -> u64 { rows.iter().map(|(_, row)| of(row)).sum() };
        text += &format!(
            "\n{} flows in {} windows: {} packets by the wires, {} by CFS; {} lost by the routers, {} \
             by CFS\n",
            rows.len(),
            self.sums.windows,
            sum(|row| row.wires[0]),
            sum(|row| row.system[0]),
            sum(|row| row.wires[1]),
            sum(|row| row.system[1]),
        );
        if self.sums.unseen > 0 {
            text += &format!(
                "{} lost besides, of flows of which none came through in that window and no switch \
                 could prove it: nothing to compare there\n",
                self.sums.unseen
            );
        }
        let named: BTreeSet<&String> = rows.iter().flat_map(|(_, row)| &row.named).collect();
        text += &format!("lossy wires: {}\n", join(named));
        for (because, windows) in &self.sums.others {
            text += &format!("{windows} windows left out: {because}\n");
        }
        for wrong in &self.wrong {
            text += &format!("WRONG: {wrong}\n");
        }
        for doubt in &self.doubts {
            text += &format!("beside what routers logged: {doubt}\n");
        }
        let differ = rows.iter().filter(|(_, row)| !row.is_equal()).count();
        text += &match differ {
            0 => "equal for every flow\n".to_owned(),
            _ => format!("DIFFERENT for {differ} flows\n"),
        };
        text
    }
}

fn cells(key: &WideKey, row: &Row) -> [String; 7] {
    let Flow { src, dst, sport, dport, proto } = key.into();
    let [from, to] = [SocketAddr::new(src, sport), SocketAddr::new(dst, dport)];
    let number = |number: u64| number.to_string();
    [
        format!("{from} > {to} {proto}"),
        number(row.wires[0]),
        number(row.wires[1]),
        number(row.system[0]),
        number(row.system[1]),
        join(&row.named),
        if row.is_equal() { "" } else { "differs" }.to_owned(),
    ]
}

fn join<'a>(names: impl IntoIterator<Item = &'a String>) -> String {
    names.into_iter().map(String::as_str).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::host_address;

    fn demo(row: Row) -> FabricDemo {
        let key = WideKey::v4(host_address(0, 0), host_address(1, 0), 7, 53, 17);
        let rows = BTreeMap::from([(key, row)]);
        let sums = Sums { rows, windows: 1, ..Sums::default() };
        FabricDemo { sums, wrong: Vec::new(), doubts: Vec::new() }
    }

    #[test]
    fn the_demo_fails_where_a_count_a_loss_or_its_place_differs() {
        let place = || BTreeSet::from(["e1 > s1".to_owned()]);
        let right = Row { wires: [9, 2], system: [9, 2], lost_at: place(), named: place() };
        assert!(demo(right.clone()).is_equal());
        assert!(demo(right.clone()).to_text().ends_with("equal for every flow\n"));
        let lossless = Row { wires: [9, 0], system: [9, 0], ..Row::default() };
        assert!(!demo(lossless).is_equal());
        let elsewhere = BTreeSet::from(["s1 > e2".to_owned()]);
        for row in [
            Row { system: [8, 2], ..right.clone() },
            Row { system: [9, 1], ..right.clone() },
            Row { named: elsewhere, ..right.clone() },
        ] {
            let demo = demo(row);
            assert!(!demo.is_equal());
            assert!(demo.to_text().ends_with("DIFFERENT for 1 flows\n"), "{}", demo.to_text());
        }
        let wrong = FabricDemo { wrong: vec!["epoch 7".to_owned()], ..demo(right) };
        assert!(!wrong.is_equal());
    }
}
