//! What a switch kept in a window: totals, how many flows there were, and the entries of its table.
//!
//! ```text
//! keys (1): 0 IPv4, 1 dual  hash key (8)  routes changed (1)
//! limit: 0  or  1  class (1)  grade (4)
//! theta: 0  or  1  grade (4)
//! the table's share of the memory, where that moves, as in a plan (1)
//! what overrode the setup, where plans may: see `overrides`
//! totals (8 each)
//! registers of the HyperLogLog: a column
//! entries: their number (4), and columns
//! the residual, where there is one: see `residual`
//! flows that may be in loops, where they are looked for: see `suspects`
//! where flows without an entry entered and left, where edges say it: see `ends`
//! ```

use calumma_sketch::table::Rank;
use calumma_sketch::{HyperLogLog, KeyKind, either};
use calumma_wire::DecodeError;
use calumma_wire::body::{Body, put_u8, put_u32, put_u64};
use calumma_wire::columns::{put_column, read_column};

use super::ends::{self, Ends};
use super::entries::{self, Entry};
use super::overrides::Overrides;
use super::residual::{self, Uncounted};
use super::setup::{Setup, wrong_alpha};
use super::suspects::{self, Suspects};

/// The largest class of a rank.
const MOST_CLASS: u8 = 3;

/// Sums over all packets and flows of a window at a switch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Packets recorded: those of entries, `refused_packets` and `evicted_packets`.
    pub packets: u64,
    /// Packets of flows that had no entry when they came.
    pub refused_packets: u64,
    /// Packets that evicted entries had counted.
    pub evicted_packets: u64,
    /// Flows that got an entry.
    pub admitted: u64,
    /// Those of them that lost it.
    pub evicted: u64,
    /// Flows that got none, as far as the filter tells them apart.
    pub refused: u64,
    /// Runs of packets that the filter kept out although their rank was small enough.
    pub filtered: u64,
    /// Flows that got no entry although their rank was small enough, since dozens agreed in their
    /// hashes.
    pub crowded: u64,
    /// Packets without a mark that says their window: not recorded. Each is in all windows that it
    /// may be of.
    pub unmarked: u64,
    /// Packets that came with a claim.
    pub claimed_in: u64,
    /// Packets that went on with one.
    pub claimed_out: u64,
    /// Bytes of memory that the table and what belongs to it take.
    pub memory: u64,
}

impl Totals {
    const NAMES: [&'static str; 12] = [
        "packets",
        "refused packets",
        "evicted packets",
        "admitted flows",
        "evicted flows",
        "refused flows",
        "filtered runs",
        "crowded flows",
        "unmarked packets",
        "packets that came claimed",
        "packets that went claimed",
        "memory",
    ];

    fn each(&mut self) -> [&mut u64; 12] {
        [
            &mut self.packets,
            &mut self.refused_packets,
            &mut self.evicted_packets,
            &mut self.admitted,
            &mut self.evicted,
            &mut self.refused,
            &mut self.filtered,
            &mut self.crowded,
            &mut self.unmarked,
            &mut self.claimed_in,
            &mut self.claimed_out,
            &mut self.memory,
        ]
    }
}

/// What a switch kept in a window.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Window {
    /// The kind of its flows' keys.
    pub keys: KeyKind,
    /// The number of the key that it hashed by ([`calumma_sketch::HashKey::id`]).
    pub hash_key: u64,
    /// Whether its routes changed in the window, or may have.
    pub routes_changed: bool,
    /// The largest rank with which flows were still admitted at the end; `None` where a part of the
    /// table, of an lcore or a row, admitted all, or where some parts had no room for all that come
    /// first and others had.
    pub limit: Option<Rank>,
    /// The grade from which on it claimed no flow; `None` where it claimed all.
    pub theta: Option<u32>,
    /// Which share of the memory of table and residual the table had, as [`Plan::alpha`] has it;
    /// `None` where that does not move.
    ///
    /// [`Plan::alpha`]: super::Plan::alpha
    pub alpha: Option<u8>,
    /// What was otherwise than the setup says; `None` where nothing can be.
    pub overrides: Option<Overrides>,
    /// Sums over all packets and flows.
    pub totals: Totals,
    /// All flows that it saw.
    pub flows: HyperLogLog,
    /// Those that it has an entry of, by rising keys.
    pub entries: Vec<Entry>,
    /// The packets of flows without an entry, where switches keep a residual of them.
    pub uncounted: Option<Uncounted>,
    /// Flows without an entry that may be in loops, where switches look for them.
    pub suspects: Option<Suspects>,
    /// Where flows without an entry entered and left, where edges say it.
    pub ends: Option<Ends>,
}

