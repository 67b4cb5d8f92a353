//! How full the HH encoders would be at any T_h.

use std::cell::OnceCell;

use calumma_sketch::Layout;

use super::load;
use super::memory::Corrections;
use super::observation::{EdgeObservation, Observation};

/// HH candidates of the edge with most of them, at any T_h. All edges share one attention, so the
/// fullest decides.
pub(super) struct HhForecast<'a, 'o> {
    edges: &'a [EdgeObservation<'o>],
    layout: &'a Layout,
    /// The T_h and the HH buckets of the observation.
    t_h: u32,
    buckets: u32,
    corrections: &'a Corrections,
    /// Truth over forecast at that T_h, edge by edge; worked out when another T_h is asked for.
    ratios: OnceCell<Vec<Option<f64>>>,
}

impl<'a, 'o> HhForecast<'a, 'o> {
    pub(super) fn new(
        observation: &'a Observation<'o>,
        layout: &'a Layout,
        corrections: &'a Corrections,
    ) -> Self {
        Self {
            edges: &observation.edges,
            layout,
            t_h: observation.attention.t_h,
            buckets: observation.attention.partition.hh,
            corrections,
            ratios: OnceCell::new(),
        }
    }

    /// The edge with most candidates at `t_h`, and how many these are. `None` without edges.
    pub(super) fn fullest(&self, t_h: u32) -> Option<(&'a EdgeObservation<'o>, f64)> {
        let of_edges = (0..self.edges.len()).map(|at| (&self.edges[at], self.of_edge(at, t_h)));
        of_edges.max_by(|a, b| a.1.total_cmp(&b.1))
    }

    /// The load factor that an HH encoder of `buckets` buckets an array would have at `t_h`.
    pub(super) fn load(&self, t_h: u32, buckets: u32) -> f64 {
        let flows = self.fullest(t_h).map_or(0.0, |(_, flows)| flows);
        load::load_of(self.layout, buckets, flows)
    }

    fn of_edge(&self, at: usize, t_h: u32) -> f64 {
        let edge = &self.edges[at];
        if t_h == self.t_h
            && let Some(flows) = edge.hh.flows(self.layout, self.buckets)
        {
            return flows;
        }
        let foretold = edge.candidates.foretold(t_h);
        if t_h == 1 {
            // Every flow is one.
            return foretold;
        }
        let learned = self.corrections.at(t_h).filter(|_| t_h != self.t_h);
        let foretold = foretold * learned.or(self.ratios()[at]).unwrap_or(1.0);
        if t_h > self.t_h { foretold.max(edge.candidates.certain(t_h)) } else { foretold }
    }

    fn ratios(&self) -> &[Option<f64>] {
        self.ratios.get_or_init(|| {
            let ratio = |edge: &EdgeObservation<'_>| {
                let truth = edge.hh.flows(self.layout, self.buckets)?;
                let foretold = edge.candidates.foretold(self.t_h);
                (self.t_h > 1 && truth > 0.0 && foretold > 0.0).then(|| truth / foretold)
            };
            self.edges.iter().map(ratio).collect()
        })
    }

    /// What was learned at the T_h of the observation, where its forecast has been worked out:
    /// the fullest edge's candidates, and how many were foretold of it.
    pub(super) fn learned(&self) -> Option<(f64, f64)> {
        self.ratios.get()?;
        let (edge, flows) = self.fullest(self.t_h)?;
        edge.hh.flows(self.layout, self.buckets)?;
        Some((flows, edge.candidates.foretold(self.t_h)))
    }
}
