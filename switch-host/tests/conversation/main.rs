//! A switch's conversation over a pipe, with the controller's part played by hand.

mod declined;
mod hostile;
mod metrics;
mod secured;
mod totals;

use std::time::Duration;

use calumma_epoch::{Guards, RESTART_NS};
use calumma_switch_host::{Conversation, Identity, Measurer, Pipe, Session, SystemOffer};
use calumma_wire::{
    Domain, FrameReader, Generators, Hello, MAX_FRAME_BYTES, Marking, Message, Offer, Outcome,
    Role, Secret, Side, SideKind, SwitchKind, SystemId, SystemSetup, VERSION, Welcome, v5,
};

const NOW_NS: u64 = 1_700_000_000_000_000_000;
const EPOCH_NS: u64 = 50_000_000;
const NOW: u64 = NOW_NS / EPOCH_NS;

/// A system for experiments whose frames are of no use later.
const FLEETING: SystemId = SystemId(130);

/// A switch that runs ChameleMon and the fleeting system.
#[derive(Default)]
struct Switch {
    begun: Vec<Session>,
    plans: Vec<(SystemId, u64, Vec<u8>)>,
    /// Whether systems can join and leave, and what did so at which epoch: false where it left.
    switches: bool,
    switched: Vec<(SystemId, u64, bool)>,
    /// The keys that it went on by, and from which epoch on.
    rekeyed: Vec<(u8, u64)>,
    clock_set: Option<i64>,
    /// Whether it can measure by no session.
    refuses: bool,
    /// After how long without a controller the fleeting system goes on by which plan.
    alone: Option<(u64, Vec<u8>)>,
}

impl Measurer for Switch {
    fn systems(&self) -> Vec<SystemOffer> {
        let offer = |system, highest| Offer { system, lowest: 1, highest };
        vec![
            SystemOffer { offer: offer(SystemId::CHAMELEMON, 1), held: true },
            SystemOffer { offer: offer(FLEETING, 3), held: false },
            SystemOffer { offer: offer(SystemId::PARTS, 1), held: false },
        ]
    }

    fn holding(&self) -> Vec<(SystemId, Vec<u8>)> {
        let last = self.plans.iter().rev().find(|(id, ..)| *id == SystemId::CHAMELEMON);
        last.map(|(id, epoch, plan)| (*id, [plan.clone(), epoch.to_le_bytes().to_vec()].concat()))
            .into_iter()
            .collect()
    }

    fn begin(&mut self, session: &Session) -> Result<(), String> {
        if self.refuses {
            return Err("a domain is set".to_owned());
        }
        self.begun.push(session.clone());
        Ok(())
    }

    fn switches_systems(&self) -> bool {
        self.switches
    }

    fn add(&mut self, session: &Session, setup: &SystemSetup) -> Result<(), String> {
        if setup.plan.is_empty() {
            return Err("an empty plan".to_owned());
        }
        self.switched.push((setup.system, session.first_epoch, true));
        Ok(())
    }

    fn remove(&mut self, system: SystemId, end: u64) {
        self.switched.push((system, end, false));
    }

    fn rekey(&mut self, session: &Session) -> Vec<(SystemId, String)> {
        self.rekeyed.push((session.hash_key.key[0], session.first_epoch));
        Vec::new()
    }

    fn check(&self, _: SystemId, plan: &[u8]) -> Result<(), String> {
        if plan.is_empty() { Err("an empty plan".to_owned()) } else { Ok(()) }
    }

    fn reconfigure(&mut self, system: SystemId, epoch: u64, plan: &[u8]) {
        self.plans.push((system, epoch, plan.to_vec()));
    }

    fn alone(&self, alone_ns: u64) -> Vec<(SystemId, Vec<u8>)> {
        let due = self.alone.iter().filter(|(after_ns, _)| alone_ns >= *after_ns);
        due.map(|(_, plan)| (FLEETING, plan.clone())).collect()
    }

    fn take_clock_set(&mut self) -> Option<i64> {
        self.clock_set.take()
    }

    fn lead_ns(&self) -> u64 {
        0
    }

    fn setup_ns(&self) -> u64 {
        0
    }
}

fn identity() -> Identity {
    Identity {
        node: "e1".to_owned(),
        role: Role::Edge,
        kind: SwitchKind::Software,
        program: "a test".to_owned(),
        marking: Marking::default(),
    }
}

