//! Records that lcores and the control thread hand to each other, while systems come and go, plans
//! and keys change, sessions begin anew and the switch stops.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use calumma_edge::control::systems::{Systems, What};
use calumma_edge::live::Lines;
use calumma_edge::sync::scheduled::unix_ns;
use calumma_plane::merge::Discarded;
use calumma_switch_host::{Measurer, Session};
use calumma_wire::{Domain, Generators, Secret, SideKind, SystemId, SystemSetup};
use shuttle::thread;

use super::book::{Book, FIRST, SECOND};
use super::lcores::{self, clock, settings};
use super::{draw, explore};

fn setup(system: SystemId) -> SystemSetup {
    SystemSetup { system, version: 1, setup: Vec::new(), plan: Vec::new() }
}

/// The control thread without its conversation, of which the controller's part is drawn.
struct Control {
    systems: Systems,
    session: Session,
    /// No epoch before this one may be the first or the last of anything again.
    next: u64,
    /// Whether a session has been put in another's place, by which records are lost that nobody
    /// counts.
    has_begun_anew: bool,
}

impl Control {
    fn new(mut systems: Systems) -> Self {
        let first_epoch = clock().epoch_at(unix_ns()) + 1 + draw(2) as u64;
        let session = Session {
            node_id: Some(1),
            hash_key: Secret { key: [7; 32], generators: Generators::Public },
            clock: clock(),
            first_epoch,
            systems: vec![setup(FIRST)],
            domain: Domain::default(),
            carrier: String::new(),
        };
        systems.begin(&session).expect("a session that the switch can measure by");
        Self { systems, session, next: first_epoch + 1, has_begun_anew: false }
    }

    /// An epoch that is to come, most often in time for lcores.
    fn epoch(&mut self) -> u64 {
        let epoch = self.next.max(clock().epoch_at(unix_ns()) + 1 + draw(3) as u64);
        self.next = epoch + 1;
        epoch
    }

    /// Does what a controller may ask for.
    fn ask(&mut self, lines: &Lines) {
        match draw(40) {
            0 | 1 => {
                let epoch = clock().epoch_at(unix_ns()) + draw(3) as u64;
                self.systems.reconfigure(FIRST, epoch, &[draw(250) as u8]);
            }
            2 | 3 => {
                let first_epoch = self.epoch();
                let session = Session { first_epoch, ..self.session.clone() };
                let is_on = self.session.setup_of(SECOND).is_some();
                self.session.systems.retain(|setup| setup.system != SECOND);
                if is_on {
                    self.systems.remove(SECOND, first_epoch);
                } else if self.systems.add(&session, &setup(SECOND)).is_ok() {
                    self.session.systems.push(setup(SECOND));
                }
            }
            4 => {
                self.session.first_epoch = self.epoch();
                self.session.hash_key.key[0] += 1;
                // Where too many systems have not left yet, those that are there go on.
                let _ = self.systems.rekey(&self.session);
            }
            5 if draw(4) == 0 => {
                self.session.first_epoch = self.epoch();
                self.systems.begin(&self.session).expect("as before");
                self.has_begun_anew = true;
            }
            6 | 7 => drop(lines.set(settings())),
            _ => {}
        }
    }

    fn receive(&mut self) {
        for finished in self.systems.poll() {
            let (epoch, what) = match finished.what {
                What::Side { side, .. } => (side.epoch, usize::from(side.side == SideKind::Egress)),
                What::Sealed { epoch, .. } => (epoch, 2),
            };
            Book::with(|book| book.finish(epoch, what));
        }
    }

    /// As the control thread of a switch: after the lcores are over, once more.
    fn run(mut self, mut lines: Lines, over: &AtomicBool) -> (Lines, Discarded, bool) {
        while !over.load(Relaxed) {
            self.ask(&lines);
            self.receive();
            lines.poll();
            thread::yield_now();
        }
        self.receive();
        self.systems.finish();
        (lines, self.systems.discarded(), self.has_begun_anew)
    }
}

/// Packets in frames, of all schedules.
static FRAMED: AtomicU64 = AtomicU64::new(0);

fn schedule() {
    let end = std::sync::Mutex::new((Discarded::default(), false));
    lcores::run(|systems, lines, over| {
        let (lines, discarded, has_begun_anew) = Control::new(systems).run(lines, over);
        *end.lock().expect("nobody else") = (discarded, has_begun_anew);
        lines
    });
    let (discarded, has_begun_anew) = *end.lock().expect("nobody else");
    Book::with(|book| {
        assert!(book.is_closed(), "{book:?}");
        let discarded = [discarded.ingress, discarded.egress];
        if has_begun_anew {
            assert!(
                (0..2).all(|side| book.lost[side] >= discarded[side]),
                "{discarded:?} {book:?}"
            );
        } else {
            assert_eq!(book.lost, discarded, "{book:?}");
        }
        FRAMED.fetch_add(book.framed[0] + book.framed[1], Relaxed);
    });
}

#[test]
fn every_record_is_handed_over_once_whoever_goes_first() {
    explore(schedule);
    assert!(FRAMED.load(Relaxed) > 1000, "hardly anything was measured");
}
