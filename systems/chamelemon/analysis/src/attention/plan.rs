//! The decisions of sections 4.3.1 and 4.3.2, each with its reason.

use calumma_chamelemon::{Attention, Layout, Partition, SampleRate};

use super::bounds::Bounds;
use super::heavy_hitters::HhForecast;
use super::load::{self, Band};
use super::losses::{self, LossForecast, VictimFlows, is_ill};
use super::memory::{LowestThreshold, Memory};
use super::observation::{Encoder, Observation};
use super::threshold::choose;
use crate::report::{DecodeState, NetworkState};

/// A network that counted as ill is healthy again when its victims are fewer than this share of
/// what they were.
const CLEARLY_FEWER: f64 = 0.96;

/// Standard errors by which victims that were sampled must be fewer than would turn a network ill
/// for an ill one to count as healthy. It is asked anew in every epoch, so what chance does
/// once in thousands of them must not be enough where they are hardly more.
const SURE: f64 = 4.0;

/// The LL encoder is small and sampled, so its load varies: its band is this much lower than that
/// of others at its lower end and its aim, and higher at its upper end.
const LL_BAND: (f64, f64, f64) = (0.85, 0.95, 1.02);

/// Epochs in a row that may fail to decode though nothing is too full. Flows that share all their
/// buckets do so as long as they last, so the next ones would fail as well.
const IN_VAIN: u32 = 2;

/// A configuration for later epochs.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// What they should be measured under; valid on the layout that it was made for.
    pub attention: Attention,
    /// The network state that it is made for.
    pub state: NetworkState,
    /// Why it differs from what stands, a sentence a step; empty where it doesn't.
    pub reasons: Vec<String>,
}

/// The attention for the epochs to come: `standing` as it is, or what should replace it, and why.
///
/// The result is valid on `layout` for any observation, provided that `bounds` have been checked
/// against it.
pub fn plan(
    observation: &Observation<'_>,
    standing: &Attention,
    layout: &Layout,
    bounds: &Bounds,
    memory: &mut Memory,
) -> Plan {
    let mut planning = Planning {
        observation,
        standing,
        layout,
        bounds,
        measured: observation.attention == *standing,
        reasons: Vec::new(),
    };
    planning.note_failures();
    let victims = planning.victims(memory);
    let partition = planning.divide(victims.as_ref(), memory);
    let partition = planning.spread_anew(partition, memory);
    let t_h = planning.t_h(partition, memory);
    let attention = if partition.ll > 0 {
        planning.ill(partition, t_h, victims.as_ref(), memory)
    } else {
        planning.healthy(partition, t_h)
    };
    let mut reasons = planning.reasons;
    if attention == *standing {
        reasons.clear();
    }
    Plan { attention, state: (&attention).into(), reasons }
}

/// One run of [`plan`].
struct Planning<'a, 'o> {
    observation: &'a Observation<'o>,
    standing: &'a Attention,
    layout: &'a Layout,
    bounds: &'a Bounds,
    /// Whether the epoch was measured under what stands. Else a change is on its way, and what it
    /// will do can only be foretold.
    measured: bool,
    reasons: Vec<String>,
}

impl Planning<'_, '_> {
    /// The band for an encoder of `buckets` buckets an array.
    fn band(&self, buckets: u32) -> Band {
        let band = Band::of(self.layout, buckets);
        if self.measured { band } else { band.wider() }
    }

    fn load(&self, buckets: u32, flows: f64) -> f64 {
        load::load_of(self.layout, buckets, flows)
    }

    /// The encoders that did not decode, and their buckets an array.
    fn failures(&self) -> impl Iterator<Item = (String, Encoder, u32)> {
        let observation = self.observation;
        let partition = observation.attention.partition;
        let hh = observation
            .edges
            .iter()
            .map(move |edge| (format!("HH encoder of {}", edge.name), edge.hh, partition.hh));
        let delta = [
            ("delta HL encoder".to_owned(), observation.hl, partition.hl),
            ("delta LL encoder".to_owned(), observation.ll, partition.ll),
        ];
        let all = hh.chain(delta);
        all.filter(|(_, encoder, _)| encoder.state == DecodeState::Partial)
    }

    fn note_failures(&mut self) {
        for (what, encoder, buckets) in self.failures().collect::<Vec<_>>() {
            let how_full = match encoder.flows(self.layout, buckets) {
                Some(flows) => {
                    format!("about {flows:.0} flows, load factor {:.2}", self.load(buckets, flows))
                }
                None => "too full to count its flows".to_owned(),
            };
            self.reasons.push(format!("the {what} did not decode: {how_full}"));
        }
    }

    fn victims(&self, memory: &mut Memory) -> Option<VictimFlows> {
        let most = self.bounds.most_for_losses(self.layout);
        let victims = VictimFlows::of(self.observation, self.layout, most, memory)?;
        losses::remember(self.observation, self.layout, victims.flows, memory);
        Some(victims)
    }