/// A switch and its conversation.
struct Node {
    conversation: Conversation<Pipe>,
    switch: Switch,
}

impl Node {
    fn new() -> Self {
        let conversation = Conversation::over(Pipe::new(), identity(), 1 << 20);
        Self { conversation, switch: Switch::default() }
    }

    /// What it sends after the step that follows.
    fn step(&mut self) -> Vec<(u8, Message)> {
        self.conversation.step(NOW_NS, &mut self.switch);
        self.sent()
    }

    fn sent(&mut self) -> Vec<(u8, Message)> {
        self.conversation.flush();
        let frames = self.conversation.transport_mut().take_sent();
        frames.iter().map(|frame| Message::decode_versioned(frame).unwrap()).collect()
    }

    fn connect(&mut self) -> Vec<(u8, Message)> {
        self.conversation.transport_mut().connect();
        self.step()
    }

    fn receive(&mut self, message: &Message, version: u8) -> Vec<(u8, Message)> {
        let mut frame = Vec::new();
        assert!(message.encode_as(version, &mut frame));
        self.conversation.transport_mut().deliver(&frame);
        self.step()
    }

    fn break_off(&mut self) {
        self.conversation.transport_mut().disconnect();
        self.step();
    }
}

fn hello_of(sent: &[(u8, Message)]) -> (u8, &Hello) {
    match sent {
        [(version, Message::Hello(hello))] => (*version, hello),
        other => panic!("{other:?} instead of a hello"),
    }
}

/// ChameleMon's: a layout of one counter array.
fn setup() -> SystemSetup {
    let mut setup = vec![0; 15];
    setup.push(1);
    setup.extend([7; 9]);
    SystemSetup { system: SystemId::CHAMELEMON, version: 1, setup, plan: vec![1; 24] }
}

fn welcome(systems: Vec<SystemSetup>) -> Message {
    // As a controller one release older can say it, too.
    welcome_of(Generators::Public, systems)
}

fn welcome_of(generators: Generators, systems: Vec<SystemSetup>) -> Message {
    Message::Welcome(Box::new(Welcome {
        node_id: Some(7),
        hash_key: Secret { key: [9; 32], generators },
        epoch_length_ns: EPOCH_NS,
        guards: Guards::default(),
        effective_epoch: NOW + 2,
        systems,
        domain: Domain::default(),
        carrier: None,
    }))
}

fn side(system: SystemId, epoch: u64) -> Side {
    Side {
        system,
        epoch,
        side: SideKind::Ingress,
        stall_ns: 0,
        packets: 3,
        counters: Vec::new(),
        body: vec![5; 40],
    }
}

fn refusal() -> Message {
    Message::Refused { reason: "the peer speaks version 6 of the protocol".to_owned() }
}

#[test]
fn a_controller_one_release_older_is_answered_in_its_version() {
    let mut node = Node::new();
    let sent = node.connect();
    assert_eq!(hello_of(&sent).0, VERSION);
    // Measured meanwhile, and held in this release's version.
    assert!(node.receive(&refusal(), v5::VERSION).is_empty());
    assert!(!node.conversation.is_connected());
    let retry = node.conversation.transport_mut().take_retry();
    assert!(retry.is_some_and(|retry| retry < Duration::from_secs(1)), "{retry:?}");

    let sent = node.connect();
    let (version, hello) = hello_of(&sent);
    assert_eq!((version, hello.node.as_str()), (v5::VERSION, "e1"));
    assert!(node.receive(&welcome(vec![setup()]), v5::VERSION).is_empty());
    let session = node.switch.begun.last().unwrap();
    assert_eq!((session.node_id, &session.systems), (None, &vec![setup()]));

    node.conversation.side(side(SystemId::CHAMELEMON, NOW));
    node.conversation.sealed(SystemId::CHAMELEMON, NOW, (4, Vec::new()));
    let system = SystemId::CHAMELEMON;
    let expected = [
        Message::Side(Box::new(side(system, NOW))),
        Message::Sealed { system, epoch: NOW, late_packets: 4, body: Vec::new() },
    ];
    assert_eq!(node.sent(), expected.map(|message| (v5::VERSION, message)));

    let plan = vec![2; 24];
    let change = Message::Reconfigure { system, effective_epoch: NOW + 9, plan: plan.clone() };
    let applied = Message::Applied { system, effective_epoch: NOW + 9, outcome: Outcome::Accepted };
    assert_eq!(node.receive(&change, v5::VERSION), [(v5::VERSION, applied)]);
    assert_eq!(node.switch.plans, [(system, NOW + 9, plan)]);

    // The controller is upgraded: what it has not reported comes again, in the new version.
    node.break_off();
    let sent = node.connect();
    let (version, hello) = hello_of(&sent);
    assert_eq!((version, hello.holding.len()), (VERSION, 1));
    let again = node.receive(&welcome(vec![SystemSetup { plan: vec![2; 24], ..setup() }]), VERSION);
    assert_eq!(again.iter().map(|(version, _)| *version).collect::<Vec<_>>(), [VERSION; 2]);
    assert_eq!(node.switch.begun.len(), 1, "the same session");
    // Other generators are other hash functions: nothing goes on.
    let secret = welcome_of(Generators::Secret, vec![setup()]);
    assert!(!secret.encode_as(v5::VERSION, &mut Vec::new()));
    node.receive(&secret, VERSION);
    assert_eq!(node.switch.begun.len(), 2, "another session");
}

