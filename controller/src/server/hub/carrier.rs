//! Where packets carry their marks, where switches leave that to the controller: the choice, kept
//! in `state_dir`, and another one by command.

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use anyhow::Context;
use calumma_wire::{Marking, Message};
use tracing::{info, warn};

use super::marking::Marked;
use super::nodes::Entry;
use super::{Hub, lock};
use crate::api::{CarrierChoice, CarrierStatus};
use crate::carrier::{Asking, Carriers, Given, IP_ID, TOS, Verdict};
use crate::config::Config;
use crate::server::node_ids::write;
use crate::server::unix_ns;

/// What switches count that enters without a mark, since a link may cut it.
const ABOVE_FABRIC_MTU: &str = "unmeasured.above_fabric_mtu";

/// The file in `state_dir` that has the choice.
const FILE: &str = "carrier";

impl Hub {
    /// By what the node at a position is to mark packets, whose hello says this.
    pub(super) fn carrier_for(
        &self,
        marked: &Marked,
        position: usize,
        (marking, measures): (&Marking, bool),
        now_ns: u64,
    ) -> Verdict {
        let mut carriers = lock(&self.carriers);
        let in_force = marked.in_force(position, now_ns).map(|of| of.carrier.as_str());
        let asking = Asking { position, marking, measures };
        self.changing(
            &mut carriers,
            |carriers, given| carriers.verdict(asking, given, now_ns),
            in_force,
        )
    }

    /// An edge is connected that marks packets so.
    pub(super) fn carrier_connected(&self, carrier: &str) {
        let mut carriers = lock(&self.carriers);
        self.changing(&mut carriers, |carriers, _| carriers.connected(carrier), None);
    }

    /// Has another carrier chosen: `wanted`, or by the rule. All nodes are disconnected where it is
    /// another one; they come again within seconds, and begin another session then.
    ///
    /// # Errors
    /// Why the choice stays.
    pub fn order_carrier(&self, wanted: Option<&str>) -> Result<CarrierStatus, String> {
        let _alone = lock(&self.admissions);
        let mut marked = lock(&self.marked);
        let mut carriers = lock(&self.carriers);
        let now_ns = unix_ns();
        let before = carriers.chosen().map(|chosen| chosen.carrier.clone());
        let before = before.or(marked.in_force(usize::MAX, now_ns).map(|of| of.carrier.clone()));
        let order = |carriers: &mut Carriers, given: Given<'_>| carriers.order(wanted, given);
        let chosen = self.changing(&mut carriers, order, None)?;
        if before.as_ref() != Some(&chosen.carrier) {
            marked.put_in_force(&chosen.carrier, now_ns);
            let reason = format!(
                "packets carry their marks by {:?} from now on: come again and begin anew",
                chosen.carrier
            );
            for entry in &self.nodes {
                if let Some(link) = &lock(&entry.state).link {
                    // Where the queue is full, the connection is about to end by that.
                    let _ = link.messages.try_send(Message::Refused { reason: reason.clone() });
                }
            }
        }
        drop((marked, carriers));
        Ok(self.carrier_status())
    }

    /// What `GET /api/v1/carrier` shows.
    pub fn carrier_status(&self) -> CarrierStatus {
        let in_force = {
            let marked = lock(&self.marked);
            marked.in_force(usize::MAX, unix_ns()).map(|of| of.carrier.clone())
        };
        let carriers = lock(&self.carriers);
        let chosen = carriers.chosen();
        let name_of = |at: usize| self.nodes[at].node.name.clone();
        let chosen = chosen
            .map(|of| CarrierChoice { carrier: of.carrier.clone(), reason: of.reason.clone() });
        let offers = carriers.offered().iter().map(|(&at, of)| (name_of(at), of.clone())).collect();
        let missing = carriers.missing().into_iter().map(name_of).collect();
        drop(carriers);
        let fabric_mtu = lock(&self.domain).fabric_mtu();
        let left_out = |entry: &Entry| {
            let packets = lock(&entry.state).status.counters.get(ABOVE_FABRIC_MTU).copied()?;
            (packets > 0).then(|| (entry.node.name.clone(), packets))
        };
        let above_fabric_mtu: BTreeMap<_, _> = self.nodes.iter().filter_map(left_out).collect();
        let remedy = (!above_fabric_mtu.is_empty()).then(|| remedy(fabric_mtu));
        CarrierStatus { in_force, chosen, offers, missing, fabric_mtu, above_fabric_mtu, remedy }
    }

    /// Does what may change the choice, and keeps it where it did.
    fn changing<T>(
        &self,
        carriers: &mut Carriers,
        change: impl FnOnce(&mut Carriers, Given<'_>) -> T,
        in_force: Option<&str>,
    ) -> T {
        let lanes = self.lanes();
        let mut running = lanes.iter().filter(|lane| lane.is_on()).map(|lane| lane.system);
        let needs_tos = running.find(|system| system.needs_tos()).map(|system| system.name());
        let name_of = |position: usize| self.nodes[position].node.name.clone();
        let given = Given { in_force, needs_tos, name_of: &name_of };
        let before = carriers.chosen().cloned();
        let done = change(carriers, given);
        if let Some(chosen) = carriers.chosen()
            && before.as_ref() != Some(chosen)
        {
            let (carrier, reason) = (&chosen.carrier, &chosen.reason);
            info!(carrier, "switches that leave it to the controller mark packets by it: {reason}");
            if before.is_none_or(|before| before.carrier != *carrier)
                && let Some(folder) = &self.config.state_dir
                && let Err(problem) = write(folder, FILE, &format!("{carrier}\n"))
            {
                let file = folder.join(FILE);
                warn!("the choice of a carrier is not kept: {}: {problem}", file.display());
            }
        }
        done
    }
}

/// What to do where packets are left out that links of a fabric may cut.
fn remedy(fabric_mtu: u16) -> String {
    const ETHERNET: u16 = 1500;
    let larger = if fabric_mtu < ETHERNET {
        format!("= {ETHERNET} if no link between edges is smaller")
    } else {
        "to the smallest MTU of the links between edges, if that is larger".to_owned()
    };
    format!(
        "IPv4 packets without DF of more than {fabric_mtu} bytes are not measured: set [domain] \
         fabric_mtu {larger}"
    )
}

/// The choice that was kept, and room for what nodes offer.
///
/// # Errors
/// When it can't be read.
pub(super) fn kept(config: &Config) -> anyhow::Result<Carriers> {
    let kept = config.state_dir.as_deref().map(read).transpose()?.flatten();
    let nodes = config.edges.len() + config.transits.len() + config.hosts.len();
    Ok(Carriers::new(config.edges.len(), nodes, kept))
}

fn read(folder: &Path) -> anyhow::Result<Option<String>> {
    let path = folder.join(FILE);
    let place = || format!("state_dir: {}", path.display());
    match fs::read_to_string(&path) {
        Ok(text) => match text.trim() {
            carrier @ (TOS | IP_ID) => Ok(Some(carrier.to_owned())),
            other => anyhow::bail!("{}: {other:?}: not {TOS:?} or {IP_ID:?}", place()),
        },
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(place),
    }
}
