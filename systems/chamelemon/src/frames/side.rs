//! The two sides of an epoch at an edge, and their bodies.

use calumma_plane::{AnyStrays, Strays};
use calumma_sketch::{
    AnyKey, Encoders, FermatSketch, FlowKey, HashFamily, Key, KeyKind, Keyed, TowerSketch, WideKey,
};
use calumma_wire::body::{Body, put_u8, put_u64};
use calumma_wire::{DecodeError, Side, SideKind};

use super::fields::{self, Defects};
use super::records::{self, Records};
use super::{ID, sketches};
use crate::{Attention, Balance, EgressGroup, IngressGroup, Layout};

/// The ingress side of an epoch at one edge.
#[derive(Clone, Debug, PartialEq)]
pub struct Ingress {
    /// The epoch.
    pub epoch: u64,
    /// The attention that the edge measured under.
    pub attention: Attention,
    /// What makes the measurement untrustworthy.
    pub defects: Defects,
    /// Packets that entered the network here and were recorded.
    pub packets_in: u64,
    /// The switch's totals since it started, by name.
    pub counters: Vec<(String, u64)>,
    /// The flow classifier.
    pub classifier: TowerSketch,
    /// The upstream flow encoder, for keys of the layout's kind.
    pub upstream: AnyKey<Upstreams>,
    /// The packets as they were classified; `None` from a switch that does not count them so.
    pub balance: Option<Balance>,
    /// The [number](calumma_sketch::HashKey::id) of the key that it was hashed by; `None` from a
    /// switch that does not say it.
    pub key: Option<u64>,
    /// How many lcores have classified packets of it, each those that came to it alone: of a flow,
    /// each may have let through as many as are below a threshold. `None` from a switch that does
    /// not say it.
    pub lcores: Option<u32>,
}

/// An upstream flow encoder, and what the switch decoded of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Upstream<K: Key> {
    /// The encoder.
    pub encoder: FermatSketch<K>,
    /// The HH flowset, ascending by key, where the switch decoded its HH encoder completely: each
    /// flow's packets in it, 1 to 2^31 - 1. The HH part of `encoder` is empty then.
    pub hh_flows: Option<Vec<(K, i64)>>,
}

impl<K: Key> Upstream<K> {
    /// An encoder of which the switch decoded nothing.
    pub fn undecoded(encoder: FermatSketch<K>) -> AnyKey<Upstreams> {
        K::any(Self { encoder, hh_flows: None })
    }
}

/// [`Upstream`]s.
#[derive(Debug)]
pub enum Upstreams {}

impl Keyed for Upstreams {
    type Of<K: Key> = Upstream<K>;
}

/// The egress side of an epoch at one edge.
#[derive(Clone, Debug, PartialEq)]
pub struct Egress {
    /// The epoch.
    pub epoch: u64,
    /// The attention that the edge measured under.
    pub attention: Attention,
    /// What makes the measurement untrustworthy.
    pub defects: Defects,
    /// Packets that left the network here and were recorded.
    pub packets_out: u64,
    /// The switch's totals since it started, by name.
    pub counters: Vec<(String, u64)>,
    /// The downstream flow encoder, for keys of the layout's kind.
    pub downstream: AnyKey<Encoders>,
    /// The packets by what they carried, those without buckets included; `None` from a switch that
    /// does not count them so.
    pub balance: Option<Balance>,
    /// Packets that no bucket holds, since their hierarchy has none in this epoch. They are among
    /// [`packets_out`](Self::packets_out). `None` from a switch that does not keep them by flow.
    pub strays: Option<AnyKey<AnyStrays>>,
    /// Packets without a valid mark, which came while packets of this epoch could come there.
    /// `None` from a switch that does not keep them by flow.
    pub unmarked: Option<AnyKey<AnyStrays>>,
    /// As [`Ingress::key`].
    pub key: Option<u64>,
}

