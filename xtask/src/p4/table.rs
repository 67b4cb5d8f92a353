//! The resources of all variants beside those published: for people and for programs.

use std::collections::BTreeMap;
use std::fmt::Write;

use anyhow::Result;
use serde_json::json;

use super::Built;

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

/// A table for people.
pub(super) fn text(built: &[Built]) -> String {
    let mut out = format!("\n{:<24}{:>12}{:>12}", "", "published", "through p4c");
    // Writing to a String can't fail.
    for Built { variant, .. } in built {
        let _ = write!(out, "{:>18}", variant.name);
    }
    out.push('\n');
    for (kind, published, through_p4c) in PUBLISHED {
        let number = |amount: Option<u64>| amount.map_or_else(|| "-".to_owned(), |n| n.to_string());
        let _ = write!(out, "{kind:<24}{:>12}{:>12}", number(published), number(through_p4c));
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
    let mut list = vec![
        json!({"program": "published", "target": "tofino", "resources": known(|row| row.1)}),
        json!({"program": "published, through p4c", "target": "tofino", "resources": known(|row| row.2)}),
    ];
    for Built { variant, resources } in built {
        let resources = resources.as_ref().map(|resources| &resources.0);
        list.push(
            json!({"program": variant.name, "target": variant.target, "resources": resources}),
        );
    }
    Ok(serde_json::to_string_pretty(&list)? + "\n")
}

#[cfg(test)]
mod tests {
    use super::super::VARIANTS;
    use super::*;
    use crate::p4::resources::{KINDS, Resources};

    #[test]
    fn every_kind_stands_in_the_table_beside_the_published_figure() {
        let resources = Resources(KINDS.map(|kind| (kind, 7)).into());
        let built = [
            Built { variant: &VARIANTS[0], resources: Some(resources) },
            Built { variant: &VARIANTS[1], resources: None },
        ];
        let text = text(&built);
        assert_eq!(text.trim().lines().count(), 1 + KINDS.len());
        for (line, kind) in text.trim().lines().skip(1).zip(KINDS) {
            assert!(line.starts_with(kind), "{line}");
            let figures: Vec<&str> = line[24..].split_whitespace().collect();
            assert_eq!(figures[2..], ["7", "-"], "{line}");
        }
        let json: serde_json::Value = serde_json::from_str(&json(&built).unwrap()).unwrap();
        assert_eq!(json[0]["resources"]["SRAM blocks"], 130);
        assert_eq!(json[2]["resources"]["stages"], 7);
        assert!(json[3]["resources"].is_null());
    }
}
