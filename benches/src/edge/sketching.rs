//! Edges with INT: as source and sink between a pair of ports, and as a switch between others. At
//! the source with ChameleMon beside it as well; a sink's packets all carry one timestamp bit, so
//! that ChameleMon would record half of them.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::link::Analysis;

/// The deployment's number, which the generator's packets have in their stacks.
pub(super) const DOMAIN: u16 = 51_728;

/// Hops of the packets that come to a sink, and to a switch between others.
pub(super) const HOPS_TO_SINK: u8 = 5;
pub(super) const HOPS_TO_TRANSIT: u8 = 2;

/// Where an edge stands on the way of the generator's packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// They come from hosts.
    Source,
    /// They go to hosts, with [`HOPS_TO_SINK`] hops.
    Sink,
    /// They go from fabric to fabric, with [`HOPS_TO_TRANSIT`] hops, by routes.
    Transit,
}

/// An edge with INT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sketching {
    place: Place,
    /// Whether ChameleMon is on as well.
    beside: bool,
}

impl Sketching {
    /// All of them.
    pub const ALL: [Self; 4] = [
        Self { place: Place::Source, beside: false },
        Self { place: Place::Sink, beside: false },
        Self { place: Place::Transit, beside: false },
        Self { place: Place::Source, beside: true },
    ];

    /// Its name among the figures.
    pub(super) fn name(self) -> String {
        let systems = if self.beside { "chamelemon_sketchint" } else { "sketchint" };
        let place = match self.place {
            Place::Source => "source",
            Place::Sink => "sink",
            Place::Transit => "transit",
        };
        format!("edge.{systems}.{place}")
    }

    /// Hops of the stacks that packets come with.
    pub(super) fn hops(self) -> u8 {
        match self.place {
            Place::Source => 0,
            Place::Sink => HOPS_TO_SINK,
            Place::Transit => HOPS_TO_TRANSIT,
        }
    }

    /// Whether it is a router, and no bump in the wire.
    pub(super) fn is_routed(self) -> bool {
        self.place == Place::Transit
    }

    /// Its ports, where those of an edge that packets of hosts come to are `paired` or `routed`.
    pub(super) fn ports(self, paired: &str, routed: &str) -> String {
        let swapped = |ports: &str| {
            let [host, fabric] = [r#"role = "host""#, r#"role = "fabric""#];
            ports.replace(host, "role = \"\"").replace(fabric, host).replace("role = \"\"", fabric)
        };
        match self.place {
            Place::Source => paired.to_owned(),
            Place::Sink => swapped(paired),
            Place::Transit => between(routed),
        }
    }

    /// What the controller is to do. A window is half a second.
    pub(super) fn analysis(self) -> Analysis {
        let both = vec!["chamelemon", "sketchint"];
        let systems = if self.beside { both } else { vec!["sketchint"] };
        Analysis { systems, sections: "[sketchint]\nwindow_epochs = 10\n".to_owned() }
    }

    /// Whether INT is on, by the controller's reports.
    pub(super) fn is_on(self, reports: &Path) -> Result<bool> {
        let reports = windows(reports)?;
        Ok(reports.iter().any(|report| report["state"] == "on" && report["complete"] == true))
    }

    /// Checks that the reports know of the packets that had stacks.
    pub(super) fn check_reports(self, reports: &Path) -> Result<()> {
        if self.place != Place::Sink {
            return Ok(());
        }
        let windows = windows(reports)?;
        let met = windows.iter().filter_map(|report| report["coverage"]["int_packets"].as_u64());
        ensure!(met.sum::<u64>() > 0, "no report has packets with INT");
        Ok(())
    }

    /// Checks what an edge has counted, `total` by name: that it did what it is named for.
    pub(super) fn check(self, total: &impl Fn(&str) -> u64) -> Result<()> {
        let (received, done) = match self.place {
            Place::Source => ("received.host", "sketchint.inserted"),
            Place::Sink => ("received.fabric", "sketchint.stripped"),
            Place::Transit => ("received.fabric", "sketchint.pushed"),
        };
        let recorded = match self.place {
            Place::Source => "ingress.recorded",
            Place::Sink | Place::Transit => "egress.recorded",
        };
        let received = total(received);
        ensure!(received > 0, "the edge received no packet");
        for counted in [Some(done), self.beside.then_some(recorded)].into_iter().flatten() {
            let packets = total(counted);
            ensure!(
                packets * 100 > received * 95,
                "{counted} is only {packets} of {received} packets"
            );
        }
        Ok(())
    }
}

/// The ports of a switch between others, where those of an edge are `routed`.
pub(super) fn between(routed: &str) -> String {
    routed.replace(r#"role = "host""#, r#"role = "fabric""#)
}

/// Reports on windows of INT.
fn windows(reports: &Path) -> Result<Vec<Value>> {
    let reports = fs::read_to_string(reports).unwrap_or_default();
    let whole = reports.lines().take_while(|line| line.ends_with('}'));
    let all = whole.map(|line| serde_json::from_str(line).context("a report"));
    let mut all = all.collect::<Result<Vec<Value>>>()?;
    all.retain(|report| report["system"] == "sketchint");
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_of_a_sink_are_those_of_a_source_the_other_way_round() {
        let paired = "name = \"a\"\nrole = \"host\"\nname = \"b\"\nrole = \"fabric\"\n";
        let [source, sink, transit, ..] = Sketching::ALL.map(|which| which.ports(paired, paired));
        assert_eq!(source, paired);
        assert_eq!(sink, "name = \"a\"\nrole = \"fabric\"\nname = \"b\"\nrole = \"host\"\n");
        assert_eq!(transit, "name = \"a\"\nrole = \"fabric\"\nname = \"b\"\nrole = \"fabric\"\n");
    }
}
