//! The program ready to run: every name resolved to a slot or a number, every constant computed.
//!
//! There is one frame of slots for both gresses. Variables, headers, metadata and parameters each
//! have fixed slots, because P4 has no recursion; so running a program needs no look-up by name
//! and no allocation.

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use crate::source::Span;
use crate::table::TableState;

/// A place in the frame.
pub(crate) type Slot = u32;

/// Statements in their order.
pub(crate) type Block = Vec<Stmt>;

/// Two operands of the same width (but for shifts) to one value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Op {
    Add,
    Sub,
    Mul,
    SatAdd,
    SatSub,
    SatAddSigned,
    SatSubSigned,
    And,
    Or,
    Xor,
    Shl,
    Shr,
    ShrSigned,
    Eq,
    Ne,
    Lt,
    Le,
    LtSigned,
    LeSigned,
    Min,
    Max,
    MinSigned,
    MaxSigned,
}

/// A scalar; its unused high bits are zero.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Expr {
    Const(u128),
    Slot(Slot),
    /// `width` bits from bit `low` on.
    Slice {
        value: Box<Expr>,
        low: u16,
        width: u16,
    },
    Concat {
        high: Box<Expr>,
        low: Box<Expr>,
        low_width: u16,
    },
    Op {
        op: Op,
        width: u16,
        a: Box<Expr>,
        b: Box<Expr>,
    },
    /// A slot holds the value. Made by [`crate::optimize`] of the comparison.
    Is {
        slot: Slot,
        value: u128,
    },
    LogicAnd(Box<Expr>, Box<Expr>),
    LogicOr(Box<Expr>, Box<Expr>),
    LogicNot(Box<Expr>),
    Complement {
        value: Box<Expr>,
        width: u16,
    },
    Negate {
        value: Box<Expr>,
        width: u16,
    },
    SignExtend {
        value: Box<Expr>,
        from: u16,
        to: u16,
    },
    Choose(Box<[Expr; 3]>),
    Hash {
        hash: u32,
        data: Data,
    },
    Random {
        width: u16,
    },
    /// Bits of the packet at `offset` after the cursor.
    Lookahead {
        offset: u32,
        width: u16,
    },
    /// A field of an element of a header stack.
    Element {
        stack: Slot,
        index: Box<Expr>,
        count: u32,
        size: u32,
        field: u32,
    },
    /// The ones' complement sum over the data.
    ChecksumUpdate {
        data: Data,
        zeros_as_ones: Box<Expr>,
    },
    /// The sum of a parser's checksum unit.
    ChecksumGet(u32),
    /// Statements, then the value.
    Do(Box<(Block, Expr)>),
}

/// Scalars with their widths, put one after the other. Fields of an invalid header are left out
/// when `valid` names its slot.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Data {
    pub(crate) fields: Vec<DataField>,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct DataField {
    pub(crate) value: Expr,
    pub(crate) width: u16,
    pub(crate) valid: Option<Slot>,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Stmt {
    Set {
        slot: Slot,
        value: Expr,
    },
    SetBits {
        slot: Slot,
        low: u16,
        width: u16,
        value: Expr,
    },
    Copy {
        to: Slot,
        from: Slot,
        count: u32,
    },
    If {
        condition: Expr,
        then: Block,
        otherwise: Block,
    },
    /// Evaluates for the effect only.
    Do(Expr),
    /// Looks up the table, runs the action, sets the table's result slots.
    Apply(u32),
    /// By the action that `table` ran last; an index into `blocks` for each of its actions.
    Switch {
        table: u32,
        cases: Vec<Option<u32>>,
        blocks: Vec<Block>,
    },
    /// A body of its own: `return` ends it; `after` runs even if the body exits.
    Scope {
        body: Block,
        after: Block,
    },
    /// A body that stands in the program once and runs at several places.
    Call(u32),
    Return,
    Exit,
    /// Runs a register action on an element.
    Register {
        action: u32,
        index: Expr,
        span: Span,
    },
    Count {
        counter: u32,
        index: Expr,
    },
    /// Counts in the direct counter of the entry whose action runs.
    CountDirect(CounterKind),
    Extract {
        header: Slot,
        layout: u32,
    },
    ExtractNext {
        stack: Slot,
        layout: u32,
        size: u32,
        count: u32,
    },
    Advance(Expr),
    SubParser(u32),
    /// Moves the elements of a stack by `by` (negative: towards the front).
    Shift {
        stack: Slot,
        size: u32,
        count: u32,
        by: i32,
    },
    Emit {
        header: Slot,
        layout: u32,
    },
    ChecksumAdd {
        unit: u32,
        data: Data,
        subtract: bool,
    },
    Mirror {
        session: Expr,
        data: Data,
    },
    Resubmit {
        data: Data,
    },
    Digest {
        digest: u32,
        data: Data,
    },
}

/// Where the fields of a header lie in a packet.
#[derive(Debug, Clone)]
pub(crate) struct Layout {
    pub(crate) fields: Vec<LayoutField>,
    pub(crate) bits: u32,
}

#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct LayoutField {
    /// Slot, counted from the header's validity.
    pub(crate) slot: u32,
    /// First bit in the header.
    pub(crate) bit: u32,
    pub(crate) width: u16,
}

