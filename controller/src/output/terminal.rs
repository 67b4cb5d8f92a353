//! Reports for people: a table that is redrawn in place, or a line an epoch where the output is no
//! terminal.

use std::collections::{HashMap, VecDeque};
use std::fmt::Write as _;
use std::io::Write;
use std::time::{Duration, Instant};

use calumma_analysis::Report;

use super::Output;
use crate::report::{DecodeState, EdgeReport, EpochReport, Flow};

/// Epochs that the live table shows.
const EPOCHS_SHOWN: usize = 10;

/// Flows that each of its lists shows.
const FLOWS_SHOWN: usize = 6;

/// Victim flows it adds up over the run; later ones are left out of the list and their number.
const MOST_VICTIMS: usize = 100_000;

/// How often it is redrawn: eyes follow no more.
const REDRAW: Duration = Duration::from_millis(200);

/// One line an epoch.
#[derive(Debug)]
pub struct PlainLines<W> {
    out: W,
    headed: bool,
}

impl<W: Write + Send> PlainLines<W> {
    /// Lines on `out`.
    pub fn new(out: W) -> Self {
        Self { out, headed: false }
    }
}

impl<W: Write + Send> Output for PlainLines<W> {
    fn report(&mut self, report: &dyn Report, _json: &str) {
        let Some(report) = report.as_type::<EpochReport>() else { return };
        let mut text = String::new();
        if !self.headed {
            text = heading() + "\n";
            self.headed = true;
        }
        text += &line(report);
        // A closed pipe must not stop the measurement.
        let _ = writeln!(self.out, "{text}");
    }
}

/// The live table.
#[derive(Debug)]
pub struct LiveTable<W> {
    out: W,
    lines: VecDeque<String>,
    victims: HashMap<Flow, u64>,
    lost: u64,
    /// Whether more may have been lost, in any epoch.
    bounded: bool,
    epochs: u64,
    incomplete: u64,
    /// Those between that never came: they were not reported, as while the controller stood still,
    /// or there was no room for their reports, since the terminal did.
    missed: u64,
    first: Option<u64>,
    last: Option<EpochReport>,
    drawn: Option<Instant>,
}

impl<W: Write + Send> LiveTable<W> {
    /// A table on a terminal.
    pub fn new(out: W) -> Self {
        Self {
            out,
            lines: VecDeque::new(),
            victims: HashMap::new(),
            lost: 0,
            bounded: false,
            epochs: 0,
            incomplete: 0,
            missed: 0,
            first: None,
            last: None,
            drawn: None,
        }
    }

    fn add(&mut self, report: &EpochReport) {
        self.epochs += 1;
        self.incomplete += u64::from(!report.complete);
        if self.lines.len() == EPOCHS_SHOWN {
            self.lines.pop_front();
        }
        self.lines.push_back(line(report));
        let next = self.last.as_ref().map_or(report.epoch, |last| last.epoch + 1);
        self.missed += report.epoch.saturating_sub(next);
        self.bounded |= !report.losses_are_exact() || self.missed > 0;
        for loss in report.loss.iter().filter(|loss| !loss.partial) {
            self.lost = self.lost.saturating_add(loss.lost);
            if self.victims.len() < MOST_VICTIMS || self.victims.contains_key(&loss.flow) {
                let lost = self.victims.entry(loss.flow).or_default();
                *lost = lost.saturating_add(loss.lost);
            }
        }
        let first = *self.first.get_or_insert(report.epoch);
        for of in report.amendments.iter().filter(|of| of.epoch >= first) {
            self.bounded |= of.late.is_none();
            self.lost = self.lost.saturating_sub(of.was - of.lost);
            if let Some(lost) = self.victims.get_mut(&of.flow) {
                *lost = lost.saturating_sub(of.was - of.lost);
            }
        }
        self.last = Some(report.clone());
    }

