//! A system that asks for them has TTLs and lengths as packets were received, though routing has
//! lowered TTLs before; one that does not has none.

use std::sync::{Arc, Mutex};

use calumma_edge::measure::Measurement;
use calumma_edge::worker::{Policy, Worker};
use calumma_epoch::{EpochClock, Guards};
use calumma_plane::parse::detail::IpFields;
use calumma_plane::slots::{AnySlots, CountOnly};
use calumma_plane::system::{FinishedSide, Groups, LcoreHalf, Notes, Recorded};
use calumma_plane::{Counters, Flows, LcoreMerger, LcoreSystem, MarkedRun, Run, SwitchSystem};
use calumma_sketch::{AnyKey, Key, KeyKind, WideKey};
use calumma_wire::{Secret, Side};

use crate::edge::{Edge, F0, F1, H0, mac};
use crate::frames::{Udp, neighbour_advertisement, station};

/// What was seen of packets, by source port: which way they went, and what their headers said.
type Seen = Arc<Mutex<Vec<(u16, &'static str, IpFields)>>>;

/// A system that notes what packets' headers say, or that asks for nothing.
#[derive(Clone, Debug)]
struct Reader {
    seen: Seen,
    /// The port that received each of them, by source port.
    ports: Arc<Mutex<Vec<(u16, u16)>>>,
    asks: bool,
}

#[derive(Debug)]
struct OnLcore(Reader, calumma_plane::Slots<CountOnly, CountOnly>);

impl OnLcore {
    fn note(&self, flows: &Flows<WideKey>, way: &'static str) {
        if !self.0.asks {
            return;
        }
        assert_eq!(flows.ip().len(), flows.len());
        let mut seen = self.0.seen.lock().unwrap();
        let mut ports = self.0.ports.lock().unwrap();
        for (key, fields) in flows.keys().iter().zip(flows.ip()) {
            // Not what the switch itself has made: errors, and questions about neighbours.
            if key.ports().0 > 0 {
                seen.push((key.ports().0, way, *fields));
                ports.push((key.ports().0, flows.port()));
            }
        }
    }
}

impl LcoreSystem<WideKey> for OnLcore {
    fn slots(&mut self) -> &mut dyn AnySlots {
        &mut self.1
    }

    fn wants_transit(&self) -> bool {
        true
    }

    fn wants_ip(&self) -> bool {
        self.0.asks
    }

    fn enter(&mut self, flows: &mut Flows<WideKey>, _: &mut Counters) {
        self.note(flows, if flows.are_local() { "local" } else { "enter" });
    }

    fn transit(&mut self, flows: &mut Flows<WideKey>, _: &mut Counters) {
        self.note(flows, "transit");
    }

    fn leave(&mut self, flows: &Flows<WideKey>, _: &mut Counters) {
        if !flows.are_local() {
            self.note(flows, "leave");
        }
        assert!(self.0.asks || flows.ip().is_empty(), "nobody asked");
    }

    fn enter_run(&mut self, _: &WideKey, packets: u32, _: &mut Counters) -> Run {
        Run::unencoded(packets)
    }

    fn leave_run(&mut self, _: &WideKey, _: &MarkedRun, _: &mut Counters) {}
}

impl SwitchSystem for Reader {
    fn on_lcore(&self, _: KeyKind) -> AnyKey<LcoreHalf> {
        let half: Box<dyn LcoreSystem<WideKey>> =
            Box::new(OnLcore(self.clone(), calumma_plane::Slots::new(0, 1, ())));
        AnyKey::Dual(half)
    }

    fn groups(&self, _: KeyKind) -> Groups {
        let nothing = || Box::new(Recorded::new(CountOnly));
        Groups { ingress: nothing(), by_bit: nothing() }
    }

    fn side(&self, _: FinishedSide<'_>) -> Option<(Side, Notes)> {
        None
    }
}

#[test]
fn ttls_and_lengths_are_those_that_packets_were_received_with() {
    let mut edge = Edge::new("received", &[]);
    edge.acquaint();
    let clock = EpochClock::new(50_000_000, Guards::default()).unwrap();
    let first_epoch = clock.epoch_at(edge.now_ns) + 3;
    for asks in [true, false] {
        let (mut merger, mut mailboxes) = LcoreMerger::new(1);
        let reader = Reader { seen: Seen::default(), ports: Arc::default(), asks };
        let systems: Vec<Box<dyn SwitchSystem>> = vec![Box::new(reader.clone())];
        merger.begin(clock, first_epoch, Secret::new([1; 32]), KeyKind::Dual, systems);
        let counters = edge.worker.counters;
        edge.worker = Worker::new(Policy::default(), Measurement::new(mailboxes.remove(0)));
        edge.worker.counters = counters;
        edge.worker.advance_to(clock.start_of(first_epoch) + 1);
        // Tagged on F1, and with others in the burst that go nowhere or to the switch itself.
        let kinds = [
            ("10.1.0.2", "10.2.0.1", H0, "enter"),
            ("fd00:1::2", "fd00:2::1", H0, "enter"),
            ("10.1.0.2", "10.1.1.2", H0, "local"),
            ("10.1.0.2", "192.0.2.1", H0, ""),
            ("10.2.0.1", "10.3.0.2", F0, "transit"),
            ("10.2.0.1", "10.1.0.2", F0, "leave"),
            // Dropped: without a route, and by one that says so.
            ("10.2.0.1", "192.0.2.1", F0, "transit"),
            ("10.2.0.1", "10.66.0.1", F0, "transit"),
            // Left to the switch itself: no router has lowered its TTL.
            ("10.2.0.1", "10.9.0.1", F0, "leave"),
            ("fd00:2::1", "fd00:1::2", F1, "leave"),
        ];
        let mut wanted = Vec::new();
        for port in [H0, F0, F1] {
            let mut frames = Vec::new();
            for at in 1..31_u16 {
                let kind = usize::from(at) % kinds.len();
                let (from, to, of_port, way) = kinds[kind];
                if of_port == port {
                    // The last of those that pass has no TTL left to pass.
                    let ttl = if at == 24 { 1 } else { 2 + at as u8 * 8 };
                    let payload = usize::from(at) * 9;
                    let udp = Udp { ports: (at, 9), ttl, payload, ..Udp::new(from, to) };
                    let len = udp.packet().len() as u32;
                    frames.push(udp.frame(port));
                    if !way.is_empty() {
                        wanted.push((at, way, IpFields { ttl, len, ..IpFields::default() }));
                    }
                }
            }
            edge.receive(port, &frames);
        }
        // Its next hop is not known: it waits, and has passed all the same.
        let (ttl, payload) = (9, 30);
        let udp = Udp { ports: (99, 9), ttl, payload, ..Udp::new("fd00:2::1", "fd00:9:1::77") };
        let len = udp.packet().len() as u32;
        edge.receive(F0, &[udp.frame(F0)]);
        edge.slow_path(0.0);
        let vlan = Some(100);
        edge.receive(F1, &[neighbour_advertisement(station(77), "fd00:9:1::77", mac(F1), vlan)]);
        edge.slow_path(0.1);
        wanted.push((99, "transit", IpFields { ttl, len, ..IpFields::default() }));
        // It came by this port, whichever was polled since.
        let ports = reader.ports.lock().unwrap();
        let of_waited: Vec<_> = ports.iter().filter(|(at, _)| *at == 99).collect();
        let by_f0 = &(99, F0 as u16);
        assert_eq!(of_waited, if asks { vec![by_f0] } else { Vec::new() });
        let mut seen = std::mem::take(&mut *reader.seen.lock().unwrap());
        seen.sort_by_key(|(at, ..)| *at);
        wanted.sort_by_key(|(at, ..)| *at);
        assert_eq!(seen, if asks { wanted } else { Vec::new() });
    }
    edge.slow_path(0.0);
    edge.stop();
}
