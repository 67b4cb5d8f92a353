//! Whether a program, as its compiler or the driver that runs it describes it, is one that the daemon can
//! drive: everything that the daemon will ever name is there, with room for what it will hold.
//!
//! Constants other than sizes can't be seen from outside.

use calumma_bfrt::{Info, InfoError, Value};
use calumma_chamelemon::{Attention, Layout, Partition, SampleRate};
use calumma_sketch::{Arithmetic, HashFamily, HashKey};

use crate::collection::Source;
use crate::collector::registers;
use crate::figures::{ENTERED, LEFT};
use crate::pilot::{SET_TIMESTAMP, TIMESTAMP};
use crate::{driver, entries, forwarding};

/// A program that the daemon can't drive.
#[derive(Debug, thiserror::Error)]
pub enum Mismatch {
    /// Other sizes.
    #[error(
        "the program on the switch holds {found} elements in {register}, the controller's layout \
         wants {wanted}: build the program with the constants that `calumma-switchd contract` writes \
         for that layout"
    )]
    Size {
        /// The register.
        register: String,
        /// Its elements, both groups.
        found: u64,
        /// What the layout asks for.
        wanted: u64,
    },
    /// Another arithmetic, or another program altogether.
    #[error(
        "the program on the switch is not this release's edge.p4 with {arithmetic:?} arithmetic: \
         {problem}"
    )]
    Program {
        /// The layout's arithmetic.
        arithmetic: Arithmetic,
        /// What is missing.
        problem: InfoError,
    },
}

/// Checks that the program that `info` describes is built for the layout.
///
/// # Errors
/// The first thing that is not as it should be, and the remedy.
pub fn check(info: &Info, layout: &Layout) -> Result<(), Mismatch> {
    let missing = |problem| Mismatch::Program { arithmetic: layout.arithmetic, problem };
    for source in Source::ALL {
        for register in registers(source, layout.arithmetic) {
            let table = info.table(&register).map_err(missing)?;
            let wanted = 2 * u64::from(source.elements(layout));
            if table.size != wanted {
                return Err(Mismatch::Size { register, found: table.size, wanted });
            }
            table.index_key(0).and_then(|_| table.zeros()).map_err(missing)?;
        }
    }
    tables(info, layout).map_err(missing)
}

/// Names everything in tables and counters that the daemon does.
fn tables(info: &Info, layout: &Layout) -> Result<(), InfoError> {
    for counter in [ENTERED, LEFT] {
        info.table(counter)?.index_key(0)?;
    }
    let timestamp = info.table(TIMESTAMP)?;
    timestamp.data(Some(SET_TIMESTAMP), &[("value", Value::Number(1))])?;
    for table in entries::epoch_tables() {
        info.table(&table)?;
    }
    let buckets = layout.upstream_buckets.min(layout.downstream_buckets) / 4;
    let attention = Attention {
        t_h: 30,
        t_l: 3,
        sample_rate: SampleRate::ALL,
        partition: Partition { hh: buckets, hl: buckets, ll: buckets },
    };
    // With buckets for every hierarchy, and without.
    let bare = Attention { partition: Partition { hh: 0, hl: 0, ll: 0 }, ..attention };
    let mut all = entries::secrets(&HashFamily::new(&HashKey::from_bytes([0; 32])));
    for (epoch, attention) in [(0, attention), (1, attention), (2, bare)] {
        all.extend(entries::epoch(layout, &attention, epoch));
    }
    for entry in &all {
        driver::numbered(info, entry)?;
    }
    forwarding::check(info)
}
