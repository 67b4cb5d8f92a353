//! How full the HH encoders would be at any T_h.

use std::cell::OnceCell;

use calumma_chamelemon::Layout;

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
    /// The correction at that T_h, edge by edge; worked out when another T_h is asked for.
    learned: OnceCell<Vec<Option<f64>>>,
}

/// The correction where nothing has been learned: traffic that is neither spread evenly nor comes
/// flow after flow.
const UNKNOWN: f64 = 0.7;

/// Corrections beyond these are errors of the size distribution, not of how packets come.
const PLAUSIBLE: (f64, f64) = (-1.0, 3.0);

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
            learned: OnceCell::new(),
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
        let (large, taken_for) = edge.candidates.foretold(t_h);
        let before = self.corrections.at(t_h).filter(|_| t_h != self.t_h);
        let learned = before.or(self.learned()[at]).or(self.corrections.latest());
        let foretold = (large + taken_for * learned.unwrap_or(UNKNOWN)).max(0.0);
        if t_h > self.t_h { foretold.max(edge.candidates.certain(t_h)) } else { foretold }
    }

    fn learned(&self) -> &[Option<f64>] {
        self.learned.get_or_init(|| {
            let correction = |edge: &EdgeObservation<'_>| {
                let truth = edge.hh.flows(self.layout, self.buckets)?;
                let (large, taken_for) = edge.candidates.foretold(self.t_h);
                let tells = taken_for > 0.02 * large;
                tells.then(|| ((truth - large) / taken_for).clamp(PLAUSIBLE.0, PLAUSIBLE.1))
            };
            self.edges.iter().map(correction).collect()
        })
    }

    /// The mean correction at the T_h of the observation, where it has been worked out.
    pub(super) fn correction(&self) -> Option<f64> {
        let learned = self.learned.get()?.iter().flatten();
        let (number, sum) = learned.fold((0.0, 0.0), |(n, sum), factor| (n + 1.0, sum + factor));
        (number > 0.0).then(|| sum / number)
    }
}
