//! How many victim flows there were: decoded, counted by empty buckets, or estimated from packets
//! lost.

use calumma_chamelemon::{Attention, Layout};

use super::load;
use super::memory::{KnownLosses, Memory};
use super::observation::Observation;
use super::victims::Victims;

/// An HL encoder for an inferred number of victims is made this much larger: one that is too small
/// costs an epoch, one that is too large only some memory.
const MARGIN: f64 = 1.05;

/// What an encoder holds at least that has hardly an empty bucket, as a share of what they tell.
const HARDLY_COUNTED: f64 = 0.75;

/// Decoded victims from which on their sizes are believed to be those of all.
const ENOUGH: usize = 30;

/// The number of victim flows, and how it is known.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct VictimFlows {
    /// How many there are, or may be where that is not sure.
    pub(super) flows: f64,
    /// In words.
    pub(super) how: &'static str,
    /// Whether they have been counted, not inferred.
    pub(super) counted: bool,
    /// Standard error where sampled ones stand for the others; else 0.
    pub(super) error: f64,
}

/// Whether an attention is that of an ill network: light losses are recorded separately.
pub(super) fn is_ill(attention: &Attention) -> bool {
    attention.partition.ll > 0
}

impl VictimFlows {
    /// Of an epoch; `most_for_losses` is the size that an HL encoder could have. `None` where
    /// nothing tells, since an edge's share is missing.
    pub(super) fn of(
        observation: &Observation<'_>,
        layout: &Layout,
        most_for_losses: u32,
        memory: &Memory,
    ) -> Option<Self> {
        let partition = observation.attention.partition;
        let lost = observation.lost_packets.map(|lost| lost as f64);
        let counted = |flows, error, how| Some(Self { flows, how, counted: true, error });
        let inferred = |flows, how| Some(Self { flows, how, counted: false, error: 0.0 });
        let light = observation.light_only / observation.attention.sample_rate.as_f64();
        if let Some(heavy) = observation.hl.flows(layout, partition.hl) {
            // Of an LL encoder that failed, some are counted twice: the network stays ill anyway.
            let failed = observation.ll.flows_at_least(layout, partition.ll);
            let failed = failed.filter(|_| !observation.ll.is_complete());
            let rate = observation.attention.sample_rate.as_f64();
            let sampled = failed.unwrap_or(observation.light_only);
            let flows = heavy + sampled / rate;
            // Each light loss was sampled or not, by itself.
            let error = (sampled * (1.0 - rate)).sqrt() / rate;
            return match observation.hl.is_complete() {
                true if partition.ll == 0 => counted(flows, error, "decoded"),
                true => counted(flows, error, "decoded and sampled"),
                false => counted(flows, error, "counted by empty buckets"),
            };
        }
        let lost = lost?;
        let full = observation.hl.flows_at_least(layout, partition.hl).unwrap_or(0.0);
        let at_least = full * HARDLY_COUNTED + light;
        if let Some(before) = &memory.losses
            && before.packets > 0.0
        {
            let flows = (before.flows / before.packets * lost).min(lost);
            return inferred(flows.max(at_least), "inferred from the packets lost");
        }
        // At most one victim for each packet. Without a better clue, the largest HL encoder that a
        // healthy network has will tell.
        let flows = lost.min(load::relieved(layout, most_for_losses));
        inferred(flows.max(at_least), "at most, by the packets lost")
    }
}

impl VictimFlows {
    /// How many an HL encoder should be made for.
    pub(super) fn to_hold(&self) -> f64 {
        if self.counted { self.flows } else { self.flows * MARGIN }
    }
}

/// Remembers the losses of an epoch whose victims were counted.
pub(super) fn remember(
    observation: &Observation<'_>,
    layout: &Layout,
    flows: f64,
    memory: &mut Memory,
) {
    let ill = is_ill(&observation.attention);
    let counted = observation.hl.flows(layout, observation.attention.partition.hl).is_some();
    if let Some(lost) = observation.lost_packets.filter(|&lost| counted && lost > 0 && flows > 0.0)
    {
        let complete = observation.hl.is_complete() && observation.ll.is_complete();
        let victims = (ill && complete).then(|| observation.victims.clone());
        memory.losses = Some(KnownLosses { flows, packets: lost as f64, victims });
    }
}

