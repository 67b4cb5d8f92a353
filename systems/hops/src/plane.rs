//! What a switch does for `hops`: a table of flows for each window, filled by whatever passes.

use calumma_plane::counting::Tally;
use calumma_plane::system::{
    FinishedSide, Groups, LcoreHalf, Notes, SessionContext, SwitchSystem, System,
};
use calumma_plane::{CountEach, FlowTable};
use calumma_sketch::{AnyKey, KeyKind, with_key};
use calumma_wire::{Offer, Role, Side, SystemSetup};

use crate::frames::{Counts, OFFER, Packets, Setup};

/// The system, which runs on all switches.
#[derive(Clone, Copy, Debug)]
pub struct Hops;

impl System for Hops {
    fn name(&self) -> &'static str {
        "hops"
    }

    fn offer(&self) -> Offer {
        OFFER
    }

    fn runs_as(&self, role: Role) -> bool {
        matches!(role, Role::Edge | Role::Transit)
    }

    fn begin(
        &self,
        session: &SessionContext,
        setup: &SystemSetup,
    ) -> Result<Box<dyn SwitchSystem>, String> {
        let setup = Setup::decode(&setup.setup).map_err(|problem| problem.to_string())?;
        Ok(Box::new(OnSwitch { setup, first_epoch: session.first_epoch }))
    }
}

/// What an lcore keeps of a side of a window.
type Table<K> = FlowTable<K, Packets>;

impl Tally for Packets {
    fn of(received: u64, refused: u64) -> Self {
        Self { received, refused }
    }
}

/// Its half on the control thread.
#[derive(Debug)]
struct OnSwitch {
    setup: Setup,
    first_epoch: u64,
}

impl SwitchSystem for OnSwitch {
    fn on_lcore(&self, keys: KeyKind) -> AnyKey<LcoreHalf> {
        let (first_epoch, window) = (self.first_epoch, self.setup.window.into());
        with_key!(keys, K => LcoreHalf::of(CountEach::<Table<K>>::new(first_epoch, window, ())))
    }

    fn groups(&self, keys: KeyKind) -> Groups {
        with_key!(keys, K => Groups::alike(|| Table::<K>::new(self.setup.flows.into())))
    }

    fn side(&self, finished: FinishedSide<'_>) -> Option<(Side, Notes)> {
        let counts = Counts::of(finished.record)?;
        let notes = vec![("flows", Some(counts.flows.len() as u64))];
        Some((finished.frame(OFFER.system, counts.encode()), notes))
    }

    fn gauges(&self) -> Vec<(&'static str, f64)> {
        let Setup { flows, window } = self.setup;
        vec![("table_flows", flows.into()), ("window_epochs", window.into())]
    }
}
