//! What a compiled program takes of the chip, from the compiler's `resources.json`.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde::Deserialize;
use serde_json::Value;

/// The kinds of resources, in the order they are shown.
pub(super) const KINDS: [&str; 11] = [
    "stages",
    "stateful ALUs",
    "SRAM blocks",
    "map RAM blocks",
    "TCAM blocks",
    "hash bits",
    "hash distribution units",
    "VLIW instructions",
    "exact crossbar bytes",
    "ternary crossbar bytes",
    "logical tables",
];

/// How much of each of [`KINDS`].
#[derive(Debug, PartialEq)]
pub(super) struct Resources(pub(super) BTreeMap<&'static str, u64>);

#[derive(Deserialize)]
struct Report {
    resources: Whole,
}

#[derive(Deserialize)]
struct Whole {
    mau: Mau,
}

#[derive(Deserialize)]
struct Mau {
    mau_stages: Vec<Value>,
}

impl Resources {
    /// Reads the report of the compiler.
    pub(super) fn read(path: &Path) -> Result<Resources> {
        let text =
            fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
        Resources::parse(&text).with_context(|| format!("what {} says", path.display()))
    }

    fn parse(text: &str) -> Result<Resources> {
        let report: Report = serde_json::from_str(text)?;
        let mut sums: BTreeMap<&'static str, u64> = KINDS.map(|kind| (kind, 0)).into();
        for (number, stage) in (1..).zip(&report.resources.mau.mau_stages) {
            let list = |pointer: &str| -> Result<&Vec<Value>> {
                let found = stage.pointer(pointer).and_then(Value::as_array);
                found.with_context(|| format!("stage {}: no list {pointer}", number - 1))
            };
            let crossbar = list("/xbar_bytes/bytes")?;
            let of_type = |name: &str| {
                let is =
                    |byte: &&Value| byte.get("byte_type").and_then(Value::as_str) == Some(name);
                crossbar.iter().filter(is).count()
            };
            let tables = list("/logical_tables/ids")?.len();
            for (kind, amount) in [
                ("stateful ALUs", list("/meter_alus/meters")?.len()),
                ("SRAM blocks", list("/rams/srams")?.len()),
                ("map RAM blocks", list("/map_rams/maprams")?.len()),
                ("TCAM blocks", list("/tcams/tcams")?.len()),
                ("hash bits", list("/hash_bits/bits")?.len()),
                ("hash distribution units", list("/hash_distribution_units/units")?.len()),
                ("VLIW instructions", list("/vliw/instructions")?.len()),
                ("exact crossbar bytes", of_type("exact")),
                ("ternary crossbar bytes", of_type("ternary")),
                ("logical tables", tables),
            ] {
                *sums.entry(kind).or_default() += amount as u64;
            }
            if tables > 0 {
                sums.insert("stages", number);
            }
        }
        Ok(Resources(sums))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stage(tables: usize, bytes: &str) -> String {
        let ids = vec!["{}"; tables].join(",");
        format!(
            r#"{{"xbar_bytes": {{"bytes": [{bytes}]}}, "hash_bits": {{"bits": [{{}}, {{}}]}},
                "hash_distribution_units": {{"units": []}}, "rams": {{"srams": [{{}}]}},
                "map_rams": {{"maprams": []}}, "tcams": {{"tcams": []}},
                "vliw": {{"instructions": []}}, "meter_alus": {{"meters": [{{}}]}},
                "logical_tables": {{"ids": [{ids}]}}}}"#
        )
    }

    fn report(stages: &[String]) -> String {
        format!(r#"{{"resources": {{"mau": {{"mau_stages": [{}]}}}}}}"#, stages.join(","))
    }

    #[test]
    fn stages_are_summed_up_and_empty_ones_at_the_end_are_not_counted() {
        let bytes = r#"{"byte_type": "exact"}, {"byte_type": "ternary"}, {"byte_type": "exact"}"#;
        let report = report(&[stage(2, bytes), stage(1, ""), stage(0, "")]);
        let Resources(sums) = Resources::parse(&report).unwrap();
        assert_eq!(sums["stages"], 2);
        assert_eq!(sums["logical tables"], 3);
        assert_eq!(sums["exact crossbar bytes"], 2);
        assert_eq!(sums["ternary crossbar bytes"], 1);
        assert_eq!(sums["hash bits"], 6);
        assert_eq!(sums["stateful ALUs"], 3);
    }

    #[test]
    fn a_report_of_another_form_is_an_error_that_names_what_is_missing() {
        let error = Resources::parse(&report(&["{}".to_owned()])).unwrap_err();
        assert_eq!(error.to_string(), "stage 0: no list /xbar_bytes/bytes");
    }
}
