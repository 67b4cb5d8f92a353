//! The connections between switches and controller: frames take their time, stand still, and are
//! cut off where a connection breaks.
//!
//! A connection carries frames in order, as TCP does. The switch notices at once that it has
//! broken; the controller does so later, and until then receives what was under way, of the last
//! frame perhaps a part. What it has received is sent again over the next connection, beside what
//! was lost, so frames come twice, and older ones behind newer ones.

use anyhow::Result;
use calumma_sketch::HashKey;

use super::controller::Outgoing;
use super::network::{Event, RETRY_NS, Simulation};
use crate::workload::Draw;

/// Time that a frame takes between a switch and the controller at least.
const FRAME_NS: u64 = 500_000;

/// What connections between switches and controller do.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ControlQuality {
    /// The longest that a frame takes beyond half a millisecond, in milliseconds.
    pub delay_ms: f64,
    /// Probability, for each frame, that what comes after it the same way waits.
    pub stalls: f64,
    /// The longest that it waits, in milliseconds.
    pub stall_ms: f64,
    /// Probability, for each frame of a switch, that its connection breaks behind it.
    pub breaks: f64,
}

/// The connections of all nodes.
#[derive(Debug)]
pub(super) struct Wires {
    quality: ControlQuality,
    draw: Draw,
    drawn: u64,
    /// When the last frame arrives, to the controller and to the node, by node.
    free_ns: Vec<[u64; 2]>,
    /// Whether a node's connection has broken and the controller has not noticed it.
    severed: Vec<bool>,
    /// Connections that broke.
    broken: u64,
}

/// The two ways of a connection.
#[derive(Clone, Copy)]
enum To {
    Controller,
    Node,
}

impl Wires {
    /// Connections of so many nodes that only take their time.
    pub(super) fn new(nodes: usize) -> Self {
        Self {
            quality: ControlQuality::default(),
            draw: Draw::new(0),
            drawn: 0,
            free_ns: vec![[0; 2]; nodes],
            severed: vec![false; nodes],
            broken: 0,
        }
    }

    fn share(&mut self) -> f64 {
        self.drawn += 1;
        self.draw.of(self.drawn).share()
    }

    /// When a frame arrives that is sent at `now_ns`.
    fn arrival(&mut self, node: usize, to: To, now_ns: u64) -> u64 {
        let ControlQuality { delay_ms, stalls, stall_ms, .. } = self.quality;
        if self.quality == ControlQuality::default() {
            return now_ns + FRAME_NS;
        }
        let mut takes_ns = FRAME_NS;
        if delay_ms > 0.0 {
            takes_ns += (self.share() * delay_ms * 1e6) as u64;
        }
        let at_ns = (now_ns + takes_ns).max(self.free_ns[node][to as usize]);
        let mut free_ns = at_ns;
        if stalls > 0.0 && self.share() < stalls {
            free_ns += (self.share() * stall_ms * 1e6) as u64;
        }
        self.free_ns[node][to as usize] = free_ns;
        at_ns
    }

    fn breaks(&mut self) -> bool {
        let breaks = self.quality.breaks;
        breaks > 0.0 && self.share() < breaks
    }
}

impl Simulation {
    /// What the connections between switches and controller do from now on, as is drawn from
    /// `seed`.
    pub fn set_control(&mut self, quality: ControlQuality, seed: u64) {
        self.wires.quality = quality;
        self.wires.draw = Draw::new(seed);
    }

    /// Connections that have broken by what is drawn.
    pub fn broken_connections(&self) -> u64 {
        self.wires.broken
    }

    /// Has the controller change the hash key, from the next epoch on that all nodes can follow.
    /// Gives that epoch, counted from 0; `None` where the controller is away, or has changed it a
    /// moment ago.
    ///
    /// # Errors
    /// As [`run_epoch`](Self::run_epoch).
    pub fn rotate_key(&mut self, key: HashKey) -> Result<Option<u64>> {
        let now_ns = self.now_ns();
        let rotated = self.controller.as_mut().and_then(|of| of.rotate(key, now_ns));
        let Some((epoch, messages)) = rotated else { return Ok(None) };
        messages.into_iter().for_each(|message| self.tell(message));
        Ok(Some(epoch - self.first_epoch))
    }

    /// Sends a node a message of the controller over the connection that it has now.
    pub(super) fn tell(&mut self, Outgoing { at_ns, node, frame }: Outgoing) {
        let at_ns = self.wires.arrival(node, To::Node, at_ns);
        self.queue.push(at_ns, Event::ToNode(node, self.connections[node], frame));
    }

    /// Carries to the controller what a node has sent, and lets it connect again where it wants to.
    pub(super) fn carry(&mut self, node: usize, now_ns: u64) {
        let connection = self.connections[node];
        for bytes in self.nodes[node].take_sent() {
            if self.wires.severed[node] {
                // Written to a connection that has broken.
                continue;
            }
            let at_ns = self.wires.arrival(node, To::Controller, now_ns);
            if connection > 0 && self.wires.breaks() {
                self.sever(node, bytes, (now_ns, at_ns));
            } else {
                self.queue.push(at_ns, Event::ToController(node, connection, bytes));
            }
        }
        if let Some(retry) = self.nodes[node].take_retry() {
            self.connections[node] = 0;
            self.wires.severed[node] = false;
            self.controller.iter_mut().for_each(|of| of.disconnected(node, now_ns));
            let connect = Event::Connect(node, self.nodes[node].start);
            self.queue.push(now_ns + retry.as_nanos() as u64, connect);
        }
    }

    /// A node's connection breaks behind a frame, which comes whole, in part or not at all.
    fn sever(&mut self, node: usize, mut bytes: Vec<u8>, (now_ns, at_ns): (u64, u64)) {
        let connection = self.connections[node];
        let kept = (self.wires.share() * 1.5).min(1.0);
        bytes.truncate((bytes.len() as f64 * kept) as usize);
        self.queue.push(at_ns, Event::ToController(node, connection, bytes));
        let noticed_ns = now_ns + (self.wires.share() * RETRY_NS as f64) as u64;
        self.queue.push(noticed_ns, Event::Broken(node, connection));
        self.wires.severed[node] = true;
        self.wires.broken += 1;
        let of = &mut self.nodes[node];
        of.cut_off(now_ns);
        // Tried again once the controller has noticed.
        of.take_retry();
        self.queue.push(now_ns + RETRY_NS, Event::Connect(node, of.start));
    }

    /// The controller notices that a connection has broken.
    pub(super) fn notice(&mut self, node: usize, connection: u64, now_ns: u64) {
        if self.connections[node] == connection {
            self.connections[node] = 0;
            self.wires.free_ns[node] = [now_ns; 2];
            self.wires.severed[node] = false;
            self.controller.iter_mut().for_each(|of| of.disconnected(node, now_ns));
        }
    }

    /// Whether what is sent to a node over a connection reaches it.
    pub(super) fn reaches(&self, node: usize, connection: u64) -> bool {
        connection > 0 && self.connections[node] == connection && !self.wires.severed[node]
    }

    /// A node has no connection any more, and both sides know.
    pub(super) fn unplug(&mut self, node: usize) -> bool {
        self.wires.severed[node] = false;
        std::mem::take(&mut self.connections[node]) != 0
    }
}
