//! A switch's session: what it measures by, from the controller's welcome on.

use std::sync::Arc;

use calumma_epoch::EpochClock;
use calumma_plane::secret::hash_key;
use calumma_sketch::{HashFamily, HashKey, Key};
use calumma_wire::{Secret, Side, SystemSetup};

use super::side::{EgressSide, IngressSide};
use super::{Holding, VERSION, decode_plan, decode_setup};
use crate::{Attention, Layout};

/// What a session measures by.
#[derive(Clone, Debug)]
pub struct SessionPlan {
    /// Memory of the sketches.
    pub layout: Layout,
    /// Secret of the deployment.
    pub hash_key: HashKey,
    /// Epoch length and guards.
    pub clock: EpochClock,
    /// The first epoch to measure.
    pub first_epoch: u64,
    /// The attention that holds from it on.
    pub attention: Attention,
}

impl SessionPlan {
    /// What the controller's setup of ChameleMon says.
    ///
    /// # Errors
    /// What can't be read, or does not fit the layout, in words.
    pub fn decode(
        setup: &SystemSetup,
        secret: &Secret,
        clock: EpochClock,
        first_epoch: u64,
    ) -> Result<Self, String> {
        let layout = decode_setup(&setup.setup).map_err(|error| error.to_string())?;
        let attention = decode_plan(&setup.plan).map_err(|error| error.to_string())?;
        attention.validate(&layout).map_err(|error| error.to_string())?;
        let hash_key = hash_key(secret);
        Ok(Self { layout, hash_key, clock, first_epoch, attention })
    }
}

/// A session under way on a switch.
#[derive(Clone, Debug)]
pub struct SwitchSession {
    plan: SessionPlan,
    family: Arc<HashFamily>,
    holding: Holding,
    version: u8,
}

impl SwitchSession {
    /// A session that begins by `plan`.
    pub fn new(plan: SessionPlan) -> Self {
        let holding = Holding { attention: plan.attention, effective_epoch: plan.first_epoch };
        let family = Arc::new(HashFamily::new(&plan.hash_key));
        Self { family, holding, plan, version: VERSION }
    }

    /// The same with bodies of `version`.
    #[must_use]
    pub fn with_version(self, version: u8) -> Self {
        Self { version, ..self }
    }

    /// The version of the bodies that are sent.
    pub fn version(&self) -> u8 {
        self.version
    }

    /// What it began by.
    pub fn plan(&self) -> &SessionPlan {
        &self.plan
    }

    /// Its hash functions.
    pub fn family(&self) -> &Arc<HashFamily> {
        &self.family
    }

    /// The attention accepted last.
    pub fn holding(&self) -> Holding {
        self.holding
    }

    /// The attention of a plan that the controller has sent.
    ///
    /// # Errors
    /// Why it can't hold on this switch.
    pub fn check(&self, plan: &[u8]) -> Result<Attention, String> {
        let attention = decode_plan(plan).map_err(|error| error.to_string())?;
        attention.validate(&self.plan.layout).map_err(|error| error.to_string())?;
        Ok(attention)
    }

    /// Notes that `attention` holds from `epoch` on.
    pub fn accept(&mut self, epoch: u64, attention: Attention) {
        self.holding = Holding { attention, effective_epoch: epoch };
    }

    /// The frame of a finished ingress side, and the flows that stand in it for the HH encoder's
    /// buckets; `None` where that does not decode.
    pub fn ingress<K: Key>(&self, side: &IngressSide<K>) -> (Side, Option<usize>) {
        let flows = side.hh_flows(&self.family);
        let balance = side.balance.filter(|_| self.version >= VERSION);
        let lcores = side.lcores.filter(|_| self.version >= VERSION);
        let side = IngressSide { balance, key: self.key(), lcores, ..*side };
        let frame = side.to_wire(flows.as_deref());
        (frame, flows.map(|flows| flows.len()))
    }

    /// The frame of a finished egress side.
    pub fn egress<K: Key>(&self, side: EgressSide<K>) -> Side {
        if self.version < VERSION {
            let (strays, unmarked) = (None, None);
            return EgressSide { balance: None, strays, unmarked, key: None, ..side }.to_wire();
        }
        EgressSide { key: self.key(), ..side }.to_wire()
    }

    /// The number of its key, for controllers that read it.
    fn key(&self) -> Option<u64> {
        (self.version >= VERSION).then(|| self.plan.hash_key.id())
    }
}
