//! Networks that are played by hand, and whole ones in which nodes come and go at random.

use calumma_analysis::Flow;
use calumma_epoch::Guards;
use calumma_sketch::Key;
use calumma_wire::Role;
use proptest::prelude::*;

use super::*;

const SECOND: u64 = 1_000_000_000;
const LENGTH: u64 = 50_000_000;
const WINDOW: u64 = 20;
/// Beginning of a window.
const START: u64 = 1_700_000_000 * SECOND;

fn setup() -> Setup {
    Setup { window_epochs: WINDOW as u16, orphan_seconds: 10, ..Setup::default() }
}

fn lifecycle(names: &[&str]) -> Lifecycle {
    let clock = EpochClock::new(LENGTH, Guards::default()).unwrap();
    let node = |(name, id): (&&str, u16)| {
        Arc::new(Node { name: (*name).to_owned(), role: Role::Edge, id })
    };
    let nodes: Vec<_> = names.iter().zip(1..).map(node).collect();
    Lifecycle::new(&setup(), true, clock, &nodes)
}

fn applied(step: Step, at_ns: u64) -> Applied {
    Applied { epoch: at_ns / LENGTH, plan: Plan::of(step).encode() }
}

fn there(step: Step, at_ns: u64) -> Standing {
    let applied = Some(applied(step, at_ns));
    Standing { has_come: true, applied, ..Standing::default() }
}

/// The steps that the nodes are to take.
fn steps(of: &mut Lifecycle, nodes: &[Standing], now_ns: u64) -> Vec<Option<Step>> {
    let plans = of.plans(nodes, now_ns);
    plans.iter().map(|plan| plan.as_ref().map(|plan| Plan::decode(plan).unwrap().step)).collect()
}

#[test]
fn each_step_waits_until_everybody_has_taken_the_one_before() {
    let mut of = lifecycle(&["e1", "e2"]);
    let mut nodes = vec![Standing::default(); 2];
    nodes[0].away_since_ns = Some(START);
    nodes[1].away_since_ns = Some(START);
    // One comes, and may take stacks out at once; the other is waited for.
    nodes[0] = Standing { has_come: true, ..Standing::default() };
    assert_eq!(steps(&mut of, &nodes, START), [Some(Step::Sinks); 2]);
    nodes[0] = there(Step::Sinks, START);
    assert_eq!(steps(&mut of, &nodes, START + SECOND)[0], None);
    nodes[1] = Standing { has_come: true, ..Standing::default() };
    assert_eq!(steps(&mut of, &nodes, START + SECOND), [Some(Step::Sinks); 2]);
    nodes[1] = there(Step::Sinks, START + 2 * SECOND);
    let settled = START + 2 * SECOND + 11_000_000;
    assert_eq!(steps(&mut of, &nodes, settled - 1), [Some(Step::Sinks); 2], "not in force");
    assert_eq!(of.in_window(START, settled).1, ["e2: its window is to come"]);
    assert_eq!(steps(&mut of, &nodes, settled), [Some(Step::Transits); 2]);
    nodes[0] = there(Step::Transits, START + 3 * SECOND);
    assert_eq!(steps(&mut of, &nodes, START + 9 * SECOND), [Some(Step::Transits); 2]);
    nodes[1] = there(Step::Transits, START + 3 * SECOND);
    assert_eq!(steps(&mut of, &nodes, START + 9 * SECOND), [Some(Step::Sources); 2]);
    // It is on once all sources have begun; a window in which they did is said to be before that.
    assert_eq!(of.in_window(START + 9 * SECOND, START + 10 * SECOND).0, Step::Transits);
    let nodes =
        [there(Step::Sources, START + 10 * SECOND), there(Step::Sources, START + 10 * SECOND)];
    let begun = START + 10 * SECOND + 11_000_000;
    assert_eq!(steps(&mut of, &nodes, begun), [Some(Step::Sources); 2]);
    assert_eq!(of.in_window(START + 10 * SECOND, START + 11 * SECOND).0, Step::Transits);
    assert_eq!(of.in_window(START + 11 * SECOND, START + 12 * SECOND).0, Step::Sources);
    assert!(of.in_window(START + 11 * SECOND, START + 12 * SECOND).1.is_empty());
}