    fn screen(&self) -> String {
        let mut text = String::new();
        let at_least = if self.bounded { "at least " } else { "" };
        let more_than = match self.victims.len() {
            MOST_VICTIMS.. => "more than ",
            _ if self.missed > 0 => "at least ",
            _ => "",
        };
        let missed = match self.missed {
            0 => String::new(),
            missed => format!(", {missed} not reported or not shown"),
        };
        let mut victims: Vec<_> = self.victims.iter().filter(|(_, lost)| **lost > 0).collect();
        let _ = writeln!(
            text,
            "{} epochs, {} incomplete{missed}; {at_least}{} packets lost of {more_than}{} flows\n",
            self.epochs,
            self.incomplete,
            self.lost,
            victims.len()
        );
        let _ = writeln!(text, "{}", heading());
        self.lines.iter().for_each(|line| {
            let _ = writeln!(text, "{line}");
        });
        victims.sort_by(|a, b| b.1.cmp(a.1).then(a.0.cmp(b.0)));
        let _ = writeln!(text, "\nmost packets lost, whole run");
        for (flow, lost) in victims.into_iter().take(FLOWS_SHOWN) {
            let lost = if self.bounded { format!(">={lost}") } else { lost.to_string() };
            let _ = writeln!(text, "{lost:>10}  {flow}");
        }
        for edge in self.last.iter().flat_map(|report| &report.edges) {
            let _ = writeln!(text, "\nheavy hitters at {}, last epoch", edge.edge);
            for hitter in edge.heavy_hitters.iter().take(FLOWS_SHOWN) {
                let about = if hitter.size_min.is_some() { "~" } else { "" };
                let size = format!("{about}{}", hitter.size);
                let _ = writeln!(text, "{size:>10}  {}", hitter.flow);
            }
        }
        if let Some(doubt) = self.last.as_ref().and_then(doubt) {
            let _ = writeln!(text, "\n{doubt}");
        }
        text
    }

    fn draw(&mut self) {
        // Cursor home; every line clears its own rest, the last one what is below: no flicker.
        let screen = self.screen().replace('\n', "\x1b[K\n");
        let _ = write!(self.out, "\x1b[H{screen}\x1b[J");
        let _ = self.out.flush();
        self.drawn = Some(Instant::now());
    }
}

impl<W: Write + Send> Output for LiveTable<W> {
    fn report(&mut self, report: &dyn Report, _json: &str) {
        let Some(report) = report.as_type::<EpochReport>() else { return };
        if self.drawn.is_none() {
            let _ = write!(self.out, "\x1b[2J");
        }
        self.add(report);
        if self.drawn.is_none_or(|drawn| drawn.elapsed() >= REDRAW) {
            self.draw();
        }
    }

    fn finish(&mut self) -> anyhow::Result<()> {
        if self.last.is_some() {
            self.draw();
        }
        Ok(())
    }
}

/// Why not everything is known of an epoch's losses, if anything says so.
fn doubt(report: &EpochReport) -> Option<String> {
    if let Some(reason) = report.incomplete_because.first() {
        return Some(format!("incomplete: {reason}"));
    }
    let cause = report.causes.first().filter(|_| report.complete);
    let bounds = cause.map(|cause| format!("losses are lower bounds: {}", cause.reason));
    bounds.or_else(|| indistinct(report))
}

/// What there is of flows that can't be told apart.
fn indistinct(report: &EpochReport) -> Option<String> {
    let packets: i64 = report.indistinct.iter().map(|set| set.packets).sum();
    let any = !report.indistinct.is_empty();
    any.then(|| format!("{packets} packets of flows that can't be told apart"))
}

fn heading() -> String {
    format!(
        "{:>12} {:<10} {:>10} {:>10} {:>8} {:>7} {:>8} {:>7} {:>6}",
        "epoch", "state", "packets in", "out", "flows", "victims", "lost", "hitters", "load"
    )
}