/// The ingress side of an epoch where it was measured.
#[derive(Clone, Copy, Debug)]
pub struct IngressSide<'a, K: Key> {
    /// The epoch.
    pub epoch: u64,
    /// The attention that it was measured under.
    pub attention: &'a Attention,
    /// What makes the measurement untrustworthy.
    pub defects: Defects,
    /// Packets that were recorded.
    pub packets: u64,
    /// The flow classifier.
    pub classifier: &'a TowerSketch,
    /// The upstream flow encoder.
    pub upstream: &'a FermatSketch<K>,
    /// The packets as they were classified, where they are counted so.
    pub balance: Option<Balance>,
    /// As [`Ingress::key`].
    pub key: Option<u64>,
    /// As [`Ingress::lcores`].
    pub lcores: Option<u32>,
}

impl<'a, K: Key> IngressSide<'a, K> {
    /// The side that a group of `epoch` measured.
    pub fn of_group(
        epoch: u64,
        group: &'a IngressGroup<K>,
        packets: u64,
        defects: Defects,
    ) -> Self {
        let (attention, classifier) = (group.attention(), group.classifier());
        let (upstream, balance) = (group.upstream(), Some(group.balance()));
        let (key, lcores) = (None, Some(group.lcores()));
        Self { epoch, attention, defects, packets, classifier, upstream, balance, key, lcores }
    }

    /// Its frame, where its HH encoder holds `hh_flows` and nothing else; without them, where it is
    /// not decoded.
    pub fn to_wire(&self, hh_flows: Option<&[(K, i64)]>) -> Side {
        let mut body = Vec::new();
        put_head(&mut body, self.attention, &self.defects);
        sketches::put_tower(&mut body, self.classifier);
        let hh = self.attention.partition.hh_part();
        sketches::put_upstream(&mut body, self.upstream, &hh, hh_flows);
        let (balance, key, lcores) = (self.balance, self.key, self.lcores);
        let records = Records::<K> { balance, key, lcores, ..Records::NONE };
        records::put_records(&mut body, &records);
        wire_side(SideKind::Ingress, self.epoch, &self.defects, self.packets, body)
    }

    /// A copy of it, as the controller has it from a switch that decoded nothing.
    pub fn to_ingress(&self) -> Ingress {
        Ingress {
            epoch: self.epoch,
            attention: *self.attention,
            defects: self.defects,
            packets_in: self.packets,
            counters: Vec::new(),
            classifier: self.classifier.clone(),
            upstream: Upstream::undecoded(self.upstream.clone()),
            balance: self.balance,
            key: self.key,
            lcores: self.lcores,
        }
    }

    /// All that the HH encoder holds, where it decodes. Flows take half the bytes of its buckets,
    /// and every edge that decodes its own saves the controller from decoding all of them.
    pub(super) fn hh_flows(&self, family: &HashFamily) -> Option<Vec<(K, i64)>> {
        if self.defects.mixed_attention {
            return None;
        }
        let decoded = self.upstream.part(&self.attention.partition.hh_part()).decode(family);
        let countable = |&(_, packets): &(_, i64)| (1..=i64::from(i32::MAX)).contains(&packets);
        let complete = decoded.is_complete() && decoded.flows().iter().all(countable);
        complete.then(|| decoded.flows().to_vec())
    }
}

/// The egress side of an epoch where it was measured.
#[derive(Clone, Debug)]
pub struct EgressSide<'a, K: Key> {
    /// The epoch.
    pub epoch: u64,
    /// The attention that it was measured under.
    pub attention: &'a Attention,
    /// What makes the measurement untrustworthy.
    pub defects: Defects,
    /// Packets that were recorded.
    pub packets: u64,
    /// The downstream flow encoder.
    pub downstream: &'a FermatSketch<K>,
    /// As [`Egress::balance`].
    pub balance: Option<Balance>,
    /// As [`Egress::strays`].
    pub strays: Option<Strays<K>>,
    /// As [`Egress::unmarked`].
    pub unmarked: Option<Strays<K>>,
    /// As [`Ingress::key`].
    pub key: Option<u64>,
}

impl<'a, K: Key> EgressSide<'a, K> {
    /// The side that a group of `epoch` measured.
    pub fn of_group(epoch: u64, group: &'a EgressGroup<K>, packets: u64, defects: Defects) -> Self {
        let (attention, downstream) = (group.attention(), group.downstream());
        let balance = Some(group.balance());
        let (strays, unmarked) = (Some(group.strays()), Some(group.unmarked()));
        let key = None;
        Self { epoch, attention, defects, packets, downstream, balance, strays, unmarked, key }
    }

