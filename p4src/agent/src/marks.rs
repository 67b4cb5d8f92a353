//! Marks in the IPv4 identification: what the tables of `p4src/include/identification.p4` hold.
//! What is signed, and by what, `docs/contract.md` says (Signature).
//!
//! Which carrier a program knows was decided when it was compiled.

use calumma_bfrt::{Info, InfoError};
use calumma_plane::carrier::SignatureTables;
use calumma_wire::Secret;

use crate::config::CarrierKind;
use crate::counters::LEFT;
use crate::fits::Mismatch;
use crate::system::Total;
use crate::tables::{Match, TableEntry};
use crate::{driver, pilot};

/// The table of epochs in which packets may be marked. While it is empty, none is marked or read.
pub const EPOCHS: &str = "Ingress.signature.epochs";

/// The macro with which programs are compiled whose marks are in the identification.
pub const DEFINE: &str = "CARRIER_IP_ID";

/// Packets that left and that no edge had marked.
pub(crate) const UNMARKED: Total = Total { name: "egress.unmarked", counter: LEFT, cell: 3 };

/// Epochs that three bits of their number tell apart.
const KNOWN: u64 = 8;

/// What the longest packets are that the fabric does not cut, and what is done with it.
const FABRIC: &str = "Ingress.signature.fabric";
const LIMIT: &str = "limit";

/// What a switch signs marks by, and tells them from other identifications; and which packets it
/// marks.
#[derive(Clone, Debug)]
pub struct Marks {
    tables: SignatureTables,
    fabric_mtu: u16,
}

impl Marks {
    /// Those of a deployment with that hash key, whose fabric cuts no IPv4 packet of `fabric_mtu`
    /// bytes or less.
    pub fn new(hash_key: [u8; 32], fabric_mtu: u16) -> Self {
        Self { tables: SignatureTables::new(Secret::new(hash_key)), fabric_mtu }
    }

    /// What holds as long as the secret does: how long packets may be, and an entry for each value
    /// of each byte that is signed.
    pub fn secrets(&self) -> Vec<TableEntry> {
        let mut out = vec![TableEntry {
            table: FABRIC.to_owned(),
            keys: Vec::new(),
            action: LIMIT,
            args: vec![("fabric_mtu", self.fabric_mtu.into())],
        }];
        for (position, table) in self.tables.bytes().iter().enumerate() {
            for (byte, &value) in (0..).zip(table) {
                out.push(TableEntry {
                    table: format!("Ingress.signature.byte{position}.secret"),
                    keys: vec![("byte", Match::Exact(byte))],
                    action: "set",
                    args: vec![("value", value.into())],
                });
            }
        }
        out
    }

    /// The entries from the arming of an epoch on, until that of the next one: of the eight epochs
    /// up to it, of which all but the last two are over. The bits of the eighth back are those of
    /// the epoch to come as well.
    pub fn armed(&self, newest: u64) -> Vec<TableEntry> {
        let epochs = (newest + 1).saturating_sub(KNOWN)..=newest;
        let entry = |epoch: u64| {
            let next = newest + 1;
            let has_its_bits = if epoch + KNOWN == next { next } else { epoch };
            TableEntry {
                table: EPOCHS.to_owned(),
                keys: vec![("epoch", Match::Exact((epoch % KNOWN) as u32))],
                action: "pads_are",
                args: vec![
                    ("of_epoch", self.tables.pad(epoch).into()),
                    ("of_next", self.tables.pad(has_its_bits).into()),
                    ("is_late", u32::from(epoch + 2 <= newest)),
                ],
            }
        };
        epochs.map(entry).collect()
    }
}

/// What the timestamp is set to in an epoch.
pub fn stamp(epoch: u64, carrier: CarrierKind) -> Vec<(&'static str, u64)> {
    let bit = ("value", epoch & 1);
    match carrier {
        CarrierKind::IpId => vec![bit, ("above", epoch >> 1 & 0b11)],
        _ => vec![bit],
    }
}

/// The carrier that a program was compiled for.
pub fn of_program(info: &Info) -> CarrierKind {
    if info.table(EPOCHS).is_ok() { CarrierKind::IpId } else { CarrierKind::Tos }
}

/// Checks that the program was compiled for a carrier, and has the tables of it.
///
/// # Errors
/// What is not as it should be, and the remedy.
pub fn check(info: &Info, carrier: CarrierKind) -> Result<(), Mismatch> {
    let loaded = of_program(info);
    if loaded != carrier {
        let remedy = match carrier {
            CarrierKind::IpId => format!("with -D {DEFINE}=1"),
            _ => format!("without {DEFINE}"),
        };
        let (wanted, loaded) = (carrier.words(), loaded.words());
        return Err(Mismatch::Carrier { wanted, loaded, remedy });
    }
    let named = || -> Result<(), InfoError> {
        let timestamp = info.table(pilot::TIMESTAMP)?;
        let values = pilot::values(stamp(0, carrier));
        timestamp.data(Some(pilot::SET_TIMESTAMP), &values)?;
        if carrier == CarrierKind::IpId {
            let marks = Marks::new([0; 32], 0);
            for entry in marks.secrets().iter().chain(&marks.armed(KNOWN)) {
                driver::numbered(info, entry)?;
            }
        }
        Ok(())
    };
    let program = format!("program with marks by {:?}", carrier.words());
    named().map_err(|problem| Mismatch::Program { program, problem })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(entry: &TableEntry) -> (u32, [u32; 3]) {
        let (_, Match::Exact(bits)) = entry.keys[0] else { panic!("{entry:?}") };
        (bits, [0, 1, 2].map(|at| entry.args[at].1))
    }

    #[test]
    fn of_eight_epochs_the_last_two_are_not_late_and_the_first_gives_way_to_the_next() {
        let marks = Marks::new([7; 32], 1280);
        let tables = SignatureTables::new(Secret::new([7; 32]));
        let entries = marks.armed(1005);
        let pad = |epoch| u32::from(tables.pad(epoch));
        let wanted = (998..=1005).map(|epoch| {
            let next = if epoch == 998 { 1006 } else { epoch };
            ((epoch & 7) as u32, [pad(epoch), pad(next), u32::from(epoch < 1004)])
        });
        assert!(entries.iter().map(args).eq(wanted));
        assert_eq!(marks.armed(2).len(), 3, "there were no more");
    }

    #[test]
    fn every_byte_that_is_signed_has_all_its_entries() {
        let entries = Marks::new([7; 32], 1400).secrets();
        assert_eq!((&*entries[0].keys, &*entries[0].args), (&[][..], &[("fabric_mtu", 1400)][..]));
        let entries = &entries[1..];
        assert_eq!(entries.len(), 9 * 256);
        let last = &entries[9 * 256 - 1];
        assert_eq!(last.table, "Ingress.signature.byte8.secret");
        assert_eq!(last.keys, [("byte", Match::Exact(255))]);
        let value = SignatureTables::new(Secret::new([7; 32])).bytes()[8][255];
        assert_eq!(last.args, [("value", u32::from(value))]);
    }
}
