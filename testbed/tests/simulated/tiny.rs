//! A hundred thousand tiny networks that do to packets what networks do: no report that claims to
//! be certain is wrong. Half a million with `CALUMMA_SWEEPS=large`; `cargo xtask nightly` plays a
//! million. `calumma-testbed tiny --from SEED --networks 1` plays one of them again.

use calumma_testbed::tiny::{self, Sum, Tiny, Trouble};

/// Plays a quarter of the networks.
fn holds(quarter: u64) {
    let networks = if calumma_testenv::are_sweeps_large() { 125_000 } else { 25_000 };
    let seeds = quarter * networks..(quarter + 1) * networks;
    let sum = tiny::play(seeds, &Trouble::HOLDS).expect("networks that can be played");
    println!("{sum}");
    assert!(sum.wrong.is_empty() && sum.false_lost == 0 && sum.ghosts == 0, "{sum}");
    // There was something to be wrong about, and to be silent about.
    assert!(sum.complete > sum.epochs / 3 && sum.complete < sum.epochs, "{sum}");
    assert!(sum.named > networks / 2 && sum.hidden > 0, "{sum}");
}

#[test]
fn no_report_on_the_first_quarter_is_wrong() {
    holds(0);
}

#[test]
fn no_report_on_the_second_quarter_is_wrong() {
    holds(1);
}

#[test]
fn no_report_on_the_third_quarter_is_wrong() {
    holds(2);
}

#[test]
fn no_report_on_the_fourth_quarter_is_wrong() {
    holds(3);
}

/// Plays networks that lose packets and do one thing more which no single bit can tell from loss in
/// every case: gives packets that are named and those of them that are false.
fn played(trouble: Trouble) -> [u64; 2] {
    let networks = if calumma_testenv::are_sweeps_large() { 100_000 } else { 10_000 };
    let sum =
        tiny::play(0..networks, &[Trouble::Loss, trouble]).expect("networks that can be played");
    println!("{sum}");
    // There was something to be wrong about, and what is certain is said.
    assert!(sum.named > networks && sum.exactly > networks, "{sum}");
    [sum.named, sum.false_lost]
}

#[test]
fn no_loss_is_false_where_both_ends_of_flows_are_translated() {
    assert_eq!(played(Trouble::BothEnds)[1], 0);
}

/// Where marks are signed, a packet that is translated has none that is valid, and only says of
/// what epoch it is.
#[test]
fn no_loss_is_false_where_packets_are_translated_and_late_and_marks_are_signed() {
    let networks = if calumma_testenv::are_sweeps_large() { 40_000 } else { 4_000 };
    let mut sum = Sum::default();
    let carriers = [Trouble::IpId, Trouble::FlowLabel];
    for (seed, carrier) in (0..networks).flat_map(|seed| carriers.map(|carrier| (seed, carrier))) {
        let troubles = [Trouble::Loss, Trouble::Late, Trouble::Translation, carrier];
        let network = Tiny::draw(seed, &troubles);
        // The others are played elsewhere.
        if troubles.iter().all(|trouble| network.troubles.contains(trouble)) {
            sum.add(network.play().expect("networks that can be played"));
        }
    }
    println!("{sum}");
    assert!(sum.wrong.is_empty() && sum.false_lost == 0, "{sum}");
    assert!(sum.amended > sum.networks && sum.named > sum.networks, "{sum}");
}

/// By ToS bytes, what is left is what there is without translation: see below.
#[test]
fn translation_adds_no_false_loss_to_those_of_packets_that_are_late() {
    let networks = if calumma_testenv::are_sweeps_large() { 100_000 } else { 10_000 };
    let troubles = [Trouble::Loss, Trouble::Late, Trouble::Translation];
    let sum = tiny::play(0..networks, &troubles).expect("networks that can be played");
    println!("{sum}");
    assert!(sum.named > networks && sum.exactly > networks && sum.amended > networks, "{sum}");
    assert!(sum.false_lost * 2000 <= sum.named, "{sum}");
}

/// What is left is one packet that shows nowhere: see "What no switch can know" in
/// `docs/networks.md`.
#[test]
fn losses_are_false_where_a_packet_alone_is_re_marked_or_late() {
    for trouble in [Trouble::Remarks, Trouble::Late] {
        let [named, false_lost] = played(trouble);
        assert!(false_lost * 2000 <= named, "{trouble:?}: {false_lost} of {named}");
    }
}

#[test]
fn every_trouble_happens_and_a_seed_plays_the_same_network_again() {
    let play = || tiny::play(0..200, &Trouble::ALL).expect("networks that can be played");
    let sum = play();
    let happened: Vec<&str> = sum.treated.keys().copied().collect();
    let all = ["copied", "held up", "lost", "re-marked", "strange", "translated"];
    assert_eq!(happened, all);
    assert!(sum.treated.values().all(|&packets| packets > 100), "{sum}");
    assert_eq!(sum, play());
}

/// Networks that lose packets, and whose connections to the controller are slow, stand still and
/// break.
fn with_connections(change: impl Fn(&mut Tiny)) -> Sum {
    let networks = if calumma_testenv::are_sweeps_large() { 20_000 } else { 2_000 };
    let mut sum = Sum::default();
    for seed in 0..networks {
        let mut network = Tiny::draw(seed, &[Trouble::Loss, Trouble::Control]);
        change(&mut network);
        sum.add(network.play().expect("networks that can be played"));
    }
    println!("{sum}");
    assert!(sum.wrong.is_empty() && sum.false_lost == 0 && sum.broken > networks / 4, "{sum}");
    sum
}

/// What was under way when a connection broke comes again, some of it twice and behind what is
/// newer, and is reported once and whole.
#[test]
fn connections_that_break_cost_no_epoch_where_the_controller_waits_for_them() {
    let sum = with_connections(|network| network.is_patient = true);
    assert_eq!(sum.complete, sum.epochs, "{sum}");
}

/// A broken connection is set up again after five epochs, and what stood still goes on after six.
#[test]
fn reports_are_whole_again_two_epochs_after_connections_are() {
    let sum = with_connections(|network| {
        (network.is_patient, network.epochs, network.calm_from) = (false, 24, 8);
    });
    assert!(sum.complete < sum.epochs, "{sum}");
    assert!(sum.last_incomplete < Some(8 + 5 + 6 + 2), "{sum}");
}

/// Whatever disks do, and whenever a controller is killed or loses power: what nodes were sent to
/// be reported is in the archive, once, and as it was reported. No report is wrong besides.
#[test]
fn no_acknowledged_epoch_is_lost_where_networks_disks_and_controllers_fail() {
    let networks = if calumma_testenv::are_sweeps_large() { 20_000 } else { 2_000 };
    let sum = tiny::play(0..networks, &Trouble::WITH_DISKS).expect("networks that can be played");
    println!("{sum}");
    assert!(sum.wrong.is_empty() && sum.false_lost == 0, "{sum}");
    // Four in ten have such a disk.
    assert!(sum.archived > 2 * networks && sum.ends > networks / 5, "{sum}");
    assert!(sum.failures > networks / 2 && sum.named > networks / 10, "{sum}");
}
