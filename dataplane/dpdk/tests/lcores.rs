//! Work on lcores: given, waited for, refused, and in panic.

mod common;

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::Duration;

use dpdk::{Eal, Error, Mempool};

/// The EAL can be initialised once in a process, so the cases run one after the other.
#[test]
fn work_is_done_on_lcores_and_comes_back_whatever_happens() {
    let eal = common::eal(3, &[]);
    assert_eq!(eal.lcores(), [0, 1, 2]);
    let polled: Vec<usize> = (0..2000).filter(|&cpu| eal.has_lcore_on(cpu)).collect();
    assert_eq!(polled, [common::first_allowed_cpu()]);
    assert_eq!((eal.main_lcore(), eal.current_lcore()), (0, Some(0)));
    let elsewhere = std::thread::scope(|scope| {
        let thread = scope.spawn(|| (eal.current_lcore(), eal.launch(1, || ()).err()));
        thread.join().unwrap()
    });
    assert!(matches!(elsewhere, (None, Some(Error::NotMain))), "{elsewhere:?}");

    owned_workers_run_until_told_to_stop_and_come_back(&eal);
    work_is_launched_and_joined(&eal);
    a_panic_is_reported_and_stops_nobody_else(&eal);
    a_pool_outlives_an_mbuf_that_an_lcore_still_holds(eal);
}

fn owned_workers_run_until_told_to_stop_and_come_back(eal: &Eal) {
    let stop = AtomicBool::new(false);
    let workers = vec![Vec::new(), Vec::new(), Vec::new()];
    let back = std::thread::scope(|scope| {
        scope.spawn(|| {
            sleep(Duration::from_millis(20));
            stop.store(true, Ordering::Relaxed);
        });
        eal.run_on_lcores(workers, |mut worker: Vec<u32>| {
            while !stop.load(Ordering::Relaxed) {
                std::thread::yield_now();
            }
            worker.push(eal.current_lcore().unwrap());
            worker
        })
    });
    assert_eq!(back.unwrap(), [[0], [1], [2]]);
    assert!(matches!(
        eal.run_on_lcores(vec![0; 4], |_| ()),
        Err(Error::Lcores { lcores: 3, wanted: 4 })
    ));
    assert_eq!(eal.run_on_lcores(Vec::<u8>::new(), |_| ()).unwrap(), []);
}

fn work_is_launched_and_joined(eal: &Eal) {
    static STOP: AtomicBool = AtomicBool::new(false);
    let busy = eal
        .launch(2, || {
            while !STOP.load(Ordering::Relaxed) {
                std::thread::yield_now();
            }
            String::from("stopped")
        })
        .unwrap();
    assert!(!busy.is_finished());
    assert!(matches!(eal.launch(2, || ()), Err(Error::Busy(2))));
    assert!(matches!(eal.run_on_lcores(vec![(); 3], drop), Err(Error::Busy(2))));
    assert_eq!(eal.launch(1, || 1).unwrap().join().unwrap(), 1, "another lcore is free");
    for stranger in [0, 3, 5000] {
        assert!(matches!(eal.launch(stranger, || ()), Err(Error::NoLcore { .. })), "{stranger}");
    }
    STOP.store(true, Ordering::Relaxed);
    assert_eq!(busy.join().unwrap(), "stopped");
}

fn a_panic_is_reported_and_stops_nobody_else(eal: &Eal) {
    let panicked = eal.launch(1, || panic!("a wild {}", "worker")).unwrap().join();
    assert_eq!(panicked.unwrap_err().to_string(), "lcore 1 panicked: a wild worker");
    for wild in 0..3 {
        let ended = [const { AtomicBool::new(false) }; 3];
        let panicked = eal.run_on_lcores(vec![0, 1, 2], |lcore| {
            assert!(lcore != wild, "a wild lcore");
            sleep(Duration::from_millis(5));
            ended[lcore].store(true, Ordering::Relaxed);
        });
        let said = panicked.unwrap_err().to_string();
        assert!(said.contains(&format!("lcore {wild} panicked: a wild lcore")), "{said}");
        let ended: Vec<bool> = ended.into_iter().map(AtomicBool::into_inner).collect();
        assert_eq!(ended.iter().filter(|&&ended| ended).count(), 2, "the others have ended");
    }
}

/// Also the last one, as it takes the EAL down: cleaning up, or what is left of it, must not take
/// memory away that an mbuf lies in.
fn a_pool_outlives_an_mbuf_that_an_lcore_still_holds(eal: Eal) {
    let pool = Mempool::new(&eal, "short-lived", 1023, -1).unwrap();
    let mut mbuf = pool.alloc_with(b"still here").unwrap();
    drop(pool);
    assert_eq!(mbuf.data(), b"still here");
    let worker = eal.launch(1, move || {
        mbuf.data_mut()[0] = b'S';
        mbuf.data().to_vec()
    });
    assert_eq!(worker.unwrap().join().unwrap(), b"Still here");

    let pool = Mempool::new(&eal, "short-lived", 1023, -1);
    assert!(
        matches!(&pool, Err(Error::Call { reason, .. }) if reason.contains("a name of its own"))
    );
    let survivor = Mempool::new(&eal, "survivor", 1023, -1).unwrap().alloc_with(&[7; 64]).unwrap();
    drop(eal);
    assert_eq!(survivor.data(), [7; 64]);
}
