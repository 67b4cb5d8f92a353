//! Starts the programs of a live fabric: controller, edges, hosts' own sinks and inner switches.

use std::path::PathBuf;

use anyhow::Result;

use super::Live;
use super::switch::Running;
use super::systems::Read;
use super::transit::Transit;
use super::{START_LIMIT, http_address};
use crate::calumma::{Controller, Reports};
use crate::fabric::wiring::Wiring;
use crate::scenario::EdgeForwarding;

impl Live {
    /// What the controller is configured with, apart from its edges.
    pub(super) fn sections(&self) -> toml::Table {
        let name = |at: usize| toml::Value::from(self.topology.names()[at].as_str());
        let transits: Vec<toml::Value> = self.topology.transits().map(name).collect();
        let mut sections = self.sections.clone();
        sections.insert("transits".to_owned(), transits.into());
        let hosts: Vec<toml::Value> =
            self.topology.host_sinks().map(|(_, _, name)| name.into()).collect();
        sections.insert("hosts".to_owned(), hosts.into());
        sections.insert("http".to_owned(), http_address().into());
        sections.insert("tokens".to_owned(), self.tokens().display().to_string().into());
        if self.archived.is_some() {
            let folder = self.archive().display().to_string();
            let archive = toml::Table::from_iter([("dir".to_owned(), folder.into())]);
            sections.insert("archive".to_owned(), archive.into());
            let state = self.run.directory().join("state").display().to_string();
            sections.insert("state_dir".to_owned(), state.into());
        }
        sections
    }

    /// The file of the tokens that the controller knows.
    fn tokens(&self) -> PathBuf {
        self.run.directory().join("tokens")
    }

    pub(super) fn start_controller(&mut self) -> Result<()> {
        self.starts += 1;
        let reports = self.run.directory().join(format!("reports-{}.jsonl", self.starts));
        let edges = self.topology.edges();
        let sections = self.sections();
        let controller =
            Controller::configured(self.place_of_controller(), &reports, edges, sections)?;
        let systems = self.systems;
        let reports = Reports::watch(&reports, move |line| Read::of(line, systems).map(Some));
        self.controller = Some((controller, reports));
        Ok(())
    }

    pub(super) fn start_edge(&mut self, edge: usize) -> Result<()> {
        let kind = self.topology.kinds()[edge];
        let name = &self.topology.edges()[edge];
        let (place, programs) = (self.place(), self.programs());
        let routed = (self.forwarding == EdgeForwarding::Routed).then_some(&self.topology);
        let more = (&*self.of_edges, self.topology.has_host_sinks(edge), routed);
        let edge_of = (edge, name.as_str(), kind);
        let switch = Running::start_edge(place, &self.wiring, edge_of, more, programs)?;
        self.edges[edge] = Some(switch);
        Ok(())
    }

    pub(super) fn start_sinks(&mut self) -> Result<()> {
        for (number, (edge, host, name)) in self.topology.host_sinks().enumerate() {
            let (host, position) = (host as usize, self.topology.switches() + number);
            let controller = Wiring::controller_of(position);
            let place = self.place_in(&self.wiring.sinks()[number], &controller);
            let (of, more) = ((edge, host, name.as_str()), self.carrier.section());
            let sink = Running::start_sink(place, &self.wiring, of, position, more)?;
            self.sinks.push((edge, host, sink));
        }
        self.sinks.iter_mut().try_for_each(|(_, _, sink)| sink.wait_forwarding(START_LIMIT))
    }

    pub(super) fn start_transits(&mut self) -> Result<()> {
        for at in self.topology.transits() {
            let controller = Wiring::controller_of(at);
            let place = self.place_in(&self.wiring.transits()[&at], &controller);
            let (wiring, topology) = (&self.wiring, &self.topology);
            let transit =
                Transit::start((place, self.carrier), wiring, topology, at, self.programs())?;
            self.transits.push(transit);
        }
        self.transits.iter_mut().try_for_each(Transit::wait_forwarding)
    }
}
