//! What routers do to packets on purpose: nftables rules that lose and double, count every loss by
//! its 5-tuple and log each packet that they lose or double; and that hand out packets of slow links.

use std::collections::BTreeMap;

use anyhow::Result;

use super::slow::{SLOW_GROUP, is_slow};
use crate::fabric::{FlowLoss, Namespace, loss};
use crate::topology::LinkQuality;

/// Log group that the rules write to.
pub(super) const LOG_GROUP: u16 = 7;

/// Prefixes in the log.
pub(super) const LOST: &str = "lost";
pub(super) const DOUBLED: &str = "doubled";

/// The IPv4 identification of packets of made-up traffic. Hosts drop these as they arrive, before
/// anything answers that no one listens there; a kernel's own packets have it once in 65,536.
pub(super) const IP_ID: u16 = 0xCA1A;

/// The mark of packets that found the queue of a slow link full.
pub(super) const OVERFLOW: u32 = 1;

/// Shares are in millionths.
const WHOLE: u32 = 1_000_000;

/// Makes a namespace a router that loses the packets of victim flows, those marked by their sender
/// with the ECN field "congestion experienced"; links are still well.
pub(super) fn install(router: &Namespace) -> Result<()> {
    let (lost, count) = (loss::set(), loss::COUNT);
    let ruleset = format!(
        "table ip calumma {{
           {lost}
           chain lose {{
             {count} counter log prefix \"{LOST}\" group {LOG_GROUP} drop
           }}
           chain double {{
             log prefix \"{DOUBLED}\" group {LOG_GROUP} dup to ip daddr
           }}
           chain links {{
           }}
           chain forward {{
             type filter hook forward priority 0; policy accept;
             ip id {IP_ID} ip ecn ce goto lose
             udp length 12 accept
             meta l4proto {{ tcp, udp }} jump links
           }}
           chain output {{
             type filter hook output priority 0; policy accept;
             meta mark {OVERFLOW} goto lose
           }}
         }}"
    );
    router.run_with_input("nft", &["-f", "-"], &ruleset).map(drop)
}

/// Sets what happens to packets that come in through each interface, all at once.
pub(super) fn set(router: &Namespace, links: &BTreeMap<String, LinkQuality>) -> Result<()> {
    let mut rules = "flush chain ip calumma links\n".to_owned();
    for (interface, quality) in links {
        for (share, target) in [(quality.loss, "goto lose"), (quality.duplicate, "jump double")] {
            let millionths = (share * f64::from(WHOLE)).round() as u32;
            let chance = match millionths {
                0 => continue,
                WHOLE.. => String::new(),
                some => format!("numgen random mod {WHOLE} < {some} "),
            };
            rules +=
                &format!("add rule ip calumma links iifname \"{interface}\" {chance}{target}\n");
        }
        if is_slow(quality) {
            rules += &format!(
                "add rule ip calumma links iifname \"{interface}\" \
                 log prefix \"{interface}\" group {SLOW_GROUP} drop\n"
            );
        }
    }
    router.run_with_input("nft", &["-f", "-"], &rules).map(drop)
}

/// What a router lost of each flow, by its own counters.
pub(super) fn losses(router: &Namespace) -> Result<Vec<FlowLoss>> {
    loss::read(router, "lose")
}

/// Lets a host drop made-up packets as they arrive.
pub(super) fn install_sink(host: &Namespace) -> Result<()> {
    let ruleset = format!(
        "table ip calumma {{
           chain sink {{
             type filter hook prerouting priority -300; policy accept;
             ip id {IP_ID} drop
           }}
         }}"
    );
    host.run_with_input("nft", &["-f", "-"], &ruleset).map(drop)
}
