//! Figures: drawings of what was measured, with the numbers behind them, and one page that sets
//! each beside the claim of the paper it comes from.
//!
//! Nothing is measured here. A crate that measures keeps a table of [`Figure`]s and hands it to
//! [`produce`]; several programs may write into one directory, and the page lists what all of them
//! have left there.
//!
//! ```
//! use calumma_figures::{Axis, Chart, Drawn, Figure, Series, produce};
//!
//! let table = [Figure {
//!     name: "squares",
//!     title: "Squares",
//!     claim: "The square grows faster than the number.",
//!     measure: |&largest: &u32| {
//!         let points = (1..=largest).map(|n| (n.into(), (n * n).into())).collect();
//!         let chart = Chart::new("", Axis::linear("number"), Axis::log("square"))
//!             .with(Series::ours("squares", points));
//!         Ok(Drawn::new(vec![chart]).measured(format!("{largest} squares")))
//!     },
//! }];
//! let out = std::env::temp_dir().join("calumma-figures-example");
//! produce(&table, &10, "", &out)?;
//! assert!(std::fs::read_to_string(out.join("index.html"))?.contains("10 squares"));
//! # Ok::<(), anyhow::Error>(())
//! ```

mod chart;
mod csv;
mod page;
mod plot;

use std::fs;
use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result, ensure};

pub use chart::{Axis, Chart, Kind, Scale, Series};
pub use page::Words;

/// A figure that can be made, given what a program's figures are made from.
pub struct Figure<C> {
    /// Name of its files. The page lists figures by name, so numbers in it have leading zeros.
    pub name: &'static str,
    /// Its heading.
    pub title: &'static str,
    /// What the paper says, with its numbers.
    pub claim: &'static str,
    /// Measures it.
    pub measure: fn(&C) -> Result<Drawn>,
}

/// A figure that has been measured.
#[derive(Clone, Debug, Default)]
pub struct Drawn {
    charts: Vec<Chart>,
    measured: Vec<String>,
    why: Vec<String>,
}

impl Drawn {
    /// A figure of these charts.
    pub fn new(charts: Vec<Chart>) -> Self {
        Self { charts, ..Self::default() }
    }

    /// Adds a sentence that says what was measured.
    pub fn measured(mut self, sentence: impl Into<String>) -> Self {
        self.measured.push(sentence.into());
        self
    }

    /// Adds a sentence that says why it differs from the paper.
    pub fn because(mut self, sentence: impl Into<String>) -> Self {
        self.why.push(sentence.into());
        self
    }
}

/// Makes those of `figures` whose name contains `only` and puts them into the directory `out`: a
/// drawing (`NAME.svg`), its numbers (`NAME.csv`) and a section of the page (`index.html`).
///
/// # Errors
/// When no figure has such a name, one can't be measured, or a file can't be written.
pub fn produce<C>(figures: &[Figure<C>], context: &C, only: &str, out: &Path) -> Result<()> {
    let chosen: Vec<_> = figures.iter().filter(|figure| figure.name.contains(only)).collect();
    let names = || figures.iter().map(|figure| figure.name).collect::<Vec<_>>().join(", ");
    ensure!(!chosen.is_empty(), "no figure is called {only}; there are {}", names());
    fs::create_dir_all(out).with_context(|| format!("creating {}", out.display()))?;
    for (at, figure) in chosen.iter().enumerate() {
        eprintln!("{} of {}, {}: {}", at + 1, chosen.len(), figure.name, figure.title);
        let start = Instant::now();
        let drawn = (figure.measure)(context).with_context(|| format!("figure {}", figure.name))?;
        let Figure { name, title, claim, .. } = **figure;
        add(&Words::PAPERS, &Section { name, title, claim, drawn: &drawn }, out)?;
        eprintln!("    took {:.0} s", start.elapsed().as_secs_f64());
    }
    Ok(())
}

/// A figure that has been measured, for a page of its own kind.
#[derive(Clone, Copy, Debug)]
pub struct Section<'a> {
    /// Name of its files; the page lists figures by name.
    pub name: &'a str,
    /// Its heading.
    pub title: &'a str,
    /// What it is measured against.
    pub claim: &'a str,
    /// The figure.
    pub drawn: &'a Drawn,
}

/// Puts a figure into the directory `out`: its drawing, its numbers, and a section of the page,
/// which has `words` on top.
///
/// # Errors
/// When a file can't be written.
pub fn add(words: &Words<'_>, section: &Section<'_>, out: &Path) -> Result<()> {
    fs::create_dir_all(out).with_context(|| format!("creating {}", out.display()))?;
    let Section { name, drawn, .. } = section;
    if !drawn.charts.is_empty() {
        plot::write_svg(&drawn.charts, &out.join(format!("{name}.svg")))?;
        write(&out.join(format!("{name}.csv")), &csv::table(&drawn.charts))?;
    }
    page::write_section(out, words, section)?;
    page::write_index(out, words)
}

fn write(file: &Path, text: &str) -> Result<()> {
    fs::write(file, text).with_context(|| format!("writing {}", file.display()))
}
