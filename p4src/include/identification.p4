// Marks in the IPv4 identification, for programs that define CARRIER_IP_ID (docs/contract.md,
// Carrier and Signature): `eethh000`, and eight bits that sign addresses and protocol in the epoch.
//
// A signature is the exclusive or of nine secret bytes, one for each byte that is signed, and of the
// epoch's. Which epochs there are, the control plane says: as long as it says none, nothing is
// marked or believed, and what leaves the network leaves with a fresh identification.

// What a packet is to the carrier: these go on from the kinds that the egress gets.
const bit<8> LATE = 4;       // marked in an epoch that is over
const bit<8> UNMARKED = 5;   // by no edge
const bit<8> UNKEYED = 6;    // nobody can say: there is no secret

typedef bit<2> datagram_t;
const datagram_t UNTOUCHABLE = 0;     // a fragment, or covered by an authentication header
const datagram_t FIRST_FRAGMENT = 1;  // may have become one on its way: is read, never written
const datagram_t WHOLE = 2;
const datagram_t LONG = 3;            // whole, and the fabric may cut it: enters without a mark

const bit<8> PROTOCOL_AH = 51;

// One byte of what is signed in its secret table, drawn from the deployment's key.
control SignatureByte(in bit<8> byte, out bit<8> out_of) {
    action set(bit<8> value) {
        out_of = value;
    }

    table secret {
        key = { byte : exact; }
        actions = { set; }
        const default_action = set(0);
        size = 256;
    }

    apply {
        secret.apply();
    }
}

