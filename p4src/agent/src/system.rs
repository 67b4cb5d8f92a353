//! What the daemon must know of a measurement system to run it on a switch: a description of its P4
//! program, and what the controller's words mean to that program. The daemon itself knows no
//! system.
//!
//! All programs share what is the same for each: ports and forwarding, the timestamp bit,
//! collection packets, and counters of packets (docs/p4.md, "What every program has").

use std::fmt::Debug;
use std::ops::Range;
use std::sync::Arc;

use calumma_bfrt::Info;
use calumma_switch_host::{Session, SystemOffer};
use calumma_wire::{Role, Side, SideKind, SystemId, SystemSetup};

use crate::collection::Source;
use crate::notices::{Received, Streams};
use crate::tables::TableEntry;

/// A measurement system with a P4 program.
pub trait System: Debug + Sync {
    /// Its number and versions, and whether its frames wait for a controller that is away.
    fn offer(&self) -> SystemOffer;

    /// All that is offered of it, the oldest versions first, where not all versions between two are
    /// known; older controllers go by the first.
    fn offers(&self) -> Vec<SystemOffer> {
        vec![self.offer()]
    }

    /// Its name in configurations and logs.
    fn name(&self) -> &'static str;

    /// The roles of switches that can run it.
    fn roles(&self) -> &'static [Role];

    /// Its program: the name of the file in `p4src/`.
    fn program(&self) -> &'static str;

    /// A table or register that its program has and no other system's, by which it is recognised.
    fn landmark(&self) -> &'static str;

    /// Whether its program can be built for marks in the identification of packets.
    fn may_go_by_identification(&self) -> bool {
        true
    }

    /// Whether what it sends from switches of that role can only be read with the deployment's hash
    /// key: where that changes, it ends, and begins anew by the new one.
    fn hashes(&self, _role: Role) -> bool {
        false
    }

