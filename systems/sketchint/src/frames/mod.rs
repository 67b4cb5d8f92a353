//! What SketchINT puts into the envelope. All numbers are little-endian.

mod columns;
mod layout;
mod window;

use calumma_wire::{Offer, SystemId};

pub use self::layout::Layout;
pub use self::window::Window;

/// What a switch that runs it offers.
pub const OFFER: Offer = Offer { system: SystemId::SKETCHINT, lowest: 1, highest: 1 };