#[derive(Debug, Clone)]
pub(crate) struct ParserCode {
    pub(crate) states: Vec<State>,
    pub(crate) start: Target,
}

#[derive(Debug, Clone)]
pub(crate) struct State {
    pub(crate) body: Block,
    pub(crate) next: Next,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Target {
    Accept,
    Reject,
    State(u32),
}

#[derive(Debug, Clone)]
pub(crate) enum Next {
    To(Target),
    Select { values: Vec<Expr>, cases: Vec<(Vec<KeySet>, Target)> },
}

#[derive(Debug, Clone)]
pub(crate) enum KeySet {
    Any,
    Masked { value: u128, mask: u128 },
    Range { low: u128, high: u128 },
    ValueSet(u32),
}

/// How a key field of a table is matched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MatchKind {
    /// Equal.
    Exact,
    /// Equal where the mask has ones.
    Ternary,
    /// Equal in the leading bits; the longest prefix wins.
    Lpm,
    /// Between two bounds, both included.
    Range,
}

#[derive(Debug, Clone)]
pub(crate) struct Key {
    pub(crate) name: String,
    pub(crate) kind: MatchKind,
    pub(crate) width: u16,
    pub(crate) value: Expr,
}

#[derive(Debug, Clone)]
pub(crate) struct Action {
    pub(crate) name: String,
    pub(crate) params: Vec<ActionParam>,
    pub(crate) body: Block,
    /// `@defaultonly` or `@tableonly`.
    pub(crate) default_only: bool,
    pub(crate) table_only: bool,
}

#[derive(Debug, Clone)]
pub(crate) struct ActionParam {
    pub(crate) name: String,
    pub(crate) width: u16,
    pub(crate) slot: Slot,
}

/// How one field of one entry matches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FieldMatch {
    /// Equal to the value.
    Exact(u128),
    /// Equal to the value where the mask has ones.
    Ternary {
        /// The value.
        value: u128,
        /// The mask.
        mask: u128,
    },
    /// Equal to the value in its first bits.
    Lpm {
        /// The value.
        value: u128,
        /// How many leading bits count.
        length: u16,
    },
    /// Between the bounds, both included.
    Range {
        /// Lower bound.
        low: u128,
        /// Upper bound.
        high: u128,
    },
}

/// An entry that stands in the program.
#[derive(Debug, Clone)]
pub(crate) struct StaticEntry {
    pub(crate) keys: Vec<FieldMatch>,
    pub(crate) action: u32,
    pub(crate) args: Vec<u128>,
}

#[derive(Debug, Clone)]
pub(crate) struct Table {
    pub(crate) name: String,
    pub(crate) keys: Vec<Key>,
    pub(crate) actions: Vec<Action>,
    pub(crate) default_action: u32,
    pub(crate) default_args: Vec<u128>,
    pub(crate) default_const: bool,
    pub(crate) size: usize,
    pub(crate) entries: Vec<StaticEntry>,
    pub(crate) entries_const: bool,
    /// 1 after a hit.
    pub(crate) hit: Slot,
    /// Index of the action that ran.
    pub(crate) ran: Slot,
}