    /// What the controller's setup of it means on a switch of that role with that program.
    ///
    /// # Errors
    /// What can't be read, or what the program is not made for, in words.
    fn setup(
        &self,
        on: (Role, Target<'_>),
        session: &Session,
        setup: &SystemSetup,
    ) -> Result<Arc<dyn Setup>, String>;

    /// How its program is built for such switches and a controller's configuration, the empty one
    /// where all is as by default.
    ///
    /// # Errors
    /// What in it can't be read, or what the program is not made for, in words.
    fn build(&self, on: (Role, Target<'_>), controller: &toml::Table) -> Result<Build, String>;

    /// Its number.
    fn id(&self) -> SystemId {
        self.offer().offer.system
    }
}

/// What a program runs on. Where there are several ways to build one, which of them follows.
#[derive(Clone, Copy, Debug)]
pub enum Target<'a> {
    /// A Tofino that it is yet to be built for.
    Tofino,
    /// The same of a Tofino 2.
    Tofino2,
    /// It is there, as its compiler or the driver that runs it describes it.
    Built(&'a Info),
}

/// A plan as the controller has sent it.
pub type Plan = Arc<[u8]>;

/// A system as a session has it measure.
pub trait Setup: Send + Sync {
    /// How many epochs are recorded in one group, and named by the first of them. Groups take
    /// turns by the parity of such windows: which one a packet's timestamp bit means, the entries
    /// of its epoch say.
    fn window(&self) -> u64 {
        1
    }

    /// Whether the entries of all epochs of a window are made as its first one is prepared, by the
    /// plan of that one. Later, the group of the window before may be on its way out of the switch
    /// for longer than an epoch.
    fn is_ahead(&self) -> bool {
        false
    }

    /// Whether what an edge says of packets that enter is known only once they have left, with the
    /// last packets of their epoch or window.
    fn ingress_at_take(&self) -> bool {
        false
    }

    /// What the program on the switch must have.
    fn needs(&self) -> Needs;

    /// The registers of a side, in the order in which [`side`](Self::side) is given their words.
    fn sources(&self, side: SideKind) -> &[Source];

    /// Entries that hold for the whole session. Their tables hold nothing else.
    fn fixed(&self) -> Vec<TableEntry>;

    /// Entries of an epoch under a plan. They are keyed by the epoch's timestamp bit, so that they
    /// are never in the way of the epoch under way.
    ///
    /// # Errors
    /// As [`check`](Self::check).
    fn epoch(&self, epoch: u64, plan: &[u8]) -> Result<EpochEntries, String>;

    /// Entries that hold for the whole window that an epoch is in, under a plan, where it is
    /// [ahead](Self::is_ahead). They are keyed by the window's group, written as soon as that is
    /// clean, and again where another plan comes for it in time.
    ///
    /// # Errors
    /// As [`check`](Self::check).
    fn of_window(&self, _epoch: u64, _plan: &[u8]) -> Result<Vec<TableEntry>, String> {
        Ok(Vec::new())
    }

    /// How long it takes to write [those](Self::of_window), in nanoseconds.
    fn writing_ns(&self) -> u64 {
        0
    }

    /// Checks a plan.
    ///
    /// # Errors
    /// Why it can't hold on this switch.
    fn check(&self, plan: &[u8]) -> Result<(), String>;

    /// What tables hold as soon as a plan is accepted, be its epoch to come or not. All of these
    /// are what tables do on a miss.
    fn at_once(&self, _plan: &[u8]) -> Vec<TableEntry> {
        Vec::new()
    }

    /// The plan by which it goes on that goes by `plan`, where no controller has been there for
    /// `alone_ns`, and what tables then hold at once, as [`at_once`](Self::at_once); `None` where
    /// it goes on as it does.
    fn alone(&self, _plan: &[u8], _alone_ns: u64) -> Option<(Vec<u8>, Vec<TableEntry>)> {
        None
    }

    /// What the controller is sent that the switch measures by, where the system says so: the plan
    /// accepted last, and the epoch from which it holds.
    fn holding(&self, plan: &[u8], from_epoch: u64) -> Option<Vec<u8>>;

    /// The numbers of a side's events, by stream, where the words of its [sources](Self::sources)
    /// have them: up to 256 streams, whatever [`Streams::count`] says of budgets.
    fn numbered(&self, _closed: &Closed, _words: &[Vec<u32>]) -> Vec<Range<u32>> {
        Vec::new()
    }

    /// The frame of a side, from the words of each of its [sources](Self::sources). Its counters
    /// are the system's own sums since the session began, beside which the switch's are sent.
    ///
    /// # Errors
    /// Words that are not those of a group of this setup.
    fn side(&self, closed: &Closed, words: &[Vec<u32>]) -> Result<Side, String>;

    /// Takes what a notice of a stream says, as it comes.
    fn noticed(&self, _now_ns: u64, _stream: u8, _body: &[u8]) {}

    /// What is to be reported before its window is over, in the system's own format, and the
    /// window's first epoch. Asked many times an epoch; what it gives is sent once, and lost
    /// without a connection.
    fn notice(&self, _now_ns: u64) -> Option<(u64, Vec<u8>)> {
        None
    }

    /// What is sent when no packet of an epoch, or of the window that begins with it, can be
    /// recorded any more: how many came too late, and what else the system says of these. So many
    /// were `counted`, and `notices` came of them, by stream.
    fn seal(&self, _epoch: u64, counted: u64, _notices: &[Received]) -> (u64, Vec<u8>) {
        (counted, Vec::new())
    }
}

/// How a program is built.
#[derive(Clone, Debug)]
pub struct Build {
    /// The text of the file that it includes its constants from; none where it has no such file.
    pub constants: Option<Constants>,
    /// Macros that it is compiled with, and their values.
    pub defines: Vec<(String, String)>,
    /// What the program then has.
    pub needs: Needs,
}

/// A generated file of constants.
#[derive(Clone, Debug)]
pub struct Constants {
    /// Where it belongs, from the folder of the program.
    pub file: &'static str,
    /// What is in it.
    pub text: String,
}

/// What a program must have for a setup.
#[derive(Clone, Debug)]
pub struct Needs {
    /// Which program that is, for people.
    pub program: String,
    /// What to do where its registers have other sizes.
    pub remedy: &'static str,
    /// What it has as often as its chip has room for, where there is such a thing.
    pub parts: Option<Parts>,
    /// Its registers, in the order in which they are cleared.
    pub sources: Vec<Source>,
    /// The tables that [`Setup::epoch`] and [`Setup::of_window`] fill, all of them.
    pub epoch_tables: Vec<String>,
    /// An entry at least of each kind that will ever be written.
    pub entries: Vec<TableEntry>,
    /// What it counts besides what every program does; those of one name are added up.
    pub totals: Vec<Total>,
    /// Its counter of packets that entered and were recorded, by timestamp bit, if it has one.
    pub entered: Option<&'static str>,
    /// Where it numbers [notices](crate::notices), if it sends any.
    pub notices: Option<Streams>,
    /// The tables of epochs that are emptied when measuring stops, whatever ends it.
    pub stopped: Vec<String>,
}

/// Parts of a program that are numbered from 0 on, each with a register of that name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parts {
    /// What the register is called up to the number.
    pub before: &'static str,
    /// And behind it.
    pub behind: &'static str,
    /// How many there are.
    pub number: u32,
}

impl Parts {
    /// How many such parts the program that `info` describes has.
    pub fn number_in(self, info: &Info) -> u32 {
        let has = |at: &u32| info.table(&format!("{}{at}{}", self.before, self.behind)).is_ok();
        (0..).take_while(has).count() as u32
    }
}

/// A total that a program counts: packets in a cell of one of its counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Total {
    /// What it is called in what is sent to the controller, as in a software switch.
    pub name: &'static str,
    /// The counter.
    pub counter: &'static str,
    /// The cell.
    pub cell: u32,
}

/// The entries of an epoch.
#[derive(Clone, Debug, Default)]
pub struct EpochEntries {
    /// Those without which no packet of the epoch's timestamp bit is recorded as it leaves: they
    /// are there from the epoch's arming until its last packets have come.
    pub gate: Vec<TableEntry>,
    /// The others, written ahead.
    pub rest: Vec<TableEntry>,
}

/// A side of an epoch, or of a [window](Setup::window) of several, that is over.
#[derive(Clone, Debug)]
pub struct Closed {
    /// The epoch; of a window, the first.
    pub epoch: u64,
    /// Which side.
    pub side: SideKind,
    /// The plan that it was measured under.
    pub plan: Plan,
    /// By how much a step of the rotation came later than the guards allow, in nanoseconds; else
    /// 0.
    pub stall_ns: u64,
    /// Packets that entered and were recorded, where the program [counts](Needs::entered) them; of
    /// a side that is over when its epoch is.
    pub entered: u64,
    /// Packets that left and that the plan has nothing recorded of.
    pub unrecorded: u64,
    /// Packets that left and found no way to be recorded while the groups of both timestamp bits
    /// were open.
    pub foreign_packets: u64,
    /// Packets of the network that left without a mark since the group was opened; none where
    /// marks are such that nobody knows.
    pub unmarked: Option<u64>,
    /// Whether the routes that the switch forwards by changed while it was recorded, or may have.
    pub routes_changed: bool,
    /// What came of the notices since the group was opened, by stream; nothing of programs that
    /// send none, and of a side that is over when its epoch is.
    pub notices: Vec<Received>,
}

impl Closed {
    /// One that was over in time, of which nothing is counted, and nothing known of its routes.
    pub fn in_time(epoch: u64, side: SideKind, plan: Plan) -> Self {
        Self {
            epoch,
            side,
            plan,
            stall_ns: 0,
            entered: 0,
            unrecorded: 0,
            foreign_packets: 0,
            unmarked: None,
            routes_changed: true,
            notices: Vec::new(),
        }
    }
}

/// The system whose program a driver or a compiler describes.
pub fn of_program<'a>(systems: &[&'a dyn System], info: &Info) -> Option<&'a dyn System> {
    systems.iter().copied().find(|system| info.table(system.landmark()).is_ok())
}

/// The side that is over as soon as its epoch is: of packets that this switch itself has stamped.
pub fn side_at_flip(role: Role) -> Option<SideKind> {
    match role {
        Role::Edge => Some(SideKind::Ingress),
        Role::Transit | Role::Host => None,
    }
}

/// The side that is over once the last packets of its epoch have come.
pub fn side_at_take(role: Role) -> SideKind {
    match role {
        Role::Edge => SideKind::Egress,
        Role::Transit | Role::Host => SideKind::Transit,
    }
}
