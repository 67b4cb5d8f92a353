//! Where a share of packets carries INT, what is reported of the others has bounds that hold as
//! often as they say, over many draws by the hash that switches draw by.

use std::collections::BTreeMap;

use calumma_analysis::Flow;
use calumma_plane::int::push::NotCarried;
use calumma_sketch::sketchint::{Shape, flow_word, packet_word};
use calumma_sketchint::frames::{Entered, Setup};
use calumma_sketchint_analysis::report::{Estimated, HopReport};

use super::{Network, Packet, Says, key, layout, packets_of};

const FLOWS: u32 = 24;

/// Packets of flows, a part of each by s1 and the others by s2, all alike; and of these how many of
/// each flow come by s1.
fn traffic(window: u64) -> (Vec<Packet>, BTreeMap<Flow, u64>) {
    let (mut packets, mut by_s1) = (Vec::new(), BTreeMap::new());
    for flow in 0..FLOWS {
        let all = 4 + 11 * u64::from(flow);
        let these = (window + u64::from(flow) * 7) % (all + 1);
        packets.extend(packets_of(flow, 1, these as usize));
        packets.extend(packets_of(flow, 2, (all - these) as usize));
        by_s1.insert(Flow::from(&key(flow)), these);
    }
    (packets, by_s1)
}

/// What becomes of a packet that is drawn.
#[derive(PartialEq)]
enum Drawn {
    /// It gets a stack, which comes to its sink.
    Carries,
    /// It can have none.
    Unfit,
    /// It gets one, which is taken out on its way.
    TakenOut,
}

/// Leaves a share of the packets their stacks; `drawn` says what becomes of those that are drawn.
fn draw(
    network: &Network,
    share: u32,
    packets: &mut [Packet],
    drawn: impl Fn(usize, &Packet) -> Drawn,
) -> Entered {
    let setup = Setup { share, ..Setup::default() };
    let mut entered = Entered::default();
    for (at, packet) in packets.iter_mut().enumerate() {
        let flow = flow_word(&network.family.hash(&key(packet.flow)));
        let is_drawn = setup.carries(packet_word(flow, network.window, (0xA11, at as u64)));
        let drawn = is_drawn.then(|| drawn(at, packet));
        if drawn != Some(Drawn::Carries) {
            packet.says = Says::Nothing;
        }
        match drawn {
            Some(Drawn::Carries | Drawn::TakenOut) => entered.inserted += 1,
            Some(Drawn::Unfit) => entered.not_carried[NotCarried::Mtu as usize] += 1,
            None => entered.not_carried[NotCarried::Share as usize] += 1,
        }
    }
    entered
}

/// Stacks that a sink may have had are missing by no chance, or are those of other windows.
#[test]
fn nothing_is_estimated_without_all_sinks() {
    let shape = Shape { tower_words: 512, row_sets: 64, ..Shape::default() };
    for misses_e3 in [false, true] {
        let mut network = Network::with_share(layout(shape), 1, 0.25);
        network.misses_e3 = misses_e3;
        let (mut packets, _) = traffic(network.window);
        let entered = draw(&network, 1 << 30, &mut packets, |_, _| Drawn::Carries);
        network.entered = Some(entered);
        let flows = network.report([&packets, &[]]).findings.flows;
        assert!(flows.iter().all(|flow| flow.exact));
        let mut hops = flows.iter().flat_map(|flow| &flow.hops);
        assert_eq!(hops.any(|hop| hop.estimate.is_some()), !misses_e3);
    }
}

/// What is estimated in windows of such shares, with what is true.
fn estimates(
    share: u32,
    windows: u64,
    drawn: impl Fn(usize, &Packet) -> Drawn,
) -> Vec<(HopReport, Estimated, u64)> {
    let shape = Shape { tower_words: 512, row_sets: 64, ..Shape::default() };
    let mut network = Network::with_share(layout(shape), 1, f64::from(share) / 4_294_967_296.0);
    let mut all = Vec::new();
    for _ in 0..windows {
        let (mut packets, by_s1) = traffic(network.window);
        network.entered = Some(draw(&network, share, &mut packets, &drawn));
        let report = network.report([&packets, &[]]);
        for flow in report.findings.flows {
            assert!(flow.exact, "{flow:?}");
            for hop in flow.hops {
                let came = match &*hop.node {
                    "s1" => by_s1[&flow.flow],
                    "s2" => flow.packets.packets.unwrap() - by_s1[&flow.flow],
                    "e1" => flow.packets.packets.unwrap(),
                    _ => {
                        assert!(hop.estimate.is_none() && hop.packets.packets.is_some());
                        continue;
                    }
                };
                assert!(hop.packets.allows(came), "{hop:?}, {came} came");
                let Some(estimate) = hop.estimate else {
                    // Without any that say it, no flow has such a switch.
                    assert!(hop.packets.packets.is_some(), "{hop:?}");
                    continue;
                };
                all.push((hop, estimate, came));
            }
        }
    }
    all
}

