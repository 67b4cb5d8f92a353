-- INT stacks between switches of a Calumma network (P4.org INT-MD, version 2.1, behind TCP or UDP, or
-- behind a UDP header of its own before any other protocol),
-- and the telemetry reports of its sinks (Telemetry Report Format, version 2.0), for Wireshark and
-- tshark:
--
--     tshark -X lua_script:calumma_int.lua -r capture.pcapng -Y calumma_int -T fields -e calumma_int.node
--     tshark -X lua_script:calumma_int.lua -r capture.pcapng -d udp.port==32766,calumma_report
--
-- A packet has a stack where bit 4 of its ToS byte or traffic class says so and shim and header are
-- as a source writes them (docs/sketchint.md, On the wire). Any domain is taken, and any UDP port that
-- marks packets. What Wireshark shows as TCP options or as payload behind the transport header is the
-- stack, then the sender's own.
-- Filters see the newest hop first, as the packet has it.

local int = Proto("calumma_int", "In-band Network Telemetry (INT-MD 2.1)")

local fields = {
    length = ProtoField.uint8("calumma_int.length", "Length behind the shim", base.DEC, nil, nil, "In words of 32 bits"),
    dscp = ProtoField.uint8("calumma_int.dscp", "Original DSCP", base.DEC, nil, 0xFC),
    original_port = ProtoField.uint16("calumma_int.original_port", "Original UDP port"),
    original_protocol = ProtoField.uint8("calumma_int.original_protocol", "Original IP protocol"),
    discard = ProtoField.bool("calumma_int.discard", "D: the sink drops the packet", 32, nil, 0x08000000),
    hops_exceeded = ProtoField.bool("calumma_int.hops_exceeded", "E: no hops were left", 32, nil, 0x04000000),
    mtu_exceeded = ProtoField.bool("calumma_int.mtu_exceeded", "M: a hop would have been too long", 32, nil, 0x02000000),
    hop_ml = ProtoField.uint32("calumma_int.hop_ml", "Words of a hop", base.DEC, nil, 0x00001F00),
    remaining = ProtoField.uint32("calumma_int.remaining", "Remaining hops", base.DEC, nil, 0x000000FF),
    instructions = ProtoField.uint16("calumma_int.instructions", "Instruction bitmap", base.HEX),
    domain = ProtoField.uint16("calumma_int.domain", "Domain specific ID", base.HEX),
    hops = ProtoField.uint8("calumma_int.hops", "Hops", base.DEC),
    hop = ProtoField.bytes("calumma_int.hop", "Hop"),
}

-- What each instruction asks for, by its bit of the bitmap, the highest first: the bytes that it takes,
-- and its fields with theirs.
local asked_for = {
    { 4, { { ProtoField.uint32("calumma_int.node", "Node id"), 0, 4 } } },
    { 4, {
        { ProtoField.uint16("calumma_int.ingress_port", "Ingress port"), 0, 2 },
        { ProtoField.uint16("calumma_int.egress_port", "Egress port"), 2, 2 },
    } },
    { 4, { { ProtoField.uint32("calumma_int.latency", "Hop latency (ns)"), 0, 4 } } },
    { 4, {
        { ProtoField.uint8("calumma_int.queue", "Queue id"), 0, 1 },
        { ProtoField.uint24("calumma_int.queue_occupancy", "Queue occupancy"), 1, 3 },
    } },
    { 8, { { ProtoField.uint64("calumma_int.ingress_time", "Ingress timestamp (ns)"), 0, 8 } } },
    { 8, { { ProtoField.uint64("calumma_int.egress_time", "Egress timestamp (ns)"), 0, 8 } } },
    { 8, {
        { ProtoField.uint32("calumma_int.ingress_interface", "Ingress interface"), 0, 4 },
        { ProtoField.uint32("calumma_int.egress_interface", "Egress interface"), 4, 4 },
    } },
    { 4, { { ProtoField.uint32("calumma_int.utilisation", "Egress utilisation"), 0, 4 } } },
    { 4, {
        { ProtoField.uint8("calumma_int.buffer", "Buffer id"), 0, 1 },
        { ProtoField.uint24("calumma_int.buffer_occupancy", "Buffer occupancy"), 1, 3 },
    } },
}
local reserved = ProtoField.bytes("calumma_int.reserved", "Reserved")
local complement = ProtoField.uint32("calumma_int.checksum_complement", "Checksum complement", base.HEX)

