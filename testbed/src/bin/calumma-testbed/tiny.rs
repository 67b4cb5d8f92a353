//! `tiny`: many tiny networks that do to packets what networks do.

use std::process::ExitCode;

use anyhow::Result;
use calumma_testbed::tiny::{self, Trouble};
use clap::Args;

use crate::output::verdict;

/// Tiny simulated networks that do at random what networks do to packets
///
/// Two edges, a dozen flows and a few epochs each. Prints how many packets reports name as lost,
/// how many of them were not, and why epochs are incomplete. Exits with 1 if any report claims to
/// be exact and is wrong; the seed that is printed plays it again, among the same troubles.
#[derive(Args)]
pub(crate) struct Tiny {
    /// How many networks
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..))]
    networks: u64,
    /// The first network's seed; the others' follow
    #[arg(long, default_value_t = 0, value_name = "SEED")]
    from: u64,
    /// What networks may do; all there is when left out
    #[arg(long, value_enum, value_delimiter = ',', value_name = "TROUBLES")]
    troubles: Vec<Trouble>,
}

impl Tiny {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let troubles = match self.troubles.is_empty() {
            true => Trouble::ALL.to_vec(),
            false => self.troubles,
        };
        let seeds = self.from..self.from.saturating_add(self.networks);
        if self.networks == 1 {
            println!("{:#?}", tiny::Tiny::draw(self.from, &troubles));
        }
        let sum = tiny::play(seeds, &troubles)?;
        print!("{sum}");
        Ok(verdict(sum.wrong.is_empty()))
    }
}