#[test]
fn an_edge_that_can_be_no_sink_keeps_the_network_at_sinks_and_is_named() {
    let mut of = lifecycle(&["e1", "e2"]);
    let no_sink = Standing {
        has_come: true,
        problem: Some("it does not run sketchint".to_owned()),
        ..Standing::default()
    };
    let nodes = [there(Step::Sinks, START), no_sink];
    for second in 1..100 {
        assert_eq!(steps(&mut of, &nodes, START + second * SECOND), [Some(Step::Sinks); 2]);
    }
    assert_eq!(of.in_window(START, START).1, ["e2: it does not run sketchint"]);
}

#[test]
fn a_controller_that_was_restarted_goes_on_with_what_nodes_hold() {
    let mut of = lifecycle(&["e1", "e2"]);
    let away = Standing { away_since_ns: Some(START), ..Standing::default() };
    let nodes = [there(Step::Sources, START - SECOND), away];
    assert_eq!(steps(&mut of, &nodes, START + SECOND), [None, Some(Step::Sinks)]);
    let nodes = [there(Step::Sources, START - SECOND), there(Step::Sources, START - SECOND)];
    assert_eq!(steps(&mut of, &nodes, START + 2 * SECOND), [Some(Step::Sources); 2]);

    // One that has begun anew is waited for by all, without stacks.
    let fresh = Standing { has_come: true, ..Standing::default() };
    let nodes = [there(Step::Sources, START - SECOND), fresh];
    assert_eq!(steps(&mut of, &nodes, START + 3 * SECOND), [Some(Step::Transits); 2]);
}

#[test]
fn it_goes_back_in_reverse_once_no_stack_is_under_way() {
    let mut of = lifecycle(&["e1", "e2"]);
    let nodes = [there(Step::Sources, START), there(Step::Sources, START)];
    assert_eq!(steps(&mut of, &nodes, START + SECOND), [Some(Step::Sources); 2]);
    // One that is away goes on as it is, for as long as it may.
    let away = Standing { away_since_ns: Some(START + SECOND), ..nodes[1].clone() };
    let lost_ns = START + SECOND + 10 * SECOND + ORPHAN_MARGIN_NS;
    let nodes = [nodes[0].clone(), away.clone()];
    assert_eq!(steps(&mut of, &nodes, lost_ns - 1), [Some(Step::Sources); 2]);
    assert_eq!(steps(&mut of, &nodes, lost_ns), [Some(Step::Transits); 2]);
    assert_eq!(of.in_window(lost_ns, lost_ns).1, ["e2: it is away"]);
    // The other has not stopped yet.
    assert_eq!(steps(&mut of, &nodes, lost_ns + 1), [Some(Step::Transits); 2]);
    let stopped_ns = START + 18 * SECOND;
    let nodes = [there(Step::Transits, stopped_ns), away];
    assert_eq!(steps(&mut of, &nodes, stopped_ns + 10_999_999), [Some(Step::Transits); 2]);
    assert_eq!(steps(&mut of, &nodes, stopped_ns + 11_000_000), [Some(Step::Sinks); 2]);
}