local all = { reserved, complement }
for _, field in pairs(fields) do
    table.insert(all, field)
end
for _, instruction in ipairs(asked_for) do
    for _, field in ipairs(instruction[2]) do
        table.insert(all, field[1])
    end
end
int.fields = all

local tos_of = { Field.new("ip.dsfield"), Field.new("ipv6.tclass") }
local transports = { { Field.new("tcp.srcport"), 20 }, { Field.new("udp.srcport"), 8 } }

local MARKER = 0x10
local SHIM, HEADER = 4, 12

-- Bytes that an instruction takes, by its bit.
local function bytes_of(bit)
    return asked_for[bit + 1] and asked_for[bit + 1][1] or 4
end

local function asks(instructions, bit)
    return math.floor(instructions / 2 ^ (15 - bit)) % 2 == 1
end

-- Whether the outermost header of the network layer says that there may be a stack.
local function is_marked()
    for _, tos in ipairs(tos_of) do
        local of = tos()
        if of then
            return math.floor(of.value / MARKER) % 2 == 1
        end
    end
    return false
end

-- Where the bytes behind the fixed header of the transport begin, and whether that is UDP's.
local function behind_transport()
    for _, transport in ipairs(transports) do
        local port = transport[1]()
        if port then
            return port.offset + transport[2], transport[2] == 8
        end
    end
end

-- What the shim says of the packet as its host has sent it, where that is one: its field and its bytes.
local BY_DSCP, BY_PORT, BY_PROTOCOL = 0x10, 0x14, 0x18
local function says(tvb, at, is_udp)
    local kind, high, low = tvb(at, 1):uint(), tvb(at + 2, 1):uint(), tvb(at + 3, 1):uint()
    if kind == BY_DSCP and high == 0 and low % 4 == 0 then
        return fields.dscp, tvb(at + 3, 1)
    elseif kind == BY_PORT and is_udp then
        return fields.original_port, tvb(at + 2, 2)
    elseif kind == BY_PROTOCOL and high == 0 and is_udp then
        return fields.original_protocol, tvb(at + 3, 1)
    end
end

-- Instructions and words of a hop, where what begins at an offset is a stack.
local function recognise(tvb, at, is_udp)
    if tvb:len() < at + SHIM + HEADER then
        return
    end
    local length, first = tvb(at + 1, 1):uint(), tvb(at + SHIM, 4):uint()
    local version, flags = math.floor(first / 2 ^ 28), math.floor(first / 2 ^ 13) % 2 ^ 12
    local hop_words = math.floor(first / 2 ^ 8) % 32
    if not says(tvb, at, is_udp) or version ~= 2 or flags ~= 0 or length < 3 or tvb:len() < at + SHIM + 4 * length then
        return
    end
    local instructions, words = tvb(at + SHIM + 4, 2):uint(), 0
    for bit = 0, 15 do
        if asks(instructions, bit) then
            words = words + bytes_of(bit) / 4
        end
    end
    if words ~= hop_words or words == 0 or (length - 3) % words ~= 0 then
        return
    end
    return instructions, words, length
end

local function add_hop(tree, tvb, at, instructions, bytes)
    local hop = tree:add(fields.hop, tvb(at, bytes))
    for bit = 0, 15 do
        if asks(instructions, bit) then
            if bit == 15 then
                hop:add(complement, tvb(at, 4))
            elseif asked_for[bit + 1] then
                for _, field in ipairs(asked_for[bit + 1][2]) do
                    hop:add(field[1], tvb(at + field[2], field[3]))
                end
            else
                hop:add(reserved, tvb(at, 4))
            end
            at = at + bytes_of(bit)
        end
    end
end

