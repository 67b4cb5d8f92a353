//! What routers do to packets on purpose: nftables rules that lose and double, count every loss by
//! its 5-tuple and log each packet that they lose or double; that re-mark packets and translate
//! ports; and that hand out packets of slow links.

use std::collections::BTreeMap;

use anyhow::Result;

use super::link::End;
use super::loss::{self, Family, FlowLoss};
use super::namespace::Namespace;
use crate::topology::LinkQuality;

/// Log group by which rules hand out packets, with the interface that they came in by as prefix.
pub(crate) const SLOW_GROUP: u16 = 8;

/// Log group that the rules write to.
pub(crate) const LOG_GROUP: u16 = 7;

/// Prefixes in the log.
pub(crate) const LOST: &str = "lost";
pub(crate) const DOUBLED: &str = "doubled";

/// The TTL or hop limit that packets of made-up traffic begin with: no kernel's own. Hosts drop
/// them as they arrive, before anything answers that no one listens there. Nothing on the way
/// but routers changes it, whatever the carrier of marks.
pub(crate) const MADE_UP_TTL: u8 = 201;

/// Most routers that a made-up packet passes.
const MOST_ROUTERS: u8 = 16;

/// The protocol of probes between edges, which links treat like packets, and neither lose nor copy.
const PROBE: u8 = calumma_plane::probe::PROTOCOL;

/// Whether a link of this quality is a slow one.
pub(crate) fn is_slow(quality: &LinkQuality) -> bool {
    quality.jitter_us > 0.0 || quality.rate_pps > 0.0 || quality.late > 0.0
}

/// The port that a link translates destinations to, as a load balancer does, where it does.
const TRANSLATED_TO: u16 = 8080;

/// Of 256 destination ports, how many a link translates: those with the lowest last bytes.
fn translated_ports(quality: &LinkQuality) -> u16 {
    (quality.dnat * 256.0).round() as u16
}

/// The port that a link makes of a destination port; none where it leaves it alone.
pub(crate) fn translated_port(quality: &LinkQuality, port: u16) -> Option<u16> {
    (port & 0xFF < translated_ports(quality)).then_some(TRANSLATED_TO)
}

/// What nftables calls a packet's time to live.
fn time_to_live(family: Family) -> &'static str {
    match family {
        Family::V4 => "ip ttl",
        Family::V6 => "ip6 hoplimit",
    }
}

/// How nftables tells packets of made-up traffic from others.
fn made_up(family: Family) -> String {
    format!("{} {}-{MADE_UP_TTL}", time_to_live(family), MADE_UP_TTL - MOST_ROUTERS)
}

/// Shares are in millionths.
const WHOLE: u32 = 1_000_000;

/// Makes a namespace a router that loses the packets of victim flows, those marked by their sender
/// with the ECN field "congestion experienced", and those that have no time to live left for it to
/// send them on; links are still well.
pub(crate) fn install(router: &Namespace) -> Result<()> {
    for family in Family::BOTH {
        let (ip, lost, count) = (family.name(), family.set(), family.count());
        let (ttl, made_up) = (time_to_live(family), made_up(family));
        let ruleset = format!(
            "table {ip} calumma {{
               {lost}
               chain lose {{
                 {count} counter log prefix \"{LOST}\" group {LOG_GROUP} drop
               }}
               chain double {{
                 log prefix \"{DOUBLED}\" group {LOG_GROUP} dup to {ip} daddr
               }}
               chain links {{
               }}
               chain treatments {{
               }}
               chain last_hop {{
                 type filter hook prerouting priority 0; policy accept;
                 meta l4proto {{ tcp, udp }} {ttl} 1 goto lose
               }}
               chain forward {{
                 type filter hook forward priority 0; policy accept;
                 iifname \"h*\" {made_up} {ip} ecn ce goto lose
                 udp length 12 accept
                 meta l4proto {{ tcp, udp }} jump links
                 meta l4proto {{ tcp, udp, {PROBE} }} jump treatments
               }}
             }}"
        );
        router.run_with_input("nft", &["-f", "-"], &ruleset)?;
    }
    Ok(())
}

/// Lets a router set the DSCP of every packet that it forwards to 0, before it loses any.
pub(crate) fn clear_dscp(router: &Namespace) -> Result<()> {
    for family in Family::BOTH {
        let ip = family.name();
        let ruleset = format!(
            "table {ip} dscp {{
               chain forward {{
                 type filter hook forward priority -10; policy accept;
                 {ip} dscp set cs0
               }}
             }}"
        );
        router.run_with_input("nft", &["-f", "-"], &ruleset)?;
    }
    Ok(())
}

/// The interface by which a router sends copies of what it forwards, and where these end.
const MIRROR: [&str; 2] = ["mirror", "mirrored"];

