//! The systems that this build analyses for: the one list from which the controller, and readers of
//! its archive, take tables, metrics and alert rules.

use calumma_analysis::System;
use calumma_cfs_analysis::Cfs;
use calumma_chamelemon_analysis::ChameleMon;
use calumma_sketchint_analysis::SketchInt;

/// Every system. One is added by adding it here.
pub static SYSTEMS: &[&dyn System] = &[&ChameleMon, &SketchInt, &Cfs];

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use calumma_analysis::tables_of;

    use super::*;

    #[test]
    fn names_are_taken_once() {
        let systems: HashSet<_> = SYSTEMS.iter().map(|system| system.name()).collect();
        assert_eq!(systems.len(), SYSTEMS.len());
        let tables: Vec<_> = tables_of(SYSTEMS).map(|table| table.name()).collect();
        assert_eq!(tables.iter().collect::<HashSet<_>>().len(), tables.len());
    }

    #[test]
    fn each_has_a_table_that_says_which_reports_are_complete() {
        for system in SYSTEMS {
            let reports = system.reports();
            assert!(system.tables().iter().any(|table| table.name() == reports.name()));
            let columns = reports.columns();
            for (name, sql_type) in [("epoch", "BIGINT"), ("complete", "BOOLEAN")] {
                let has = columns.iter().any(|of| (of.name, of.sql_type) == (name, sql_type));
                assert!(has, "{}: {name}", reports.name());
            }
        }
    }
}
