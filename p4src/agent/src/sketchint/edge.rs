//! A session of a source and sink.

use std::ops::Range;

use calumma_plane::int::Insertion;
use calumma_sketch::{HashFamily, HashKey};
use calumma_sketchint::frames::{Layout, OFFER, Plan, STACKS_SINCE, Setup as Words, Step};
use calumma_wire::{Side, SideKind};

use super::sizes::Sizes;
use super::window::{Events, Sink};
use super::{HASH_UNITS, Transit, inflated, logarithms};
use crate::collection::Source;
use crate::system::{Closed, EpochEntries, Needs, Setup, Total};
use crate::tables::{Match, TableEntry};
use crate::{forwarding, hashes};

/// Where packets with a timestamp bit are recorded.
const WINDOWS: &str = "Egress.windows";

/// What is put into packets with a timestamp bit from hosts.
const INSERTION: &str = "Egress.push.source.insertion";

/// Whether anything is, whatever that says.
const SOURCING: &str = "Egress.push.source.sourcing";

/// Headers of IPv6 behind which other switches put stacks, and this program finds none.
const UNREAD: &str = "Ingress.sink.unread";

/// Extension headers (docs/contract.md).
const EXTENSIONS: [u32; 5] = [0, 43, 44, 51, 60];

/// What a source did with packets, and what became of those for hosts with the marker, by cells.
const ENTERED: &str = "Egress.push.source.packets";
const MARKED: &str = "Ingress.sink.packets";
const STRIPPED: &str = "Egress.stripped";

/// Largest counts of a flow at which each array can still say that it has had more.
const MOST: [(&str, u32); 3] = [("most8", 0xFE), ("most16", 0xFFFE), ("most32", 0xFFFF_FFFE)];

/// Why a setup is declined of which not every packet is to have a stack.
const NO_SHARE: &str = "share: a Tofino puts stacks into all packets; set [sketchint] share = 1, or \
                        run software switches as edges";
const NO_WATCH: &str = "watch: a Tofino puts stacks into packets of all flows; set [sketchint] \
                        watch = [], or run software switches as edges";

/// What a session puts into packets, takes out of them, and keeps of them.
#[derive(Debug)]
pub(super) struct Edge {
    /// What it is to packets that it passes on.
    transit: Transit,
    sink: Sink,
    family: HashFamily,
    /// Seconds without a controller after which nothing is put into packets any more.
    orphan_seconds: u16,
    sources: Vec<Source>,
}

impl Edge {
    /// # Errors
    /// What of the controller's words the program is not made for, and the remedy.
    pub(super) fn new(
        transit: Transit,
        (version, words): (u8, Words),
        key: &HashKey,
    ) -> Result<Self, String> {
        let Words { share, watch, layout, orphan_seconds, .. } = words;
        if share != u32::MAX {
            return Err(NO_SHARE.to_owned());
        }
        if !watch.is_everything() {
            return Err(NO_WATCH.to_owned());
        }
        let sizes = Sizes::of(&layout.shape)?;
        let mut edge = Self::of_sizes(transit, sizes, key);
        edge.sink.layout = layout;
        edge.sink.says_stacks = version >= STACKS_SINCE;
        Ok(Self { orphan_seconds, ..edge })
    }

    /// One of these sizes, and else as by default.
    pub(super) fn of_sizes(transit: Transit, sizes: Sizes, key: &HashKey) -> Self {
        let (layout, own) = (Layout::default(), transit.insertion.node.get().into());
        let sink = Sink { layout, sizes, own, hash_key: key.id(), says_stacks: false };
        let (family, sources) = (HashFamily::new(key), sizes.sources());
        let orphan_seconds = Words::default().orphan_seconds;
        Self { transit, sink, family, orphan_seconds, sources }
    }

    /// The group that an epoch is recorded in, and by which of its turns notices of it are known.
    fn turn(&self, epoch: u64) -> (u32, u8) {
        let window = epoch / self.transit.window;
        ((window & 1) as u32, window as u8)
    }

    /// The entries by which packets of an epoch are recorded, and in which those of hosts get
    /// stacks where they do.
    fn gate(&self, epoch: u64, step: Step) -> Vec<TableEntry> {
        let bit = ("hdr.bridge.timestamp", Match::Exact((epoch & 1) as u32));
        let (group, turn) = self.turn(epoch);
        let mut gate = vec![TableEntry {
            table: WINDOWS.to_owned(),
            keys: vec![bit],
            action: "record_in",
            args: vec![("group", group), ("of_turn", turn.into())],
        }];
        if step == Step::Sources {
            let Insertion { domain, node, hops, .. } = self.transit.insertion;
            gate.push(TableEntry {
                table: INSERTION.to_owned(),
                keys: vec![("enters", Match::Exact(1)), bit],
                action: "source_as",
                args: vec![
                    ("number", node.get().into()),
                    ("of_domain", domain.get().into()),
                    ("hops", hops.into()),
                ],
            });
        }
        gate
    }
}

/// What a table does on a miss.
fn on_miss(table: &str, action: &'static str, args: Vec<(&'static str, u32)>) -> TableEntry {
    TableEntry { table: table.to_owned(), keys: Vec::new(), action, args }
}

impl Setup for Edge {
    fn window(&self) -> u64 {
        self.transit.window()
    }

    fn is_ahead(&self) -> bool {
        true
    }

    fn ingress_at_take(&self) -> bool {
        true
    }