#[test]
fn victims_and_heavy_hitters_are_in_the_plans_of_windows_to_come() {
    let mut of = lifecycle(&["e1", "e2"]);
    let flow = |sport| Flow::from(&key(sport));
    let noticed = |epoch, victims: &[u16], heavy: &[u16]| Noticed {
        epoch,
        victims: victims.iter().map(|&port| flow(port)).collect(),
        heavy_hitters: heavy.iter().map(|&port| flow(port)).collect(),
    };
    of.notice(&noticed(1, &[7], &[9, 7]));
    let attended = |plans: &[Option<Vec<u8>>]| -> Vec<Vec<u16>> {
        let plans = plans.iter().map(|plan| Plan::decode(plan.as_ref().unwrap()).unwrap());
        plans.map(|plan| plan.attended.iter().map(|key| key.ports().0).collect()).collect()
    };
    // Not before all apply what they were sent.
    let mut nodes = [there(Step::Sources, START), there(Step::Sources, START + SECOND)];
    let settled = START + SECOND + 11_000_000;
    assert_eq!(attended(&of.plans(&nodes, settled - 1)), [const { Vec::<u16>::new() }; 2]);
    let plans = of.plans(&nodes, settled);
    assert_eq!(attended(&plans), [[7, 9], [7, 9]]);
    // What was sent stays until it holds everywhere, whatever is noticed in between.
    of.notice(&noticed(2, &[8], &[]));
    nodes[0].unanswered.push(Applied { epoch: 7, plan: plans[0].clone().unwrap() });
    assert_eq!(of.plans(&nodes, settled + 1), plans);
    for node in &mut nodes {
        let plan = plans[0].clone().unwrap();
        node.applied = Some(Applied { epoch: (START + 2 * SECOND) / LENGTH, plan });
        node.unanswered.clear();
    }
    assert_eq!(of.plans(&nodes, START + 2 * SECOND), plans, "its window is to come");
    assert_eq!(of.in_window(settled, settled + 1).0, Step::Sources, "it is on all the same");
    let next = START + 2 * SECOND + 11_000_000;
    assert_eq!(attended(&of.plans(&nodes, next)), [[7, 8, 9], [7, 8, 9]]);
    // The victims of the last epochs come first, and there is room for so many.
    let many: Vec<u16> = (1000..2100).collect();
    of.notice(&noticed(3, &[5], &many));
    let plans = attended(&of.plans(&nodes, next));
    assert_eq!(plans[0].len(), Plan::MOST_ATTENDED);
    assert_eq!(plans[0][..3], [5, 7, 8]);
    // Where nothing is noticed any more, nothing is attended.
    (4..=30).for_each(|epoch| of.notice(&noticed(epoch, &[], &[])));
    assert_eq!(attended(&of.plans(&nodes, next)), [const { Vec::<u16>::new() }; 2]);
}

fn key(sport: u16) -> WideKey {
    WideKey::v4([10, 1, 0, 2].into(), [10, 2, 0, 2].into(), sport, 80, 6)
}

/// A node of a network that is played: what it does, whatever the controller knows of it.
#[derive(Clone, Debug)]
struct Played {
    /// Whether it can be a sink, as it was started last.
    strips: bool,
    connected: bool,
    /// When it last was.
    heard_ns: u64,
    /// What it has accepted, in order; begins anew with the node.
    plans: Vec<Applied>,
    /// What the controller knows.
    standing: Standing,
}

impl Played {
    /// Whether it puts stacks into packets.
    fn sources(&self, now_ns: u64) -> bool {
        let holds = |of: &&Applied| of.epoch * LENGTH <= now_ns;
        let alone = !self.connected && now_ns - self.heard_ns >= 10 * SECOND;
        !alone && self.plans.iter().rev().find(holds).is_some_and(|of| step_of(of) == Step::Sources)
    }
}

#[derive(Clone, Debug)]
enum Event {
    /// A node begins anew.
    Restart(usize),
    /// Its connection breaks.
    Away(usize),
    /// It comes back.
    Back(usize),
    /// A controller that knows nothing takes over.
    Controller,
}

fn events() -> impl Strategy<Value = Event> {
    let node = 0..3_usize;
    prop_oneof![
        2 => node.clone().prop_map(Event::Restart),
        2 => node.clone().prop_map(Event::Away),
        6 => node.prop_map(Event::Back),
        1 => Just(Event::Controller),
    ]
}

