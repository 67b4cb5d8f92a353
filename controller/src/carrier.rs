//! Where packets carry their marks, where switches leave that to the controller (`kind = "auto"`,
//! which is what files mean that say nothing).
//!
//! Switches that do follow what is in force. Where nothing is, they follow what was chosen before,
//! and where nothing was, a choice is made: once every node has said what it offers, or when those
//! that are there have waited for [`WAIT_NS`]. It then stays until an operator has another one
//! made, or most edges have another one in their files.
//!
//! No I/O and no clock: the controller drives it, and the simulation in virtual time.

use std::collections::BTreeMap;

use calumma_analysis::System;
use calumma_wire::Marking;

/// The ToS byte or traffic class, which all switches can mark by.
pub const TOS: &str = "tos";

/// The IPv4 identification and the IPv6 flow label.
pub const IP_ID: &str = "ip-id";

/// How long the first choice waits for nodes that have not come, in nanoseconds.
pub const WAIT_NS: u64 = 10_000_000_000;

/// A wait in which nobody has asked for so long is over.
const PAUSE_NS: u64 = 2_000_000_000;

/// How long a choice that was kept holds against an edge that has another one in its file and comes
/// first.
const KEPT_NS: u64 = 60_000_000_000;

/// The name of the one of these systems that needs bits of the ToS byte, if any; `on` has the names
/// of those that run, of all that are `known`.
pub fn needs_tos(known: &[&'static dyn System], on: &[String]) -> Option<&'static str> {
    let mut needing = known.iter().filter(|system| system.needs_tos()).map(|system| system.name());
    needing.find(|name| on.iter().any(|other| other == name))
}

/// A carrier that was chosen, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chosen {
    /// In the words of [`Marking::carrier`].
    pub carrier: String,
    /// In words.
    pub reason: String,
}

/// What a node is to mark packets by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// This carrier.
    By(String),
    /// It waits for the choice; the positions of nodes that have not said what they offer.
    Wait(Vec<usize>),
    /// It does not offer what the deployment has: why, with the remedy.
    Unfit(String),
}

/// A node that asks.
#[derive(Clone, Copy, Debug)]
pub struct Asking<'a> {
    /// Its position: edges come first.
    pub position: usize,
    /// What it says of its marks.
    pub marking: &'a Marking,
    /// Whether it measures already, by the carrier that it names.
    pub measures: bool,
}

/// What a choice goes by, beside what was offered.
#[derive(Clone, Copy)]
pub struct Given<'a> {
    /// What is in force, and by whom.
    pub in_force: Option<&'a str>,
    /// A system that needs bits of the ToS byte.
    pub needs_tos: Option<&'a str>,
    /// Gives a node's name by its position.
    pub name_of: &'a dyn Fn(usize) -> String,
}

/// What nodes offer, and what was chosen.
#[derive(Clone, Debug)]
pub struct Carriers {
    /// How many edges are expected, and how many nodes with them.
    edges: usize,
    nodes: usize,
    chosen: Option<Chosen>,
    /// By position: what each node has offered last.
    offered: BTreeMap<usize, Vec<String>>,
    /// Since when nodes wait for the choice, and when one has asked last.
    waiting: Option<(u64, u64)>,
    /// Whether the choice was kept, and until when it then holds, once somebody has asked.
    kept: bool,
    kept_until_ns: Option<u64>,
}

impl Carriers {
    /// For so many nodes, of which so many are edges, with the choice that was kept.
    pub fn new(edges: usize, nodes: usize, kept: Option<String>) -> Self {
        let reason = "it was chosen before the controller started".to_owned();
        let chosen = kept.map(|carrier| Chosen { carrier, reason });
        let (offered, kept) = (BTreeMap::new(), chosen.is_some());
        Self { edges, nodes, chosen, offered, waiting: None, kept, kept_until_ns: None }
    }

    /// What was chosen.
    pub fn chosen(&self) -> Option<&Chosen> {
        self.chosen.as_ref()
    }

    /// What nodes have offered last, by position.
    pub fn offered(&self) -> &BTreeMap<usize, Vec<String>> {
        &self.offered
    }

