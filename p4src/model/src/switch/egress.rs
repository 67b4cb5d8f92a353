//! The egress pipe of a packet.

use super::Switch;

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
        let header = &gress.header;
        let input = &mut self.machine.input;
        super::intrinsic_header(
            header,
            &[
                (header.port, u64::from(port)),
                (header.rid, u64::from(copy)),
                (header.qid, u64::from(qid)),
                (header.length, packet.len() as u64),
            ],
            input,
        );
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