#[test]
fn bounds_hold_as_often_as_they_promise_and_errors_are_as_large_as_stated() {
    let mut shares_with_errors = 0;
    for share in [1 << 26, 1 << 29, 1 << 31, 7 << 29] {
        let all = estimates(share, 150, |_, _| Drawn::Carries);
        assert!(all.len() > 1500, "{}", all.len());
        let holds = all.iter().filter(|(_, of, came)| (of.at_least..=of.at_most).contains(came));
        let often = holds.count() as f64 / all.len() as f64;
        assert!(often >= all[0].1.confidence, "{often} of {} with {share:#x}", all.len());
        for (hop, of, _) in &all {
            assert_eq!(hop.packets.packets, None, "what is scaled is not exact");
            assert!(of.at_least >= hop.packets.at_least, "{hop:?}");
            assert!(Some(of.at_most) <= hop.packets.at_most, "{hop:?}");
            assert!((of.at_least as f64..=of.at_most as f64).contains(&of.packets));
        }
        // Of flows that go by both, and of which enough is drawn.
        let errors: Vec<f64> = all
            .iter()
            .filter(|(hop, of, _)| hop.packets.at_least > 10 && of.packets > 20.0)
            .filter(|(hop, of, _)| hop.node != "e1" && of.at_most > of.at_least + 4)
            .map(|(_, of, came)| (of.packets - *came as f64) / of.standard_error.unwrap())
            .collect();
        if errors.len() > 300 {
            let squares = errors.iter().map(|error| error * error).sum::<f64>();
            let squared = squares / errors.len() as f64;
            shares_with_errors += 1;
            assert!((0.7..1.3).contains(&squared), "{squared} of {} {share:#x}", errors.len());
        }
    }
    assert!(shares_with_errors > 0, "too few estimates of any share to judge their errors by");
}

/// Bounds hold, and no error is stated, where stacks of packets by s2 do not come to the sink.
fn hold_without(share: u32, windows: u64, drawn: impl Fn(usize, &Packet) -> Drawn) {
    let all = estimates(share, windows, drawn);
    let holds = all.iter().filter(|(_, of, came)| (of.at_least..=of.at_most).contains(came));
    let often = holds.count() as f64 / all.len() as f64;
    assert!(often >= 0.95, "{often} of {}", all.len());
    assert!(all.iter().all(|(_, of, _)| of.standard_error.is_none()));
}

#[test]
fn packets_that_can_carry_nothing_do_not_break_the_bounds() {
    // Every twentieth packet by s2 is too long: those that carry INT are no fair sample.
    let is_long = |at: usize, packet: &Packet| packet.path == 2 && at.is_multiple_of(20);
    let drawn = |at, packet: &_| if is_long(at, packet) { Drawn::Unfit } else { Drawn::Carries };
    hold_without(1 << 31, 150, drawn);
}

#[test]
fn stacks_that_are_taken_out_on_the_way_do_not_break_the_bounds() {
    // Behind s2 is a link that some or all packets fit without their stacks only.
    for one_in in [1, 3, 20] {
        let is_taken = |at: usize, packet: &Packet| packet.path == 2 && at.is_multiple_of(one_in);
        let drawn =
            |at, packet: &_| if is_taken(at, packet) { Drawn::TakenOut } else { Drawn::Carries };
        hold_without(1 << 30, 50, drawn);
    }
}

#[test]
fn without_a_share_nothing_is_estimated() {
    let shape = Shape { tower_words: 512, row_sets: 64, ..Shape::default() };
    let mut network = Network::new(layout(shape), 1);
    let (mut packets, _) = traffic(1);
    let fate = |at: usize, _: &_| if at.is_multiple_of(3) { Drawn::Unfit } else { Drawn::Carries };
    let drawn = draw(&network, u32::MAX, &mut packets, fate);
    network.entered = Some(drawn);
    let report = serde_json::to_string(&network.report([&packets, &[]])).unwrap();
    assert!(report.contains("\"at_most\"") && !report.contains("\"estimate\""));
    // Nor where nobody knows what all sources did.
    let mut network = Network::with_share(layout(shape), 1, 0.5);
    let (mut packets, _) = traffic(1);
    draw(&network, 1 << 31, &mut packets, |_, _| Drawn::Carries);
    let report = serde_json::to_string(&network.report([&packets, &[]])).unwrap();
    assert!(!report.contains("\"estimate\""));
}