    /// By what a node is to mark packets, whose hello says this. May be asked again by one that
    /// waits.
    pub fn verdict(&mut self, asking: Asking<'_>, given: Given<'_>, now_ns: u64) -> Verdict {
        let Asking { position, marking, measures } = asking;
        let kept_until_ns = *self.kept_until_ns.get_or_insert(now_ns.saturating_add(KEPT_NS));
        if marking.offers.is_empty() {
            self.offered.insert(position, vec![marking.carrier.clone()]);
            let holds = self.kept && now_ns < kept_until_ns && given.in_force.is_none();
            return match &self.chosen {
                Some(chosen) if holds && !self.is_most(&marking.carrier) => {
                    fits(marking, &chosen.carrier)
                }
                _ => Verdict::By(marking.carrier.clone()),
            };
        }
        self.offered.insert(position, marking.offers.clone());
        if let Some(carrier) = given.in_force {
            if marking.can(carrier) {
                self.choose(carrier, || "the edges that are connected mark by it".to_owned());
            }
            return fits(marking, carrier);
        }
        if self.chosen.is_none() && measures {
            let reason = || "switches marked by it before the controller started".to_owned();
            self.choose(&marking.carrier, reason);
        }
        if self.chosen.is_none() {
            let missing = self.missing();
            if !missing.is_empty() && !self.has_waited(now_ns) {
                return Verdict::Wait(missing);
            }
            self.chosen = Some(self.by_rule(given));
        }
        let chosen = self.chosen.as_ref().map_or(TOS, |chosen| &chosen.carrier);
        fits(marking, chosen)
    }

    /// An edge is connected that marks packets so.
    pub fn connected(&mut self, carrier: &str) {
        if self.chosen.is_some() {
            self.choose(carrier, || "most edges have it in their files".to_owned());
        }
    }

    /// Makes another choice, as an operator wants it: `wanted`, or by the rule.
    ///
    /// # Errors
    /// Why the choice stays.
    pub fn order(&mut self, wanted: Option<&str>, given: Given<'_>) -> Result<Chosen, String> {
        let chosen = match wanted {
            Some(carrier @ (TOS | IP_ID)) => {
                let reason = "an operator asked for it".to_owned();
                Chosen { carrier: carrier.to_owned(), reason }
            }
            Some(other) => {
                return Err(format!("{other:?}: choose {TOS:?}, {IP_ID:?}, or \"auto\""));
            }
            None => {
                if let Some(&node) = self.missing().first() {
                    let name = (given.name_of)(node);
                    return Err(format!(
                        "what {name} offers is not known: start it, or name the carrier"
                    ));
                }
                self.by_rule(given)
            }
        };
        let carrier = &chosen.carrier;
        if carrier == IP_ID
            && let Some(system) = given.needs_tos
        {
            return Err(format!(
                "{system} runs, which needs bits of the ToS byte: switch it off first"
            ));
        }
        if let Some((&node, offers)) = self.offered.iter().find(|(_, of)| !of.contains(carrier)) {
            let name = (given.name_of)(node);
            return Err(format!("{name} does not offer {carrier:?}, but {}", list(offers)));
        }
        self.chosen = Some(chosen.clone());
        Ok(chosen)
    }

    fn choose(&mut self, carrier: &str, reason: impl FnOnce() -> String) {
        if self.chosen.as_ref().is_none_or(|chosen| chosen.carrier != carrier) {
            self.chosen = Some(Chosen { carrier: carrier.to_owned(), reason: reason() });
        }
    }

    /// Whether most edges have this carrier in their files.
    fn is_most(&self, carrier: &str) -> bool {
        let has = |edge: &usize| {
            self.offered.get(edge).is_some_and(|of| of.len() == 1 && of[0] == carrier)
        };
        2 * (0..self.edges).filter(has).count() > self.edges
    }

    /// The nodes that have not said what they offer.
    pub fn missing(&self) -> Vec<usize> {
        (0..self.nodes).filter(|node| !self.offered.contains_key(node)).collect()
    }

    /// Notes that a node waits; gives whether it has been long enough.
    fn has_waited(&mut self, now_ns: u64) -> bool {
        let since = self.waiting.filter(|(_, last_ns)| now_ns < last_ns.saturating_add(PAUSE_NS));
        let since_ns = since.map_or(now_ns, |(since_ns, _)| since_ns);
        self.waiting = Some((since_ns, now_ns));
        now_ns >= since_ns.saturating_add(WAIT_NS)
    }

    /// The identification, where every node offers it and nothing needs the ToS byte: a transit
    /// switch that knows another carrier only could measure nothing beside edges that go by it.
    fn by_rule(&self, given: Given<'_>) -> Chosen {
        let name_of = given.name_of;
        let lacks = |node: &usize| {
            let offers = self.offered.get(node);
            offers.is_none_or(|offers| !offers.iter().any(|offer| offer == IP_ID))
        };
        let against = if let Some(system) = given.needs_tos {
            Some(format!("{system} needs bits of the ToS byte"))
        } else {
            (0..self.nodes).find(lacks).map(|node| match self.offered.get(&node) {
                None => format!("{} has not said what it offers", name_of(node)),
                Some(offers) => format!("{} offers {}", name_of(node), list(offers)),
            })
        };
        match against {
            Some(reason) => Chosen { carrier: TOS.to_owned(), reason },
            None => {
                let reason = "all switches offer it, and nothing needs the ToS byte".to_owned();
                Chosen { carrier: IP_ID.to_owned(), reason }
            }
        }
    }
}

