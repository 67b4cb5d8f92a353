//! Packets with changed bytes, out of hosts and out of the routers behind edges: what forgers,
//! broken devices and replayed captures send.
//!
//! Their Ethernet destination is nobody's, so the kernel behind an edge drops each of them: those
//! from hosts are lost in the edge's router, where the [`Witness`](super::witness) sees them
//! arrive; those from routers, which no edge has seen enter, in hosts.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};
use calumma_interface::{Interface, Plug};
use calumma_sketch::WideKey;

use crate::fabric::wiring::{HOST, Wiring};
use crate::workload::{Draw, frame};

/// The Ethernet address that they are for: no interface's.
pub(super) const NOBODY: [u8; 6] = [0x02, 0xCA, 0x1A, 0, 0, 0xFF];

/// What the interface of a router towards its edge's first host is called.
pub(super) const ROUTER: &str = "h1";

/// How often some are sent.
const TURN: Duration = Duration::from_millis(2);

/// Those that are being sent.
pub(super) struct Mutants {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<[u64; 2]>,
}

impl Mutants {
    /// Begins to send `pps` a second at each edge, one from its first host and one from its router
    /// by turns.
    pub(super) fn start(wiring: &Wiring, pps: u32, seed: u64) -> Result<Self> {
        let mut ends = Vec::new();
        for (hosts, router) in wiring.hosts().iter().zip(wiring.routers()) {
            let Some(host) = hosts.first() else { continue };
            let open = |name| move || Ok(Interface::open(name)?);
            ends.push([host.within(open(HOST))?, router.within(open(ROUTER))?]);
        }
        let stop = Arc::new(AtomicBool::new(false));
        let thread = std::thread::spawn({
            let stop = stop.clone();
            move || send(&mut ends, pps, Draw::new(seed).of(u64::MAX - 3), &stop)
        });
        Ok(Self { stop, thread })
    }

    /// Sends no more; gives how many hosts have sent, and how many routers.
    pub(super) fn finish(self) -> Result<[u64; 2]> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().map_err(|_| anyhow!("sending changed packets panicked"))
    }
}

fn send(ends: &mut [[Interface; 2]], pps: u32, draw: Draw, stop: &AtomicBool) -> [u64; 2] {
    let (begin, mut sent) = (Instant::now(), [0, 0]);
    let mut number = 0;
    while !stop.load(Ordering::Relaxed) {
        let due = (begin.elapsed().as_secs_f64() * f64::from(pps)) as u64;
        while number < due {
            for (edge, ends) in (0..).zip(&mut *ends) {
                let side = (number & 1) as usize;
                ends[side].send(&mutant(draw.of(number).of(edge)));
                sent[side] += 1;
            }
            number += 1;
        }
        std::thread::sleep(TURN);
    }
    sent
}

/// A packet of which up to four bytes behind the addresses were changed, and one in eight cut.
fn mutant(draw: Draw) -> Vec<u8> {
    let address = |what| (draw.of(what).bits() as u32).to_be_bytes();
    let [sport, dport] = [2, 3].map(|what| draw.of(what).bits() as u16);
    let protocol = [6, 17, 1, 132][draw.of(4).below(4) as usize];
    let key = match draw.of(5).below(2) {
        0 => WideKey::v4(address(0).into(), address(1).into(), sport, dport, protocol),
        _ => {
            let wide = |what| {
                let [high, low] = [what, what + 10].map(|what| u128::from(draw.of(what).bits()));
                (high << 64 | low).into()
            };
            WideKey::v6(wide(0), wide(1), sport, dport, protocol)
        }
    };
    let mut bytes = frame(&key, 60).to_vec();
    bytes[..6].copy_from_slice(&NOBODY);
    for change in 0..draw.of(6).below(5) {
        let draw = draw.of(7).of(change);
        let at = 12 + draw.of(0).below(bytes.len() as u64 - 12) as usize;
        bytes[at] ^= draw.of(1).bits() as u8;
    }
    if draw.of(8).below(8) == 0 {
        bytes.truncate(14 + draw.of(9).below(bytes.len() as u64 - 14) as usize);
    }
    bytes
}
