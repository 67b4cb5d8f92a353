//! What an operator may change while switches measure: the section `[cfs]` as it was when they were
//! set up, and as it is wanted now.

use std::sync::Arc;

use calumma_analysis::{Deployment, Node};
use calumma_cfs::frames::{Overrides, Setup};
use calumma_epoch::EpochClock;
use calumma_sketch::residual::Kind;
use serde_json::{Map, Value};

use crate::dividing::By;
use crate::parameters::{Parameters, Section};

/// Fields of the section that may be otherwise from one window to the next.
const CHANGEABLE: [&str; 11] = [
    "entries",
    "alpha",
    "grade",
    "claim",
    "pins",
    "pin",
    "flows_listed",
    "heavy_packets",
    "heavy_change_packets",
    "superspreader",
    "coverage_wanted",
];

/// Why a field waits.
const WHEN_SWITCHED_ON: &str = "it changes when the system is switched off and on again";

/// The section.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    nodes: Vec<Arc<Node>>,
    clock: EpochClock,
    first: Read,
    now: Read,
}

/// A section, and what the analysis goes by for it.
#[derive(Clone, Debug)]
struct Read {
    /// All its fields.
    fields: Map<String, Value>,
    parameters: Parameters,
}

impl Settings {
    /// Those of a deployment that begins.
    ///
    /// # Errors
    /// The field that is wrong, with its value, and what it may be.
    pub(crate) fn new(deployment: &Deployment<'_>) -> Result<Self, String> {
        let Deployment { section, clock, nodes, .. } = *deployment;
        let section = Section::read(section)?;
        let parameters = Parameters::of(&section, clock, nodes)?;
        let first = Read { fields: section.fields(), parameters };
        Ok(Self { nodes: nodes.to_vec(), clock, now: first.clone(), first })
    }

    /// What switches were set up by.
    pub(crate) fn first(&self) -> &Parameters {
        &self.first.parameters
    }

    /// What the analysis goes by.
    pub(crate) fn now(&self) -> &Parameters {
        &self.now.parameters
    }

    /// The fields that may change, as they are wanted now.
    pub(crate) fn fields(&self) -> Map<String, Value> {
        let Parameters { setup, pins, .. } = self.now();
        let mut fields = self.now.fields.clone();
        fields.retain(|field, _| CHANGEABLE.contains(&field.as_str()));
        // What follows from others where nobody says it.
        fields.insert("grade".to_owned(), setup.grade.name().into());
        fields.insert("pins".to_owned(), (*pins).into());
        fields
    }

    /// What switches measure by otherwise than they were set up.
    pub(crate) fn overrides(&self) -> Overrides {
        let (first, now) = (&self.first().setup, &self.now().setup);
        Overrides {
            entries: (now.entries != first.entries).then_some(now.entries),
            grade: (now.grade != first.grade).then_some(now.grade),
            unclaimed: first.claim && !now.claim,
        }
    }

    /// Who says which share of the memory of table and residual the table has.
    pub(crate) fn share(&self) -> By {
        let alpha = self.now.fields.get("alpha");
        match alpha.and_then(Value::as_f64) {
            None => By::Rule,
            Some(_) if alpha == self.first.fields.get("alpha") => By::Setup,
            Some(share) => By::Operator((share * 100.0).round() as u8),
        }
    }

    /// Takes over what may change of a section that was read again. Gives what of it waits until
    /// the system is switched on again.
    ///
    /// # Errors
    /// What is wrong with it. Then nothing is changed.
    pub(crate) fn reload(&mut self, section: &Value) -> Result<Vec<String>, String> {
        let section = Section::read(section)?;
        Parameters::of(&section, self.clock, &self.nodes)?;
        let mut next = self.now.fields.clone();
        let mut waiting = Vec::new();
        for (field, value) in section.fields() {
            if next.get(&field) == Some(&value) {
                continue;
            }
            match self.problem(&field, &value) {
                Some(why) => waiting.push(why),
                None => drop(next.insert(field, value)),
            }
        }
        self.change(next)?;
        Ok(waiting)
    }

    /// Changes these fields and no others.
    ///
    /// # Errors
    /// What is wrong with one, or why it can't change. Then none is.
    pub(crate) fn amend(&mut self, changes: &Map<String, Value>) -> Result<(), String> {
        let mut next = self.now.fields.clone();
        for (field, value) in changes {
            if let Some(why) = self.problem(field, value) {
                return Err(why);
            }
            next.insert(field.clone(), value.clone());
        }
        self.change(next)
    }

    fn change(&mut self, fields: Map<String, Value>) -> Result<(), String> {
        let section = Section::read(&Value::Object(fields))?;
        let parameters = Parameters::of(&section, self.clock, &self.nodes)?;
        let Setup { entries, grade, claim, .. } = parameters.setup;
        // All else was settled when switches were set up, also where it follows from the entries.
        let setup = Setup { entries, grade, claim, ..self.first().setup };
        let parameters = Parameters { setup, ..parameters };
        self.now = Read { fields: section.fields(), parameters };
        Ok(())
    }