impl Window {
    /// Its bytes. Entries must stand in the order of their keys, each once.
    pub fn encode(&self) -> Vec<u8> {
        let out = &mut Vec::new();
        put_u8(out, u8::from(self.keys == KeyKind::Dual));
        put_u64(out, self.hash_key);
        put_u8(out, self.routes_changed.into());
        put_u8(out, self.limit.is_some().into());
        if let Some(limit) = self.limit {
            put_u8(out, limit.class());
            put_u32(out, limit.grade());
        }
        put_u8(out, self.theta.is_some().into());
        if let Some(theta) = self.theta {
            put_u32(out, theta);
        }
        if let Some(alpha) = self.alpha {
            put_u8(out, alpha);
        }
        self.overrides.iter().for_each(|of| of.put(out));
        let mut totals = self.totals;
        totals.each().into_iter().for_each(|total| put_u64(out, *total));
        put_column(out, self.flows.registers());
        entries::put(out, self.keys, &self.entries);
        if let Some(uncounted) = &self.uncounted {
            residual::put(out, uncounted);
        }
        if let Some(of) = &self.suspects {
            suspects::put(out, self.keys, of);
        }
        if let Some(of) = &self.ends {
            ends::put(out, of);
        }
        std::mem::take(out)
    }

    /// The window of a switch that measures by `setup`, as these bytes say it. Whether grades are
    /// those of the flows, the caller must look.
    ///
    /// # Errors
    /// The first byte that can't be read or contradicts what stands before it, and why: also more
    /// entries than a table has, one twice, and entries that have other than the packets of the
    /// totals.
    pub fn decode(bytes: &[u8], setup: &Setup) -> Result<Self, DecodeError> {
        let mut reader = Body::new("a window of cfs", bytes, 0);
        let body = &mut reader;
        let keys = if body.flag("keys")? { KeyKind::Dual } else { KeyKind::Ipv4 };
        let hash_key = body.u64("hash key")?;
        let routes_changed = body.flag("routes changed")?;
        let limit = if body.flag("limit")? { Some(rank(body)?) } else { None };
        let theta = if body.flag("theta")? { Some(body.u32("theta")?) } else { None };
        let alpha = setup.alpha_moves.then(|| alpha(body)).transpose()?;
        let overrides = setup.overrides.then(|| Overrides::read(body, setup)).transpose()?;
        let measured = setup.with(overrides.unwrap_or_default());
        let sizes = measured.sizes(alpha.unwrap_or(0));
        let at_totals = body.offset();
        let mut totals = Totals::default();
        for (total, name) in totals.each().into_iter().zip(Totals::NAMES) {
            *total = body.u64(name)?;
        }
        let flows = registers(body, setup.hll_bits)?;
        let entries = entries::read(body, keys, sizes.entries)?;
        let wrong = |field, why: String| Err(body.wrong(at_totals, field, why));
        let Totals { packets, refused_packets, evicted_packets, admitted, evicted, .. } = totals;
        let parts =
            entries.iter().map(|entry| entry.packets).chain([refused_packets, evicted_packets]);
        let sum = parts.fold(0_u128, |sum, part| sum + u128::from(part));
        if sum != packets.into() {
            return wrong("packets", format!("{packets}, but {sum} are in entries or had none"));
        }
        let kept = admitted.checked_sub(evicted);
        if kept.is_none_or(|kept| kept < entries.len() as u64) {
            let why = format!("{admitted}, less {evicted} evicted: {} are there", entries.len());
            return wrong("admitted flows", why);
        }
        let at_residual = body.offset();
        let of = sizes.residual;
        let uncounted = of.map(|buckets| residual::read(body, keys, setup, buckets)).transpose()?;
        if let Some(of) = &uncounted {
            let there = either!(&of.flows, residual => residual.packets());
            let out = refused_packets + evicted_packets;
            if there != out {
                let why = format_args!("{there} packets, but {out} have no entry");
                return Err(body.wrong(at_residual, "residual", why));
            }
        }
        let suspects = setup.guard.then(|| suspects::read(body, keys)).transpose()?;
        let ends = setup.ends.then(|| ends::read(body, setup)).transpose()?;
        reader.end()?;
        Ok(Self {
            keys,
            hash_key,
            routes_changed,
            limit,
            theta,
            alpha,
            overrides,
            totals,
            flows,
            entries,
            uncounted,
            suspects,
            ends,
        })
    }
}

fn alpha(body: &mut Body<'_>) -> Result<u8, DecodeError> {
    let offset = body.offset();
    let alpha = body.u8("alpha")?;
    match wrong_alpha(alpha) {
        Some(why) => Err(body.wrong(offset, "alpha", why)),
        None => Ok(alpha),
    }
}

fn rank(body: &mut Body<'_>) -> Result<Rank, DecodeError> {
    let offset = body.offset();
    let class = body.u8("class of the limit")?;
    if class > MOST_CLASS {
        return Err(body.wrong(offset, "class of the limit", class_is_wrong(class)));
    }
    Ok(Rank::new(class, body.u32("limit")?))
}

/// What is wrong with a class that ranks don't have.
pub(super) fn class_is_wrong(class: u8) -> String {
    format!("{class}: must be 0 to {MOST_CLASS}")
}

fn registers(body: &mut Body<'_>, bits: u8) -> Result<HyperLogLog, DecodeError> {
    let offset = body.offset();
    let mut registers = vec![0; 1 << bits];
    read_column(body, "registers", &mut registers)?;
    let read = HyperLogLog::from_registers(registers);
    read.ok_or_else(|| body.wrong(offset, "registers", "one has a value that no hash gives"))
}