/// Whether a switch can mark by what the deployment has.
fn fits(marking: &Marking, carrier: &str) -> Verdict {
    if marking.can(carrier) {
        return Verdict::By(carrier.to_owned());
    }
    let offers = match marking.offers.is_empty() {
        true => format!("{:?}", marking.carrier),
        false => list(&marking.offers),
    };
    Verdict::Unfit(format!(
        "packets carry their mark by {carrier:?} here, and it offers {offers}: leave [carrier] kind \
         out of its file or set it to \"auto\", and take out what stands against {carrier:?} there \
         (--check says what), or have another one chosen (calumma carrier)"
    ))
}

fn list(offers: &[String]) -> String {
    let quoted: Vec<_> = offers.iter().map(|offer| format!("{offer:?}")).collect();
    if quoted.is_empty() { "nothing".to_owned() } else { quoted.join(" and ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    fn fixed(carrier: &str) -> Marking {
        Marking { carrier: carrier.to_owned(), ..Marking::default() }
    }

    fn auto(offers: &[&str]) -> Marking {
        let offers = offers.iter().map(|&offer| offer.to_owned()).collect();
        Marking { offers, ..Marking::default() }
    }

    fn both() -> Marking {
        auto(&[TOS, IP_ID])
    }

    fn name_of(position: usize) -> String {
        format!("e{}", position + 1)
    }

    fn given<'a>(in_force: Option<&'a str>, needs_tos: Option<&'a str>) -> Given<'a> {
        Given { in_force, needs_tos, name_of: &name_of }
    }

    fn ask(of: &mut Carriers, position: usize, marking: &Marking, at_s: u64) -> Verdict {
        let asking = Asking { position, marking, measures: false };
        of.verdict(asking, given(None, None), at_s * S)
    }

    fn by(carrier: &str) -> Verdict {
        Verdict::By(carrier.to_owned())
    }

    #[test]
    fn the_identification_is_chosen_once_every_switch_offers_it() {
        let mut carriers = Carriers::new(3, 4, None);
        assert_eq!(ask(&mut carriers, 0, &both(), 0), Verdict::Wait(vec![1, 2, 3]));
        // A transit switch waits as well.
        assert_eq!(ask(&mut carriers, 3, &both(), 0), Verdict::Wait(vec![1, 2]));
        // A Tofino's program has one carrier.
        assert_eq!(ask(&mut carriers, 1, &fixed(IP_ID), 1), by(IP_ID));
        assert_eq!(ask(&mut carriers, 0, &both(), 1), Verdict::Wait(vec![2]));
        assert_eq!(carriers.chosen(), None);
        assert_eq!(ask(&mut carriers, 2, &both(), 2), by(IP_ID));
        assert_eq!(ask(&mut carriers, 0, &both(), 2), by(IP_ID));
        assert_eq!(ask(&mut carriers, 3, &both(), 2), by(IP_ID));
        assert!(carriers.chosen().unwrap().reason.starts_with("all switches offer it"));
    }

    #[test]
    fn the_tos_byte_is_chosen_where_an_edge_or_a_system_asks_for_it() {
        let choose = |second: &Marking, needs_tos| {
            let mut carriers = Carriers::new(2, 2, None);
            ask(&mut carriers, 0, &both(), 0);
            let asking = Asking { position: 1, marking: second, measures: false };
            carriers.verdict(asking, given(None, needs_tos), 0);
            let first = both();
            let asking = Asking { position: 0, marking: &first, measures: false };
            let verdict = carriers.verdict(asking, given(None, needs_tos), 0);
            (verdict, carriers.chosen().unwrap().reason.clone())
        };
        let reason = "e2 offers \"tos\"".to_owned();
        assert_eq!(choose(&auto(&[TOS]), None), (by(TOS), reason.clone()));
        assert_eq!(choose(&fixed(TOS), None), (by(TOS), reason));
        let reason = "sketchint needs bits of the ToS byte".to_owned();
        let needs_tos = |other: &str| {
            needs_tos(calumma_systems::SYSTEMS, &["chamelemon".to_owned(), other.to_owned()])
        };
        assert_eq!(choose(&both(), needs_tos("sketchint")), (by(TOS), reason));
        assert_eq!(needs_tos("cfs"), None);
    }

    /// A Tofino in the middle, whose program has the ToS byte, would be refused beside edges that
    /// go by the identification.
    #[test]
    fn a_switch_in_the_middle_has_its_say() {
        let mut carriers = Carriers::new(2, 3, None);
        assert_eq!(ask(&mut carriers, 0, &both(), 0), Verdict::Wait(vec![1, 2]));
        assert_eq!(ask(&mut carriers, 1, &both(), 0), Verdict::Wait(vec![2]));
        assert_eq!(ask(&mut carriers, 2, &fixed(TOS), 1), by(TOS));
        assert_eq!(ask(&mut carriers, 0, &both(), 1), by(TOS));
        assert_eq!(carriers.chosen().unwrap().reason, "e3 offers \"tos\"");
    }

    #[test]
    fn an_edge_that_does_not_come_is_waited_for_and_then_chosen_without() {
        let mut carriers = Carriers::new(2, 2, None);
        assert_eq!(ask(&mut carriers, 0, &both(), 0), Verdict::Wait(vec![1]));
        // It went, and came again: the wait begins anew.
        for at_s in 8..18 {
            assert_eq!(ask(&mut carriers, 0, &both(), at_s), Verdict::Wait(vec![1]));
        }
        assert_eq!(ask(&mut carriers, 0, &both(), 18), by(TOS));
        assert_eq!(carriers.chosen().unwrap().reason, "e2 has not said what it offers");
        assert_eq!(ask(&mut carriers, 1, &both(), 19), by(TOS), "a choice stays");
    }

    #[test]
    fn a_choice_is_kept_and_what_measures_or_is_in_force_is_followed() {
        let mut kept = Carriers::new(2, 2, Some(IP_ID.to_owned()));
        assert_eq!(ask(&mut kept, 0, &both(), 0), by(IP_ID));
        let marking = auto(&[TOS]);
        let Verdict::Unfit(reason) = ask(&mut kept, 1, &marking, 0) else { panic!("unfit") };
        assert!(reason.contains("by \"ip-id\" here, and it offers \"tos\""), "{reason}");

        // A controller that has kept nothing, and a switch that measures.
        let mut anew = Carriers::new(2, 2, None);
        let marking = Marking { carrier: IP_ID.to_owned(), ..both() };
        let asking = Asking { position: 0, marking: &marking, measures: true };
        assert_eq!(anew.verdict(asking, given(None, None), 0), by(IP_ID));
        assert_eq!(ask(&mut anew, 1, &both(), 0), by(IP_ID));

        // An edge with another one in its file, that happens to come first.
        let mut alone = Carriers::new(3, 3, Some(IP_ID.to_owned()));
        assert!(matches!(ask(&mut alone, 0, &fixed(TOS), 5), Verdict::Unfit(_)));
        assert_eq!(ask(&mut alone, 0, &fixed(TOS), 66), by(TOS), "nobody else came");
        let mut most = Carriers::new(3, 3, Some(IP_ID.to_owned()));
        assert!(matches!(ask(&mut most, 0, &fixed(TOS), 5), Verdict::Unfit(_)));
        assert_eq!(ask(&mut most, 1, &fixed(TOS), 6), by(TOS), "most files say so");

        // What edges have in their files goes before what was chosen.
        let first = both();
        let asking = Asking { position: 0, marking: &first, measures: false };
        assert_eq!(anew.verdict(asking, given(Some(TOS), None), 0), by(TOS));
        assert_eq!(anew.chosen().unwrap().carrier, TOS);
        anew.connected(IP_ID);
        assert_eq!(anew.chosen().unwrap().carrier, IP_ID);
        let mut fixed_only = Carriers::new(2, 2, None);
        fixed_only.connected(IP_ID);
        assert_eq!(fixed_only.chosen(), None);
    }

    #[test]
    fn an_operator_has_another_one_chosen_where_all_can() {
        let mut carriers = Carriers::new(2, 2, Some(TOS.to_owned()));
        ask(&mut carriers, 0, &both(), 0);
        let refused = |carriers: &mut Carriers, wanted, needs_tos| {
            carriers.order(wanted, given(None, needs_tos)).unwrap_err()
        };
        assert!(refused(&mut carriers, None, None).starts_with("what e2 offers is not known"));
        assert!(refused(&mut carriers, Some("shim"), None).contains("choose \"tos\""));
        let sketchint = refused(&mut carriers, Some(IP_ID), Some("sketchint"));
        assert!(sketchint.contains("switch it off first"), "{sketchint}");
        ask(&mut carriers, 1, &auto(&[TOS]), 0);
        let lacking = refused(&mut carriers, Some(IP_ID), None);
        assert_eq!(lacking, "e2 does not offer \"ip-id\", but \"tos\"");
        assert_eq!(carriers.chosen().unwrap().carrier, TOS);
        ask(&mut carriers, 1, &both(), 0);
        assert_eq!(carriers.order(None, given(None, None)).unwrap().carrier, IP_ID);
        assert_eq!(carriers.order(Some(TOS), given(None, None)).unwrap().carrier, TOS);
        assert_eq!(ask(&mut carriers, 0, &both(), 1), by(TOS));
    }
}