#[test]
fn what_is_longer_than_a_frame_goes_in_parts_to_who_takes_them() {
    for version in [None, Some(1), Some(2)] {
        let mut node = Node::new();
        node.connect();
        let system = SystemId::PARTS;
        let parts = version.map(|version| SystemSetup {
            system,
            version,
            setup: Vec::new(),
            plan: Vec::new(),
        });
        let systems = [setup()].into_iter().chain(parts).collect();
        assert!(node.receive(&welcome(systems), VERSION).is_empty());
        assert_eq!(node.switch.begun[0].systems, [setup()]);

        let of = |bytes| Side { body: vec![5; bytes], ..side(SystemId::CHAMELEMON, NOW) };
        let [long, short] = [of(MAX_FRAME_BYTES), of(40)];
        node.conversation.side(long.clone());
        node.conversation.flush();
        node.conversation.side(short.clone());
        node.conversation.flush();
        let mut reader = FrameReader::new();
        for sent in node.conversation.transport_mut().take_sent() {
            reader.push(&sent);
        }
        let come = std::iter::from_fn(|| reader.next_message().unwrap());
        let come: Vec<Side> = come
            .map(|message| match message {
                Message::Side(side) => *side,
                other => panic!("{other:?}"),
            })
            .collect();
        let takes = version == Some(1);
        assert!(if takes { come == [long, short] } else { come == [short] }, "{version:?}");
        // Beyond what is held for a controller to come, the newest alone is.
        assert_eq!(node.conversation.discarded(), if takes { 1 } else { 2 });
    }
}

#[test]
fn a_refusal_in_both_versions_is_one() {
    let mut node = Node::new();
    node.connect();
    node.receive(&refusal(), v5::VERSION);
    node.conversation.transport_mut().take_retry();
    assert_eq!(hello_of(&node.connect()).0, v5::VERSION);
    node.receive(&refusal(), v5::VERSION);
    let retry = node.conversation.transport_mut().take_retry();
    assert!(retry.is_some_and(|retry| retry >= Duration::from_secs(1)), "{retry:?}");
    assert_eq!(hello_of(&node.connect()).0, VERSION, "it may have been upgraded");
}

#[test]
fn systems_are_set_up_side_by_side_and_unknown_ones_declined() {
    let mut node = Node::new();
    node.connect();
    let fleeting = SystemSetup { system: FLEETING, version: 3, setup: vec![1], plan: vec![1] };
    let newer = SystemSetup { version: 9, ..fleeting.clone() };
    let sent = node.receive(&welcome(vec![setup(), newer]), VERSION);
    assert!(
        matches!(&sent[..], [(_, Message::Applied { system: FLEETING, outcome, .. })]
            if matches!(outcome, Outcome::Invalid { .. })),
        "{sent:?}"
    );
    assert_eq!(node.switch.begun[0].node_id, Some(7));

    node.receive(&welcome(vec![setup(), fleeting]), VERSION);
    assert_eq!(node.switch.begun.len(), 2, "another session");
    let of = |system, effective_epoch, plan: &[u8]| Message::Reconfigure {
        system,
        effective_epoch,
        plan: plan.to_vec(),
    };
    let outcome = |sent: Vec<(u8, Message)>| match &sent[..] {
        [(_, Message::Applied { outcome, .. })] => outcome.clone(),
        other => panic!("{other:?}"),
    };
    let accepted = outcome(node.receive(&of(FLEETING, NOW + 5, &[2]), VERSION));
    assert_eq!(accepted, Outcome::Accepted);
    assert!(node.receive(&of(FLEETING, NOW + 6, &[2]), VERSION).is_empty(), "it holds already");
    let late = outcome(node.receive(&of(FLEETING, NOW, &[3]), VERSION));
    assert_eq!(late, Outcome::TooLate { earliest: NOW + 1 });
    let invalid = outcome(node.receive(&of(FLEETING, NOW + 5, &[]), VERSION));
    assert_eq!(invalid, Outcome::Invalid { reason: "an empty plan".to_owned() });
    let unknown = outcome(node.receive(&of(SystemId::CFS, NOW + 5, &[1]), VERSION));
    assert_eq!(unknown, Outcome::Invalid { reason: "cfs is not run here".to_owned() });
}