    fn needs(&self) -> Needs {
        let total = |name, counter, cell| Total { name, counter, cell };
        let Needs { mut totals, .. } = self.transit.needs();
        totals.extend([
            total("sketchint.pushed", ENTERED, 1),
            total("sketchint.inserted", ENTERED, 1),
            total("sketchint.inserted", ENTERED, 2),
            total("sketchint.mtu_exceeded", ENTERED, 2),
            total("sketchint.not_carried.mtu", ENTERED, 3),
            total("sketchint.not_carried.checksum", ENTERED, 4),
            total("sketchint.not_carried.protocol", ENTERED, 5),
            total("sketchint.not_carried.fragment", ENTERED, 6),
            total("sketchint.stripped", STRIPPED, 0),
            total("sketchint.stripped", STRIPPED, 2),
            total("sketchint.discarded", MARKED, 2),
            total("sketchint.malformed", MARKED, 3),
            total("sketchint.unstripped", MARKED, 3),
            total("sketchint.unstripped", MARKED, 4),
            total("sketchint.unstripped", STRIPPED, 1),
            total("sketchint.foreign", MARKED, 5),
            total("sketchint.dscp_cleared", "Ingress.markers", 0),
        ]);
        Needs {
            program: format!("{} without ROLE_TRANSIT", super::PROGRAM),
            remedy: "build it with the sizes that `calumma-switchd contract --system sketchint --role edge` \
                     writes for [sketchint] tower_words and pair_buckets",
            parts: None,
            sources: self.sources.clone(),
            epoch_tables: vec![WINDOWS.to_owned(), INSERTION.to_owned()],
            entries: self.fixed().into_iter().chain(self.gate(0, Step::Sources)).collect(),
            totals,
            entered: None,
            notices: Some(inflated::STREAMS),
            stopped: vec![INSERTION.to_owned()],
        }
    }

    fn sources(&self, side: SideKind) -> &[Source] {
        match side {
            SideKind::Egress => &self.sources,
            SideKind::Ingress => &self.sources[self.sources.len().saturating_sub(1)..],
            SideKind::Transit | SideKind::Host => &[],
        }
    }

    fn fixed(&self) -> Vec<TableEntry> {
        let above = self.sink.layout.key_packets(1);
        let Layout { shape, inflation_percent, .. } = self.sink.layout;
        let inflated = logarithms::of_threshold(inflation_percent, shape.unit_ns);
        let mut out = hashes::secrets_of_lanes(&self.family, &HASH_UNITS);
        out.extend(self.transit.fixed());
        out.extend([
            forwarding::stacks_of(self.transit.insertion.domain.get().into(), 0xFFFF),
            on_miss("Ingress.clearing", "clear", Vec::new()),
            on_miss("Ingress.sources", "mark_both", Vec::new()),
            on_miss("Egress.sinks", "take_back_both", Vec::new()),
            on_miss("Egress.own", "number_as", vec![("number", self.sink.own)]),
            on_miss(
                "Egress.large.threshold",
                "above",
                MOST.map(|(name, most)| (name, above.min(most))).to_vec(),
            ),
            on_miss("Egress.places.inflation", "above", vec![("log", inflated)]),
            on_miss(SOURCING, "allow", Vec::new()),
        ]);
        out.extend(EXTENSIONS.map(|number| TableEntry {
            table: UNREAD.to_owned(),
            keys: vec![("hdr.ipv6.next_header", Match::Exact(number))],
            action: "hide",
            args: Vec::new(),
        }));
        out
    }

    fn epoch(&self, epoch: u64, plan: &[u8]) -> Result<EpochEntries, String> {
        let Plan { step, .. } = Plan::decode(plan).map_err(|problem| problem.to_string())?;
        Ok(EpochEntries { gate: self.gate(epoch, step), rest: Vec::new() })
    }

    fn check(&self, plan: &[u8]) -> Result<(), String> {
        self.transit.check(plan)
    }

    /// After it has stopped by itself, it puts stacks into packets once a plan says so.
    fn at_once(&self, plan: &[u8]) -> Vec<TableEntry> {
        match Step::of_plan(plan) {
            Step::Sources => vec![on_miss(SOURCING, "allow", Vec::new())],
            Step::Off | Step::Sinks | Step::Transits => Vec::new(),
        }
    }

    fn alone(&self, plan: &[u8], alone_ns: u64) -> Option<(Vec<u8>, Vec<TableEntry>)> {
        let orphan_ns = u64::from(self.orphan_seconds) * 1_000_000_000;
        if alone_ns < orphan_ns || Step::of_plan(plan) != Step::Sources {
            return None;
        }
        // Epochs that are prepared already would go on.
        let stop = on_miss(SOURCING, "NoAction", Vec::new());
        Some((Plan::of(Step::Transits).encode(), vec![stop]))
    }

    fn holding(&self, plan: &[u8], epoch: u64) -> Option<Vec<u8>> {
        self.transit.holding(plan, epoch)
    }

    fn numbered(&self, closed: &Closed, words: &[Vec<u32>]) -> Vec<Range<u32>> {
        let sums = words.last().filter(|_| closed.side == SideKind::Egress);
        let events = sums.and_then(|sums| Events::new(sums).ok());
        let (group, _) = self.turn(closed.epoch);
        events.map_or_else(Vec::new, |events| events.numbered(group as usize))
    }

    fn side(&self, closed: &Closed, words: &[Vec<u32>]) -> Result<Side, String> {
        let Closed { epoch, side, stall_ns, ref notices, .. } = *closed;
        let (packets, body) = match (side, words) {
            (SideKind::Ingress, [sums]) => (0, Events::new(sums)?.entered().encode()),
            _ => {
                let (_, turn) = self.turn(epoch);
                let window = self.sink.window(words, (notices, turn))?;
                (window.totals.packets, window.encode())
            }
        };
        let (system, counters) = (OFFER.system, Vec::new());
        Ok(Side { system, epoch, side, stall_ns, packets, counters, body })
    }
}
