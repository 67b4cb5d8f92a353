//! Packets with changed bytes, out of hosts and out of the routers behind edges: what forgers,
//! broken devices and replayed captures send.
//!
//! Their Ethernet destination is nobody's, so the kernel behind an edge drops each of them: those
//! from hosts are lost in the edge's router, where the [`Witness`](super::witness) sees them
//! arrive; those from routers, which no edge has seen enter, in hosts.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};
use calumma_edge::parse::{Parsed, parse};
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

/// The flow that an edge takes a packet for, and where its IP header begins; none where it measures
/// no such packet.
pub(super) fn flow_of(bytes: &[u8]) -> Option<(WideKey, usize)> {
    match parse(bytes, bytes.len()) {
        Parsed::Flow { key, ip_offset } => Some((key.into(), ip_offset)),
        Parsed::Flow6 { key, ip_offset } => Some((WideKey::from_bytes(key), ip_offset)),
        Parsed::Unmeasured(_) | Parsed::Malformed(_) => None,
    }
}

/// Packets by flow.
type ByFlow = HashMap<WideKey, u64>;

/// Those that are being sent.
pub(super) struct Mutants {
    stop: Arc<AtomicBool>,
    from_routers: Arc<Mutex<ByFlow>>,
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
        let from_routers = Arc::<Mutex<ByFlow>>::default();
        let thread = std::thread::spawn({
            let (stop, from_routers) = (stop.clone(), from_routers.clone());
            let draw = Draw::new(seed).of(u64::MAX - 3);
            move || send(&mut ends, pps, draw, &from_routers, &stop)
        });
        Ok(Self { stop, from_routers, thread })
    }

    /// Adds what routers have sent so far, which no edge has seen enter.
    pub(super) fn add_to(&self, packets: &mut ByFlow) {
        let sent = self.from_routers.lock().unwrap_or_else(PoisonError::into_inner);
        for (&flow, &sent) in &*sent {
            *packets.entry(flow).or_default() += sent;
        }
    }

    /// Sends no more; gives how many hosts have sent, and how many routers.
    pub(super) fn finish(self) -> Result<[u64; 2]> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().map_err(|_| anyhow!("sending changed packets panicked"))
    }
}

fn send(
    ends: &mut [[Interface; 2]],
    pps: u32,
    draw: Draw,
    from_routers: &Mutex<ByFlow>,
    stop: &AtomicBool,
) -> [u64; 2] {
    let (begin, mut sent) = (Instant::now(), [0, 0]);
    let mut number = 0;
    while !stop.load(Ordering::Relaxed) {
        let due = (begin.elapsed().as_secs_f64() * f64::from(pps)) as u64;
        while number < due {
            for (edge, ends) in (0..).zip(&mut *ends) {
                let side = (number & 1) as usize;
                let packet = mutant(draw.of(number).of(edge));
                if let Some((flow, _)) = flow_of(&packet).filter(|_| side == 1) {
                    let mut sent = from_routers.lock().unwrap_or_else(PoisonError::into_inner);
                    *sent.entry(flow).or_default() += 1;
                }
                ends[side].send(&packet);
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
