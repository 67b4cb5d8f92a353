//! What routers lost on purpose, flow by flow: sets of nftables that count every drop by its
//! 5-tuple.
//!
//! Exact by construction: a rule drops a packet only after it was counted. If the set were full,
//! the count would fail, the rule end there, and the packet pass.

use anyhow::{Context, Result, bail, ensure};
use calumma_analysis::Flow;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::namespace::Namespace;

/// Flows that can lose packets before the set is full and losing ends.
const FLOWS: u32 = 1 << 20;

/// How many packets of a flow were dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct FlowLoss {
    /// The flow.
    #[serde(flatten)]
    pub flow: Flow,
    /// Packets dropped.
    pub lost: u64,
}

/// A family of addresses. nftables' sets hold those of one, so each has a table of its own, of the
/// same shape.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Family {
    V4,
    V6,
}

impl Family {
    /// Both, in order.
    pub(crate) const BOTH: [Self; 2] = [Self::V4, Self::V6];

    /// Its name in nftables.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::V4 => "ip",
            Self::V6 => "ip6",
        }
    }

    /// What names a flow, in nftables' words.
    fn five_tuple(self) -> String {
        let name = self.name();
        format!("{name} saddr . {name} daddr . meta l4proto . th sport . th dport")
    }

    /// The set that holds a counter for every flow that lost packets.
    pub(crate) fn set(self) -> String {
        let flow = self.five_tuple();
        format!(
            "set lost {{
               typeof {flow}
               size {FLOWS}
               flags dynamic
             }}"
        )
    }

    /// The statement that counts a packet for its flow. What comes after it in a rule happens only
    /// to packets that were counted.
    pub(crate) fn count(self) -> String {
        format!("add @lost {{ {} counter }}", self.five_tuple())
    }
}

/// Reads the drops of every flow, in the flows' order, and holds them against the counters of the
/// rules in `chain` that drop. Read it when nothing is on its way any more.
pub(crate) fn read(namespace: &Namespace, chain: &str) -> Result<Vec<FlowLoss>> {
    let mut losses = Vec::new();
    for family in Family::BOTH {
        losses.extend(read_family(namespace, family, chain)?);
    }
    Ok(losses)
}

fn read_family(namespace: &Namespace, family: Family, chain: &str) -> Result<Vec<FlowLoss>> {
    let list = |kind: &str, name: &str| {
        namespace.run("nft", &["-j", "list", kind, family.name(), "calumma", name])
    };
    let set = list("set", "lost")?;
    let losses = parse_set(&set).with_context(|| format!("what nft printed: {set}"))?;
    let chain = list("chain", chain)?;
    let total = parse_total(&chain).with_context(|| format!("what nft printed: {chain}"))?;
    let sum: u64 = losses.iter().map(|l| l.lost).sum();
    ensure!(
        sum == total,
        "a router's rule counted {total} drops and its set {sum}; read them when no traffic is on its way"
    );
    Ok(losses)
}

fn parse_set(json: &str) -> Result<Vec<FlowLoss>> {
    let document: Value = serde_json::from_str(json)?;
    let set = objects(&document, "set").next().context("no set in it")?;
    let elements = match set.get("elem") {
        Some(elements) => elements.as_array().context("elem is not a list")?.as_slice(),
        None => &[],
    };
    let mut losses = elements.iter().map(parse_element).collect::<Result<Vec<_>>>()?;
    losses.sort();
    Ok(losses)
}

