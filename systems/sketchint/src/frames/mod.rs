//! What SketchINT puts into the envelope. All numbers are little-endian.

use calumma_wire::{Offer, SystemId};

/// What a switch that runs it offers.
pub const OFFER: Offer = Offer { system: SystemId::SKETCHINT, lowest: 1, highest: 1 };