-- Shows what begins at an offset, where that is a stack; gives its hops.
local function show_stack(tvb, at, is_udp, tree)
    local instructions, words, length = recognise(tvb, at, is_udp)
    if not instructions then
        return
    end
    local stack = tree:add(int, tvb(at, SHIM + 4 * length))
    stack:add(fields.length, tvb(at + 1, 1))
    stack:add(says(tvb, at, is_udp))
    local first = tvb(at + SHIM, 4)
    for _, field in ipairs({ "discard", "hops_exceeded", "mtu_exceeded", "hop_ml", "remaining" }) do
        stack:add(fields[field], first)
    end
    stack:add(fields.instructions, tvb(at + SHIM + 4, 2))
    stack:add(fields.domain, tvb(at + SHIM + 6, 2))
    local hops = (length - 3) / words
    stack:add(fields.hops, hops):set_generated()
    at = at + SHIM + HEADER
    for _ = 1, hops do
        add_hop(stack, tvb, at, instructions, 4 * words)
        at = at + 4 * words
    end
    return hops
end

function int.dissector(tvb, pinfo, tree)
    if not is_marked() then
        return
    end
    local at, is_udp = behind_transport()
    local hops = at and show_stack(tvb, at, is_udp, tree)
    if hops then
        pinfo.cols.info:append(string.format(" [INT: %d hops]", hops))
    end
end

register_postdissector(int)

-- Telemetry reports. The port is the collector's own: Decode As, or -d udp.port==PORT,calumma_report.
local report = Proto("calumma_report", "Telemetry Report (2.0)")

local group = {
    version = ProtoField.uint32("calumma_report.version", "Version", base.DEC, nil, 0xF0000000),
    hardware = ProtoField.uint32("calumma_report.hardware", "Hardware id", base.DEC, nil, 0x0FC00000),
    sequence = ProtoField.uint32("calumma_report.sequence", "Sequence number", base.DEC, nil, 0x003FFFFF),
    node = ProtoField.uint32("calumma_report.node", "Node id"),
    one = ProtoField.none("calumma_report.report", "Report"),
    kind = ProtoField.uint8("calumma_report.type", "Report type", base.DEC, { [0] = "inner only", [1] = "INT", [2] = "IOAM" }, 0xF0),
    inner = ProtoField.uint8("calumma_report.inner", "Inner type", base.DEC, {
        [0] = "none", [1] = "TLV", [2] = "domain specific", [3] = "Ethernet", [4] = "IPv4", [5] = "IPv6",
    }, 0x0F),
    words = ProtoField.uint8("calumma_report.length", "Report length", base.DEC, nil, nil, "In words, without the first"),
    metadata_words = ProtoField.uint8("calumma_report.metadata_length", "Metadata length", base.DEC, nil, nil, "In words"),
    dropped = ProtoField.bool("calumma_report.dropped", "D: dropped", 8, nil, 0x80),
    congested = ProtoField.bool("calumma_report.congested", "Q: congested queue", 8, nil, 0x40),
    tracked = ProtoField.bool("calumma_report.tracked_flow", "F: tracked flow", 8, nil, 0x20),
    intermediate = ProtoField.bool("calumma_report.intermediate", "I: intermediate", 8, nil, 0x10),
    baseline = ProtoField.uint16("calumma_report.metadata_bits", "RepMdBits", base.HEX),
    domain = ProtoField.uint16("calumma_report.domain", "Domain specific ID", base.HEX),
    specific = ProtoField.uint16("calumma_report.specific_bits", "DSMdBits", base.HEX),
    specific_status = ProtoField.uint16("calumma_report.specific_status", "DSMdstatus", base.HEX),
    is_inflated = ProtoField.bool("calumma_report.reason.inflated", "Inflated latency", 32, nil, 0x80000000),
    path_change = ProtoField.bool("calumma_report.reason.path_change", "New path of its flow", 32, nil, 0x40000000),
    is_loop = ProtoField.bool("calumma_report.reason.loop", "Came by a switch twice", 32, nil, 0x20000000),
    heavy_hitter = ProtoField.bool("calumma_report.reason.heavy_hitter", "Its flow became a heavy hitter", 32, nil, 0x10000000),
    drawn = ProtoField.bool("calumma_report.reason.tracked", "Drawn", 32, nil, 0x08000000),
    inflated_node = ProtoField.uint32("calumma_report.inflated_node", "Inflated at node"),
    inflated_latency = ProtoField.uint32("calumma_report.inflated_latency", "Inflated latency (ns)"),
    packet = ProtoField.bytes("calumma_report.packet", "Packet, cut"),
    source = ProtoField.ipv4("calumma_report.src", "Source"),
    destination = ProtoField.ipv4("calumma_report.dst", "Destination"),
    source6 = ProtoField.ipv6("calumma_report.src6", "Source"),
    destination6 = ProtoField.ipv6("calumma_report.dst6", "Destination"),
}

