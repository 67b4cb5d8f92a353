//! Figures 7-9 and 14-22 of the ChameleMon paper, from simulated networks, and how accurate every
//! task is over time on captures of real traffic.
//!
//! Drawing is the business of [`calumma_figures`]; the scenarios behind the figures are files like
//! any other. Figures that compare sketches with their peers are in `benches`.

mod attention;
mod cost;
mod reconfiguration;
mod tasks;

use std::cell::RefCell;
use std::collections::HashMap;
use std::path::PathBuf;
use std::rc::Rc;

use anyhow::Result;
use calumma_figures::Figure;

use crate::scenario::{Played, Scenario, play};

/// What figures are made from.
#[derive(Debug)]
pub struct Context {
    scenarios: PathBuf,
    captures: PathBuf,
    /// Scenarios that have been played, by name: several figures show the same ones.
    played: RefCell<HashMap<String, Rc<(Scenario, Played)>>>,
}

impl Context {
    /// `scenarios` is the folder with a folder of scenarios for each system, `captures` that of the
    /// captures; figures of those that are not there are empty and say so.
    pub fn new(scenarios: PathBuf, captures: PathBuf) -> Self {
        Self { scenarios, captures, played: RefCell::default() }
    }

    /// The scenario called `name`.
    fn scenario(&self, name: &str) -> Result<Scenario> {
        Scenario::load(&self.scenarios.join("chamelemon").join(name).with_extension("toml"))
    }

    /// The scenario called `name`, played.
    fn played(&self, name: &str) -> Result<Rc<(Scenario, Played)>> {
        if let Some(played) = self.played.borrow().get(name) {
            return Ok(played.clone());
        }
        let scenario = self.scenario(name)?;
        let played = play(&scenario, |_, _| Ok(()))?;
        let both = Rc::new((scenario, played));
        self.played.borrow_mut().insert(name.to_owned(), both.clone());
        Ok(both)
    }
}

/// All figures.
pub fn table() -> Vec<Figure<Context>> {
    let mut figures = attention::figures();
    figures.extend(cost::figures());
    figures.push(reconfiguration::FIGURE);
    figures.extend(tasks::figures());
    figures
}