proptest! {
    /// Answers get lost, nodes and the controller come and go: with an edge that does not strip, no
    /// source is ever asked to begin, and with all that do, INT is on in the end.
    #[test]
    fn no_source_while_an_edge_does_not_strip(
        events in prop::collection::vec((events(), 0..40_u64, any::<bool>()), 0..60),
        no_sink in prop::option::of(0..3_usize),
    ) {
        let mut of = lifecycle(&["e1", "e2", "s1"]);
        let mut now_ns = START;
        let away = Standing { away_since_ns: Some(START), ..Standing::default() };
        let mut nodes: Vec<Played> = (0..3)
            .map(|at| Played {
                strips: no_sink != Some(at),
                connected: false,
                heard_ns: START,
                plans: Vec::new(),
                standing: away.clone(),
            })
            .collect();
        let back = (0..3).map(|at| (Event::Back(at), 0, true));
        let all = events.into_iter().chain(back).collect::<Vec<_>>();
        let last = all.len() - 1;
        for (number, (event, steps_of, answers)) in all.into_iter().enumerate() {
            match event {
                Event::Restart(at) => {
                    nodes[at].plans.clear();
                    nodes[at].connected = false;
                    nodes[at].standing.away_since_ns.get_or_insert(now_ns);
                }
                Event::Away(at) => {
                    nodes[at].connected = false;
                    nodes[at].standing.away_since_ns.get_or_insert(now_ns);
                }
                Event::Back(at) if !nodes[at].connected => {
                    let node = &mut nodes[at];
                    // What it has stopped by itself, it says.
                    if node.plans.last().is_some_and(|of| step_of(of) == Step::Sources)
                        && now_ns - node.heard_ns >= 10 * SECOND
                    {
                        node.plans.push(applied(Step::Transits, now_ns));
                    }
                    (node.connected, node.heard_ns) = (true, now_ns);
                    let problem = (!node.strips).then(|| "it strips nothing".to_owned());
                    let applied = node.plans.last().cloned().filter(|_| node.strips);
                    node.standing =
                        Standing { has_come: true, applied, problem, ..Standing::default() };
                }
                Event::Back(_) => {}
                Event::Controller => {
                    of = lifecycle(&["e1", "e2", "s1"]);
                    for node in &mut nodes {
                        node.connected = false;
                        node.standing =
                            Standing { away_since_ns: Some(now_ns), ..Standing::default() };
                    }
                }
            }
            let rounds = if number == last { 60 } else { steps_of };
            for _ in 0..rounds {
                now_ns += SECOND / 2;
                let standings: Vec<Standing> = nodes.iter().map(|of| of.standing.clone()).collect();
                let plans = of.plans(&standings, now_ns);
                let epoch = (now_ns / LENGTH).div_ceil(WINDOW) * WINDOW;
                for (node, plan) in nodes.iter_mut().zip(plans) {
                    if !node.connected {
                        continue;
                    }
                    node.heard_ns = now_ns;
                    let (Some(plan), true) = (plan, node.strips) else { continue };
                    if node.plans.last().is_some_and(|of| of.plan == plan) {
                        // An answer that was lost is asked for again, and given again.
                        node.standing.applied = node.plans.last().cloned();
                        node.standing.unanswered.clear();
                        continue;
                    }
                    let sent = Applied { epoch, plan };
                    node.plans.push(sent.clone());
                    if answers || number == last {
                        node.standing.applied = Some(sent);
                        node.standing.unanswered.clear();
                    } else {
                        node.standing.unanswered.push(sent);
                    }
                }
                let sources = nodes.iter().any(|node| node.sources(now_ns));
                prop_assert!(!sources || nodes.iter().all(|node| node.strips));
            }
        }
        let on = nodes.iter().all(|node| node.sources(now_ns));
        prop_assert_eq!(on, no_sink.is_none());
    }
}
