//! A live fabric for many minutes: applications and made-up traffic over links that lose and double
//! packets, every report held against the kernel's log of them and, of SketchINT, against captures;
//! where asked for, while its programs are killed and stand still.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};
use calumma_chamelemon_analysis::NAME;
use calumma_sketchint_analysis::SketchInt;

use crate::scenario::Scenario;
use crate::scenario::command::{Order, play_all};
use crate::system::{self, SYSTEMS};
use crate::topology::{LinkQuality, Topology};
use crate::workload::Draw;

/// What is done; the words in capitals are put in. Every report that claims to be certain must be
/// so in any scenario; these expectations only see to it that most do.
const SCENARIO: &str = r#"
title = "A live fabric under way: links DO packets"
epochs = EPOCHS
topology = "TOPOLOGY"
systems = SYSTEMS
detail = "packets"
spread = 0.8
links = { QUALITY }
SECTIONS
"#;

/// What links do, and how.
const LOSE_AND_DOUBLE: [&str; 2] = ["lose and double", "loss = 0.01, duplicate = 0.002"];
const LOSE: [&str; 2] = ["lose", "loss = 0.01"];

/// What ChameleMon's reports are to say.
const LOSSES_ARE_NAMED: &str = r#"
[[expect]]
says = "reports claim to be whole, and name losses"
epochs = [0, EPOCHS]
share = SHARE
decoded = true
"#;

/// What those of another system are to.
const WINDOWS_ARE_WHOLE: &str = r#"
[[expect]]
says = "windows of NAME are whole"
system = "NAME"
epochs = [0, EPOCHS]
share = SHARE
complete = true
"#;

/// How fast a fabric is soaked.
struct Pace {
    /// Length of an epoch in milliseconds.
    epoch_ms: u64,
    /// Epochs from one trouble to the next.
    apart: u64,
    /// Within how many of them reports are to be whole again.
    again: u64,
    /// What links do.
    links: [&'static str; 2],
    /// What else is in the scenario.
    sections: &'static [&'static str],
}

/// What hosts send.
const TRAFFIC: &str = r#"
[traffic.services]
flows = 120
sizes = "constant:5"
tcp = 0.5
churn = 0.05

[traffic.victims]
flows = 20
sizes = "constant:20"
victims = 0.5
"#;

/// Of software switches. One that starts takes a second until it forwards.
const SOFTWARE: Pace = Pace {
    epoch_ms: 50,
    apart: 80,
    again: 60,
    links: LOSE_AND_DOUBLE,
    sections: &[
        r#"
[[application]]
kind = "tcp"
from = "e1"
to = "e2"
mbit = 8

[[application]]
kind = "udp"
from = "e2"
to = "e1"
mbit = 4

[[application]]
kind = "short"
from = "e1"
to = "e2"
connections = 5

[[application]]
kind = "http"
from = "e2"
to = "e1"
requests = 10
"#,
        TRAFFIC,
    ],
};

/// Where a switch is a modelled Tofino, which has to hand out its registers within an epoch, and to
/// clear them: a pass through the model for each element. A control plane that starts has its
/// switch ready after a second, and measures from the next epoch but one on.
const MODELLED: Pace = Pace {
    epoch_ms: 500,
    apart: 12,
    again: 7,
    links: LOSE_AND_DOUBLE,
    sections: &[
        r#"
grace_ms = 2000

[epoch]
length_ms = 500
clock_guard_us = 10000
flight_guard_us = 150000

[layout]
upstream_buckets = 256
downstream_buckets = 192
classifier = [{ bits = 8, counters = 1024 }, { bits = 16, counters = 512 }]

[attention]
hl_buckets = 64

[tasks]
heavy_hitter = 100

[[application]]
kind = "tcp"
from = "e1"
to = "e2"
mbit = 2

[[application]]
kind = "short"
from = "e2"
to = "e1"
connections = 5
"#,
        TRAFFIC,
    ],
};

/// Where other systems than ChameleMon run, whose truth is every packet on the wires next to
/// switches: as in `testbed/scenarios/live/cfs/fabric.toml`, which says how far they are apart.
/// The controller remembers the reports of a minute, and holds as much from then on.
const WIRED: &str = r#"
grace_ms = 2000
history = 60
edges = "routed"

[epoch]
length_ms = 100
clock_guard_us = 5000
flight_guard_us = 40000

[system.cfs]
entries = 256
window_epochs = 10
hop_offset = 54
hop_step = 3
flows_listed = 10000

[[application]]
kind = "tcp"
from = "e1"
to = "e2"
mbit = 4

[[application]]
kind = "udp"
from = "e2"
to = "e1"
mbit = 2
"#;

const EVERY_PACKET: Pace = Pace {
    epoch_ms: 100,
    apart: 60,
    again: 40,
    links: LOSE_AND_DOUBLE,
    sections: &[
        WIRED,
        // Who stays at an edge would come to it twice.
        r#"
[traffic.services]
flows = 120
sizes = "constant:5"
tcp = 0.5
churn = 0.05
local_share = 0.0

[traffic.victims]
flows = 20
sizes = "constant:20"
victims = 0.5
local_share = 0.0
"#,
    ],
};

