// The mark: timestamp bit and hierarchy in the top of the ToS byte, and the checksum with it. Where
// identifications carry marks, see identification.p4.

// Keeps what the checksum is made from, before anything in the header changes.
control Remember(in headers_t hdr, inout metadata_t meta) {
    action remember() {
        meta.before.checksum = ~hdr.ipv4.checksum;
        meta.before.ones = 0xFF;
        meta.before.tos = ~(hdr.ipv4.mark ++ hdr.ipv4.tos_rest);
        meta.before.ttl = 0;
#ifdef CARRIER_IP_ID
        meta.before.identification = ~hdr.ipv4.identification;
#endif
    }

    apply {
        remember();
    }
}

// Puts three bits in the place of the mark.
control Marking(inout mark_t place, in mark_t mark, inout bool changed) {
    apply {
        if (place != mark) {
            place = mark;
            changed = true;
        }
    }
}
