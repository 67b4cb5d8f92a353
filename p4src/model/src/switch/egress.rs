//! The egress pipe of a packet.

use super::Switch;
use crate::exec::bits;

/// Fields of `egress_intrinsic_metadata_t` that the model fills, by their place in the header.
const EGRESS_PORT: usize = 1;
const EGRESS_RID: usize = 14;
const EGRESS_QID: usize = 18;

impl Switch {
    pub(super) fn egress(
        &mut self,
        port: u16,
        packet: Vec<u8>,
        copy: u16,
        qid: u8,
        output: &mut impl FnMut(u16, &[u8]),
    ) {
        let program = self.program.clone();
        let code = &*program.code;
        let gress = &code.egress;
        let layout = &code.layouts[gress.intrinsic as usize];
        let input = &mut self.machine.input;
        super::intrinsic_header(layout, &[], input);
        let length = layout.fields.len().saturating_sub(1);
        for (index, value) in [
            (EGRESS_PORT, u128::from(port)),
            (EGRESS_RID, u128::from(copy)),
            (EGRESS_QID, u128::from(qid)),
            (length, packet.len() as u128),
        ] {
            if let Some(field) = layout.fields.get(index) {
                bits::write(input, field.bit as usize, field.width, value);
            }
        }
        input.extend_from_slice(&packet);
        self.machine.packet_bytes = packet.len() as u64;
        self.give_back(packet);
        self.machine.parse(code, gress, false, self.now);
        self.machine.process(code, gress);
        let mut packet = self.buffer();
        packet.extend_from_slice(&self.machine.output);
        packet.extend_from_slice(self.machine.payload());
        let drop = self.machine.frame[gress.drop_ctl as usize];
        if drop & 4 == 0
            && let Some((session, header)) = self.machine.mirror.take()
        {
            self.mirror(session, &header, &packet);
        }
        if drop & 1 == 0 {
            self.leave(port, packet, output);
        } else {
            self.statistics.drops += 1;
            self.give_back(packet);
        }
    }
}
