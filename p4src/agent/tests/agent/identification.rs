//! Marks in the IPv4 identification, as the daemon has the switch write and read them.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use calumma_chamelemon::frames::{Message, VERSION};
use calumma_interface::Plug;
use calumma_plane::carrier::{Carry, IpId, Numbers as Identifications, Signer};
use calumma_plane::packet::Frame;
use calumma_sketch::{Arithmetic, FlowKey};
use calumma_switch_host::unix_ns;
use calumma_switchd::config::Config;
use calumma_switchd::marks;
use calumma_wire::Secret;

use crate::common::{Numbers, packet};
use crate::rig::{Controller, Daemon, EPOCH_MS, KEY, LIMIT, Model, layout, packets};

/// Epochs over which packets are looked at.
const EPOCHS: usize = 4;

#[test]
fn packets_are_signed_by_the_sessions_key_epoch_by_epoch() {
    let layout = layout(Arithmetic::Prime);
    let program = crate::rig::program_with(&layout, 8, &[marks::DEFINE]);
    let mut model = Model::start(&program, None);
    let mut controller = Controller::new(&layout, EPOCH_MS);
    let text = crate::rig::text(model.address, controller.address());
    let text = text.replace("dscp = 40", "kind = \"ip-id\"");
    let config = Config::parse(&text, "the test's configuration").unwrap();
    let _daemon = Daemon::start(config, packets(model.cpu.take().unwrap()));
    let Message::Hello { marking, .. } = controller.welcome_with(VERSION) else {
        panic!("a hello")
    };
    assert_eq!(marking.carrier, "ip-id");

    let mut numbers = Numbers(3);
    let mut drawn = std::iter::repeat_with(|| packet(&mut numbers));
    let sent = drawn.find(|sent| sent.bytes[sent.ip + 6..sent.ip + 8] == [0, 0]).unwrap();
    let identifications = Identifications::new();
    let clock = controller.clock;
    let (mut epochs, end) = (BTreeSet::new(), Instant::now() + LIMIT);
    while epochs.len() < EPOCHS {
        assert!(Instant::now() < end, "{epochs:?}");
        let before = clock.epoch_at(unix_ns());
        model.host.send(&sent.bytes);
        let marked = Model::next(&mut model.fabric);
        let after = clock.epoch_at(unix_ns());
        std::thread::sleep(Duration::from_millis(20));
        if marked == sent.bytes {
            // There is no secret yet.
            assert!(epochs.is_empty());
            continue;
        }
        let signer = Signer::new(Secret::new(KEY), after);
        let carrier = IpId::new(Some(&signer), &identifications);
        let mark = carrier.read(&Frame::new(marked.clone()), sent.ip).unwrap();
        // The bit flips a little late, and the packet before it may be late as well.
        let epoch = (before - 1..=after).find(|epoch| {
            let bits = Some((epoch >> 1) as u8 & 3);
            (mark.bit as u64, mark.epoch.get()) == (epoch & 1, bits)
        });
        epochs.insert(epoch.unwrap_or_else(|| panic!("{mark:?} in {before} to {after}")));
        model.fabric.send(&marked);
        let left = Model::next(&mut model.host);
        assert_ne!(left[sent.ip + 4..sent.ip + 6], marked[sent.ip + 4..sent.ip + 6]);
        assert_eq!(left[sent.ip + 12..], sent.bytes[sent.ip + 12..]);
        // One that no edge has marked passes as it is.
        let mut stranger = marked;
        stranger[sent.ip + 5] ^= 1;
        model.fabric.send(&stranger);
        assert_eq!(Model::next(&mut model.host), stranger);
    }
    // Its flow is known.
    let unmarked = |message: &Message| match message {
        Message::Egress(side) => {
            let strays = side.unmarked.as_ref().and_then(|of| of.get::<FlowKey>()).unwrap();
            assert!(strays.entries.iter().all(|stray| stray.key == sent.key), "{strays:?}");
            // So is what it says of its epoch.
            strays.beyond == 0 && strays.entries.iter().any(|stray| stray.epochs_back == 0)
        }
        _ => false,
    };
    controller.receive(unmarked);
    let counted = |(name, total): &(String, u64)| name == "egress.unmarked" && *total > 0;
    controller.receive(|message| match message {
        Message::Ingress(side) => side.counters.iter().any(counted),
        _ => false,
    });
}