    /// The network state, and the division of memory: steps 2 of 4.3.1 and 3 of 4.3.2.
    fn divide(&mut self, victims: Option<&VictimFlows>, memory: &mut Memory) -> Partition {
        let standing = self.standing.partition;
        let was_ill = is_ill(self.standing);
        let Some(victims @ &VictimFlows { flows, how, error, .. }) = victims else {
            let ill = self.ill_division().filter(|_| was_ill);
            let bounded = ill.unwrap_or_else(|| self.bounds.healthy(self.layout, standing.hl));
            if bounded != standing {
                let (from, to) = (in_words(standing), in_words(bounded));
                self.reasons.push(format!("HH/HL/LL {from} -> {to}: within the bounds"));
            }
            return bounded;
        };
        let most = self.bounds.most_for_losses(self.layout);
        let (full, relieved) = (load::full(self.layout, most), load::relieved(self.layout, most));
        let limit = match (was_ill, memory.ill_since) {
            (false, _) => full,
            (true, None) => relieved,
            (true, Some(since)) => relieved.min(since * CLEARLY_FEWER),
        };
        let doubt = if was_ill { SURE * error } else { 0.0 };
        if flows + doubt > limit
            && let Some(ill) = self.ill_division()
        {
            if !was_ill {
                memory.ill_since = Some(flows);
                self.reasons.push(format!(
                    "the network turns ill: {flows:.0} victim flows ({how}) are more than the \
                     {full:.0} that {most} buckets an array hold; HH/HL/LL {} -> {}",
                    in_words(standing),
                    in_words(ill)
                ));
            } else if standing != ill {
                self.reasons.push(format!(
                    "an ill network's division of memory: HH/HL/LL {} -> {}",
                    in_words(standing),
                    in_words(ill)
                ));
            }
            return ill;
        }
        let healthy = self.healthy_division(victims);
        if was_ill {
            self.reasons.push(format!(
                "the network is healthy again: {flows:.0} victim flows ({how}), at most {:.0}; \
                 HH/HL/LL {} -> {}",
                limit - doubt,
                in_words(standing),
                in_words(healthy)
            ));
        } else if healthy != standing {
            let verb = if healthy.hl > standing.hl { "expanded" } else { "compressed" };
            self.reasons.push(format!(
                "the HL encoder is {verb} from {} to {} buckets an array: {flows:.0} victim flows \
                 ({how}) would load it with {:.2}, now {:.2}",
                standing.hl,
                healthy.hl,
                self.load(standing.hl, flows),
                self.load(healthy.hl, flows)
            ));
        }
        healthy
    }

    /// `partition`, or one beside it where epochs fail to decode that should not: there, flows that
    /// happen to share all their buckets part.
    fn spread_anew(&mut self, partition: Partition, memory: &mut Memory) -> Partition {
        let fits = |(_, encoder, buckets): (String, Encoder, u32)| {
            let flows = encoder.flows(self.layout, buckets);
            let high = Band::of(self.layout, buckets).high;
            flows.is_some_and(|flows| self.load(buckets, flows) <= high)
        };
        let failed = self.measured && self.failures().next().is_some() && self.failures().all(fits);
        memory.in_vain = if failed { memory.in_vain + 1 } else { 0 };
        if memory.in_vain < IN_VAIN || partition != self.standing.partition {
            return partition;
        }
        let Some(beside) = self.bounds.beside(self.layout, partition) else { return partition };
        let (from, to) = (in_words(partition), in_words(beside));
        let epochs = memory.in_vain;
        self.reasons.push(format!(
            "HH/HL/LL {from} -> {to}: for {epochs} epochs flows have shared all their buckets; this \
             spreads them anew"
        ));
        beside
    }

    /// An ill network's division of memory: what stands, where it is one.
    fn ill_division(&self) -> Option<Partition> {
        let ill = self.bounds.ill(self.layout)?;
        let standing = self.standing.partition;
        Some(if self.bounds.beside(self.layout, ill) == Some(standing) { standing } else { ill })
    }

    /// A healthy network's division of memory for so many victim flows.
    fn healthy_division(&self, victims: &VictimFlows) -> Partition {
        let standing = self.standing.partition;
        let wanted = load::buckets_for(self.layout, victims.to_hold());
        let wanted = self.bounds.healthy(self.layout, wanted);
        let band = self.band(standing.hl);
        let band = if victims.counted { band } else { band.wider() };
        let load = self.load(standing.hl, victims.flows);
        let valid = standing == self.bounds.healthy(self.layout, standing.hl);
        if valid && (band.low..=band.high).contains(&load) { standing } else { wanted }
    }