/// Where SketchINT runs besides. Each packet is captured six times or more, and captures know no
/// copies. Stacks are put in again some seconds after an edge was killed.
const CAPTURED: Pace = Pace {
    epoch_ms: 100,
    apart: 150,
    again: 40,
    links: LOSE,
    sections: &[
        // Links of 1500 have room for six hops behind it.
        "host_mtu = 1436",
        WIRED,
        r#"
[system.sketchint]
window_epochs = 10
quantiles = 64
flows_limit = 100000

[[application]]
kind = "short"
from = "e1"
to = "e2"
connections = 5

[[application]]
kind = "http"
from = "e2"
to = "e1"
requests = 5

[traffic.services]
flows = 60
sizes = "constant:2"
tcp = 0.5
churn = 0.02
local_share = 0.0

[traffic.victims]
flows = 10
sizes = "constant:4"
victims = 0.5
local_share = 0.0
"#,
    ],
};

/// What is soaked.
#[derive(Clone, Copy, Debug)]
pub struct Fabric<'a> {
    /// The topology's name, with what its switches are.
    pub topology: &'a str,
    /// The systems that run.
    pub systems: &'a [String],
}

impl Fabric<'_> {
    fn network(&self) -> Result<Topology> {
        Topology::load(self.topology, Path::new("."), LinkQuality::default())
    }

    /// How fast it is soaked.
    fn pace(&self) -> Result<&'static Pace> {
        system::check(SYSTEMS, self.systems)?;
        let network = self.network()?;
        let modelled = (0..network.switches()).any(|at| network.is_tofino(at));
        let is_alone = self.systems == [NAME];
        ensure!(is_alone || !modelled, "{}: of Tofinos, ChameleMon alone is soaked", self.topology);
        Ok(match (is_alone, modelled) {
            (false, _) if self.runs(system::name(&SketchInt)) => &CAPTURED,
            (false, _) => &EVERY_PACKET,
            (true, true) => &MODELLED,
            (true, false) => &SOFTWARE,
        })
    }

    fn runs(&self, name: &str) -> bool {
        self.systems.iter().any(|system| system == name)
    }

    /// The text of a scenario of so many epochs, a share of which is to be whole.
    fn text(&self, epochs: u64, share: f64) -> Result<String> {
        let Pace { links: [they, quality], sections, .. } = self.pace()?;
        let mut text = SCENARIO
            .replace("SECTIONS", &sections.join("\n"))
            .replace("DO", they)
            .replace("QUALITY", quality)
            .replace("TOPOLOGY", self.topology)
            .replace("SYSTEMS", &format!("{:?}", self.systems));
        for name in self.systems {
            text += &match name.as_str() {
                NAME => LOSSES_ARE_NAMED.to_owned(),
                // A window is whole where each of its epochs is, and its system has to go on first.
                _ => WINDOWS_ARE_WHOLE.replace("NAME", name).replace("SHARE", "0.2"),
            };
        }
        Ok(text.replace("EPOCHS", &epochs.to_string()).replace("SHARE", &share.to_string()))
    }
}

/// Soaks a fabric for so many minutes. `testbed` is the calumma-testbed program;
/// reports and truth go to a folder in `out`. Gives whether every report was right and most were
/// whole.
///
/// # Errors
/// When there is no such topology or system, or something breaks down.
pub fn run(
    fabric: Fabric<'_>,
    minutes: u64,
    out: Option<PathBuf>,
    testbed: PathBuf,
) -> Result<bool> {
    let epochs = minutes * 60_000 / fabric.pace()?.epoch_ms;
    play(scenario(fabric, epochs)?, out, testbed)
}

/// The same with so many [troubles](with_troubles).
///
/// # Errors
/// As [`run`].
pub fn run_with_troubles(
    fabric: Fabric<'_>,
    (troubles, seed): (u64, u64),
    out: Option<PathBuf>,
    testbed: PathBuf,
) -> Result<bool> {
    play(with_troubles(fabric, troubles, seed)?, out, testbed)
}

fn play(scenario: Scenario, out: Option<PathBuf>, testbed: PathBuf) -> Result<bool> {
    let order = Order { files: Vec::new(), seeds: 1, out, epoch_ms: None, live: Some(testbed) };
    play_all(&[("soak".to_owned(), scenario)], &order)
}

/// The soak of a fabric for so many epochs.
///
/// # Errors
/// When there is no such topology or system.
pub fn scenario(fabric: Fabric<'_>, epochs: u64) -> Result<Scenario> {
    Scenario::parse(&fabric.text(epochs, 0.8)?, Path::new("."))
}