    /// Its frame.
    pub fn to_wire(&self) -> Side {
        let mut body = Vec::new();
        put_head(&mut body, self.attention, &self.defects);
        sketches::put_buckets(&mut body, self.downstream, self.downstream.shape().buckets);
        let (strays, unmarked) = (self.strays.clone(), self.unmarked.clone());
        let (balance, key) = (self.balance, self.key);
        let records = Records { balance, strays, unmarked, key, lcores: None };
        records::put_records(&mut body, &records);
        wire_side(SideKind::Egress, self.epoch, &self.defects, self.packets, body)
    }

    /// A copy of it, as the controller has it.
    pub fn to_egress(&self) -> Egress {
        Egress {
            epoch: self.epoch,
            attention: *self.attention,
            defects: self.defects,
            packets_out: self.packets,
            counters: Vec::new(),
            downstream: self.downstream.clone().into(),
            balance: self.balance,
            strays: self.strays.clone().map(K::any),
            unmarked: self.unmarked.clone().map(K::any),
            key: self.key,
        }
    }
}

fn wire_side(side: SideKind, epoch: u64, defects: &Defects, packets: u64, body: Vec<u8>) -> Side {
    let (system, stall_ns) = (ID, defects.stall_ns);
    Side { system, epoch, side, stall_ns, packets, counters: Vec::new(), body }
}

fn put_head(out: &mut Vec<u8>, attention: &Attention, defects: &Defects) {
    fields::put_attention(out, attention);
    put_u64(out, defects.foreign_packets);
    put_u8(out, defects.mixed_attention.into());
}

fn head(
    layout: &Layout,
    stall_ns: u64,
    body: &mut Body,
) -> Result<(Attention, Defects), DecodeError> {
    let attention = fields::attention_on(layout, body)?;
    let foreign_packets = body.u64("foreign packets")?;
    let mixed_attention = body.flag("mixed attention")?;
    Ok((attention, Defects { foreign_packets, stall_ns, mixed_attention }))
}

pub(super) fn ingress(side: Side, layout: &Layout) -> Result<Ingress, DecodeError> {
    let mut body = Body::new("an ingress side", &side.body, 0);
    let (attention, defects) = head(layout, side.stall_ns, &mut body)?;
    let classifier = sketches::tower("classifier", layout, &mut body)?;
    let hh = attention.partition.hh_part();
    let upstream = sketches::any_upstream(layout, &hh, &mut body)?;
    let Records { balance, key, lcores, .. } = records::of_ingress(&mut body)?;
    body.end()?;
    Ok(Ingress {
        epoch: side.epoch,
        attention,
        defects,
        packets_in: side.packets,
        counters: side.counters,
        classifier,
        upstream,
        balance,
        key,
        lcores,
    })
}

pub(super) fn egress(side: Side, layout: &Layout) -> Result<Egress, DecodeError> {
    let mut body = Body::new("an egress side", &side.body, 0);
    let (attention, defects) = head(layout, side.stall_ns, &mut body)?;
    let downstream = sketches::any_downstream(layout, &mut body)?;
    let (balance, strays, unmarked, key) = match layout.keys {
        KeyKind::Ipv4 => any_records::<FlowKey>(&mut body)?,
        KeyKind::Dual => any_records::<WideKey>(&mut body)?,
    };
    body.end()?;
    Ok(Egress {
        epoch: side.epoch,
        attention,
        defects,
        packets_out: side.packets,
        counters: side.counters,
        downstream,
        balance,
        strays,
        unmarked,
        key,
    })
}

/// The records of an egress side of either kind of key.
type AnyRecords =
    (Option<Balance>, Option<AnyKey<AnyStrays>>, Option<AnyKey<AnyStrays>>, Option<u64>);

fn any_records<K: Key>(body: &mut Body) -> Result<AnyRecords, DecodeError> {
    let Records { balance, strays, unmarked, key, .. } = records::of_egress::<K>(body)?;
    Ok((balance, strays.map(K::any), unmarked.map(K::any), key))
}
