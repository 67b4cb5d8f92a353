//! Figures 7-9 and 14-22 of the ChameleMon paper, from simulated networks, and how accurate every
//! task is over time on captures of real traffic.
//!
//! Drawing is the business of [`calumma_figures`]; the scenarios behind the figures are files like
//! any other. Figures that compare sketches with their peers are in `benches`.

mod attention;
mod cost;
mod tasks;

use std::path::PathBuf;

use calumma_figures::Figure;

/// What figures are made from.
#[derive(Clone, Debug)]
pub struct Context {
    /// The folder of the scenarios.
    pub scenarios: PathBuf,
    /// The folder of the captures; figures of those that are not there are empty and say so.
    pub captures: PathBuf,
}

/// All figures.
pub fn table() -> Vec<Figure<Context>> {
    let mut figures = attention::figures();
    figures.extend(cost::figures());
    figures.extend(tasks::figures());
    figures
}
