//! What may change from window to window: how far INT is switched on, and which flows always carry
//! it.
//!
//! ```text
//! plan: step (1): 0 off, 1 sinks, 2 transits, 3 sources  number of flows (2)  their keys (37 each)
//! ```

use std::sync::Arc;

use calumma_plane::flow_set::{put_flows, read_flows};
use calumma_sketch::WideKey;
use calumma_wire::DecodeError;
use calumma_wire::body::{Body, put_u8};

/// How far INT is switched on, the same for all switches: each takes what it does from this.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Step {
    /// Nothing is put into packets. Sinks take out what they find all the same.
    #[default]
    Off,
    /// Sinks record.
    Sinks,
    /// Switches push their hops onto the stacks that packets come with.
    Transits,
    /// Sources put stacks into packets from hosts.
    Sources,
}

impl Step {
    /// All of them, by their numbers in frames.
    pub const ALL: [Self; 4] = [Self::Off, Self::Sinks, Self::Transits, Self::Sources];

    /// Its name in reports, where the last one is that INT is on.
    pub fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Sinks => "sinks",
            Self::Transits => "transits",
            Self::Sources => "on",
        }
    }

    /// The step of a plan of these bytes, of which nothing else is read; the least where there is
    /// none, which no node applies.
    pub fn of_plan(bytes: &[u8]) -> Self {
        let number = bytes.first().map(|&number| usize::from(number));
        number.and_then(|number| Self::ALL.get(number).copied()).unwrap_or_default()
    }
}

/// What may change from window to window.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// How far INT is switched on.
    pub step: Step,
    /// Flows that carry stacks whatever the share, in order.
    pub attended: Arc<[WideKey]>,
}

impl Default for Plan {
    fn default() -> Self {
        Self::of(Step::Off)
    }
}

impl Plan {
    /// Most flows that carry stacks whatever the share.
    pub const MOST_ATTENDED: usize = 1024;

    /// This step, and the share of all flows.
    pub fn of(step: Step) -> Self {
        Self { step, attended: Arc::default() }
    }

    /// Its bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(3 + self.attended.len() * WideKey::LEN);
        put_u8(&mut out, self.step as u8);
        put_flows(&mut out, &self.attended);
        out
    }

    /// The plan that these bytes say.
    ///
    /// # Errors
    /// The first byte that can't be read, and why.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut body = Body::new("a plan of sketchint", bytes, 0);
        let number = body.u8("step")?;
        let step = Step::ALL.get(usize::from(number)).copied();
        let step =
            step.ok_or_else(|| body.wrong(0, "step", format_args!("there is no step {number}")))?;
        let attended = read_flows(&mut body, "flows", Self::MOST_ATTENDED)?;
        body.end()?;
        Ok(Self { step, attended })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plans_are_laid_out_as_documented() {
        let plain = |step: Step| Plan::of(step).encode();
        assert_eq!(Step::ALL.map(plain), [[0, 0, 0], [1, 0, 0], [2, 0, 0], [3, 0, 0]]);
        let key = |port| WideKey::v4([10, 1, 0, 2].into(), [10, 2, 0, 2].into(), port, 80, 6);
        let plan = Plan { attended: [key(1), key(2)].into(), ..Plan::of(Step::Sources) };
        let bytes = plan.encode();
        let keys = [key(1).as_bytes(), key(2).as_bytes()].concat();
        assert_eq!(bytes, [&[3, 2, 0][..], &keys].concat());
        assert_eq!(Plan::decode(&bytes), Ok(plan));
        assert_eq!(Step::ALL.map(|step| Step::of_plan(&plain(step))), Step::ALL);
        assert_eq!((Step::of_plan(&[9]), Step::of_plan(&[])), (Step::Off, Step::Off));

        let says = |bytes: &[u8], words: &str| {
            let refused = Plan::decode(bytes).unwrap_err().to_string();
            assert!(refused.ends_with(words), "{refused}");
        };
        says(&[4, 0, 0], "there is no step 4");
        says(&[3, 1, 4], "byte 1 of a plan of sketchint: flows: 1025: there may be 1024");
        let turned = Plan { attended: [key(2), key(1)].into(), ..Plan::of(Step::Sources) };
        says(&turned.encode(), "flows: not in order");
        assert!(Plan::decode(&bytes[..40]).is_err());
    }
}
