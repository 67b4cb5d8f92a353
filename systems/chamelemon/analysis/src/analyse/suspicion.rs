//! Signs of flows that somebody has chosen: what hash functions that nobody knows hardly ever do.
//!
//! Another hash key takes away what whoever it is has learned of this one, and helps as well where
//! it was chance after all: flows that block an encoder epoch after epoch fall into other buckets.

use std::collections::BTreeMap;

use crate::report::{DecodeState, EpochReport, LossClass};

/// Flows over buckets below which an encoder that does not decode is a sign: with three arrays,
/// they decode up to about 0.8 nearly always.
const LOW_LOAD: f64 = 0.5;

/// Epochs in a row in which it must be seen: chance does not repeat itself unless traffic does.
const EPOCHS: u32 = 3;

/// Looks for signs in the reports of one epoch after the other.
#[derive(Debug, Default)]
pub struct Suspicion {
    /// Of each encoder that did not decode though it was nearly empty, for how many epochs.
    stuck: BTreeMap<String, u32>,
}

impl Suspicion {
    /// What a report shows, in words; `None` where that is nothing.
    pub fn of(&mut self, report: &EpochReport) -> Option<String> {
        let decode = &report.decode;
        let mut seen = BTreeMap::new();
        let mut see = |name: String, state: DecodeState, load: Option<f64>| match (state, load) {
            (DecodeState::Partial, Some(load)) if load < LOW_LOAD => {
                let before = self.stuck.get(&name).copied().unwrap_or(0);
                seen.insert(name, before + 1);
            }
            // What was not looked at, or is full, says nothing either way.
            (DecodeState::Skipped | DecodeState::Blocked | DecodeState::Partial, _) => {
                if let Some(&before) = self.stuck.get(&name) {
                    seen.insert(name, before);
                }
            }
            (DecodeState::Complete | DecodeState::Absent, _) => {}
        };
        // Flows that can't be told apart are such a sign as well, though all others decode.
        let of_delta = |state, class| {
            let is_set = report.indistinct.iter().any(|set| set.class == class);
            if is_set { DecodeState::Partial } else { state }
        };
        let hl = of_delta(decode.hl, LossClass::Heavy);
        let ll = of_delta(decode.ll, LossClass::Light);
        see("the delta HL encoder".to_owned(), hl, decode.hl_load_factor);
        see("the delta LL encoder".to_owned(), ll, decode.ll_load_factor);
        for edge in &report.edges {
            let name = format!("the HH encoder of {}", edge.edge);
            see(name, edge.hh_decode, edge.hh_load_factor);
        }
        self.stuck = seen;
        let stuck = self.stuck.iter().find(|(_, epochs)| **epochs >= EPOCHS)?.0;
        let sign = format!("{stuck} did not decode in {EPOCHS} epochs though most of it was empty");
        // So that the next one is as long in coming.
        self.stuck.clear();
        Some(sign)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// A report in which the HH encoder of e1 came out so, with this load factor.
    fn report(hh_decode: &str, hh_load_factor: f64) -> EpochReport {
        let config = json!({"t_h": 1, "t_l": 1, "sample_rate": 1.0, "hh_buckets": 3584,
            "hl_buckets": 512, "ll_buckets": 0});
        let edge = json!({"edge": "e1", "packets_in": 9, "packets_out": 9, "cardinality": null,
            "cardinality_error": null, "entropy": null, "hh_decode": hh_decode,
            "hh_load_factor": hh_load_factor, "heavy_hitters": [], "heavy_changes_since": null,
            "heavy_changes": [], "size_distribution": []});
        let report = json!({"epoch": 7, "start_unix_ns": 0, "length_ms": 50, "complete": true,
            "missing_edges": [], "incomplete_because": [], "state": "healthy", "config": config,
            "decode": {"hl": "blocked", "ll": "absent", "hl_load_factor": null}, "loss": [],
            "edges": [edge]});
        serde_json::from_value(report).unwrap()
    }

    #[test]
    fn an_encoder_that_stays_stuck_though_it_is_nearly_empty_is_a_sign() {
        let mut suspicion = Suspicion::default();
        let mut signs = |reports: &[EpochReport]| -> Vec<Option<String>> {
            reports.iter().map(|report| suspicion.of(report)).collect()
        };
        let (stuck, full) = (report("partial", 0.1), report("partial", 0.9));
        let (skipped, well) = (report("skipped", 0.1), report("complete", 0.1));
        assert_eq!(
            signs(&[stuck.clone(), stuck.clone(), well.clone(), stuck.clone()]),
            [const { None }; 4]
        );
        assert_eq!(signs(&[well, full.clone(), full.clone(), full]), [const { None }; 4]);
        // An epoch that tells nothing neither makes it nor ends it.
        let shown = signs(&[stuck.clone(), skipped, stuck.clone(), stuck.clone(), stuck]);
        let said = shown[3].as_deref().unwrap();
        assert!(said.starts_with("the HH encoder of e1 did not decode in 3 epochs"), "{said}");
        assert_eq!(shown.iter().filter(|sign| sign.is_some()).count(), 1);
    }
}
