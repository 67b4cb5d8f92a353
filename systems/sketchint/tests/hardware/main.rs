//! A Tofino does to packets what a software switch does, to the byte: `p4src/sketchint.p4` on the
//! model beside `calumma_plane::int`.

mod host;
mod sink;
mod source;
mod transit;

use std::num::NonZeroU16;
use std::sync::LazyLock;

use calumma_plane::int::{Insertion, Instructions};
use calumma_tna::{Entry, Program, Switch};

/// Longest IP packet that fits each port.
const MTU: u16 = 600;
const NODE: u16 = 9;
const DOMAIN: NonZeroU16 = NonZeroU16::new(0xBEEF).unwrap();

fn insertion(node: u16, hops: u8) -> Insertion {
    let node = NonZeroU16::new(node).unwrap();
    Insertion { domain: DOMAIN, node, instructions: Instructions::DEFAULT, hops, udp_port: None }
}

/// A Tofino that sends by one port what comes in by another.
fn between(ingress: u16, egress: u16) -> Switch {
    static PROGRAM: LazyLock<Program> = LazyLock::new(|| {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../p4src/sketchint.p4");
        Program::load(path, &[]).unwrap_or_else(|error| panic!("{error}"))
    });
    let mut switch = Switch::new(&PROGRAM);
    let send = Entry::new("send").exact("ingress_port", ingress).arg("port", egress);
    switch.add_entry("port_pair", &send).unwrap();
    let limit = Entry::new("limit").exact("port", egress).arg("mtu", MTU);
    switch.add_entry("mtus", &limit).unwrap();
    switch
}

/// What it sends of a packet that is in it for so long; none where it drops it.
fn sent_by(switch: &mut Switch, latency_ns: u32, bytes: &[u8]) -> Option<Vec<u8>> {
    let mut sent = Vec::new();
    switch.set_time(5_000);
    switch.offer(1, bytes);
    switch.run_ingress();
    switch.set_time(5_000 + u64::from(latency_ns));
    switch.run(4, |_, bytes| sent.push(bytes.to_vec()));
    assert!(sent.len() <= 1, "one packet");
    sent.pop()
}
