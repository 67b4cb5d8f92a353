//! Controllers that attack, over real sockets: a switch measures on in bounded memory and time, and
//! looks for the next one.

use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::thread::JoinHandle;
use std::time::Instant;

use super::*;

/// The longest step of a control thread that its lcores do not feel.
const STEP: Duration = Duration::from_millis(500);

/// How long a test waits for anything.
const PATIENCE: Duration = Duration::from_secs(20);

/// A switch that has connected to a controller that is played by hand.
struct Victim {
    conversation: Conversation,
    switch: Switch,
    controller: TcpStream,
}

impl Victim {
    fn connect() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let mut conversation = Conversation::new(identity(), address, None, 1 << 20);
        let mut switch = Switch::default();
        let since = Instant::now();
        while !conversation.is_connected() {
            assert!(since.elapsed() < PATIENCE);
            conversation.step(NOW_NS, &mut switch);
            std::thread::sleep(Duration::from_millis(1));
        }
        let (controller, _) = listener.accept().unwrap();
        Self { conversation, switch, controller }
    }

    /// Has the controller send a message without end, for as long as it is received.
    fn flood(&self, message: &Message) -> JoinHandle<()> {
        let mut controller = self.controller.try_clone().unwrap();
        let messages = encoded(message).repeat(10_000);
        std::thread::spawn(move || while controller.write_all(&messages).is_ok() {})
    }

    /// Steps until the switch has closed the connection, and wants no step to take long.
    fn steps_until_closed(&mut self) {
        let since = Instant::now();
        while self.conversation.is_connected() {
            assert!(since.elapsed() < PATIENCE, "the connection is closed");
            let begun = Instant::now();
            self.conversation.step(NOW_NS, &mut self.switch);
            assert!(begun.elapsed() < STEP, "{:?}", begun.elapsed());
        }
    }
}

fn encoded(message: &Message) -> Vec<u8> {
    let mut frame = Vec::new();
    message.encode(&mut frame);
    frame
}

/// Each is answered, so that the answers would take all memory there is.
#[test]
fn who_asks_without_end_and_takes_no_answers_is_left() {
    let mut victim = Victim::connect();
    let flood = victim.flood(&Message::Probe { sent_ns: 1 });
    victim.steps_until_closed();
    flood.join().unwrap();
}

/// What is sent as fast as it can be is taken in by and by, and the switch does its work in
/// between.
#[test]
fn a_flood_of_notices_holds_up_no_step() {
    let mut victim = Victim::connect();
    let flood = victim.flood(&Message::Reported { epoch: 1 });
    let since = Instant::now();
    while since.elapsed() < Duration::from_secs(2) {
        let begun = Instant::now();
        victim.conversation.step(NOW_NS, &mut victim.switch);
        assert!(begun.elapsed() < STEP, "{:?}", begun.elapsed());
    }
    assert!(victim.conversation.is_connected());
    drop(victim);
    flood.join().unwrap();
}

/// Nothing that a controller sends takes more than a few hundred KiB.
#[test]
fn a_frame_that_no_controller_sends_is_found_out_by_its_length() {
    let mut victim = Victim::connect();
    victim.controller.write_all(&(1_u32 << 20).to_le_bytes()).unwrap();
    victim.steps_until_closed();
}

#[test]
fn a_controller_that_never_says_a_word_is_left_for_the_next_one() {
    let mut node = Node::new();
    node.connect();
    let pipe = node.conversation.transport_mut();
    pipe.set_silence(Duration::from_secs(59));
    node.step();
    assert!(node.conversation.is_connected(), "it may have much to do");
    node.conversation.transport_mut().set_silence(Duration::from_secs(60));
    node.step();
    assert!(!node.conversation.is_connected());
}
