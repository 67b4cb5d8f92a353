//! Whether a program, as its compiler or the driver that runs it describes it, is one that the
//! daemon can drive: everything that the daemon will ever name is there, with room for what it will
//! hold.
//!
//! Constants other than sizes can't be seen from outside.

use calumma_bfrt::{Info, InfoError, Value};

use crate::counters::{ENTERED, LEFT};
use crate::pilot::{SET_TIMESTAMP, TIMESTAMP};
use crate::system::Needs;
use crate::{driver, forwarding};

/// A program that the daemon can't drive.
#[derive(Debug, thiserror::Error)]
pub enum Mismatch {
    /// Other sizes.
    #[error(
        "the program on the switch holds {found} elements in {register}, the controller's layout \
         wants {wanted}: {remedy}"
    )]
    Size {
        /// The register.
        register: String,
        /// Its elements, both groups.
        found: u64,
        /// What the controller asks for.
        wanted: u64,
        /// What to do.
        remedy: &'static str,
    },
    /// Another number of parts.
    #[error(
        "the program on the switch has {found} of {part}, and measuring goes by {wanted}: another \
         build of {program} was loaded since; restart the daemon"
    )]
    Parts {
        /// Which program that is.
        program: String,
        /// The register that each part has, the number left out.
        part: String,
        /// How many there are.
        found: u32,
        /// How many there were.
        wanted: u32,
    },
    /// Another carrier.
    #[error(
        "the program on the switch has marks by {loaded:?}, and [carrier] kind is {wanted:?}: build \
         it {remedy}"
    )]
    Carrier {
        /// What the daemon's file wants.
        wanted: &'static str,
        /// What the program was built for.
        loaded: &'static str,
        /// How to build it.
        remedy: String,
    },
    /// Another way to build the program, or another program altogether.
    #[error("the program on the switch is not this release's {program}: {problem}")]
    Program {
        /// What it should be.
        program: String,
        /// What is missing.
        problem: InfoError,
    },
}

/// Checks that the program that `info` describes has what is needed.
///
/// # Errors
/// The first thing that is not as it should be, and the remedy.
pub fn check(info: &Info, needs: &Needs) -> Result<(), Mismatch> {
    let missing = |problem| Mismatch::Program { program: needs.program.clone(), problem };
    if let Some(parts) = needs.parts {
        let (found, wanted) = (parts.number_in(info), parts.number);
        // One that has none is another program altogether.
        if found != 0 && found != wanted {
            let part = format!("{}*{}", parts.before, parts.behind);
            return Err(Mismatch::Parts { program: needs.program.clone(), part, found, wanted });
        }
    }
    for source in &needs.sources {
        for register in &source.registers {
            let table = info.table(register).map_err(missing)?;
            let wanted = 2 * u64::from(source.elements);
            if table.size != wanted {
                let (register, found, remedy) = (register.clone(), table.size, needs.remedy);
                return Err(Mismatch::Size { register, found, wanted, remedy });
            }
            table.index_key(0).and_then(|_| table.zeros()).map_err(missing)?;
        }
    }
    tables(info, needs).map_err(missing)
}

/// Names everything in tables and counters that the daemon does.
fn tables(info: &Info, needs: &Needs) -> Result<(), InfoError> {
    let totals = needs.totals.iter().map(|total| (total.counter, total.cell));
    let totals = totals.chain(needs.entered.map(|counter| (counter, 0)));
    for (counter, cell) in [(ENTERED, 0), (LEFT, 0)].into_iter().chain(totals) {
        info.table(counter)?.index_key(cell.into())?;
    }
    let timestamp = info.table(TIMESTAMP)?;
    timestamp.data(Some(SET_TIMESTAMP), &[("value", Value::Number(1))])?;
    for table in &needs.epoch_tables {
        info.table(table)?;
    }
    if let Some(streams) = needs.notices {
        if streams.has_register {
            info.table(&streams.numbers())?.index_key(0)?;
        }
        for entry in streams.allow(&[0], 0) {
            driver::numbered(info, &entry)?;
        }
    }
    for entry in &needs.entries {
        driver::numbered(info, entry)?;
    }
    forwarding::check(info)
}
