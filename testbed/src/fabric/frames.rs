//! What stands in a router's place where packets carry marks that no router can read past: wires,
//! one for each port of the switch behind it, made of nftables rules. They pass frames on whatever
//! is in them, but for those to groups, as a router would not; and lose some, which they log and
//! count.

use std::collections::BTreeMap;

use anyhow::{Context, Result};

use super::faults::{LOG_GROUP, LOST, chance};
use super::loss::parse_total;
use super::namespace::Namespace;
use crate::topology::LinkQuality;

/// The EtherType of marks.
const SHIM: &str = "0x88b5";

/// The table, and the chain that loses.
const TABLE: [&str; 3] = ["netdev", "calumma", "lose"];

/// What comes in by one interface goes out by another.
#[derive(Debug)]
pub(crate) struct Wire<'a> {
    /// By which it comes in.
    pub(crate) from: &'a str,
    /// By which it goes out.
    pub(crate) to: &'a str,
    /// The Ethernet address at the other end of the wire, which frames are sent to, where that is
    /// a switch's port.
    pub(crate) mac: Option<String>,
    /// The prefix by which marked frames are logged as they came, before any is lost.
    pub(crate) before: Option<&'static str>,
    /// The prefix by which those are logged that go out.
    pub(crate) behind: Option<&'static str>,
}

impl Wire<'_> {
    fn chain(&self, number: usize) -> String {
        let Self { from, to, .. } = self;
        let log = |prefix: &Option<&str>| match prefix {
            Some(prefix) => {
                format!("meta protocol {SHIM} log prefix \"{prefix}\" group {LOG_GROUP}")
            }
            None => String::new(),
        };
        let (before, behind) = (log(&self.before), log(&self.behind));
        let address = self.mac.as_ref().map(|mac| format!("ether daddr set {mac}"));
        let address = address.unwrap_or_default();
        format!(
            "chain wire{number} {{
               type filter hook ingress device \"{from}\" priority 0; policy accept;
               meta pkttype {{ broadcast, multicast }} drop
               {before}
               meta protocol {SHIM} jump links
               {behind}
               {address}
               fwd to \"{to}\"
             }}\n"
        )
    }
}

/// Lays wires in a namespace; links are still well.
pub(crate) fn install(place: &Namespace, wires: &[Wire<'_>]) -> Result<()> {
    let [family, table, lose] = TABLE;
    let chains: String = wires.iter().zip(1..).map(|(wire, number)| wire.chain(number)).collect();
    let ruleset = format!(
        "table {family} {table} {{
           chain {lose} {{
             counter log prefix \"{LOST}\" group {LOG_GROUP} drop
           }}
           chain links {{
           }}
           {chains}
         }}"
    );
    place.run_with_input("nft", &["-f", "-"], &ruleset).map(drop)
}

/// Sets what of the marked frames that come in by each interface is lost, all at once.
pub(crate) fn set(place: &Namespace, links: &BTreeMap<String, LinkQuality>) -> Result<()> {
    let [family, table, lose] = TABLE;
    let mut rules = format!("flush chain {family} {table} links\n");
    for (interface, quality) in links {
        let Some(chance) = chance(quality.loss) else { continue };
        rules += &format!(
            "add rule {family} {table} links iifname \"{interface}\" {chance}goto {lose}\n"
        );
    }
    place.run_with_input("nft", &["-f", "-"], &rules).map(drop)
}

/// Frames that it has lost, by the rule's own counter.
pub(crate) fn lost(place: &Namespace) -> Result<u64> {
    let chain = place.run("nft", &[&["-j", "list", "chain"][..], &TABLE].concat())?;
    parse_total(&chain).with_context(|| format!("what nft printed: {chain}"))
}
