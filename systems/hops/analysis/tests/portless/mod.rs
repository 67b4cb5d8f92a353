//! Switches without ports, which tests hand packets from one to the other: each has a worker and
//! systems of its own, and talks to a controller over TCP.

use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::time::Duration;

use calumma_analysis::Flow;
use calumma_edge::control::systems::{Systems, What};
use calumma_edge::control::unix_ns;
use calumma_plane::packet::Frame;
use calumma_plane::system::System;
use calumma_plane::worker::Policy;
use calumma_plane::{Measurement, Worker};
use calumma_sketch::FlowKey;
use calumma_switch_host::{Conversation, Identity};
use calumma_wire::{Marking, Role, SwitchKind};

/// How long anything may take: the machine may be busy with other tests.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// The IP total length of the packets.
pub(crate) const LEN: u64 = 46;

/// A switch without ports.
pub(crate) struct Switch {
    pub(crate) worker: Worker,
    systems: Systems,
    conversation: Conversation,
}

impl Switch {
    pub(crate) fn new(
        known: &'static [&'static dyn System],
        node: &str,
        role: Role,
        controller: &str,
    ) -> Self {
        let (systems, mut mailboxes) = Systems::new(known, role, 1);
        let worker = Worker::new(Policy::default(), Measurement::new(mailboxes.remove(0)));
        let identity = Identity {
            node: node.to_owned(),
            role,
            kind: SwitchKind::Software,
            program: "a test".to_owned(),
            marking: Marking::default(),
        };
        let conversation = Conversation::new(identity, controller.to_owned(), None, 64 << 20);
        Self { worker, systems, conversation }
    }

    /// What lcore and control thread do now and then.
    pub(crate) fn step(&mut self) {
        self.worker.tick(unix_ns(), true);
        self.conversation.step(unix_ns(), &mut self.systems);
        for finished in self.systems.poll() {
            match finished.what {
                What::Side { side, .. } => self.conversation.side(side),
                What::Sealed { epoch, late_packets, body } => {
                    let system = finished.system.offer().system;
                    self.conversation.sealed(system, epoch, (late_packets, body))
                }
            };
        }
        for notice in self.systems.notices(unix_ns()) {
            self.conversation.tell(&notice);
        }
        self.conversation.flush();
    }
}

/// A packet of a flow of this number, with a TTL of 64.
pub(crate) fn packet(flow: u64) -> (Flow, Frame) {
    let key = FlowKey::from_words(0x0A01_0002, 0x0A02_0002, flow as u32 + 1, 17);
    let mut bytes = vec![0; 60];
    bytes[12] = 8;
    bytes[14..18].copy_from_slice(&[0x45, 0, 0, LEN as u8]);
    bytes[22] = 64;
    bytes[23] = 17;
    bytes[26..30].copy_from_slice(&Ipv4Addr::new(10, 1, 0, 2).octets());
    bytes[30..34].copy_from_slice(&Ipv4Addr::new(10, 2, 0, 2).octets());
    bytes[34..38].copy_from_slice(&key.ports_word().to_be_bytes());
    bytes[38..40].copy_from_slice(&26_u16.to_be_bytes());
    (Flow::from(&key), Frame::with_headroom(16, &bytes))
}

/// An empty folder.
pub(crate) fn folder(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("calumma-{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}
