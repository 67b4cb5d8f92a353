-- INT stacks between switches of a Calumma network (P4.org INT-MD, version 2.1, behind TCP or UDP),
-- for Wireshark and tshark:
--
--     tshark -X lua_script:calumma_int.lua -r capture.pcapng -Y calumma_int -T fields -e calumma_int.node
--
-- A packet has a stack where bit 4 of its ToS byte or traffic class says so and shim and header are
-- as a source writes them (docs/sketchint.md, On the wire). Any domain is taken. What Wireshark
-- shows as TCP options or as payload behind the transport header is the stack, then the sender's own.
-- Filters see the newest hop first, as the packet has it.

local int = Proto("calumma_int", "In-band Network Telemetry (INT-MD 2.1)")

local fields = {
    length = ProtoField.uint8("calumma_int.length", "Length behind the shim", base.DEC, nil, nil, "In words of 32 bits"),
    dscp = ProtoField.uint8("calumma_int.dscp", "Original DSCP", base.DEC, nil, 0xFC),
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

-- Where the bytes behind the fixed header of the transport begin.
local function behind_transport()
    for _, transport in ipairs(transports) do
        local port = transport[1]()
        if port then
            return port.offset + transport[2]
        end
    end
end

-- Instructions and words of a hop, where what begins at an offset is a stack.
local function recognise(tvb, at)
    if tvb:len() < at + SHIM + HEADER then
        return
    end
    local length, first = tvb(at + 1, 1):uint(), tvb(at + SHIM, 4):uint()
    local shim_is_right = tvb(at, 1):uint() == 0x10 and tvb(at + 2, 1):uint() == 0 and tvb(at + 3, 1):uint() % 4 == 0
    local version, flags = math.floor(first / 2 ^ 28), math.floor(first / 2 ^ 13) % 2 ^ 12
    local hop_words = math.floor(first / 2 ^ 8) % 32
    if not shim_is_right or version ~= 2 or flags ~= 0 or length < 3 or tvb:len() < at + SHIM + 4 * length then
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

function int.dissector(tvb, pinfo, tree)
    local at = is_marked() and behind_transport()
    if not at then
        return
    end
    local instructions, words, length = recognise(tvb, at)
    if not instructions then
        return
    end
    local stack = tree:add(int, tvb(at, SHIM + 4 * length))
    stack:add(fields.length, tvb(at + 1, 1))
    stack:add(fields.dscp, tvb(at + 3, 1))
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
    pinfo.cols.info:append(string.format(" [INT: %d hops]", hops))
end

register_postdissector(int)
