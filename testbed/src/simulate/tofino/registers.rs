//! Registers of a modelled switch, group by group, and its counter of packets that entered.

use std::mem;

use anyhow::Result;
use calumma_switchd::collection::Source;
use calumma_tna::Switch;

use super::Session;

/// The words of a group, source by source.
pub(super) fn words(switch: &Switch, sources: &[Source], parity: usize) -> Result<Vec<Vec<u32>>> {
    let words = |source: &Source| -> Result<Vec<u32>> {
        let mut lanes = Vec::new();
        for name in &source.registers {
            lanes.extend(switch.read_register_lanes(name)?);
        }
        let elements = source.elements as usize;
        let group = parity * elements..(parity + 1) * elements;
        Ok(group.flat_map(|at| lanes.iter().map(move |lane| lane[at])).collect())
    };
    sources.iter().map(words).collect()
}

/// Empties a group.
pub(super) fn clear(switch: &mut Switch, sources: &[Source], parity: usize) -> Result<()> {
    for source in sources {
        let elements = source.elements as usize;
        for name in &source.registers {
            let lanes = switch.read_register_lanes(name)?.len();
            for at in parity * elements..(parity + 1) * elements {
                switch.write_register(name, at, &[0, 0][..lanes])?;
            }
        }
    }
    Ok(())
}

impl Session {
    /// Packets that have entered with a timestamp bit since they were counted last.
    pub(super) fn entered_since(&mut self, bit: usize) -> Result<u64> {
        let (Some(counter), before) = &mut self.entered else { return Ok(0) };
        let counted = self.switch.read_counter(counter, bit)?.packets;
        Ok(counted - mem::replace(&mut before[bit], counted))
    }
}
