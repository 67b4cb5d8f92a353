//! What the choice of a carrier means, for who checks the file.

use calumma_switch_host::NodeRole;

use super::{Config, Pmtu, Role};
use crate::carrier::Carrier;
use crate::forward::config::InterfaceConfig;

impl Config {
    /// Which carrier is in use and what it costs, and why it is not `ip-id` where it is another
    /// one: a line each. What stands against `ip-id` in the file is said also where it is in use.
    pub fn on_carrier(&self) -> Vec<String> {
        let is_ip_id = self.carrier.carrier() == Carrier::IpId;
        let mut lines =
            vec![format!("carrier: {}: {}", self.carrier.words(), self.carrier.costs())];
        let against = self.against_ip_id();
        let choices = self.carriers();
        if !choices.is_empty() {
            let offers: Vec<_> = choices.iter().map(|(words, _)| format!("{words:?}")).collect();
            lines.push(format!("carrier: it offers {}", offers.join(" and ")));
            if against.is_empty() {
                lines.push(
                    "carrier: \"tos\" all the same where another switch does not offer \"ip-id\", as \
                     those of older releases and Tofinos whose program was not compiled for it \
                     (calumma-switchd --check), where the controller runs sketchint, and where \
                     \"tos\" was chosen before: `calumma carrier` says which it is, and why"
                        .to_owned(),
                );
            }
            let why = against.into_iter().map(|why| format!("carrier: not \"ip-id\": {why}"));
            lines.extend(why);
            return lines;
        }
        if !is_ip_id && against.is_empty() {
            lines.push(
                "carrier: not \"ip-id\", as the file names another. Nothing else in it stands against \
                 that; what other files and the network have is not known here. Without kind, the \
                 controller chooses it where all switches offer it and it runs no sketchint; no \
                 link of the fabric may take less than the controller's fabric_mtu then"
                    .to_owned(),
            );
        }
        let what = if is_ip_id { "but against \"ip-id\" is" } else { "not \"ip-id\":" };
        lines.extend(against.into_iter().map(|why| format!("carrier: {what} {why}")));
        lines
    }

    /// The carriers among which the controller may choose, each with its words, as far as the file
    /// goes with them; none where it says which it is.
    pub fn carriers(&self) -> Vec<(String, Carrier)> {
        let mut choices = self.carrier.choices();
        if !choices.is_empty() && !self.against_ip_id().is_empty() {
            choices.retain(|(_, carrier)| *carrier != Carrier::IpId);
        }
        choices
    }

    /// What the file has that does not go with `ip-id`.
    fn against_ip_id(&self) -> Vec<String> {
        const MARKER: &str =
            "INT stacks are known by a bit of the ToS byte, which is the hosts' then";
        let mut against = Vec::new();
        if self.role == NodeRole::Host {
            against.push(format!("role = \"host\", a sink of INT stacks: {MARKER}"));
        }
        if let Some(port) = self.ports.iter().find(|port| port.host_sink) {
            against.push(format!("host_sink of port {}: {MARKER}", port.name));
        }
        if self.sketchint.pmtu == Pmtu::Advertise {
            against.push(format!("sketchint.pmtu, which makes room for INT stacks: {MARKER}"));
        }
        against
    }

    /// The smallest MTU of interfaces to the fabric, where packets are routed, in bytes.
    pub fn fabric_mtu(&self) -> Option<u16> {
        let is_there = |of: &&InterfaceConfig| {
            self.ports.iter().any(|port| port.name == of.port && port.role == Role::Fabric)
        };
        self.forwarding.interfaces.iter().filter(is_there).map(|of| of.mtu).min()
    }
}