// Signs what a host sends, and judges what the fabric brings.
control Signature(in ipv4_h ipv4, inout metadata_t meta) {
    Hash<bit<8>>(HashAlgorithm_t.XOR8) xor;
    Hash<bit<8>>(HashAlgorithm_t.XOR8) xor_next;
    SignatureByte() byte0;
    SignatureByte() byte1;
    SignatureByte() byte2;
    SignatureByte() byte3;
    SignatureByte() byte4;
    SignatureByte() byte5;
    SignatureByte() byte6;
    SignatureByte() byte7;
    SignatureByte() byte8;
    bit<8> u0;
    bit<8> u1;
    bit<8> u2;
    bit<8> u3;
    bit<8> u4;
    bit<8> u5;
    bit<8> u6;
    bit<8> u7;
    bit<8> u8;
    bit<3> epoch;    // its low bits, `eet`
    bit<8> said;     // the signature that the packet came with
    bit<8> pad;
    bit<8> pad_next;
    bit<8> wrong_next;
    bit<1> enters;
    bit<1> known;
    bit<1> late;
    bit<16> over;    // by how much the packet is longer than all links of the fabric take

    action of_host() {
        enters = 1;
        epoch = meta.epoch;
        said = 0;
    }

    action of_fabric() {
        enters = 0;
        epoch = ipv4.identification[15:13];
        said = ipv4.identification[7:0];
    }

    // Where the epoch to come has these bits as well, the second pad is its own.
    action pads_are(bit<8> of_epoch, bit<8> of_next, bit<1> is_late) {
        meta.keyed = true;
        known = 1;
        pad = of_epoch;
        pad_next = of_next;
        late = is_late;
    }

    // Late are all but the last two epochs armed, one of each timestamp bit.
    table epochs {
        key = { epoch : exact; }
        actions = { pads_are; NoAction; }
        const default_action = NoAction;
        size = 8;
    }

    action limit(bit<16> fabric_mtu) {
        over = ipv4.total_length |-| fabric_mtu;
    }

    // What every link of the fabric takes, as the control plane knows it.
    table fabric {
        actions = { limit; }
        default_action = limit(0xFFFF);
        size = 1;
    }

    action is(datagram_t datagram) {
        meta.datagram = datagram;
    }

    table datagrams {
        key = {
            ipv4.flags : ternary;
            ipv4.fragment : ternary;
            ipv4.protocol : ternary;
            over : ternary;
        }
        actions = { is; }
        const default_action = is(UNTOUCHABLE);
        const entries = {
            (_, _, PROTOCOL_AH, _) : is(UNTOUCHABLE);
            (1 &&& 1, 0, _, _) : is(FIRST_FRAGMENT);
            (2 &&& 3, 0, _, _) : is(WHOLE);
            (0 &&& 3, 0, _, 0) : is(WHOLE);
            (0 &&& 3, 0, _, _) : is(LONG);
        }
        size = 5;
    }

    // Of a packet from a host the signature; else what is wrong with the one it came with.
    action sign() {
        meta.signature = xor.get({ u0, u1, u2, u3, u4, u5, u6, u7, u8, pad, said });
        wrong_next = xor_next.get({ u0, u1, u2, u3, u4, u5, u6, u7, u8, pad_next, said });
    }

    action takes_part() {
        meta.fate = MEASURED;
    }

    action comes_late() {
        meta.fate = LATE;
    }

    action stays_out(bit<8> fate) {
        meta.fate = fate;
        meta.measured = false;
        meta.class[0:0] = 0;
    }

    // From a host, and counted as such.
    action is_left_out() {
        meta.fate = UNMEASURED;
        meta.measured = false;
        meta.class[2:2] = 1;
    }

    // Claims are not known here: with one or without, a mark is valid. One that fits in what can't
    // have been marked is that of a packet that could not be cut where it entered.
    table fates {
        key = {
            enters : ternary;
            meta.datagram : ternary;
            known : ternary;
            ipv4.identification : ternary;
            meta.signature : ternary;
            wrong_next : ternary;
            late : ternary;
        }
        actions = { takes_part; comes_late; stays_out; is_left_out; }
        const default_action = stays_out(UNMARKED);
        const entries = {
            (_, UNTOUCHABLE, _, _, _, _, _) : stays_out(UNMEASURED);
            (1, FIRST_FRAGMENT, _, _, _, _, _) : stays_out(UNMEASURED);
            (_, FIRST_FRAGMENT, 0, _, _, _, _) : stays_out(UNMEASURED);
            (_, _, 0, _, _, _, _) : stays_out(UNKEYED);
            (1, LONG, _, _, _, _, _) : is_left_out();
            (0, LONG, _, 0 &&& 0x0500, 0, _, _) : stays_out(UNMARKED);
            (0, LONG, _, 0 &&& 0x0500, _, 0, _) : stays_out(UNMARKED);
            (_, LONG, _, _, _, _, _) : stays_out(UNMEASURED);
            (1, _, _, _, _, _, _) : takes_part();
            (0, _, _, 0 &&& 0x0500, 0, _, 0) : takes_part();
            (0, _, _, 0 &&& 0x0500, 0, _, 1) : comes_late();
            (0, _, _, 0 &&& 0x0500, _, 0, 1) : comes_late();
            (_, FIRST_FRAGMENT, _, _, _, _, _) : stays_out(UNMEASURED);
        }
        size = 13;
    }

    apply {
        meta.keyed = false;
        meta.fate = UNMEASURED;
        known = 0;
        pad = 0;
        pad_next = 0;
        late = 0;
        if (meta.from_host) {
            of_host();
        } else {
            of_fabric();
        }
        fabric.apply();
        datagrams.apply();
        epochs.apply();
        byte0.apply(ipv4.src[31:24], u0);
        byte1.apply(ipv4.src[23:16], u1);
        byte2.apply(ipv4.src[15:8], u2);
        byte3.apply(ipv4.src[7:0], u3);
        byte4.apply(ipv4.dst[31:24], u4);
        byte5.apply(ipv4.dst[23:16], u5);
        byte6.apply(ipv4.dst[15:8], u6);
        byte7.apply(ipv4.dst[7:0], u7);
        byte8.apply(ipv4.protocol, u8);
        sign();
        if (meta.measured) {
            fates.apply();
        }
    }
}

// Writes the mark of a packet from a host, whose hierarchy is known by now.
control Identify(inout ipv4_h ipv4, in bit<3> epoch, in mark_t mark, in bit<8> signature,
                 inout bool changed) {
    action identify() {
        ipv4.identification = epoch ++ mark[1:0] ++ 3w0 ++ signature;
        changed = true;
    }

    apply {
        identify();
    }
}

// Takes the mark out of what leaves the network: an atomic datagram needs no identification (RFC
// 6864), one that may be cut gets a fresh number, fragments keep the one they have in common.
// Between two addresses numbers rise by one, unless another two share the counter.
control Release(inout ipv4_h ipv4, inout bool changed) {
    Hash<bit<8>>(HashAlgorithm_t.CRC8) pair_of;
    Register<bit<16>, bit<8>>(256, 0) counters;
    RegisterAction<bit<16>, bit<8>, bit<16>>(counters) next = {
        void apply(inout bit<16> number, out bit<16> out_of) {
            number = number + 1;
            out_of = number;
        }
    };
    bit<8> pair;

    action choose() {
        pair = pair_of.get({ ipv4.src, ipv4.dst });
    }

    action zero() {
        ipv4.identification = 0;
        changed = true;
    }

    action number() {
        ipv4.identification = next.execute(pair);
        changed = true;
    }

    apply {
        choose();
        if (ipv4.flags[1:0] == 0) {
            number();
        } else if (ipv4.flags[0:0] == 0) {
            zero();
        }
    }
}