/// An epoch on one line.
fn line(report: &EpochReport) -> String {
    let state = if !report.complete {
        "incomplete"
    } else {
        match report.decode.hl {
            DecodeState::Blocked => "blocked",
            DecodeState::Partial => "partial",
            _ if report.decode.ll == DecodeState::Partial => "partial",
            _ => "complete",
        }
    };
    let at_least = if report.losses_are_exact() { "" } else { ">=" };
    let or_dash = |number: Option<u64>, at_least: &str| {
        number.map_or("-".to_owned(), |number| format!("{at_least}{number}"))
    };
    // An edge that is away does not say what entered or left there.
    let sum = |of: fn(&EdgeReport) -> Option<u64>| {
        let packets = report.edges.iter().filter_map(of).reduce(u64::saturating_add);
        let is_bound = report.edges.iter().any(|edge| of(edge).is_none());
        or_dash(packets, if is_bound { ">=" } else { "" })
    };
    let known = report.losses_are_decoded();
    let lost = known.then(|| report.lost_packets());
    let victims = known.then(|| report.losses_left().count() as u64);
    let edges = &report.edges;
    let flows: Option<f64> = edges.iter().map(|edge| edge.cardinality).sum();
    let flows_at_least = edges.iter().any(|edge| edge.cardinality_error.is_none());
    let hitters: Option<u64> = edges.iter().map(EdgeReport::number_of_heavy_hitters).sum();
    let load = report.decode.hl_load_factor.map_or("-".to_owned(), |load| format!("{load:.3}"));
    let mut text = format!(
        "{:>12} {state:<10} {:>10} {:>10} {:>8} {:>7} {:>8} {:>7} {load:>6}",
        report.epoch,
        sum(|edge| edge.packets_in),
        sum(|edge| edge.packets_out),
        or_dash(flows.map(|flows| flows.round() as u64), if flows_at_least { ">=" } else { "" }),
        or_dash(victims, at_least),
        or_dash(lost, at_least),
        or_dash(hitters, ""),
    );
    if !report.missing_edges.is_empty() {
        let _ = write!(text, "  missing {}", report.missing_edges.join(", "));
    }
    if let Some(indistinct) = indistinct(report) {
        let _ = write!(text, "  {indistinct}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{Amendment, HeavyHitter, IndistinctFlows, Loss, LossClass, sample};

    fn flow(n: u8) -> Flow {
        Flow { src: [10, 1, 0, n].into(), dst: [10, 2, 0, 2].into(), sport: 7, dport: 80, proto: 6 }
    }

    fn report(epoch: u64, lost: u64) -> EpochReport {
        let sample = sample();
        let edge = EdgeReport {
            packets_in: Some(1000),
            heavy_hitters: vec![HeavyHitter { flow: flow(2), size: 900, size_min: Some(800) }],
            ..sample.edges[0].clone()
        };
        EpochReport {
            epoch,
            loss: vec![Loss {
                flow: flow(1),
                lost,
                class: LossClass::Heavy,
                partial: false,
                at_least: false,
            }],
            edges: vec![edge],
            ..sample
        }
    }

    #[test]
    fn the_table_adds_losses_up_and_shows_the_last_epochs() {
        let mut table = LiveTable::new(Vec::new());
        (0..15).for_each(|epoch| table.add(&report(epoch, 3)));
        let screen = table.screen();
        assert!(screen.starts_with("15 epochs, 0 incomplete; 45 packets lost of 1 flows"));
        assert!(screen.contains("        45  10.1.0.1:7 > 10.2.0.2:80 tcp"));
        assert!(screen.contains("      ~900  10.1.0.2:7 > 10.2.0.2:80 tcp"));
        assert_eq!(screen.lines().filter(|line| line.contains(" complete ")).count(), EPOCHS_SHOWN);
    }

    #[test]
    fn epochs_that_never_came_are_counted_and_leave_lower_bounds() {
        let mut table = LiveTable::new(Vec::new());
        [7, 8, 13].into_iter().for_each(|epoch| table.add(&report(epoch, 3)));
        let screen = table.screen();
        let head = "3 epochs, 0 incomplete, 4 not reported or not shown; \
                    at least 9 packets lost of at least 1 flows";
        assert!(screen.starts_with(head), "{screen}");
    }

    #[test]
    fn packets_of_flows_that_cannot_be_told_apart_are_shown() {
        let set = IndistinctFlows { packets: 5, class: LossClass::Heavy };
        let report = EpochReport { indistinct: vec![set], ..report(7, 3) };
        let line = line(&report);
        assert!(line.ends_with("  5 packets of flows that can't be told apart"), "{line}");
        let mut table = LiveTable::new(Vec::new());
        table.add(&report);
        assert!(table.screen().ends_with("\n5 packets of flows that can't be told apart\n"));
    }

    #[test]
    fn bounds_are_shown_as_such_and_what_is_not_known_as_a_dash() {
        let words = |report: &EpochReport| -> Vec<String> {
            line(report).split_whitespace().map(str::to_owned).collect()
        };
        assert_eq!(words(&report(7, 3))[4..8], ["412", "1", "3", "1"]);
        let mut bounded = report(7, 3);
        bounded.loss[0].at_least = true;
        bounded.edges[0].cardinality_error = None;
        assert_eq!(words(&bounded)[4..8], [">=412", ">=1", ">=3", "1"]);
        let mut missing = report(7, 3);
        let of_missing = EdgeReport {
            cardinality: None,
            heavy_hitters_complete: false,
            ..missing.edges[0].clone()
        };
        missing.edges.push(of_missing);
        assert_eq!(words(&missing)[4..8], ["-", "1", "3", "-"]);
        let mut partial = report(7, 3);
        partial.edges[0].hh_decode = DecodeState::Partial;
        partial.edges[0].heavy_hitters_complete = false;
        partial.decode.hl = DecodeState::Blocked;
        assert_eq!(words(&partial)[4..8], ["412", "-", "-", "-"]);

        let mut table = LiveTable::new(Vec::new());
        table.add(&report(6, u64::MAX));
        table.add(&bounded);
        let screen = table.screen();
        let most = u64::MAX;
        assert!(screen.contains(&format!("; at least {most} packets lost of 1 flows")), "{screen}");
        assert!(screen.contains(&format!(">={most}  10.1.0.1:7")), "{screen}");
        let flow = |n: u64| Flow { sport: n as u16, proto: (n >> 16) as u8, ..flow(9) };
        table.victims.extend((0..MOST_VICTIMS as u64).map(|n| (flow(n), 1)));
        assert!(table.screen().contains(" of more than 100001 flows"), "{}", table.screen());
    }

    #[test]
    fn packets_are_a_lower_bound_where_an_edge_does_not_say_how_many() {
        let packets = |of_edges: &[(Option<u64>, Option<u64>)]| -> Vec<String> {
            let mut report = report(7, 3);
            let edge = report.edges.remove(0);
            report.edges = of_edges
                .iter()
                .map(|&(packets_in, packets_out)| EdgeReport {
                    packets_in,
                    packets_out,
                    ..edge.clone()
                })
                .collect();
            line(&report).split_whitespace().skip(2).take(2).map(str::to_owned).collect()
        };
        assert_eq!(packets(&[(Some(5), Some(4)), (Some(2), Some(3))]), ["7", "7"]);
        assert_eq!(packets(&[(Some(5), Some(4)), (None, Some(3))]), [">=5", "7"]);
        assert_eq!(packets(&[(Some(5), None), (None, None)]), [">=5", "-"]);
        assert_eq!(packets(&[]), ["-", "-"]);
    }

    #[test]
    fn what_later_epochs_take_back_is_no_longer_in_the_table() {
        let amended = |epoch, was, lost| Amendment {
            epoch,
            flow: flow(1),
            was,
            lost,
            late: Some(was - lost),
            at_most_late: None,
            why: String::new(),
        };
        let mut table = LiveTable::new(Vec::new());
        table.add(&report(7, 3));
        // One of an epoch that was not shown takes nothing back.
        let amendments = vec![amended(5, 9, 0), amended(7, 3, 1)];
        let nothing = EpochReport { loss: Vec::new(), ..report(8, 0) };
        table.add(&EpochReport { amendments, ..nothing.clone() });
        assert!(table.screen().contains("; 1 packets lost of 1 flows"), "{}", table.screen());
        table.add(&EpochReport { amendments: vec![amended(7, 1, 0)], ..nothing });
        assert!(table.screen().contains("; 0 packets lost of 0 flows"), "{}", table.screen());
    }

    #[test]
    fn an_incomplete_epoch_shows_no_losses_but_who_is_missing() {
        let mut incomplete = report(7, 3);
        incomplete.complete = false;
        incomplete.missing_edges = vec!["e2".to_owned()];
        let line = line(&incomplete);
        assert!(line.contains("incomplete") && line.ends_with("missing e2"), "{line}");

        let mut lines = PlainLines::new(Vec::new());
        lines.report(&incomplete, "");
        lines.report(&report(8, 3), "");
        let text = String::from_utf8(lines.out).unwrap();
        assert_eq!(text.lines().count(), 3);
        assert_eq!(text.matches("packets in").count(), 1);
    }
}
