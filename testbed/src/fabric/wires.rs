//! Rules that log every packet on the last wire before a switch, for what switches count to be held
//! against. They stand in routers, beside those that lose packets: what enters the network is
//! logged before a router may lose it, and all else after.

use anyhow::Result;

use super::faults::LOG_GROUP;
use super::loss::Family;
use super::namespace::Namespace;

/// Prefixes in the log: of packets that an edge has sent into the network, which had come to it
/// before, and of those that are about to come to a switch.
pub(crate) const ENTERED: &str = "entered";
pub(crate) const CAME: &str = "came";

/// Lets a router log what comes to the switch behind those of its interfaces whose names begin with
/// `towards`; `is_edge` if packets enter the network there.
pub(crate) fn watch(router: &Namespace, towards: &str, is_edge: bool) -> Result<()> {
    for family in Family::BOTH {
        let log = |prefix| format!("log prefix \"{prefix}\" group {LOG_GROUP}");
        let (came, entered) = (log(CAME), log(ENTERED));
        let entered = match is_edge {
            true => format!("iifname \"{towards}*\" {entered}"),
            false => String::new(),
        };
        let ruleset = format!(
            "table {} wires {{
               chain enters {{
                 type filter hook forward priority -5; policy accept;
                 {entered}
               }}
               chain comes {{
                 type filter hook forward priority 5; policy accept;
                 oifname \"{towards}*\" {came}
               }}
               chain copies {{
                 type filter hook output priority 5; policy accept;
                 oifname \"{towards}*\" {came}
               }}
             }}",
            family.name()
        );
        router.run_with_input("nft", &["-f", "-"], &ruleset)?;
    }
    Ok(())
}
