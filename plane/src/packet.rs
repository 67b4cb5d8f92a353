//! What a worker needs of a packet, and packets that lie in plain memory instead of a port's mbuf.

/// A packet in memory.
pub trait Packet {
    /// The bytes at hand, from the Ethernet header on; the headers must lie in them in one piece.
    fn bytes(&self) -> &[u8];
    /// The same, to write to.
    fn bytes_mut(&mut self) -> &mut [u8];
    /// How long the packet is (or was) on the wire.
    fn wire_len(&self) -> usize;

    /// The stamp that the device gave the packet as it arrived, by the device's own clock and in
    /// its unit; `None` where it gave none.
    #[inline]
    fn stamp(&self) -> Option<u64> {
        None
    }

    /// Bytes free before the packet: what [`prepend`](Self::prepend) can take. A packet of fixed
    /// length has none and needs none of what follows.
    #[inline]
    fn headroom(&self) -> usize {
        0
    }

    /// Lengthens the packet by `len` bytes of any value at its start. Gives whether there was room;
    /// else nothing changes.
    #[inline]
    fn prepend(&mut self, _len: usize) -> bool {
        false
    }

    /// Takes `len` bytes off the packet's start. Gives whether it had as many; else nothing
    /// changes.
    #[inline]
    fn adj(&mut self, _len: usize) -> bool {
        false
    }
}

#[cfg(feature = "dpdk")]
impl Packet for dpdk::Mbuf {
    #[inline]
    fn bytes(&self) -> &[u8] {
        self.data()
    }

    #[inline]
    fn bytes_mut(&mut self) -> &mut [u8] {
        self.data_mut()
    }

    #[inline]
    fn wire_len(&self) -> usize {
        self.pkt_len()
    }

    #[inline]
    fn stamp(&self) -> Option<u64> {
        self.rx_timestamp()
    }

    #[inline]
    fn headroom(&self) -> usize {
        Self::headroom(self)
    }

    #[inline]
    fn prepend(&mut self, len: usize) -> bool {
        Self::prepend(self, len).is_some()
    }

    #[inline]
    fn adj(&mut self, len: usize) -> bool {
        Self::adj(self, len)
    }
}

/// A packet in plain memory: of a capture, a simulation, a test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame<B = Vec<u8>> {
    buffer: B,
    start: usize,
    /// Bytes that were on the wire and are not at hand.
    cut: usize,
}

impl<B: AsRef<[u8]> + AsMut<[u8]>> Frame<B> {
    /// A whole packet without room before it.
    pub fn new(buffer: B) -> Self {
        Self { buffer, start: 0, cut: 0 }
    }

    /// Makes it one that was `wire_len` bytes long, and of which a capture kept only these.
    #[must_use]
    pub fn cut_from(mut self, wire_len: usize) -> Self {
        self.cut = wire_len.saturating_sub(self.bytes().len());
        self
    }
}

impl Frame {
    /// A whole packet with `headroom` bytes of room before it.
    pub fn with_headroom(headroom: usize, bytes: &[u8]) -> Self {
        let mut buffer = vec![0xEE; headroom];
        buffer.extend_from_slice(bytes);
        Self { buffer, start: headroom, cut: 0 }
    }
}

impl<B: AsRef<[u8]> + AsMut<[u8]>> Packet for Frame<B> {
    #[inline]
    fn bytes(&self) -> &[u8] {
        &self.buffer.as_ref()[self.start..]
    }

    #[inline]
    fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.buffer.as_mut()[self.start..]
    }

    #[inline]
    fn wire_len(&self) -> usize {
        self.bytes().len() + self.cut
    }

    #[inline]
    fn headroom(&self) -> usize {
        self.start
    }

    #[inline]
    fn prepend(&mut self, len: usize) -> bool {
        let room = self.start >= len;
        self.start -= if room { len } else { 0 };
        room
    }

    #[inline]
    fn adj(&mut self, len: usize) -> bool {
        let enough = self.bytes().len() >= len;
        self.start += if enough { len } else { 0 };
        enough
    }
}