#[derive(Debug, Clone)]
pub(crate) struct Register {
    pub(crate) name: String,
    pub(crate) size: usize,
    /// One or two values an element: name (empty if it is a plain value) and width.
    pub(crate) lanes: Vec<(String, u16)>,
    pub(crate) initial: [u32; 2],
    /// Gress that accesses it, once one does.
    pub(crate) egress: Option<bool>,
    /// How many register actions it has.
    pub(crate) actions: usize,
}

#[derive(Debug, Clone)]
pub(crate) struct RegisterAction {
    pub(crate) register: u32,
    /// The slots of the value's lanes.
    pub(crate) value: Slot,
    /// The returned value; zero unless the body sets it.
    pub(crate) result: Option<Slot>,
    pub(crate) body: Block,
}

/// What a counter counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CounterKind {
    /// Packets.
    Packets,
    /// Bytes.
    Bytes,
    /// Both.
    PacketsAndBytes,
}

#[derive(Debug, Clone)]
pub(crate) struct Counter {
    pub(crate) name: String,
    pub(crate) size: usize,
    pub(crate) kind: CounterKind,
}

#[derive(Debug, Clone)]
pub(crate) struct ValueSet {
    pub(crate) name: String,
    pub(crate) size: usize,
    pub(crate) width: u16,
}

#[derive(Debug, Clone)]
pub(crate) struct Digest {
    pub(crate) name: String,
    /// Field names and widths, as far as the type has names.
    pub(crate) fields: Vec<(String, u16)>,
}

/// One gress: its code and the slots through which the switch and the program talk.
#[derive(Debug, Clone, Default)]
pub(crate) struct Gress {
    pub(crate) parser: u32,
    pub(crate) control: Block,
    pub(crate) deparser: Block,
    /// The slots of this gress: cleared for every packet.
    pub(crate) slots: Range<usize>,
    /// The control reads `parser_err`, so packets with a parser error reach it.
    pub(crate) reads_parser_err: bool,
    pub(crate) parser_err: Slot,
    pub(crate) global_tstamp: Slot,
    pub(crate) drop_ctl: Slot,
    /// Of the ingress; the egress has no use for it.
    pub(crate) to_tm: TrafficManager,
    /// The intrinsic header in front of each packet.
    pub(crate) header: IntrinsicHeader,
}

/// Bits of the intrinsic header and where the fields lie that the model fills. A field that the
/// gress does not have is empty.
#[derive(Debug, Clone, Default)]
pub(crate) struct IntrinsicHeader {
    pub(crate) bits: u32,
    /// `ingress_port` or `egress_port`.
    pub(crate) port: LayoutField,
    pub(crate) resubmit_flag: LayoutField,
    pub(crate) mac_tstamp: LayoutField,
    pub(crate) rid: LayoutField,
    pub(crate) qid: LayoutField,
    pub(crate) length: LayoutField,
}

/// Slots of the metadata that ingress passes to the traffic manager and the deparser.
#[derive(Debug, Clone, Default)]
pub(crate) struct TrafficManager {
    pub(crate) ucast_egress_port: Slot,
    pub(crate) bypass_egress: Slot,
    pub(crate) copy_to_cpu: Slot,
    pub(crate) mcast_grp_a: Slot,
    pub(crate) qid: Slot,
}

/// The whole program.
#[derive(Debug, Clone, Default)]
pub(crate) struct Code {
    pub(crate) ingress: Gress,
    pub(crate) egress: Gress,
    pub(crate) frame: usize,
    pub(crate) layouts: Vec<Layout>,
    pub(crate) parsers: Vec<ParserCode>,
    pub(crate) bodies: Vec<Block>,
    pub(crate) tables: Vec<Table>,
    pub(crate) registers: Vec<Register>,
    pub(crate) register_actions: Vec<RegisterAction>,
    pub(crate) counters: Vec<Counter>,
    pub(crate) hashes: Vec<crate::hash::HashSpec>,
    pub(crate) value_sets: Vec<ValueSet>,
    pub(crate) digests: Vec<Digest>,
    pub(crate) checksum_units: usize,
    /// What each table holds at first, once a switch has been made of it: all share that.
    pub(crate) first_tables: OnceLock<Vec<Arc<TableState>>>,
}
