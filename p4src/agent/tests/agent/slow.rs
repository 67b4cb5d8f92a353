//! A driver that takes its time, so that groups are opened after their first packets have come.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::thread::{sleep, spawn};
use std::time::{Duration, Instant};

use calumma_chamelemon::frames;
use calumma_epoch::timestamp_bit;
use calumma_hops::frames::ID;
use calumma_interface::{MAX_FRAME, Plug};
use calumma_sketch::Arithmetic;
use calumma_switch_host::unix_ns;
use calumma_switchd::SYSTEMS;
use calumma_switchd::collector::Way;
use calumma_switchd::config::Config;
use calumma_wire::{Role, SideKind};

use crate::cfs;
use crate::common::{Numbers, marked, packet};
use crate::hops::{BOTH, Controller, chamelemon, hops, program, text};
use crate::rig::{self, Daemon, Model, packets};

/// How much later all comes that the daemon and its driver say to each other while groups are
/// opened: more than these are opened ahead of time.
const DELAY_MS: u64 = 140;

/// Length of an epoch: all that is asked of the driver takes its time.
const EPOCH_MS: u64 = 2000;

/// Packets that come just as their epoch begins, and in the middle of it.
const EARLY: u64 = 10;
const LATER: u64 = 20;

/// Where the driver can be reached by a way of a delay, in milliseconds.
fn slow(driver: SocketAddr, delay_ms: Arc<AtomicU64>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    spawn(move || {
        while let Ok((daemon, _)) = listener.accept() {
            let driver = TcpStream::connect(driver).unwrap();
            let ways = (daemon.try_clone().unwrap(), driver.try_clone().unwrap());
            pass_on(ways.0, ways.1, delay_ms.clone());
            pass_on(driver, daemon, delay_ms.clone());
        }
    });
    address
}

fn pass_on(mut from: TcpStream, mut to: TcpStream, delay_ms: Arc<AtomicU64>) {
    to.set_nodelay(true).unwrap();
    let (give, take) = channel::<(Instant, Vec<u8>)>();
    spawn(move || {
        let mut bytes = vec![0; 1 << 16];
        while let Ok(length @ 1..) = from.read(&mut bytes) {
            let delay = Duration::from_millis(delay_ms.load(Ordering::Relaxed));
            let _ = give.send((Instant::now() + delay, bytes[..length].to_vec()));
        }
    });
    spawn(move || {
        for (due, bytes) in take {
            sleep(due.saturating_duration_since(Instant::now()));
            if to.write_all(&bytes).is_err() {
                break;
            }
        }
        let _ = to.shutdown(Shutdown::Both);
    });
}

fn sleep_until(due_ns: u64) {
    sleep(Duration::from_nanos(due_ns.saturating_sub(unix_ns())));
}

/// Each packet is recorded in its epoch, or late for the one before with its timestamp bit, so that
/// the controller knows that some may lack: also of the first epochs, which have none before.
#[test]
fn what_comes_before_a_group_is_open_is_late_for_an_epoch_that_is_sealed() {
    let mut model = Model::named("hops", &program(), None);
    let mut controller = Controller::of(ID, EPOCH_MS);
    let delay_ms = Arc::new(AtomicU64::new(0));
    let driver = slow(model.address, delay_ms.clone());
    let config = text(driver, controller.address()).replace("\"host\"", "\"fabric\"");
    let config = config.replace("name =", "role = \"transit\"\nname =");
    let config = Config::parse(&config, "the test's configuration").unwrap();
    let _daemon = Daemon::start_with(&BOTH, config, packets(model.cpu.take().unwrap()));
    controller.accept();
    controller.welcome(vec![hops()]);

    let clock = controller.clock;
    let (packet, mut buffer) = (packet(&mut Numbers(7)), vec![0; MAX_FRAME]);
    let mut pass = |epoch, packets| {
        let frame = marked(&packet, (timestamp_bit(epoch) as u8) << 2);
        (0..packets).for_each(|_| model.host.send(&frame));
        sleep(Duration::from_millis(20));
        while model.fabric.receive(&mut buffer).is_some() {}
    };
    let first = clock.epoch_at(unix_ns()) + 1;
    for epoch in first..first + 9 {
        sleep_until(clock.start_of(epoch) - 300_000_000);
        delay_ms.store(DELAY_MS, Ordering::Relaxed);
        sleep_until(clock.start_of(epoch));
        pass(epoch, EARLY);
        delay_ms.store(0, Ordering::Relaxed);
        sleep(Duration::from_millis(EPOCH_MS / 2));
        pass(epoch, LATER);
        controller.listen();
    }
    controller.listen_until("the last are sealed", |it| it.is_sealed(first + 6));
    let measured = controller.epochs.iter().filter(|(_, of)| !of.sides.is_empty());
    let measured: Vec<_> = measured.filter(|(epoch, _)| **epoch < first + 7).collect();
    assert!(measured.len() >= 2, "{} epochs", measured.len());
    let mut late = 0;
    for (&epoch, of) in measured {
        let before = controller.epochs.get(&(epoch - 2)).and_then(|of| of.late_packets);
        let before = before.unwrap_or_else(|| panic!("epoch {epoch} came, {} not", epoch - 2));
        assert_eq!(of.sides[0].packets + before, EARLY + LATER, "epoch {epoch}");
        late += before;
    }
    assert!(late > 0, "the driver is slow");
}

