//! The thread that owns the switch: packets from and to its ports, and in between the changes that
//! the control plane asks for, one at a time.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::thread::JoinHandle;
use std::time::{SystemTime, UNIX_EPOCH};

use calumma_interface::{MAX_FRAME, Plug};
use calumma_tna::Switch;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

/// Frames taken from a port before the next one has its turn.
const BURST: usize = 32;

/// Passes through an ingress or egress between two looks at ports and commands: a fraction of a
/// millisecond.
const PASSES: usize = 64;

/// Passes that may wait inside before ports have to.
const MOST_WAITING: usize = 1024;

/// Frames and bytes.
#[derive(Debug, Default)]
pub(crate) struct Count {
    pub(crate) frames: AtomicU64,
    pub(crate) octets: AtomicU64,
}

impl Count {
    fn add(&self, frame: &[u8]) {
        self.frames.fetch_add(1, Ordering::Relaxed);
        self.octets.fetch_add(frame.len() as u64, Ordering::Relaxed);
    }
}

/// What a port has received and sent.
#[derive(Debug, Default)]
pub(crate) struct PortCount {
    pub(crate) received: Count,
    pub(crate) sent: Count,
}

impl PortCount {
    /// Begins anew.
    pub(crate) fn clear(&self) {
        for Count { frames, octets } in [&self.received, &self.sent] {
            frames.store(0, Ordering::Relaxed);
            octets.store(0, Ordering::Relaxed);
        }
    }
}

/// What each port has counted, by its number.
pub(crate) type Counts = BTreeMap<u16, PortCount>;

/// A port of the switch.
pub struct Port {
    /// Its number in the program.
    pub number: u16,
    /// What is plugged in.
    pub plug: Box<dyn Plug>,
}

type Command = Box<dyn FnOnce(&mut Switch) + Send>;

/// The running switch. Clones speak to the same one; when the last is dropped, it stops.
#[derive(Clone, Debug)]
pub struct Pipe {
    commands: Sender<Command>,
    wake: Arc<UnixStream>,
    counts: Arc<Counts>,
}

impl Pipe {
    /// Runs the switch with these ports in a thread of its own.
    ///
    /// # Errors
    /// When the system gives no thread or no socket to wake it by.
    pub fn start(switch: Switch, ports: Vec<Port>) -> io::Result<(Pipe, JoinHandle<()>)> {
        let (commands, asked) = channel();
        let (wake, woken) = UnixStream::pair()?;
        wake.set_nonblocking(true)?;
        woken.set_nonblocking(true)?;
        let counts = ports.iter().map(|port| (port.number, PortCount::default()));
        let counts: Arc<Counts> = Arc::new(counts.collect());
        let body = Body { switch, ports, counts: counts.clone(), asked, woken };
        let thread = std::thread::Builder::new().name("pipe".to_owned()).spawn(|| body.run())?;
        Ok((Pipe { commands, wake: Arc::new(wake), counts }, thread))
    }

    /// What the ports have counted.
    pub(crate) fn counts(&self) -> Arc<Counts> {
        self.counts.clone()
    }

    /// Has something done to the switch between two packets. What the switch has stopped before is
    /// not done.
    pub fn ask(&self, command: impl FnOnce(&mut Switch) + Send + 'static) {
        if self.commands.send(Box::new(command)).is_ok() {
            // A full socket wakes as well.
            let _ = (&*self.wake).write(&[0]);
        }
    }
}

struct Body {
    switch: Switch,
    ports: Vec<Port>,
    counts: Arc<Counts>,
    asked: Receiver<Command>,
    woken: UnixStream,
}

impl Body {
    fn run(mut self) {
        let mut buffer = vec![0; MAX_FRAME];
        let mut waiting = 0;
        loop {
            let asked = match self.asked.try_recv() {
                Ok(command) => {
                    command(&mut self.switch);
                    true
                }
                Err(TryRecvError::Empty) => false,
                Err(TryRecvError::Disconnected) => return,
            };
            let received = waiting < MOST_WAITING && self.receive(&mut buffer);
            waiting = self.forward();
            if !asked && !received && waiting == 0 {
                self.sleep();
            }
        }
    }

    /// Takes frames from the ports; true where there were any.
    fn receive(&mut self, buffer: &mut [u8]) -> bool {
        let mut any = false;
        for port in &mut self.ports {
            for _ in 0..BURST {
                let Some(frame) = port.plug.receive(buffer) else { break };
                self.counts[&port.number].received.add(frame);
                self.switch.offer(port.number, frame);
                any = true;
            }
        }
        any
    }

    /// Works on packets for a while; gives how many passes wait.
    fn forward(&mut self) -> usize {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        self.switch.set_time(now.map_or(0, |since| since.as_nanos() as u64));
        let (ports, counts) = (&mut self.ports, &self.counts);
        self.switch.run(PASSES, |number, frame| {
            if let Some(port) = ports.iter_mut().find(|port| port.number == number) {
                counts[&number].sent.add(frame);
                port.plug.send(frame);
            }
        })
    }

    /// Until a frame or a command comes.
    fn sleep(&mut self) {
        let plugs = self.ports.iter().map(|port| port.plug.as_fd());
        let mut fds: Vec<PollFd> = plugs
            .chain([self.woken.as_fd()])
            .map(|fd| PollFd::new(fd, PollFlags::POLLIN))
            .collect();
        // Interrupted or not, the caller looks at everything next. The last `Pipe` closes its end.
        let _ = poll(&mut fds, PollTimeout::NONE);
        let mut bytes = [0; 256];
        while let Ok(256) = (&self.woken).read(&mut bytes) {}
    }
}
