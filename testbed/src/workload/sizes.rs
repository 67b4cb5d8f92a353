//! Flow-size distributions, in packets of 1,460 bytes of payload.
//!
//! Four are those of the ChameleMon paper's evaluation (section 5.2), as curves between published
//! points or as a published formula:
//!
//! * DCTCP: web search (Alizadeh et al., "Data Center TCP", SIGCOMM 2010, figure 4), at the points
//!   that traffic generators since then have used (HKUST-SING/TrafficGenerator, `DCTCP_CDF`).
//! * VL2: data mining (Greenberg et al., "VL2", SIGCOMM 2009, figure 2), points from the same
//!   place.
//! * HADOOP: Facebook's Hadoop (Roy et al., "Inside the Social Network's (Datacenter) Network",
//!   SIGCOMM 2015, figure 6), at the points of the HPCC evaluation (SIGCOMM 2019).
//! * CACHE: Facebook's key-value store, pool ETC (Atikoglu et al., "Workload Analysis of a
//!   Large-Scale Key-Value Store", SIGMETRICS 2012, section 5): 47 % of the values are below 15
//!   bytes, the others follow a generalised Pareto law.

use std::fmt;
use std::str::FromStr;

use serde::Deserialize;

/// Payload of a full packet, in bytes.
const PAYLOAD: f64 = 1460.0;

/// Bytes of a flow, and the share of flows that are no larger.
type Curve = [(f64, f64)];

const DCTCP: &Curve = &[
    (0.0, 0.0),
    (10e3, 0.15),
    (20e3, 0.20),
    (30e3, 0.30),
    (50e3, 0.40),
    (80e3, 0.53),
    (200e3, 0.60),
    (1e6, 0.70),
    (2e6, 0.80),
    (5e6, 0.90),
    (10e6, 0.97),
    (30e6, 1.0),
];

const VL2: &Curve = &[
    (0.0, 0.0),
    (180.0, 0.1),
    (216.0, 0.2),
    (560.0, 0.3),
    (900.0, 0.4),
    (1100.0, 0.5),
    (1870.0, 0.6),
    (3160.0, 0.7),
    (10e3, 0.8),
    (400e3, 0.9),
    (3.16e6, 0.95),
    (100e6, 0.98),
    (1e9, 1.0),
];

const HADOOP: &Curve = &[
    (0.0, 0.0),
    (100.0, 0.01),
    (200.0, 0.02),
    (300.0, 0.05),
    (350.0, 0.15),
    (400.0, 0.20),
    (500.0, 0.30),
    (600.0, 0.40),
    (700.0, 0.50),
    (1000.0, 0.60),
    (2000.0, 0.67),
    (7000.0, 0.70),
    (30e3, 0.72),
    (50e3, 0.82),
    (80e3, 0.87),
    (120e3, 0.90),
    (300e3, 0.95),
    (1e6, 0.975),
    (2e6, 0.99),
    (10e6, 1.0),
];

/// Share of ETC's values that are below 15 bytes.
const CACHE_TINY: f64 = 0.47;
/// Scale of the law that the other values follow, in bytes.
const CACHE_SCALE: f64 = 214.476;
/// Shape of that law.
const CACHE_SHAPE: f64 = 0.348_238;
/// The largest value that the store takes, in bytes.
const CACHE_LARGEST: f64 = 1e6;

/// How many packets flows have.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(try_from = "String")]
pub enum Sizes {
    /// Web search.
    Dctcp,
    /// Data mining.
    Vl2,
    /// Hadoop.
    Hadoop,
    /// Key-value store.
    Cache,
    /// The flow of rank r has `largest` / r^`skew` packets, at least one.
    Zipf {
        /// The exponent.
        skew: f64,
        /// Packets of the largest flow.
        largest: u32,
    },
    /// All alike.
    Constant(u32),
}

impl Sizes {
    /// The four of the ChameleMon paper.
    pub const OF_THE_PAPER: [Self; 4] = [Self::Dctcp, Self::Cache, Self::Vl2, Self::Hadoop];

    /// Packets of a flow that is larger than the share `place` (0 to 1) of all `flows`; at least 1.
    pub fn packets(&self, place: f64, flows: u32) -> u32 {
        let bytes = match self {
            Self::Dctcp => on_curve(DCTCP, place),
            Self::Vl2 => on_curve(VL2, place),
            Self::Hadoop => on_curve(HADOOP, place),
            Self::Cache if place < CACHE_TINY => 14.0,
            Self::Cache => {
                let above = (1.0 - place) / (1.0 - CACHE_TINY);
                let law = CACHE_SCALE / CACHE_SHAPE * (above.powf(-CACHE_SHAPE) - 1.0);
                (15.0 + law).min(CACHE_LARGEST)
            }
            Self::Zipf { skew, largest } => {
                let rank = 1.0 + ((1.0 - place) * f64::from(flows)).floor();
                return ((f64::from(*largest) / rank.powf(*skew)).round() as u32).max(1);
            }
            Self::Constant(packets) => return *packets,
        };
        ((bytes / PAYLOAD).ceil() as u32).max(1)
    }
}

