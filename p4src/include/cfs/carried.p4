// What a packet of the network carries for its windows.

// The bit by which a packet is recorded. IPv6 packets carry it, too, in networks whose edges
// measure them; this program tells none of their flows apart.
control Carried(in headers_t hdr, out bit<1> ipv6, out bit<1> timestamp) {
    apply {
        ipv6 = 0;
        timestamp = hdr.ipv4.mark[2:2];
        if (hdr.ipv6.isValid()) {
            ipv6 = 1;
            timestamp = hdr.ipv6.traffic_class[7:7];
        }
    }
}
