//! Cooperative Flow Selection (CFS) on a Tofino, at an edge or between other switches: what the
//! tables of `p4src/cfs.p4` hold, and what the words of its registers mean.
//!
//! What is sent of a window is what a software switch sends, so the controller can't tell which
//! kind it was. The table is one of rows: of the flows of smallest rank it has those that found
//! room in theirs.
//!
//! All flows are hashed by wide keys: their words, which grades and registers follow from, are so
//! at every switch, whichever keys its edges measure by.

mod claims;
mod guard;
mod pins;
mod rows;
mod window;

use std::sync::Arc;

use calumma_cfs::frames::{
    GUARD_SINCE, NOTICE_SINCE, OFFER, ROWS, ROWS_GUARD, Setup as Words, knows,
};
use calumma_chamelemon::frames::hash_key;
use calumma_sketch::HashKey;
use calumma_switch_host::{Session, SystemOffer};
use calumma_wire::{Offer, Role, SystemSetup};

use self::pins::Pinning;
use self::window::{Stands, Windows};
use crate::chamelemon::measures_ipv6;
use crate::system::{Build, Parts, Setup, System, Target};

/// Its columns, of which each row has a place.
const COLUMNS: Parts =
    Parts { before: "Ingress.rows.column", behind: ".standing.words", number: LEAST_COLUMNS };

/// As many as twelve stages have room for, and as a Tofino 2 has.
const LEAST_COLUMNS: u32 = 4;
const MOST_COLUMNS: u32 = 6;

/// The logarithm of rows of a group that an index reaches.
const MOST_ROW_BITS: u32 = 13;

/// The logarithm of the registers that count all flows.
const HLL_BITS: u8 = 12;

/// CFS's description.
#[derive(Clone, Copy, Debug)]
pub struct Cfs;

impl System for Cfs {
    fn offer(&self) -> SystemOffer {
        // Of what came then it has some, which its other offer has.
        let offer = Offer { highest: GUARD_SINCE - 1, ..OFFER };
        SystemOffer { offer, held: true }
    }

    fn offers(&self) -> Vec<SystemOffer> {
        let first = self.offer();
        let offer = Offer { lowest: ROWS, highest: ROWS_GUARD, ..OFFER };
        vec![first, SystemOffer { offer, ..first }]
    }

    fn name(&self) -> &'static str {
        "cfs"
    }

    fn roles(&self) -> &'static [Role] {
        &[Role::Edge, Role::Transit]
    }

    fn program(&self) -> &'static str {
        "cfs.p4"
    }

    fn landmark(&self) -> &'static str {
        "Ingress.rows.evicted.sums"
    }

    /// Its marks are in the ToS byte.
    fn may_go_by_identification(&self) -> bool {
        false
    }

    fn hashes(&self, _: Role) -> bool {
        true
    }

    fn setup(
        &self,
        (role, target): (Role, Target<'_>),
        session: &Session,
        setup: &SystemSetup,
    ) -> Result<Arc<dyn Setup>, String> {
        let words = Words::decode(&setup.setup).map_err(|problem| problem.to_string())?;
        let key = hash_key(&session.hash_key);
        let clock = Some(session.clock);
        let stands = Stands { role, ipv6: measures_ipv6(session), columns: columns(target)? };
        let pinning = Pinning::new(setup, words);
        let reports = knows(setup.version, NOTICE_SINCE);
        let windows = Windows::new(words, stands, &key, clock)?.by(pinning, reports);
        windows.check(&setup.plan)?;
        Ok(Arc::new(windows))
    }

    fn build(
        &self,
        (role, target): (Role, Target<'_>),
        controller: &toml::Table,
    ) -> Result<Build, String> {
        let section = controller.get(self.name()).and_then(toml::Value::as_table);
        let mut setup = Words { guard: true, ..Words::default() };
        if let Some(entries) = section.and_then(|section| section.get("entries")) {
            let entries = entries.as_integer().and_then(|entries| u32::try_from(entries).ok());
            setup.entries = entries.ok_or("[cfs] entries is no number of flows")?;
        }
        let key = HashKey::from_bytes([0; 32]);
        let stands = Stands { role, ipv6: true, columns: columns(target)? };
        let windows = Windows::new(setup, stands, &key, None)?;
        Ok(Build { constants: None, defines: windows.defines(), needs: windows.needs() })
    }
}

/// How many columns the program has.
///
/// # Errors
/// As many as it is never built with.
fn columns(target: Target<'_>) -> Result<u32, String> {
    let number = match target {
        Target::Tofino => LEAST_COLUMNS,
        Target::Tofino2 => MOST_COLUMNS,
        Target::Built(info) => COLUMNS.number_in(info),
    };
    match number {
        LEAST_COLUMNS | MOST_COLUMNS => Ok(number),
        // Another program: what of this one it lacks is said where its registers are looked for.
        0 => Ok(LEAST_COLUMNS),
        _ => Err(format!(
            "the program on the switch has {number} columns: build cfs.p4 with {LEAST_COLUMNS}, or \
             with -DCOLUMNS={MOST_COLUMNS} for a Tofino 2"
        )),
    }
}