/// The victims' sizes and losses, `flows` in number: from those decoded, else from those
/// remembered, else as if all flows were hit alike.
pub(super) fn victims(observation: &Observation<'_>, flows: f64, memory: &Memory) -> Victims {
    if observation.hl.load_factor.is_some() && observation.victims.0.len() >= ENOUGH {
        return observation.victims.clone().scaled_to(flows);
    }
    if let Some(victims) = memory.losses.as_ref().and_then(|losses| losses.victims.clone()) {
        return victims.scaled_to(flows);
    }
    let sizes: Vec<(u64, f64)> =
        observation.edges.iter().flat_map(|edge| edge.candidates.sizes()).copied().collect();
    let lost = observation.lost_packets.map_or(flows, |lost| lost as f64);
    Victims::like_all(&sizes, flows, lost)
}

/// How many victims would be in the HL and LL encoders at any T_l.
pub(super) struct LossForecast<'a> {
    victims: Victims,
    memory: &'a Memory,
    /// The T_l of the observation, where it recorded light losses separately.
    t_l: Option<u32>,
    /// Victims in the HL encoder, where it could be counted.
    heavy: Option<f64>,
    /// Victims in the LL encoder, sampled or not, where it could be counted.
    light: Option<f64>,
}

impl<'a> LossForecast<'a> {
    pub(super) fn new(
        observation: &Observation<'_>,
        layout: &Layout,
        flows: &VictimFlows,
        memory: &'a Memory,
    ) -> Self {
        let Attention { t_l, sample_rate, partition, .. } = observation.attention;
        let light = observation.ll.flows(layout, partition.ll);
        Self {
            victims: victims(observation, flows.flows, memory),
            memory,
            t_l: is_ill(&observation.attention).then_some(t_l),
            heavy: observation.hl.flows(layout, partition.hl),
            light: light.map(|sampled| sampled / sample_rate.as_f64()),
        }
    }

    /// Victims in the HL encoder at `t_l`.
    pub(super) fn heavy(&self, t_l: u32) -> f64 {
        let learned = self.memory.hl.at(t_l);
        self.corrected(t_l, self.heavy, |at| self.victims.heavy(at), learned)
    }

    /// Victims in the LL encoder at `t_l`, were all sampled.
    pub(super) fn light(&self, t_l: u32) -> f64 {
        let learned = self.memory.ll.at(t_l);
        self.corrected(t_l, self.light, |at| self.victims.light(at), learned)
    }

    fn corrected(
        &self,
        t_l: u32,
        counted: Option<f64>,
        foretold: impl Fn(u32) -> f64,
        learned: Option<f64>,
    ) -> f64 {
        let measured = self.t_l.zip(counted);
        if let Some((at, counted)) = measured
            && at == t_l
        {
            return counted;
        }
        let here = measured.and_then(|(at, counted)| correction(counted, foretold(at)));
        foretold(t_l) * learned.or(here).unwrap_or(1.0)
    }

    /// The corrections at the T_l of the observation, for the HL and the LL encoder.
    pub(super) fn learned(&self) -> (Option<f64>, Option<f64>) {
        let Some(t_l) = self.t_l else { return (None, None) };
        let heavy = self.heavy.and_then(|counted| correction(counted, self.victims.heavy(t_l)));
        let light = self.light.and_then(|counted| correction(counted, self.victims.light(t_l)));
        (heavy, light)
    }
}

/// By how much a forecast was wrong, within reason.
fn correction(counted: f64, foretold: f64) -> Option<f64> {
    (counted > 0.0 && foretold > 0.0).then(|| (counted / foretold).clamp(0.25, 4.0))
}
