//! What may change from window to window: flows that come before all others at every switch, which
//! share of the memory of table and residual the table has, and what overrides the setup.
//!
//! ```text
//! pins: nothing, where there are none; else  number of flows (2)  their keys (37 each)
//! plan: nothing, where all is as the setup says and nothing is pinned; else
//!       what overrides the setup, where plans may: see `overrides`
//!       where the share moves, the share in hundredths, 0: as the setup says (1)
//!       pins
//! ```
//!
//! What a switch holds is its setup, the epoch from which on its plan holds, and the plan:
//!
//! ```text
//! setup (4 and its bytes)  epoch (8)  plan
//! ```

use std::sync::Arc;

use calumma_plane::flow_set::{put_flows, read_flows};
use calumma_sketch::WideKey;
use calumma_wire::DecodeError;
use calumma_wire::body::{Body, put_bytes, put_u64};

use super::overrides::Overrides;
use super::setup::{Setup, wrong_alpha};

/// Flows that come before all others at every switch of a network.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pins {
    /// By rising keys, each once.
    pub flows: Arc<[WideKey]>,
}

impl Pins {
    /// Most flows that can be pinned, whatever a table holds.
    pub const MOST: u32 = 4096;

    /// Most flows that can be pinned before tables of so many entries.
    pub const fn most_of(entries: u32) -> u32 {
        if entries / 4 < Self::MOST { entries / 4 } else { Self::MOST }
    }

    /// Its bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        if !self.flows.is_empty() {
            put_flows(&mut out, &self.flows);
        }
        out
    }

    /// What these bytes say.
    ///
    /// # Errors
    /// The first byte that can't be read, and why: also more flows than can be pinned before
    /// tables of so many entries.
    pub fn decode(bytes: &[u8], entries: u32) -> Result<Self, DecodeError> {
        if bytes.is_empty() {
            return Ok(Self::default());
        }
        let mut body = Body::new("a plan of cfs", bytes, 0);
        let flows = read_flows(&mut body, "pins", Self::most_of(entries) as usize)?;
        if flows.is_empty() {
            return Err(body.wrong(0, "pins", "0: must be 1 or more, or not be there"));
        }
        body.end()?;
        Ok(Self { flows })
    }
}

/// What holds in a window and may be otherwise in the next.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// The table's share of the memory of table and residual, in hundredths ([`Setup::ALPHA`]);
    /// 0: what the setup says.
    pub alpha: u8,
    /// Flows that are pinned.
    pub pins: Pins,
    /// What is otherwise than the setup says.
    pub overrides: Overrides,
}

impl Plan {
    /// Its bytes for a switch that measures by `setup`, without what can't be otherwise there.
    pub fn encode(&self, setup: &Setup) -> Vec<u8> {
        let alpha = setup.alpha_moves.then_some(self.alpha);
        let overrides = setup.overrides.then_some(self.overrides);
        let mut out = Vec::new();
        let is_planned = alpha.is_some_and(|alpha| alpha != 0)
            || overrides.is_some_and(|of| of != Overrides::default())
            || !self.pins.flows.is_empty();
        if is_planned {
            overrides.iter().for_each(|of| of.put(&mut out));
            out.extend(alpha);
            out.extend(self.pins.encode());
        }
        out
    }

    /// What these bytes say to a switch that measures by `setup`.
    ///
    /// # Errors
    /// The first byte that can't be read, and why: also a share that can't be, what switches can't
    /// measure by, and more flows than can be pinned before their tables.
    pub fn decode(bytes: &[u8], setup: &Setup) -> Result<Self, DecodeError> {
        if bytes.is_empty() {
            return Ok(Self::default());
        }
        let mut body = Body::new("a plan of cfs", bytes, 0);
        let overrides = setup.overrides.then(|| Overrides::read(&mut body, setup)).transpose()?;
        let overrides = overrides.unwrap_or_default();
        let at_alpha = body.offset();
        let alpha = if setup.alpha_moves { body.u8("alpha")? } else { 0 };
        if let Some(why) = wrong_alpha(alpha) {
            return Err(body.wrong(at_alpha, "alpha", why));
        }
        let pins = Pins::decode(body.rest(), setup.with(overrides).entries)?;
        let plan = Self { alpha, pins, overrides };
        if plan == Self::default() {
            return Err(body.wrong(0, "plan", "nothing: must say something, or not be there"));
        }
        Ok(plan)
    }
}

/// What a switch measures by, for a controller that has just come.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Holding {
    /// Its setup, as it was sent.
    pub setup: Vec<u8>,
    /// The epoch from which on its plan holds.
    pub epoch: u64,
    /// The plan that it has accepted last, as it was sent.
    pub plan: Vec<u8>,
}

impl Holding {
    /// Its bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        put_bytes(&mut out, &self.setup);
        put_u64(&mut out, self.epoch);
        out.extend_from_slice(&self.plan);
        out
    }

    /// What these bytes say. Whether the plan is one, the caller must look.
    ///
    /// # Errors
    /// The first byte that can't be read, and why.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut body = Body::new("a holding of cfs", bytes, 0);
        let (setup, epoch) = (body.blob("setup")?, body.u64("epoch")?);
        Ok(Self { setup, epoch, plan: body.rest().to_vec() })
    }
}

#[cfg(test)]
mod tests {
    use super::super::graded::Graded;
    use super::*;

    fn key(port: u16) -> WideKey {
        WideKey::v4([10, 1, 0, 2].into(), [10, 2, 0, 2].into(), port, 80, 6)
    }