/// Lets a router send a copy of every packet that it forwards to a port that leads to no edge.
pub(crate) fn mirror(router: &Namespace) -> Result<()> {
    let [port, end] = MIRROR;
    router.run("ip", &["link", "add", port, "type", "veth", "peer", "name", end])?;
    for name in MIRROR {
        router.run("ip", &["link", "set", name, "up"])?;
    }
    let ends = [
        (Family::V4, ["192.0.2.1/30", "192.0.2.2"]),
        (Family::V6, ["2001:db8::1/126", "2001:db8::2"]),
    ];
    for (family, [own, to]) in ends {
        router.run("ip", &["addr", "add", own, "dev", port])?;
        let nobody = "02:ca:1a:00:00:fe";
        router.run("ip", &["neigh", "replace", to, "lladdr", nobody, "dev", port])?;
        let ruleset = format!(
            "table {} mirror {{
               chain forward {{
                 type filter hook forward priority -20; policy accept;
                 dup to {to} device \"{port}\"
               }}
             }}",
            family.name()
        );
        router.run_with_input("nft", &["-f", "-"], &ruleset)?;
    }
    Ok(())
}

/// Copies that a router has sent so.
pub(crate) fn mirrored(router: &Namespace) -> Result<u64> {
    Ok(End { namespace: router, name: MIRROR[1] }.counters()?.rx.packets)
}

/// Sets what happens to packets that come in through each interface, all at once.
pub(crate) fn set(router: &Namespace, links: &BTreeMap<String, LinkQuality>) -> Result<()> {
    let mut rules = String::new();
    for family in Family::BOTH {
        let chains = ["links", "treatments"].map(|of| format!("{} calumma {of}", family.name()));
        for chain in &chains {
            rules += &format!("flush chain {chain}\n");
        }
        add_links(&mut rules, family, &chains, links);
    }
    router.run_with_input("nft", &["-f", "-"], &rules).map(drop)
}

/// How nftables picks this share of packets at random; none where it picks none.
pub(crate) fn chance(share: f64) -> Option<String> {
    let millionths = (share * f64::from(WHOLE)).round() as u32;
    match millionths {
        0 => None,
        WHOLE.. => Some(String::new()),
        some => Some(format!("numgen random mod {WHOLE} < {some} ")),
    }
}

fn add_links(
    rules: &mut String,
    family: Family,
    [chain, treatments]: &[String; 2],
    links: &BTreeMap<String, LinkQuality>,
) {
    for (interface, quality) in links {
        let set_dscp = format!("{} dscp set {}", family.name(), quality.dscp);
        let set_ecn = format!("{} ecn set ce", family.name());
        for (chain, share, target) in [
            (chain, quality.loss, "goto lose"),
            (chain, quality.duplicate, "jump double"),
            // Behind what is logged, since the log reads marks.
            (treatments, quality.remark, set_dscp.as_str()),
            (treatments, quality.ecn, set_ecn.as_str()),
        ] {
            let Some(chance) = chance(share) else { continue };
            *rules += &format!("add rule {chain} iifname \"{interface}\" {chance}{target}\n");
        }
        let ports = translated_ports(quality);
        for transport in ["tcp", "udp"] {
            if ports > 0 {
                *rules += &format!(
                    "add rule {chain} iifname \"{interface}\" {transport} dport & 0xff < {ports} \
                     {transport} dport set {TRANSLATED_TO}\n"
                );
            }
        }
        if quality.rate_pps > 0.0 {
            // A bucket of tokens runs dry when a queue of its size that is served at its rate is
            // full.
            let (rate, packets) =
                (quality.rate_pps.round() as u64, quality.queue.saturating_add(1));
            *rules += &format!(
                "add rule {chain} iifname \"{interface}\" \
                 limit rate over {rate}/second burst {packets} packets goto lose\n"
            );
        }
        if is_slow(quality) {
            *rules += &format!(
                "add rule {treatments} iifname \"{interface}\" \
                 log prefix \"{interface}\" group {SLOW_GROUP} drop\n"
            );
        }
    }
}

/// How long the kernel's queue may get before it drops, in seconds.
const TBF_SECONDS: f64 = 2.0;

/// Lets a router's interface send no faster than `mbit` megabits a second and queue what comes
/// faster; 0 takes the queue away, and what is in it.
pub(crate) fn set_tbf(router: &Namespace, interface: &str, mbit: f64) -> Result<()> {
    if mbit == 0.0 {
        // There may be none.
        let _ = router.run("tc", &["qdisc", "del", "dev", interface, "root"]);
        return Ok(());
    }
    let rate = format!("{:.0}kbit", mbit * 1e3);
    let bytes = format!("{:.0}", mbit * 1e6 / 8.0 * TBF_SECONDS);
    let queue = ["rate", &rate, "burst", "16kb", "limit", &bytes];
    let args = [&["qdisc", "replace", "dev", interface, "root", "tbf"][..], &queue].concat();
    router.run("tc", &args).map(drop)
}

/// What a router lost of each flow, by its own counters.
pub(crate) fn losses(router: &Namespace) -> Result<Vec<FlowLoss>> {
    loss::read(router, "lose")
}

/// Lets a host drop made-up packets as they arrive.
pub(crate) fn install_sink(host: &Namespace) -> Result<()> {
    for family in Family::BOTH {
        let (ip, made_up) = (family.name(), made_up(family));
        let ruleset = format!(
            "table {ip} calumma {{
               chain sink {{
                 type filter hook prerouting priority -300; policy accept;
                 {made_up} drop
               }}
             }}"
        );
        host.run_with_input("nft", &["-f", "-"], &ruleset)?;
    }
    Ok(())
}