/// The size that the share `place` of all flows does not exceed.
fn on_curve(curve: &Curve, place: f64) -> f64 {
    let at = curve.partition_point(|&(_, share)| share < place).clamp(1, curve.len() - 1);
    let ((low, before), (high, after)) = (curve[at - 1], curve[at]);
    low + (high - low) * ((place - before) / (after - before)).clamp(0.0, 1.0)
}

impl FromStr for Sizes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut parts = text.split(':');
        let sizes = match (parts.next(), parts.next(), parts.next(), parts.next()) {
            (Some("dctcp"), None, ..) => Some(Self::Dctcp),
            (Some("vl2"), None, ..) => Some(Self::Vl2),
            (Some("hadoop"), None, ..) => Some(Self::Hadoop),
            (Some("cache"), None, ..) => Some(Self::Cache),
            (Some("constant"), Some(packets), None, _) => packets.parse().ok().map(Self::Constant),
            (Some("zipf"), Some(skew), Some(largest), None) => skew
                .parse()
                .ok()
                .filter(|skew: &f64| skew.is_finite() && *skew >= 0.0)
                .zip(largest.parse().ok())
                .map(|(skew, largest)| Self::Zipf { skew, largest }),
            _ => None,
        };
        sizes.ok_or_else(|| {
            format!(
                "sizes = {text:?}: must be dctcp, vl2, hadoop, cache, constant:PACKETS or \
                 zipf:SKEW:LARGEST"
            )
        })
    }
}

impl TryFrom<String> for Sizes {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl fmt::Display for Sizes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dctcp => f.write_str("dctcp"),
            Self::Vl2 => f.write_str("vl2"),
            Self::Hadoop => f.write_str("hadoop"),
            Self::Cache => f.write_str("cache"),
            Self::Zipf { skew, largest } => write!(f, "zipf:{skew}:{largest}"),
            Self::Constant(packets) => write!(f, "constant:{packets}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Share of flows of one packet, and packets of the median flow, over even places.
    fn shape(sizes: Sizes) -> (f64, u32) {
        let flows = 10_000;
        let place = |n: u32| (f64::from(n) + 0.5) / f64::from(flows);
        let ones = (0..flows).filter(|&n| sizes.packets(place(n), flows) == 1).count();
        (ones as f64 / f64::from(flows), sizes.packets(0.5, flows))
    }

    #[test]
    fn the_papers_workloads_have_their_published_shapes() {
        // 1,460 bytes lie between the curves' points.
        assert_eq!(shape(Sizes::Dctcp), (0.0219, 51));
        assert_eq!(shape(Sizes::Vl2), (0.5468, 1));
        assert_eq!(shape(Sizes::Hadoop), (0.6322, 1));
        let (ones, median) = shape(Sizes::Cache);
        assert!((0.98..0.99).contains(&ones) && median == 1, "{ones}");
        assert_eq!(Sizes::Dctcp.packets(1.0, 1), 20_548);
        assert_eq!(Sizes::Vl2.packets(1.0, 1), 684_932);
        assert_eq!(Sizes::Cache.packets(1.0, 1), 685);
        for sizes in Sizes::OF_THE_PAPER {
            let steps = (0..=1000).map(|n| sizes.packets(f64::from(n) / 1000.0, 1));
            assert!(steps.is_sorted(), "{sizes}");
        }
    }

    #[test]
    fn zipf_gives_each_rank_its_share() {
        let sizes = Sizes::Zipf { skew: 1.0, largest: 1000 };
        let of_rank = |rank: u32| sizes.packets(1.0 - (f64::from(rank) - 0.5) / 100.0, 100);
        assert_eq!([1, 2, 4, 10, 100].map(of_rank), [1000, 500, 250, 100, 10]);
    }

    #[test]
    fn names_are_read_as_they_are_written_and_others_refused_with_what_there_is() {
        for name in ["dctcp", "vl2", "hadoop", "cache", "zipf:1.1:5000", "constant:7"] {
            assert_eq!(name.parse::<Sizes>().unwrap().to_string(), name);
        }
        for wrong in ["", "zipf", "zipf:x:1", "constant:-1", "dctcp:1"] {
            assert!(wrong.parse::<Sizes>().unwrap_err().contains("constant:PACKETS"));
        }
    }
}