-- What RepMdBits asks for, by bit; those between are reserved. Bytes, then fields as for hops.
local own = {
    [1] = { 4, {
        { ProtoField.uint16("calumma_report.ingress_port", "Ingress port"), 0, 2 },
        { ProtoField.uint16("calumma_report.egress_port", "Egress port"), 2, 2 },
    } },
    [2] = { 4, { { ProtoField.uint32("calumma_report.latency", "Hop latency (ns)"), 0, 4 } } },
    [3] = { 4, {
        { ProtoField.uint8("calumma_report.queue", "Queue id"), 0, 1 },
        { ProtoField.uint24("calumma_report.queue_occupancy", "Queue occupancy"), 1, 3 },
    } },
    [4] = { 8, { { ProtoField.uint64("calumma_report.ingress_time", "Ingress timestamp (ns)"), 0, 8 } } },
    [5] = { 8, { { ProtoField.uint64("calumma_report.egress_time", "Egress timestamp (ns)"), 0, 8 } } },
    [6] = { 8, {
        { ProtoField.uint32("calumma_report.ingress_interface", "Ingress interface"), 0, 4 },
        { ProtoField.uint32("calumma_report.egress_interface", "Egress interface"), 4, 4 },
    } },
    [7] = { 4, { { ProtoField.uint32("calumma_report.utilisation", "Egress utilisation"), 0, 4 } } },
    [8] = { 4, {
        { ProtoField.uint8("calumma_report.buffer", "Buffer id"), 0, 1 },
        { ProtoField.uint24("calumma_report.buffer_occupancy", "Buffer occupancy"), 1, 3 },
    } },
    [15] = { 4, {
        { ProtoField.uint8("calumma_report.drop_queue", "Queue id"), 0, 1 },
        { ProtoField.uint8("calumma_report.drop_reason", "Drop reason"), 1, 1 },
    } },
}

local of_report = {}
for _, field in pairs(group) do
    table.insert(of_report, field)
end
for _, metadata in pairs(own) do
    for _, field in ipairs(metadata[2]) do
        table.insert(of_report, field[1])
    end
end
report.fields = of_report

local GROUP, FIRST, FIXED, TO_THE_END = 8, 4, 12, 255
local REASONS = { "is_inflated", "path_change", "is_loop", "heavy_hitter", "drawn" }

-- Where a stack would stand in a packet that begins with its IP header.
local function place_in(tvb)
    if tvb:len() < 20 then
        return
    end
    local protocol, at
    if tvb(0, 1):uint() >= 0x60 then
        if tvb:len() < 40 then
            return
        end
        protocol, at = tvb(6, 1):uint(), 40
        -- Hop-by-hop options, routing, destination options.
        while (protocol == 0 or protocol == 43 or protocol == 60) and tvb:len() >= at + 8 do
            protocol, at = tvb(at, 1):uint(), at + 8 * (1 + tvb(at + 1, 1):uint())
        end
    else
        protocol, at = tvb(9, 1):uint(), 4 * (tvb(0, 1):uint() % 16)
    end
    return protocol == 6 and at + 20 or protocol == 17 and at + 8 or nil, protocol == 17
end

