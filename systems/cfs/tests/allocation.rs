//! Nothing that runs once a packet takes memory, whatever the table has to do for it.

mod common;

use calumma_cfs::frames::{Entry, Overrides, Plan, Setup};
use calumma_plane::packet::{Frame, Packet};
use calumma_plane::worker::Path;
use calumma_plane::{Carrier, carrier::Tos};
use calumma_sketch::KeyKind;
use calumma_sketch::residual::Kind;
use calumma_testenv::Counting;

use common::{EPOCH_NS, FIRST_EPOCH, Net, Switch, clock, flow, frame};

#[global_allocator]
static COUNTING: Counting = Counting;

#[test]
fn packets_take_no_memory() {
    let kinds = [Kind::Fermat, Kind::FlowRadar];
    let both = kinds.map(|kind| [KeyKind::Ipv4, KeyKind::Dual].map(|keys| (kind, keys)));
    for (kind, keys) in both.into_iter().flatten() {
        let (entries, filter_bits) = (512, 1 << 16);
        let residual = Some(256);
        let of = Setup { entries, filter_bits, claim: false, residual, kind, ..Setup::default() };
        let setup = Setup { guard: true, ends: true, ..of };
        let net = Net { carrier: Carrier::Tos(Tos::default()), keys, setup };
        let mut switch = Switch::new(&net, 1, 1);
        let start = clock().start_of(FIRST_EPOCH);
        let mut taken = 0;
        for burst in 0..600_u32 {
            // A window turns meanwhile; bursts around it carry both bits.
            switch.advance_to(start + 17 * EPOCH_NS + u64::from(burst) * EPOCH_NS / 100);
            let path = match burst % 3 {
                _ if burst % 40 == 7 => Path::Cross,
                0 => Path::Enter,
                1 => Path::Transit,
                _ => Path::Leave,
            };
            let packet = |at: u32| {
                let number = burst.wrapping_mul(31).wrapping_add(at * at) % 4_000;
                frame(&flow(number, keys), 60 - (at % 7) as u8, 20)
            };
            let mut frames: Vec<Frame> = (0..32).map(packet).collect();
            for frame in frames.iter_mut().step_by(5) {
                frame.bytes_mut()[15] |= 0x80;
            }
            taken += Counting::during(|| switch.pass_all(0, path, &mut frames));
        }
        assert_eq!(taken, 0);
        switch.advance_to(start + 45 * EPOCH_NS);
        assert_eq!(switch.counters().claim_bits, 0);
        assert!(switch.late > 0, "some came when their epoch was over");
        assert!(!switch.routes.changed_since(0));
        let windows = switch.windows.values();
        let recorded: u64 = windows.clone().map(|window| window.totals.packets).sum();
        assert_eq!(switch.totals()["cfs.recorded"], recorded);
        let evicted: u64 = windows.clone().map(|window| window.totals.evicted).sum();
        let refused: u64 = windows.clone().map(|window| window.totals.refused).sum();
        assert!(evicted > 500 && refused > 500, "{evicted} evicted, {refused} refused");
        let all = Entry::ENTERED | Entry::PASSED | Entry::LEFT;
        let sides = |window: &calumma_cfs::frames::Window| {
            window.entries.iter().fold(0, |sides, entry| sides | entry.sides)
        };
        let sides: Vec<u8> = windows.map(sides).collect();
        assert!(sides.iter().filter(|&&sides| sides == all).count() >= 2, "{sides:?}");
    }
}

/// An lcore begins a window with memory that is divided anew, and takes none for it.
#[test]
fn dividing_the_memory_anew_takes_none_on_lcores() {
    for keys in [KeyKind::Ipv4, KeyKind::Dual] {
        let (entries, filter_bits, window_epochs) = (512, 1 << 16, 2);
        let (residual, alpha_moves) = (Some(256), true);
        let of = Setup { entries, filter_bits, window_epochs, claim: false, ..Setup::default() };
        let setup = Setup { residual, alpha_moves, ends: true, overrides: true, ..of };
        let net = Net { carrier: Carrier::Tos(Tos::default()), keys, setup };
        let mut switch = Switch::new(&net, 1, 2);
        let start = clock().start_of(FIRST_EPOCH);
        let mut memory = Vec::new();
        for window in 0..20_u64 {
            let alpha = [60, 97, 75, 0][window as usize % 4];
            let entries = [None, Some(256), Some(400)][window as usize % 3];
            let overrides = Overrides { entries, ..Overrides::default() };
            let plan = Plan { alpha, overrides, ..Plan::default() };
            switch.plan(FIRST_EPOCH + 2 * (window + 1), &plan);
            let mut frames: Vec<Frame> =
                (0..32).map(|at| frame(&flow(at + 64 * window as u32, keys), 60, 20)).collect();
            switch.pass_all(0, Path::Enter, &mut frames);
            let end = start + 2 * (window + 1) * EPOCH_NS;
            loop {
                let mut is_due = false;
                memory.push(Counting::during(|| is_due = switch.advance_lcores(end)));
                switch.receive();
                if !is_due {
                    break;
                }
            }
        }
        let alphas: Vec<_> = switch.windows.values().filter_map(|window| window.alpha).collect();
        assert!(alphas.starts_with(&[0, 60, 97, 75, 0, 60, 97, 75, 0]), "{alphas:?}");
        // The first time lcores take the session itself.
        assert_eq!(memory.iter().skip(1).sum::<usize>(), 0, "{memory:?}");
    }
}

#[test]
fn the_count_sees_what_does_take_memory() {
    assert_eq!(Counting::during(|| drop(vec![1])), 1);
}
