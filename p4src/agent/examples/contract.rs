//! Writes `generated/contract.p4` for sketches of other sizes:
//! `cargo run -p calumma-switchd --example contract -- FILE COUNTERS8 COUNTERS16 UPSTREAM DOWNSTREAM`

use std::error::Error;

use calumma_sketch::{Layout, Level};
use calumma_switchd::program::contract;

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let file = args.next().ok_or("which file?")?;
    let sizes = args.map(|size| size.parse()).collect::<Result<Vec<u32>, _>>()?;
    let [narrow, wide, upstream_buckets, downstream_buckets] = sizes[..] else {
        return Err(
            "four sizes: 8-bit counters, 16-bit counters, upstream and downstream buckets".into()
        );
    };
    let layout = Layout {
        classifier: vec![Level::new(8, narrow), Level::new(16, wide)],
        upstream_buckets,
        downstream_buckets,
        ..Layout::default()
    };
    std::fs::write(file, contract(&layout)?)?;
    Ok(())
}