    #[test]
    fn plans_are_laid_out_as_documented() {
        assert!(Pins::default().encode().is_empty());
        assert_eq!(Pins::decode(&[], 256), Ok(Pins::default()));
        let pins = Pins { flows: [key(1), key(2)].into() };
        let bytes = pins.encode();
        assert_eq!(bytes, [&[2, 0][..], key(1).as_bytes(), key(2).as_bytes()].concat());
        assert_eq!(Pins::decode(&bytes, 256), Ok(pins));

        let says = |bytes: &[u8], words: &str| {
            let refused = Pins::decode(bytes, 256).unwrap_err().to_string();
            assert!(refused.ends_with(words), "{refused}");
        };
        says(&[65, 0], "byte 0 of a plan of cfs: pins: 65: there may be 64");
        says(&[0, 0], "pins: 0: must be 1 or more, or not be there");
        says(&Pins { flows: [key(2), key(1)].into() }.encode(), "pins: not in order");
        assert!(Pins::decode(&bytes[..40], 256).is_err());
        assert_eq!([256, 16_384, 1 << 22].map(Pins::most_of), [64, 4096, 4096]);
    }

    #[test]
    fn a_share_stands_before_pins_where_it_moves() {
        let fixed = Setup { residual: Some(16), ..Setup::default() };
        let moves = Setup { alpha_moves: true, ..fixed };
        let pins = Pins { flows: [key(1)].into() };
        let both = Plan { alpha: 75, pins: pins.clone(), ..Plan::default() };
        assert_eq!(both.encode(&fixed), pins.encode());
        let bytes = both.encode(&moves);
        assert_eq!(bytes, [&[75][..], &pins.encode()].concat());
        let pins = Plan { pins, ..Plan::default() };
        let alone = Plan { alpha: 97, ..Plan::default() };
        for plan in [both, pins, alone, Plan::default()] {
            assert_eq!(Plan::decode(&plan.encode(&moves), &moves), Ok(plan));
        }
        for (bytes, words) in [
            (&[98][..], "byte 0 of a plan of cfs: alpha: 98: must be 0, or 60 to 97"),
            (&[59, 1, 0], "alpha: 59: must be 0, or 60 to 97"),
            (&[0], "plan: nothing: must say something, or not be there"),
        ] {
            let refused = Plan::decode(bytes, &moves).unwrap_err().to_string();
            assert!(refused.ends_with(words), "{refused}");
        }
        assert!(Plan::decode(&[75], &fixed).is_err(), "pins of one byte");
    }

    #[test]
    fn what_overrides_the_setup_stands_before_all_else_and_is_what_switches_can_do() {
        let fixed = Setup { entries: 1024, residual: Some(16), ..Setup::default() };
        let setup = Setup { alpha_moves: true, overrides: true, ..fixed };
        let overrides =
            Overrides { entries: Some(512), grade: Some(Graded::Greedy), unclaimed: true };
        let pins = Pins { flows: [key(1)].into() };
        let all = Plan { alpha: 75, pins: pins.clone(), overrides };
        let bytes = all.encode(&setup);
        assert_eq!(bytes, [&[0, 2, 0, 0, 2, 1, 75][..], &pins.encode()].concat());
        let alone = Plan { overrides, ..Plan::default() };
        let unclaimed = Overrides { unclaimed: true, ..Overrides::default() };
        for plan in [all, alone, Plan { overrides: unclaimed, ..Plan::default() }, Plan::default()]
        {
            assert_eq!(Plan::decode(&plan.encode(&setup), &setup), Ok(plan.clone()));
            let of_older = Plan { overrides: Overrides::default(), alpha: 0, ..plan };
            assert_eq!(of_older.encode(&fixed), of_older.pins.encode());
        }
        assert_eq!(
            (setup.with(overrides).entries, setup.with(overrides).grade),
            (512, Graded::Greedy)
        );
        assert!(setup.claim && !setup.with(overrides).claim);
        for (bytes, words) in [
            (
                &[0, 5, 0, 0, 0, 0, 0][..],
                "byte 0 of a plan of cfs: entries: 1280: must be 256 to 1024, which there is memory for",
            ),
            (&[1, 0, 0, 0, 0, 0, 0], "byte 0 of a plan of cfs: entries: 1: must be 256 to 4194304"),
            (&[0, 0, 0, 0, 5, 0, 0], "byte 4 of a plan of cfs: grade: there is no rule 4"),
            (
                &[0, 0, 0, 0, 4, 0, 0],
                "byte 4 of a plan of cfs: grade: even: must be fold, greedy or random where hop is not mark",
            ),
            (
                &[0, 2, 0, 0, 0, 0, 0, 129, 0],
                "byte 0 of a plan of cfs: pins: 129: there may be 128",
            ),
            (&[0; 7], "plan: nothing: must say something, or not be there"),
        ] {
            let refused = Plan::decode(bytes, &setup).unwrap_err().to_string();
            assert!(refused.ends_with(words), "{refused}");
        }
    }

    #[test]
    fn what_a_switch_holds_comes_back() {
        let plan = Pins { flows: [key(1)].into() }.encode();
        let holding = Holding { setup: vec![1, 2, 3], epoch: 77, plan };
        assert_eq!(Holding::decode(&holding.encode()), Ok(holding.clone()));
        assert!(Holding::decode(&holding.encode()[..10]).is_err());
    }
}
