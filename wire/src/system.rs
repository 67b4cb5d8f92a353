//! Measurement systems, as frames name them.

use std::fmt;

/// The number by which frames name a measurement system.
///
/// The registry: numbers are given out once and never used again. 128 to 255 are for experiments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SystemId(pub u8);

impl SystemId {
    /// ChameleMon.
    pub const CHAMELEMON: Self = Self(1);
    /// SketchINT.
    pub const SKETCHINT: Self = Self(2);
    /// OmniMon.
    pub const OMNIMON: Self = Self(3);
    /// Cooperative Flow Selection.
    pub const CFS: Self = Self(4);
    /// LightGuardian.
    pub const LIGHTGUARDIAN: Self = Self(5);
    /// Messages in [parts](crate::parts): no system of its own. A node offers it like one, and a
    /// controller that takes them answers with a setup without bytes.
    pub const PARTS: Self = Self(126);
    /// Probes between edges: no system of its own, and offered like one.
    pub const PROBES: Self = Self(127);
    /// The first number for experiments.
    pub const EXPERIMENTS: Self = Self(128);

    /// The name used in configurations and reports; `None` where the registry has none.
    pub fn name(self) -> Option<&'static str> {
        Some(match self {
            Self::CHAMELEMON => "chamelemon",
            Self::SKETCHINT => "sketchint",
            Self::OMNIMON => "omnimon",
            Self::CFS => "cfs",
            Self::LIGHTGUARDIAN => "lightguardian",
            Self::PARTS => "parts",
            Self::PROBES => "probes",
            _ => return None,
        })
    }
}

impl fmt::Display for SystemId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "system {}", self.0),
        }
    }
}

/// A system that a switch can run, and the versions of its bodies that it can read and write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Offer {
    /// The system.
    pub system: SystemId,
    /// The lowest version.
    pub lowest: u8,
    /// The highest version.
    pub highest: u8,
}

impl Offer {
    /// The highest version that both this offer and one of `lowest` to `highest` include.
    pub fn common_version(&self, lowest: u8, highest: u8) -> Option<u8> {
        let version = self.highest.min(highest);
        (version >= self.lowest.max(lowest)).then_some(version)
    }

    /// The highest version that both this offer and any of `offers` of the same system include: a
    /// switch may know versions that do not follow each other, and offers each range of them. Older
    /// controllers go by the first.
    pub fn common_with(&self, offers: &[Self]) -> Option<u8> {
        let same = offers.iter().filter(|other| other.system == self.system);
        same.filter_map(|other| other.common_version(self.lowest, self.highest)).max()
    }
}

/// What a switch is to measure with one system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SystemSetup {
    /// The system.
    pub system: SystemId,
    /// Version of its bodies.
    pub version: u8,
    /// What stays for as long as the session lasts.
    pub setup: Vec<u8>,
    /// What holds from the first epoch on, and may be reconfigured.
    pub plan: Vec<u8>,
}