/// The same while edges, of Tofinos the control planes, and the controller are killed or stand
/// still, so many times, which of them and for how long being drawn from `seed`. The controller
/// keeps an archive.
///
/// # Errors
/// As [`scenario`].
pub fn with_troubles(fabric: Fabric<'_>, troubles: u64, seed: u64) -> Result<Scenario> {
    let (network, pace) = (fabric.network()?, fabric.pace()?);
    let mut text = fabric.text((troubles + 1) * pace.apart, 0.2)?;
    for number in 0..troubles {
        let drawn = Draw::new(seed).of(number);
        let one_of = |which: u64, of: u64| drawn.of(which).below(of);
        let edge = one_of(0, network.edges().len() as u64) as usize;
        let name = &network.edges()[edge];
        let killed = |name: &str| (format!("kill = [\"{name}\"]"), format!("{name} is killed"));
        let stopped = |name: &str, ms: u64| {
            let says = format!("{name} stands still for {ms} ms");
            (format!("freeze = [{{ switch = \"{name}\", ms = {ms} }}]"), says)
        };
        let (trouble, says) = match one_of(1, 5) {
            0 | 1 => killed(name),
            2 => killed("controller"),
            // Packets don't wait for a Tofino's control plane: it may miss whole epochs.
            3 if network.is_tofino(edge) => stopped(name, 100 + one_of(2, 1400)),
            // As long as the rings of its ports last.
            3 => stopped(name, 20 + one_of(2, 100)),
            _ => stopped("controller", 100 + one_of(2, 1900)),
        };
        let at = (number + 1) * pace.apart;
        let (again, next) = (at + pace.again, at + pace.apart);
        write!(text, "\n[[change]]\nat = {at}\nsays = \"{says}\"\n{trouble}\n")?;
        if fabric.runs(NAME) {
            write!(
                text,
                "\n[[expect]]\nsays = \"{says}: reports are whole again\"\n\
                 epochs = [{again}, {next}]\nshare = 0.5\ndecoded = true\n"
            )?;
        }
    }
    Scenario::parse(&format!("archive = true\n{text}"), Path::new("."))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// With ChameleMon alone.
    fn soak(topology: &str, epochs: u64) -> Result<Scenario> {
        scenario(Fabric { topology, systems: &[NAME.to_owned()] }, epochs)
    }

    fn troubled(topology: &str, troubles: u64) -> Result<Scenario> {
        with_troubles(Fabric { topology, systems: &[NAME.to_owned()] }, troubles, 1)
    }

    #[test]
    fn other_systems_are_soaked_on_software_switches() {
        let systems = ["cfs", NAME, "sketchint"].map(str::to_owned);
        let others = ["hopps".to_owned()];
        let of = |topology, systems| Fabric { topology, systems };
        let fabric = of("leaf-spine:2x2 s1=software", &systems[..2]);
        let soak = scenario(fabric, 600).unwrap();
        assert_eq!((&soak.systems[..], soak.expect.len()), (&systems[..2], 2));
        assert_eq!((soak.epoch.length_ms, soak.links.duplicate), (100, 0.002));
        let all = scenario(of(fabric.topology, &systems), 600).unwrap();
        assert_eq!((all.expect.len(), all.host_mtu), (3, Some(1436)));
        // Captures, against which bytes are held, know no copies.
        assert_eq!((all.links.duplicate, all.links.loss), (0.0, 0.01));
        let alone = of("leaf-spine:2x2", &systems[..1]);
        assert_eq!(with_troubles(alone, 4, 1).unwrap().expect.len(), 1);
        assert_eq!(with_troubles(fabric, 4, 1).unwrap().expect.len(), 6);
        let problem = |fabric| format!("{:#}", scenario(fabric, 600).unwrap_err());
        assert!(problem(of("leaf-spine:2x1 e2=tofino", &systems)).contains("ChameleMon alone"));
        assert!(problem(of("pair", &others)).contains("no system is called"));
    }

    #[test]
    fn a_soak_is_a_scenario_of_its_topology_and_as_long_as_it_is_told() {
        let soaked = soak("leaf-spine:4x2", 400).unwrap();
        assert_eq!((soaked.epochs, soaked.application.len()), (400, 4));
        assert_eq!(soaked.topology().unwrap().edges().len(), 4);
        assert!(soak("ring:3", 400).is_err());
        let software = troubled("leaf-spine:4x2", 300).unwrap();
        assert_eq!((software.change.len(), software.expect.len()), (300, 301));
        assert!(software.archive && software.topology().is_ok());
        let modelled = troubled("leaf-spine:2x1 e2=tofino", 300).unwrap();
        assert_eq!((modelled.epoch.length_ms, modelled.application.len()), (500, 2));
        let (topology, mut times) = (modelled.topology().unwrap(), BTreeMap::new());
        for trouble in modelled.change.iter().flat_map(|change| change.troubles(&topology)) {
            *times.entry(trouble).or_insert(0) += 1;
        }
        let programs = ["calumma-controller", "calumma-edge", "calumma-switchd"];
        for trouble in
            programs.map(|of| [format!("{of} killed"), format!("{of} stopped")]).as_flattened()
        {
            assert!(times[trouble] > 20, "{times:?}");
        }
        assert_eq!(times.values().sum::<u64>(), 300);
        let through = concat!(env!("CARGO_MANIFEST_DIR"), "/topologies/geant2012.toml");
        let problem = soak(through, 400).unwrap_err();
        assert!(format!("{problem:#}").contains("packets pass through edges"), "{problem:#}");
    }
}
