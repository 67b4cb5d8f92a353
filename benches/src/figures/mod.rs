//! The figures of the papers that are about sketches alone, measured, and those of what no paper
//! has. [`table`] lists them.

mod answers;
mod coverage;
mod decode_success;
mod epochs;
mod heavy;
mod hinted;
mod in_band;
mod insertion;
mod latency;
mod loss;
mod mtu;
mod selection;
mod sizing;
mod sketchint;
mod speed;
mod tasks;
mod tower_fermat;
mod trials;
mod windows;

use std::path::PathBuf;

use calumma_figures::Figure;

/// What all figures are made from.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Where the captures are.
    pub data: PathBuf,
    /// A few points and small workloads only: to see that all of it works.
    pub quick: bool,
}

impl Setup {
    /// `full`, or `quick` where only a look is wanted.
    fn choose<T>(&self, full: T, quick: T) -> T {
        if self.quick { quick } else { full }
    }
}

/// All figures that this crate measures.
pub fn table() -> Vec<Figure<Setup>> {
    vec![loss::VICTIMS, loss::LOSS_RATE, loss::FLOWS]
        .into_iter()
        .chain([
            decode_success::FIGURE,
            tasks::ZIPF,
            tasks::ADDRESSES,
            tasks::BACKBONE,
            tasks::MIXED,
        ])
        .chain(coverage::FIGURES)
        .chain(windows::FIGURES)
        .chain(selection::FIGURES)
        .chain([sketchint::FIGURE, speed::FIGURE, latency::FIGURE, latency::COLLECTION])
        .chain([heavy::FIGURE, in_band::FIGURE, mtu::FIGURE])
        .chain([sizing::FIGURE, hinted::FIGURE, insertion::FIGURE])
        .collect()
}
