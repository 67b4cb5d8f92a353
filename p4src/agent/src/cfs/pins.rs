//! Flows that come before all others: what plans name, and the entries that say it to the program.

use std::collections::BTreeSet;

use calumma_cfs::frames::{Holding, PINS_SINCE, Pins, Plan, Setup as Words, knows};
use calumma_sketch::{FlowKey, Key, WideKey};
use calumma_wire::SystemSetup;

use crate::tables::{Match, TableEntry};

/// The program's table of them. It has room for twice as many as both groups ever hold.
pub(super) const TABLE: &str = "Ingress.pins";

/// How long an entry takes to be written or removed, in nanoseconds, with room: the model's driver
/// takes half as long.
const ENTRY_NS: u64 = 10_000;

/// How long it takes at most until a plan is looked at, in nanoseconds.
const LOOK_NS: u64 = 20_000_000;

/// The flows of a window that are pinned.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pinned {
    /// Those that may have an entry.
    pub(crate) flows: BTreeSet<FlowKey>,
    /// How many of IPv6 there are, which have none.
    pub(crate) ipv6: u64,
}

/// What can be pinned in a session.
#[derive(Clone, Debug, Default)]
pub(super) struct Pinning {
    words: Words,
    /// The setup as it was sent, where its version pins flows.
    sent: Option<Vec<u8>>,
}

impl Pinning {
    /// By what the controller has sent, which says `words`.
    pub(super) fn new(setup: &SystemSetup, words: Words) -> Self {
        let sent = knows(setup.version, PINS_SINCE).then(|| setup.setup.clone());
        Self { words, sent }
    }

    /// What a plan says.
    ///
    /// # Errors
    /// What can't be read, or is more than switches can do, in words.
    pub(super) fn read(&self, plan: &[u8]) -> Result<Plan, String> {
        if self.sent.is_none() && !plan.is_empty() {
            return Err("there is nothing to plan in this version".to_owned());
        }
        Plan::decode(plan, &self.words).map_err(|problem| problem.to_string())
    }

    /// The flows that a plan pins.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub(super) fn of(&self, plan: &[u8]) -> Result<Pinned, String> {
        let plan = self.read(plan)?;
        let flows: BTreeSet<FlowKey> = plan.pins.flows.iter().filter_map(narrow).collect();
        let ipv6 = (plan.pins.flows.len() - flows.len()) as u64;
        Ok(Pinned { flows, ipv6 })
    }

    /// What the controller is sent that the switch pins by, where it pins.
    pub(super) fn holding(&self, plan: &[u8], epoch: u64) -> Option<Vec<u8>> {
        let (setup, plan) = (self.sent.clone()?, plan.to_vec());
        Some(Holding { setup, epoch, plan }.encode())
    }

    /// How long it takes at most from a plan to all of its entries, in nanoseconds: other flows may
    /// have been pinned in the group before.
    pub(super) fn writing_ns(&self) -> u64 {
        let most = u64::from(Pins::most_of(self.words.entries));
        if self.sent.is_some() { LOOK_NS + 2 * most * ENTRY_NS } else { 0 }
    }
}

/// The entry of a flow that is pinned in a group.
pub(super) fn entry(group: u32, key: &FlowKey) -> TableEntry {
    let keys = [
        ("window.group", group),
        ("hdr.ipv4.src", key.src_word()),
        ("hdr.ipv4.dst", key.dst_word()),
        ("meta.ports", key.ports_word()),
        ("hdr.ipv4.protocol", key.protocol().into()),
    ];
    TableEntry {
        table: TABLE.to_owned(),
        keys: keys.map(|(key, value)| (key, Match::Exact(value))).to_vec(),
        action: "pin",
        args: Vec::new(),
    }
}

/// The key of an IPv4 flow.
fn narrow(key: &WideKey) -> Option<FlowKey> {
    let ((src, dst), (sport, dport)) = (key.addresses(), Key::ports(key));
    FlowKey::new(src, dst, sport, dport, Key::protocol(key))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flows_of_ipv4_have_entries_and_those_of_ipv6_are_counted() {
        let words = Words { entries: 256, ..Words::default() };
        let setup = |version| SystemSetup {
            system: calumma_wire::SystemId::CFS,
            version,
            setup: words.encode(),
            plan: Vec::new(),
        };
        let pinning = |version| Pinning::new(&setup(version), words);
        let key = WideKey::v4([10, 1, 0, 2].into(), [10, 2, 0, 2].into(), 7, 80, 6);
        let of_ipv6 = WideKey::v6([1; 16].into(), [2; 16].into(), 7, 80, 6);
        let plan = Pins { flows: [key, of_ipv6].into() }.encode();
        let rows = pinning(calumma_cfs::frames::ROWS);
        let pinned = rows.of(&plan).unwrap();
        assert_eq!((pinned.flows.len(), pinned.ipv6), (1, 1));
        let flow = *pinned.flows.first().unwrap();
        assert_eq!(WideKey::from(flow), key);
        let of_flow = entry(1, &flow);
        let fields = [1, 0x0A01_0002, 0x0A02_0002, 0x0007_0050, 6].map(Match::Exact);
        assert!(of_flow.keys.iter().map(|(_, field)| *field).eq(fields));
        assert_eq!(rows.of(&[]), Ok(Pinned::default()));
        assert_eq!(pinning(1).of(&[]), Ok(Pinned::default()));
        assert!(pinning(1).of(&plan).unwrap_err().contains("nothing to plan"));
        assert!(rows.of(&plan[..20]).is_err());
        let held = Holding::decode(&rows.holding(&plan, 140).unwrap()).unwrap();
        assert_eq!((held.setup, held.epoch, held.plan), (words.encode(), 140, plan));
        assert_eq!((pinning(1).holding(&[], 140), pinning(1).writing_ns()), (None, 0));
        // 64 may be pinned before 256 entries.
        assert_eq!(rows.writing_ns(), 20_000_000 + 128 * 10_000);
    }
}
