//! How many packets a second the model takes through `p4src/edge.p4`, in each direction:
//! `cargo run --release -p calumma-switchd --example model_speed`

#[path = "../tests/agent/common/mod.rs"]
mod common;

use std::time::Instant;

use calumma_sketch::Arithmetic;

use common::{FABRIC, HOST, Numbers, Pair, attention, marked, packet};

const PACKETS: usize = 300_000;

fn main() {
    for arithmetic in [Arithmetic::Prime, Arithmetic::Wrapping] {
        let mut pair = Pair::new(arithmetic, attention());
        pair.begin(0);
        let mut numbers = Numbers(1);
        let plain: Vec<_> = (0..4096).map(|_| packet(&mut numbers)).collect();
        let upstream: Vec<_> = plain.iter().map(|packet| packet.bytes.clone()).collect();
        let downstream: Vec<_> = plain.iter().map(|packet| marked(packet, 2)).collect();
        for (name, port, packets) in
            [("from hosts", HOST, &upstream), ("to hosts", FABRIC, &downstream)]
        {
            let start = Instant::now();
            for packet in packets.iter().cycle().take(PACKETS) {
                pair.switch.inject_with(port, packet, |_, _| {});
            }
            let rate = PACKETS as f64 / start.elapsed().as_secs_f64();
            println!("{arithmetic:?}, {name}: {rate:.0} packets a second");
        }
    }
}
