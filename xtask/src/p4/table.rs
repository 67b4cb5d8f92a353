//! The resources of all variants beside those published: for people and for programs.

use std::collections::BTreeMap;
use std::fmt::Write;

use anyhow::Result;
use serde_json::json;

use super::Built;
use super::programs::{OF_EDGE, Variant};

/// A kind of resource, and how much of it is known to be taken.
type Known = (&'static str, Option<u64>, Option<u64>);

/// Of the paper's own program: as published (ChameleMon, table 1), and through p4c 9.13.4.
const PUBLISHED: [Known; 11] = [
    ("stages", Some(12), Some(12)),
    ("stateful ALUs", Some(32), Some(33)),
    ("SRAM blocks", Some(130), Some(143)),
    ("map RAM blocks", Some(102), Some(102)),
    ("TCAM blocks", Some(8), Some(8)),
    ("hash bits", Some(809), Some(660)),
    ("hash distribution units", None, None),
    ("VLIW instructions", Some(43), Some(47)),
    ("exact crossbar bytes", Some(353), Some(356)),
    ("ternary crossbar bytes", Some(33), Some(33)),
    ("logical tables", None, Some(91)),
];

/// A table a system for people, ChameleMon's with what was published of it.
pub(super) fn text(built: &[Built]) -> String {
    built.chunk_by(|a, b| a.system == b.system).map(of_system).collect()
}

fn of_system(built: &[Built]) -> String {
    let system = built.first().map_or("", |built| &*built.system);
    let is_published = system == OF_EDGE;
    let mut out = format!("\n{system:<24}");
    // Writing to a String can't fail.
    if is_published {
        let _ = write!(out, "{:>12}{:>12}", "published", "through p4c");
    }
    for Built { variant, .. } in built {
        let _ = write!(out, "{:>18}", variant.name);
    }
    out.push('\n');
    for (kind, published, through_p4c) in PUBLISHED {
        let number = |amount: Option<u64>| amount.map_or_else(|| "-".to_owned(), |n| n.to_string());
        let _ = write!(out, "{kind:<24}");
        if is_published {
            let _ = write!(out, "{:>12}{:>12}", number(published), number(through_p4c));
        }
        for Built { resources, .. } in built {
            let amount = resources.as_ref().and_then(|resources| resources.0.get(kind).copied());
            let _ = write!(out, "{:>18}", number(amount));
        }
        out.push('\n');
    }
    out
}

/// The same as a JSON list: one object a program, `resources` null where it does not compile.
pub(super) fn json(built: &[Built]) -> Result<String> {
    let known = |which: fn(&Known) -> Option<u64>| {
        let some = PUBLISHED.iter().filter_map(|row| Some((row.0, which(row)?)));
        some.collect::<BTreeMap<&str, u64>>()
    };
    let published = |program: &str, which| {
        let resources = known(which);
        json!({"system": OF_EDGE, "program": program, "target": "tofino", "resources": resources})
    };
    let mut list = Vec::new();
    if built.iter().any(|built| built.system == OF_EDGE) {
        list.push(published("published", |row: &Known| row.1));
        list.push(published("published, through p4c", |row: &Known| row.2));
    }
    for Built { system, variant, resources } in built {
        let resources = resources.as_ref().map(|resources| &resources.0);
        let Variant { name, target, .. } = variant;
        list.push(json!({
            "system": system, "program": name, "target": target, "resources": resources,
        }));
    }
    Ok(serde_json::to_string_pretty(&list)? + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::p4::programs::Program;
    use crate::p4::resources::{KINDS, Resources};

    #[test]
    fn every_kind_stands_in_the_table_of_a_system_chamelemons_beside_the_published_figures() {
        let built = |system: &str, amounts: [Option<u64>; 2]| -> Vec<Built> {
            let program = Program { system: system.to_owned(), file: "edge.p4".into() };
            let variants = program.chosen(None).into_iter().zip(amounts);
            let resources = |amount| Resources(KINDS.map(|kind| (kind, amount)).into());
            variants
                .map(|(variant, amount)| Built {
                    system: system.to_owned(),
                    variant,
                    resources: amount.map(resources),
                })
                .collect()
        };
        let mut built_all = built(OF_EDGE, [Some(7), None]);
        built_all.extend(built("sketchint", [Some(3), Some(4)]));
        let text = text(&built_all);
        let tables: Vec<&str> = text.trim().split("\n\n").collect();
        for (table, (title, first, wanted)) in
            tables.iter().zip([(OF_EDGE, 2, ["7", "-"]), ("sketchint", 0, ["3", "4"])])
        {
            assert_eq!(table.lines().count(), 1 + KINDS.len());
            assert!(table.starts_with(title), "{table}");
            for (line, kind) in table.lines().skip(1).zip(KINDS) {
                assert!(line.starts_with(kind), "{line}");
                let figures: Vec<&str> = line[24..].split_whitespace().collect();
                assert_eq!(figures[first..], wanted, "{line}");
            }
        }
        assert_eq!(tables.len(), 2);
        let json: serde_json::Value = serde_json::from_str(&json(&built_all).unwrap()).unwrap();
        assert_eq!(json[0]["resources"]["SRAM blocks"], 130);
        assert_eq!(json[2]["resources"]["stages"], 7);
        assert!(json[3]["resources"].is_null());
        assert_eq!(json[4]["system"], "sketchint");
    }
}