fn parse_element(element: &Value) -> Result<FlowLoss> {
    let element = element.get("elem").context("an element without elem")?;
    let parts = element.pointer("/val/concat").and_then(Value::as_array);
    let Some([src, dst, proto, sport, dport]) = parts.map(Vec::as_slice) else {
        bail!("an element that is not a 5-tuple: {element}");
    };
    let address = |v: &Value| v.as_str().and_then(|s| s.parse().ok());
    let port = |v: &Value| v.as_u64().and_then(|n| u16::try_from(n).ok());
    let proto = match (proto.as_str(), proto.as_u64()) {
        (Some("tcp"), _) => Some(6),
        (Some("udp"), _) => Some(17),
        (Some(digits), _) => digits.parse().ok(),
        (None, number) => number.and_then(|n| u8::try_from(n).ok()),
    };
    let flow = (|| {
        Some(Flow {
            src: address(src)?,
            dst: address(dst)?,
            sport: port(sport)?,
            dport: port(dport)?,
            proto: proto?,
        })
    })()
    .with_context(|| format!("an element that is not a 5-tuple: {element}"))?;
    let lost = element
        .pointer("/counter/packets")
        .and_then(Value::as_u64)
        .with_context(|| format!("an element without a counter: {element}"))?;
    Ok(FlowLoss { flow, lost })
}

/// Packets that the first rule with a counter has counted, of a chain as nftables prints it.
pub(crate) fn parse_total(json: &str) -> Result<u64> {
    let document: Value = serde_json::from_str(json)?;
    objects(&document, "rule")
        .filter_map(|rule| rule.get("expr")?.as_array())
        .flatten()
        .find_map(|expression| expression.pointer("/counter/packets"))
        .and_then(Value::as_u64)
        .context("no rule with a counter in it")
}

/// The objects of a kind in what `nft -j` printed.
fn objects<'a>(document: &'a Value, kind: &'a str) -> impl Iterator<Item = &'a Value> {
    let all = document.get("nftables").and_then(Value::as_array);
    all.into_iter().flatten().filter_map(move |object| object.get(kind))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::IpAddr;

    #[test]
    fn an_empty_set_means_no_losses() {
        let json = r#"{"nftables": [{"metainfo": {}}, {"set": {"name": "lost", "handle": 2}}]}"#;
        assert_eq!(parse_set(json).unwrap(), []);
    }

    #[test]
    fn protocols_are_read_as_names_and_as_numbers() {
        let element = |proto: &str| {
            format!(
                r#"{{"elem": {{"val": {{"concat": ["10.1.0.2", "10.2.0.2", {proto}, 40000, 53]}},
                    "counter": {{"packets": 7, "bytes": 9000}}}}}}"#
            )
        };
        let elements = [r#""tcp""#, r#""udp""#, "132", r#""33""#].map(element).join(",");
        let json = format!(r#"{{"nftables": [{{"set": {{"elem": [{elements}]}}}}]}}"#);
        let losses = parse_set(&json).unwrap();
        assert_eq!(losses.iter().map(|l| l.flow.proto).collect::<Vec<_>>(), [6, 17, 33, 132]);
        assert!(losses.iter().all(|l| l.lost == 7 && l.flow.sport == 40000 && l.flow.dport == 53));
    }

    #[test]
    fn ipv6_addresses_are_read_as_nft_shortens_them() {
        let json = r#"{"nftables": [{"set": {"elem": [{"elem": {
            "val": {"concat": ["fd00:1::2", "fd00:2::2", "udp", 40000, 53]},
            "counter": {"packets": 7, "bytes": 9000}}}]}}]}"#;
        let losses = parse_set(json).unwrap();
        assert_eq!(losses[0].flow.src, "fd00:1::2".parse::<IpAddr>().unwrap());
        assert_eq!((losses[0].flow.proto, losses[0].lost), (17, 7));
    }

    #[test]
    fn an_element_that_is_not_understood_is_an_error_and_not_left_out() {
        for element in [
            r#""10.1.0.2""#,
            r#"{"elem": {"val": {"concat": ["10.1.0.2", "10.2.0.2"]}}}"#,
            r#"{"elem": {"val": {"concat": ["10.1.0.2", "10.2.0.2", "tcp", 1, 2]}}}"#,
        ] {
            let json = format!(r#"{{"nftables": [{{"set": {{"elem": [{element}]}}}}]}}"#);
            assert!(parse_set(&json).is_err(), "{element}");
        }
    }
}