    /// T_h for the HH encoders of `partition`: step 1 and step 3 (4) of the paper at once.
    fn t_h(&mut self, partition: Partition, memory: &mut Memory) -> u32 {
        let standing = self.standing.t_h;
        let most = self.layout.classifier.iter().map(|level| level.max()).max().unwrap_or(1);
        // With an LL encoder, T_l is 2 or more, and T_h no less.
        let least = if partition.ll > 0 { 2 } else { 1 };
        if let Some(fixed) = self.bounds.fixed_t_h {
            if fixed != standing {
                self.reasons.push(format!("T_h {standing} -> {fixed}: fixed by the operator"));
            }
            return fixed;
        }
        let Memory { hh: corrections, lowest, .. } = memory;
        let forecast = HhForecast::new(self.observation, self.layout, corrections);
        let load = |t_h| forecast.load(t_h, partition.hh);
        let band = self.band(partition.hh);
        let idle = self.measured && load(standing) < band.low;
        let here = idle
            .then(|| LowestThreshold::of(self.observation, self.layout, partition.hh))
            .flatten();
        let stuck = here.as_ref().zip(lowest.as_ref()).is_some_and(|(now, then)| then.is_like(now));
        let may_lower = self.observation.all_edges && !stuck;
        let t_h = choose(load, standing, (least, most.max(least)), band, may_lower);
        if may_lower {
            *lowest = here.filter(|_| t_h == standing);
        }
        if t_h != standing
            && let Some((edge, _)) = forecast.fullest(t_h)
        {
            self.reasons.push(format!(
                "T_h {standing} -> {t_h}: {}, the edge with most heavy-hitter candidates, would load \
                 {} buckets an array with {:.2}, now {:.2}",
                edge.name,
                partition.hh,
                load(standing),
                load(t_h)
            ));
        }
        if let Some(correction) = forecast.correction() {
            memory.hh.learn(self.observation.attention.t_h, correction);
        }
        t_h
    }

    /// The attention of a healthy network: every victim flow is recorded.
    fn healthy(&mut self, partition: Partition, t_h: u32) -> Attention {
        let (t_l, rate) = (self.standing.t_l, self.standing.sample_rate);
        if t_l != 1 || rate != SampleRate::ALL {
            self.reasons.push(format!(
                "T_l {t_l} -> 1, sample rate {:.4} -> 1: without an LL encoder, every victim flow is \
                 recorded",
                rate.as_f64()
            ));
        }
        Attention { t_h, t_l: 1, sample_rate: SampleRate::ALL, partition }
    }

    /// T_l and sample rate of an ill network: steps 1 to 3 of 4.3.2, and on the way there.
    fn ill(
        &mut self,
        partition: Partition,
        t_h: u32,
        victims: Option<&VictimFlows>,
        memory: &mut Memory,
    ) -> Attention {
        let standing = self.standing;
        let was_ill = is_ill(standing);
        let most = self.bounds.fixed_t_h.unwrap_or(u32::from(u16::MAX)).max(2);
        let Some(victims) = victims else {
            // Nothing new about losses: as it was.
            let t_l = standing.t_l.clamp(2, t_h.max(2));
            if t_l != standing.t_l {
                self.reasons.push(format!("T_l {} -> {t_l}: 2 to T_h", standing.t_l));
            }
            return Attention {
                t_h: t_h.max(t_l),
                t_l,
                sample_rate: standing.sample_rate,
                partition,
            };
        };
        let forecast = LossForecast::new(self.observation, self.layout, victims, memory);
        let heavy = |t_l| self.load(partition.hl, forecast.heavy(t_l));
        let from = if was_ill { standing.t_l } else { 2 };
        let t_l = choose(heavy, from, (2, most), self.band(partition.hl), true);
        let heavy_load = heavy(t_l);

        let light = forecast.light(t_l);
        let all = self.load(partition.ll, light);
        let rate = standing.sample_rate.as_f64();
        let band = self.band(partition.ll);
        let low = if rate < 1.0 { band.low * LL_BAND.0 } else { 0.0 };
        let (aim, high) = (band.aim * LL_BAND.1, band.high * LL_BAND.2);
        let keeps = was_ill && (low..=high).contains(&(all * rate));
        let aimed = SampleRate::new((aim / all.max(f64::MIN_POSITIVE)).clamp(1e-9, 1.0));
        let sample_rate =
            if keeps { standing.sample_rate } else { aimed.unwrap_or(SampleRate::ALL) };
        let (learned_heavy, learned_light) = forecast.learned();
        for (corrections, learned) in
            [(&mut memory.hl, learned_heavy), (&mut memory.ll, learned_light)]
        {
            if let Some(correction) = learned {
                corrections.learn(self.observation.attention.t_l, correction);
            }
        }

        if t_l != standing.t_l {
            self.reasons.push(format!(
                "T_l {} -> {t_l}: of {:.0} victim flows ({}), those that lost a later packet load the \
                 HL encoder with {heavy_load:.2}",
                standing.t_l, victims.flows, victims.how
            ));
        }
        if sample_rate != standing.sample_rate {
            self.reasons.push(format!(
                "sample rate {rate:.4} -> {:.4}: {light:.0} light losses, all sampled, would load the \
                 LL encoder with {all:.2}, now {:.2}",
                sample_rate.as_f64(),
                all * sample_rate.as_f64()
            ));
        }
        if t_l > t_h {
            self.reasons.push(format!("T_h {t_h} -> {t_l}: it is never below T_l"));
        }
        Attention { t_h: t_h.max(t_l), t_l, sample_rate, partition }
    }
}

fn in_words(Partition { hh, hl, ll }: Partition) -> String {
    format!("{hh}/{hl}/{ll}")
}