    /// Why a field can't have this value while switches measure.
    fn problem(&self, field: &str, value: &Value) -> Option<String> {
        let first = &self.first().setup;
        match field {
            "entries" if value.as_u64() > Some(first.entries.into()) => {
                let (least, most) = (Setup::ENTRIES.start(), first.entries);
                Some(format!(
                    "entries = {value}: must be {least} to {most}, which there is memory for; \
                     {WHEN_SWITCHED_ON}"
                ))
            }
            "claim" if *value == true && !first.claim => {
                Some(format!("claim = true: packets have no bit for it; {WHEN_SWITCHED_ON}"))
            }
            "alpha" if !first.alpha_moves => {
                let why = match (first.residual, first.kind) {
                    (Some(_), Kind::FlowRadar) => "the share of flowradar does not move",
                    _ => "there is no residual to share the memory with",
                };
                Some(format!("alpha = {value}: {why}; {WHEN_SWITCHED_ON}"))
            }
            "alpha" if !self.may_share(value) => {
                let (least, most) = (*Setup::ALPHA.start(), *Setup::ALPHA.end());
                let [least, most] = [least, most].map(|alpha| f64::from(alpha) / 100.0);
                Some(format!("alpha = {value}: must be {least} to {most}, or auto"))
            }
            field if CHANGEABLE.contains(&field) => None,
            field => Some(format!("{field} = {value}: {WHEN_SWITCHED_ON}")),
        }
    }

    /// Whether plans can say this share, or that it is the setup's.
    fn may_share(&self, alpha: &Value) -> bool {
        let in_range = |share: f64| Setup::ALPHA.contains(&((share * 100.0).round() as u8));
        let is_first = self.first.fields.get("alpha") == Some(alpha);
        is_first || *alpha == "auto" || alpha.as_f64().is_some_and(in_range)
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU16;

    use calumma_analysis::HashKeys;
    use calumma_cfs::frames::Graded;
    use calumma_epoch::Guards;
    use calumma_sketch::HashKey;
    use serde_json::json;

    use super::*;

    fn settings(section: &Value) -> Settings {
        let hash_keys = HashKeys::new(HashKey::from_bytes([1; 32]));
        let clock = EpochClock::new(50_000_000, Guards::default()).unwrap();
        let id = NonZeroU16::MIN;
        let deployment = Deployment { section, hash_keys: &hash_keys, clock, nodes: &[], id };
        Settings::new(&deployment).unwrap()
    }

    fn amended(settings: &mut Settings, changes: &Value) -> Result<(), String> {
        settings.amend(changes.as_object().unwrap())
    }

    #[test]
    fn what_may_change_does_and_all_else_waits_and_is_named() {
        let file = json!({ "entries": 4096, "residual": "fermat", "claim": true });
        let mut it = settings(&file);
        assert_eq!((it.overrides(), it.share()), (Overrides::default(), By::Setup));
        assert_eq!(it.reload(&file), Ok(vec![]));
        let other = json!({
            "entries": 1024, "residual": "none", "alpha": 0.8, "grade": "greedy", "claim": false,
            "pin": ["heavy"], "heavy_packets": 7, "window_epochs": 40, "hop_step": 1,
        });
        let waiting = it.reload(&other).unwrap();
        let later = "it changes when the system is switched off and on again";
        let named = ["residual = \"none\"", "window_epochs = 40"];
        assert_eq!(waiting, named.map(|field| format!("{field}: {later}")));
        let grade = Some(Graded::Greedy);
        let overrides = Overrides { entries: Some(1024), grade, unclaimed: true };
        assert_eq!((it.overrides(), it.share()), (overrides, By::Operator(80)));
        let (first, now) = (it.first().setup, it.now());
        assert_eq!(now.setup, first.with(overrides), "the filter and the residual stay");
        assert_eq!((now.thresholds.heavy_packets, now.pins), (7, 256));
        assert!(now.pin.heavy && !now.pin.victims);
        // What is not said goes back to what it was.
        assert_eq!(it.reload(&file), Ok(vec![]));
        assert_eq!((it.overrides(), it.share()), (Overrides::default(), By::Setup));
        assert_eq!(it.now(), it.first());
    }

    #[test]
    fn a_mistake_and_what_must_wait_change_nothing_where_fields_are_sent() {
        let mut it = settings(&json!({ "entries": 4096, "residual": "fermat", "alpha": 0.5 }));
        let mut refused = |changes: Value| amended(&mut it, &changes).unwrap_err();
        let starts = |error: String, words: &str| assert!(error.starts_with(words), "{error}");
        starts(
            refused(json!({ "heavy_packets": 5, "entries": 5000 })),
            "entries = 5000: must be 256 to 4096, which there is memory for; it changes when",
        );
        starts(refused(json!({ "entries": 100 })), "entries = 100: must be 256 to 4194304");
        starts(refused(json!({ "claim": true })), "claim = true: packets have no bit for it; it");
        starts(refused(json!({ "grade": "even" })), "grade = even: must be fold, greedy or random");
        starts(refused(json!({ "alpha": 0.59 })), "alpha = 0.59: must be 0.6 to 0.97, or auto");
        starts(refused(json!({ "pins": 1025 })), "pins = 1025: must be 0 to 1024, a quarter");
        starts(refused(json!({ "superspreader": 0 })), "superspreader = 0: must be at least 1");
        starts(refused(json!({ "hll_bits": 14 })), "hll_bits = 14: it changes when");
        assert_eq!(it.now(), it.first());
        for (alpha, by) in
            [(json!("auto"), By::Rule), (json!(0.75), By::Operator(75)), (json!(0.5), By::Setup)]
        {
            amended(&mut it, &json!({ "alpha": alpha })).unwrap();
            assert_eq!(it.share(), by);
        }
        for (residual, why) in [
            ("none", "alpha = 0.8: there is no residual to share the memory with; it changes"),
            ("flowradar", "alpha = 0.8: the share of flowradar does not move; it changes when"),
        ] {
            let mut it = settings(&json!({ "residual": residual }));
            starts(amended(&mut it, &json!({ "alpha": 0.8 })).unwrap_err(), why);
        }
    }
}