/// Where packets were stamped too late, what an edge says of those that entered is in doubt, and
/// not what it recorded: its group was closed in time.
#[test]
fn what_is_stamped_late_is_no_fault_of_a_record_that_ended_in_time() {
    let mut model = cfs::model(Role::Edge);
    let mut controller = Controller::of(calumma_cfs::frames::OFFER.system, cfs::EPOCH_MS);
    let delay_ms = Arc::new(AtomicU64::new(0));
    let driver = slow(model.address, delay_ms.clone());
    let config = text(driver, controller.address());
    let config = config.replace("program = \"hops\"", "program = \"cfs\"");
    let config = Config::parse(&config, "the test's configuration").unwrap();
    let _daemon = Daemon::start_with(&SYSTEMS, config, packets(model.cpu.take().unwrap()));
    controller.accept();
    controller.welcome(vec![cfs::asked(&cfs::setup())]);

    let clock = controller.clock;
    let first = clock.epoch_at(unix_ns()) + 1;
    let late_from = (first + 4).next_multiple_of(cfs::WINDOW) + 1;
    for epoch in first..late_from + cfs::WINDOW + 1 {
        if epoch >= late_from {
            // Behind the arming, and before what is due behind the flip.
            sleep_until(clock.start_of(epoch) - 20_000_000);
            delay_ms.store(DELAY_MS, Ordering::Relaxed);
            sleep_until(clock.start_of(epoch) + 180_000_000);
            delay_ms.store(0, Ordering::Relaxed);
        }
        sleep_until(clock.start_of(epoch) + 400_000_000);
        controller.listen();
    }
    let window = late_from - 1;
    controller.listen_until("the window is reported", |it| {
        it.epochs.get(&window).is_some_and(|of| of.sides.len() == 2)
    });
    let stall_ns = |kind| {
        let mut sides = controller.epochs[&window].sides.iter();
        sides.find(|side| side.side == kind).unwrap().stall_ns
    };
    assert!(stall_ns(SideKind::Ingress) > clock.guards().flight_ns);
    assert_eq!(stall_ns(SideKind::Egress), 0);
}

/// Clearing takes longer than an epoch: most are not measured, and what is to be done for them does
/// not pile up.
#[test]
fn a_driver_that_clears_slowly_does_not_fall_behind_more_and_more() {
    let epoch_ms = 500;
    let model = Model::start(&rig::program(&rig::layout(Arithmetic::Prime), 8), None);
    let mut controller = Controller::of(frames::ID, epoch_ms);
    let driver = slow(model.address, Arc::new(AtomicU64::new(25)));
    let config = rig::config(driver, controller.address());
    let _daemon = Daemon::start(config, Way::Registers);
    controller.accept();
    controller.welcome(vec![chamelemon()]);
    let clock = controller.clock;
    let first = clock.epoch_at(unix_ns()) + 1;
    let last = first + 30;
    while clock.epoch_at(unix_ns()) < last {
        controller.listen();
        sleep(Duration::from_millis(10));
    }
    let mut sealed = controller.epochs.keys().filter(|&&epoch| controller.is_sealed(epoch));
    let newest = sealed.next_back().copied().unwrap_or(first);
    // An epoch is sealed as the one after the next is armed, behind the clearing of two.
    assert!(newest + 10 >= last, "epoch {newest} is the last one sealed before {last}");
}