local function show_packet(tvb, tree)
    tree:add(group.packet, tvb())
    if tvb:len() < 20 then
        return
    end
    local is_ipv6 = tvb(0, 1):uint() >= 0x60
    if is_ipv6 and tvb:len() >= 40 then
        tree:add(group.source6, tvb(8, 16))
        tree:add(group.destination6, tvb(24, 16))
    elseif not is_ipv6 then
        tree:add(group.source, tvb(12, 4))
        tree:add(group.destination, tvb(16, 4))
    end
    local tos = is_ipv6 and math.floor(tvb(0, 2):uint() / 16) % 256 or tvb(1, 1):uint()
    local at, is_udp = place_in(tvb)
    if at and math.floor(tos / MARKER) % 2 == 1 then
        show_stack(tvb, at, is_udp, tree)
    end
end

-- Shows the metadata of a report that begins at an offset and ends at another.
local function show_metadata(tvb, at, stop, baseline, specific, tree)
    for bit = 0, 15 do
        local metadata = own[bit]
        if asks(baseline, bit) then
            local bytes = metadata and metadata[1] or 4
            if at + bytes > stop then
                return
            end
            for _, field in ipairs(metadata and metadata[2] or {}) do
                tree:add(field[1], tvb(at + field[2], field[3]))
            end
            at = at + bytes
        end
    end
    if asks(specific, 0) and at + 4 <= stop then
        for _, reason in ipairs(REASONS) do
            tree:add(group[reason], tvb(at, 4))
        end
        at = at + 4
    end
    if asks(specific, 1) and at + 8 <= stop then
        tree:add(group.inflated_node, tvb(at, 4))
        tree:add(group.inflated_latency, tvb(at + 4, 4))
    end
end

-- Shows the report that begins at an offset; gives where it ends, or nothing where it is none.
local function show_report(tvb, at, tree)
    local words = tvb(at + 1, 1):uint()
    local stop = words == TO_THE_END and tvb:len() or at + 4 * (1 + words)
    if stop > tvb:len() then
        return
    end
    local kind = math.floor(tvb(at, 1):uint() / 16)
    local one = tree:add(group.one, tvb(at, stop - at))
    for _, field in ipairs({ "kind", "inner" }) do
        one:add(group[field], tvb(at, 1))
    end
    one:add(group.words, tvb(at + 1, 1))
    one:add(group.metadata_words, tvb(at + 2, 1))
    for _, bit in ipairs({ "dropped", "congested", "tracked", "intermediate" }) do
        one:add(group[bit], tvb(at + 3, 1))
    end
    local inner = at + FIRST
    if kind == 1 then
        if at + FIXED > stop then
            return
        end
        local metadata = at + FIXED
        inner = metadata + 4 * tvb(at + 2, 1):uint()
        if inner > stop then
            return
        end
        for number, field in ipairs({ "baseline", "domain", "specific", "specific_status" }) do
            one:add(group[field], tvb(at + 2 + 2 * number, 2))
        end
        show_metadata(tvb, metadata, inner, tvb(at + 4, 2):uint(), tvb(at + 8, 2):uint(), one)
    end
    local of = tvb(at, 1):uint() % 16
    if (of == 4 or of == 5) and inner < stop then
        show_packet(tvb(inner, stop - inner):tvb(), one)
    end
    return stop
end

function report.dissector(tvb, pinfo, tree)
    if tvb:len() < GROUP + FIRST or math.floor(tvb(0, 1):uint() / 16) ~= 2 then
        return 0
    end
    pinfo.cols.protocol = "TREPORT"
    local all = tree:add(report, tvb())
    for _, field in ipairs({ "version", "hardware", "sequence" }) do
        all:add(group[field], tvb(0, 4))
    end
    all:add(group.node, tvb(4, 4))
    local at, reports = GROUP, 0
    while at and at + FIRST <= tvb:len() do
        at = show_report(tvb, at, all)
        reports = reports + 1
    end
    pinfo.cols.info = string.format("Node %d: %d reports", tvb(4, 4):uint(), reports)
    return tvb:len()
end

DissectorTable.get("udp.port"):add_for_decode_as(report)