#[test]
fn frames_of_a_fleeting_system_are_not_held() {
    let mut node = Node::new();
    let fleeting = SystemSetup { system: FLEETING, version: 1, setup: vec![1], plan: vec![1] };
    let both = || welcome(vec![setup(), fleeting.clone()]);
    node.connect();
    node.receive(&both(), VERSION);
    node.conversation.side(side(FLEETING, NOW));
    assert_eq!(node.sent().len(), 1);
    node.break_off();
    node.conversation.side(side(FLEETING, NOW + 1));
    node.conversation.side(side(SystemId::CHAMELEMON, NOW + 1));
    assert_eq!(node.conversation.discarded(), 1);
    node.connect();
    let sent = node.receive(&both(), VERSION);
    let expected = Message::Side(Box::new(side(SystemId::CHAMELEMON, NOW + 1)));
    assert_eq!(sent, [(VERSION, expected)]);
}

#[test]
fn a_probe_is_answered_by_the_clock_of_the_transport() {
    let mut node = Node::new();
    node.connect();
    node.conversation.transport_mut().set_now(NOW_NS + 5);
    let sent = node.receive(&Message::Probe { sent_ns: 1 }, VERSION);
    let echo = Message::Echo { sent_ns: 1, received_ns: NOW_NS, answered_ns: NOW_NS + 5 };
    assert_eq!(sent, [(VERSION, echo)]);
}

#[test]
fn systems_join_and_leave_a_session_that_goes_on() {
    let mut node = Node::new();
    node.switch.switches = true;
    node.connect();
    node.receive(&welcome(vec![setup()]), VERSION);
    let fleeting = SystemSetup { system: FLEETING, version: 3, setup: vec![1], plan: vec![1] };
    assert!(node.receive(&welcome(vec![setup(), fleeting.clone()]), VERSION).is_empty());
    assert_eq!(node.switch.switched, [(FLEETING, NOW + 2, true)]);
    let side_of_fleeting = side(FLEETING, NOW + 2);
    node.conversation.side(side_of_fleeting.clone());
    assert_eq!(node.sent(), [(VERSION, Message::Side(Box::new(side_of_fleeting)))]);

    // What is held of the system that stays is not lost for it.
    node.conversation.side(side(SystemId::CHAMELEMON, NOW + 2));
    node.sent();
    assert!(node.receive(&welcome(vec![setup()]), VERSION).is_empty());
    assert_eq!(node.switch.switched[1..], [(FLEETING, NOW + 2, false)]);
    assert!(node.conversation.held_bytes() > 0);
    let plan = vec![9];
    let change = Message::Reconfigure { system: FLEETING, effective_epoch: NOW + 9, plan };
    let sent = node.receive(&change, VERSION);
    assert!(
        matches!(&sent[..], [(_, Message::Applied { outcome: Outcome::Invalid { reason }, .. })]
            if reason.contains("is not run here")),
        "{sent:?}"
    );

    // One that can't be run is declined, and the others go on.
    let broken = SystemSetup { plan: Vec::new(), ..fleeting.clone() };
    let sent = node.receive(&welcome(vec![setup(), broken]), VERSION);
    assert!(matches!(&sent[..], [(_, Message::Applied { system: FLEETING, .. })]), "{sent:?}");
    assert_eq!(node.switch.begun.len(), 1);

    // Another setup is another session.
    let other = SystemSetup { setup: vec![2], ..fleeting };
    node.receive(&welcome(vec![SystemSetup { plan: vec![3; 24], ..setup() }, other]), VERSION);
    assert_eq!((node.switch.begun.len(), node.switch.plans.len()), (1, 1));
    assert_eq!(node.switch.switched.len(), 3);
    let changed = SystemSetup { system: FLEETING, version: 3, setup: vec![4], plan: vec![1] };
    node.receive(&welcome(vec![setup(), changed]), VERSION);
    assert_eq!(node.switch.begun.len(), 2);
}

#[test]
fn a_session_whose_clock_was_set_begins_anew_by_the_plan_that_holds() {
    let mut node = Node::new();
    node.connect();
    node.receive(&welcome(vec![setup()]), VERSION);
    let system = SystemId::CHAMELEMON;
    let plan = vec![2; 24];
    node.receive(
        &Message::Reconfigure { system, effective_epoch: NOW + 9, plan: plan.clone() },
        VERSION,
    );
    node.conversation.side(side(system, NOW + 3));
    node.sent();
    node.switch.clock_set = Some(-7_000_000_000);
    node.step();
    let [before, anew] = &node.switch.begun[..] else { panic!("two sessions") };
    let first_epoch = NOW + RESTART_NS / EPOCH_NS + 2;
    let systems = vec![SystemSetup { plan, ..setup() }];
    assert_eq!(anew, &Session { first_epoch, systems, ..before.clone() });
    // What was measured by the old time is not sent to the next controller.
    assert_eq!((node.conversation.held_bytes(), node.conversation.discarded()), (0, 1));
    // The next welcome finds a session that goes on.
    node.break_off();
    node.connect();
    node.receive(&welcome(vec![setup()]), VERSION);
    assert_eq!(node.switch.begun.len(), 2);
}

/// The controller's host is gone, and has not closed the connection.
#[test]
fn a_controller_that_has_gone_silent_is_left_for_the_next_one() {
    let mut node = Node::new();
    node.connect();
    node.receive(&welcome(vec![setup()]), VERSION);
    node.conversation.side(side(SystemId::CHAMELEMON, NOW));
    assert_eq!(node.sent().len(), 1);
    // One that has compared no clocks need not have anything to say.
    let silent = Duration::from_secs(6);
    node.conversation.transport_mut().set_silence(silent);
    node.step();
    assert!(node.conversation.is_connected());
    node.conversation.transport_mut().set_silence(Duration::ZERO);
    node.receive(&Message::Probe { sent_ns: 1 }, VERSION);
    node.conversation.transport_mut().set_silence(silent);
    node.step();
    assert!(!node.conversation.is_connected());
    assert!(node.conversation.transport_mut().take_retry().is_some());
    // What it had not reported goes to the next one.
    node.conversation.transport_mut().set_silence(Duration::ZERO);
    node.connect();
    assert_eq!(node.receive(&welcome(vec![setup()]), VERSION).len(), 1);
}

/// A switch that leaves the carrier to the controller.
fn auto() -> Node {
    let offers = vec!["tos".to_owned(), "ip-id".to_owned()];
    let identity = Identity { marking: Marking { offers, ..Marking::default() }, ..identity() };
    let conversation = Conversation::over(Pipe::new(), identity, 1 << 20);
    Node { conversation, switch: Switch::default() }
}

fn welcome_by(carrier: Option<&str>) -> Message {
    let Message::Welcome(welcome) = welcome(vec![setup()]) else { unreachable!("a welcome") };
    Message::Welcome(Box::new(Welcome { carrier: carrier.map(str::to_owned), ..*welcome }))
}

#[test]
fn a_switch_marks_by_what_the_controller_chooses_and_says_so_when_it_comes_again() {
    let mut node = auto();
    let sent = node.connect();
    let (_, hello) = hello_of(&sent);
    assert_eq!((&*hello.marking.carrier, hello.marking.offers.len()), ("tos", 2));
    assert!(node.receive(&welcome_by(Some("ip-id")), VERSION).is_empty());
    assert_eq!(node.switch.begun[0].carrier, "ip-id");
    node.break_off();
    let sent = node.connect();
    assert_eq!(hello_of(&sent).1.marking.carrier, "ip-id", "what it measures by");
    // It goes on by the same one, and begins anew by another.
    node.receive(&welcome_by(Some("ip-id")), VERSION);
    assert_eq!(node.switch.begun.len(), 1);
    node.receive(&welcome_by(Some("tos")), VERSION);
    assert_eq!(node.switch.begun[1].carrier, "tos");
    // It does not offer this one.
    let sent = node.receive(&welcome_by(Some("shim 0x88b5 v2")), VERSION);
    let [(_, Message::Applied { outcome: Outcome::Invalid { reason }, .. })] = &sent[..] else {
        panic!("{sent:?}")
    };
    assert!(reason.contains("by \"shim 0x88b5 v2\", which is not done here"), "{reason}");
    assert_eq!(node.switch.begun.len(), 2);
}

#[test]
fn a_controller_that_does_not_choose_gets_what_the_switch_offers_first() {
    for mut node in [auto(), Node::new()] {
        node.connect();
        node.receive(&welcome_by(None), VERSION);
        assert_eq!(node.switch.begun[0].carrier, "tos");
    }
}

/// The key changes on the connection: all goes on, and what is held is sent. It has changed while
/// the switch was away: measuring begins anew, since what is held is of a key that may be unknown.
#[test]
fn a_session_goes_on_by_another_key_that_comes_on_the_same_connection() {
    let keyed = |key: u8, effective_epoch| {
        let Message::Welcome(welcome) = welcome_of(Generators::Secret, vec![setup()]) else {
            unreachable!("a welcome")
        };
        let hash_key = Secret::new([key; 32]);
        Message::Welcome(Box::new(Welcome { hash_key, effective_epoch, ..*welcome }))
    };
    let mut node = Node::new();
    node.switch.switches = true;
    node.connect();
    node.receive(&keyed(1, NOW + 2), VERSION);
    node.conversation.side(side(SystemId::CHAMELEMON, NOW));
    node.receive(&keyed(2, NOW + 4), VERSION);
    // Too late for that epoch: from the first on that can still change.
    node.receive(&keyed(3, NOW), VERSION);
    assert_eq!(node.switch.rekeyed, [(2, NOW + 4), (3, NOW + 1)]);
    assert_eq!((node.switch.begun.len(), node.conversation.discarded()), (1, 0));
    assert_eq!(node.conversation.session().unwrap().hash_key.key, [3; 32]);

    node.break_off();
    node.connect();
    let sent = node.receive(&keyed(3, NOW + 4), VERSION);
    assert_eq!((sent.len(), node.switch.begun.len()), (1, 1), "by the same key it goes on");
    node.break_off();
    node.connect();
    assert!(node.receive(&keyed(4, NOW + 6), VERSION).is_empty());
    assert_eq!((node.switch.begun.len(), node.conversation.discarded()), (2, 1));
    assert_eq!(node.switch.rekeyed.len(), 2);
}

#[test]
fn without_a_controller_for_long_a_system_goes_on_by_a_plan_of_its_own() {
    const SECOND: u64 = 1_000_000_000;
    let mut node = Node::new();
    node.switch.alone = Some((3 * SECOND, vec![8]));
    node.connect();
    let fleeting = SystemSetup { system: FLEETING, version: 2, setup: vec![1], plan: vec![9] };
    node.receive(&welcome(vec![setup(), fleeting.clone()]), VERSION);
    let step_at = |node: &mut Node, ns| {
        node.conversation.step(ns, &mut node.switch);
        node.switch.plans.clone()
    };
    assert!(step_at(&mut node, NOW_NS + 9 * SECOND).is_empty(), "a controller is there");
    node.break_off();
    for ms in [2000, 1000, 1500] {
        let plans = step_at(&mut node, NOW_NS + ms * SECOND / 1000);
        assert!(plans.is_empty(), "2.5 seconds, and set back in between");
    }
    let (due, epoch) = (NOW_NS + 2 * SECOND, NOW + 2 * SECOND / EPOCH_NS + 1);
    let plan = [(FLEETING, epoch, vec![8])];
    assert_eq!(step_at(&mut node, due), plan);
    assert_eq!(step_at(&mut node, due + SECOND), plan, "once");
    // A connection alone is no controller.
    node.conversation.transport_mut().connect();
    assert_eq!(step_at(&mut node, due + 2 * SECOND), plan);
    // What was accepted before is a change now.
    let sent = node.receive(&welcome(vec![setup(), fleeting]), VERSION);
    let Some((_, Message::Applied { system: FLEETING, .. })) = sent.last() else {
        panic!("{sent:?}")
    };
}
