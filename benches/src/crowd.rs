//! Peers that do not belong to a controller: thousands that connect and send nothing, and others
//! that attack it.
//!
//! They are threads of the measuring process, beside the edges of [`load`](crate::load), from
//! addresses of the loopback network that no edge has.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use calumma_chamelemon::frames::Message;
use calumma_wire::{MAX_FRAME_BYTES, Marking, SwitchKind};
use rand::rngs::StdRng;
use rand::{Rng, RngCore, SeedableRng};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

/// How many there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Crowd {
    /// Connections that are opened once and send nothing.
    pub idle: usize,
    /// Peers that connect again, a second after they were turned away, and send what keeps a
    /// listener busy or waiting.
    pub hostile: usize,
}

/// Addresses that a crowd comes from.
const ADDRESSES: usize = 250;

/// How long a hostile peer waits before it connects again, and with its next byte.
const PAUSE: Duration = Duration::from_secs(1);

/// Bytes of nothing in particular.
const NOISE: usize = 16 << 10;

/// A crowd that has come, until it is dropped.
#[derive(Debug)]
pub struct Gathered {
    is_over: Arc<AtomicBool>,
    connects: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
}

impl Crowd {
    /// Connects all idle ones to `listen`, has hostile ones begin, and returns.
    ///
    /// # Errors
    /// Where `listen` is no address, or there is no thread, or an idle one can't connect.
    pub fn gather(self, listen: &str) -> Result<Gathered> {
        let listen: SocketAddr = listen.parse().context("where the controller listens")?;
        let (is_over, connects) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (ready, gathered) = std::sync::mpsc::channel();
        let (over, counted) = (Arc::clone(&is_over), Arc::clone(&connects));
        let thread = std::thread::Builder::new().name("crowd".to_owned()).spawn(move || {
            runtime.block_on(async move {
                let mut idle = Vec::with_capacity(self.idle);
                for at in 0..self.idle {
                    match connect(at, listen).await {
                        Ok(stream) => idle.push(stream),
                        Err(error) => {
                            let _ = ready.send(Err(error));
                            return;
                        }
                    }
                }
                counted.fetch_add(self.idle as u64, Ordering::Relaxed);
                for at in 0..self.hostile {
                    tokio::spawn(hostile(at, listen, Arc::clone(&counted)));
                }
                let _ = ready.send(Ok(()));
                while !over.load(Ordering::Relaxed) {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
                drop(idle);
            });
        })?;
        let thread = Some(thread);
        let all = Gathered { is_over, connects, thread };
        gathered.recv().map_err(|_| anyhow!("the crowd has ended"))??;
        Ok(all)
    }
}

impl Gathered {
    /// Connections that the crowd has opened so far.
    pub fn connects(&self) -> u64 {
        self.connects.load(Ordering::Relaxed)
    }
}

impl Drop for Gathered {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // Nothing is left to do where it has panicked.
            let _ = thread.join();
        }
    }
}

/// Connects from one of the crowd's addresses.
async fn connect(at: usize, listen: SocketAddr) -> Result<TcpStream> {
    let from = IpAddr::V4(Ipv4Addr::new(127, 0, 7, 1 + (at % ADDRESSES) as u8));
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    socket.bind(SocketAddr::new(from, 0)).context("an address for one of the crowd")?;
    socket.connect(listen).await.context("connecting one of the crowd")
}

/// A hostile peer of one of five kinds, again and again.
async fn hostile(at: usize, listen: SocketAddr, connects: Arc<AtomicU64>) {
    let mut rng = StdRng::seed_from_u64(at as u64);
    loop {
        if let Ok(mut stream) = connect(at, listen).await {
            connects.fetch_add(1, Ordering::Relaxed);
            // It ends when the controller cuts it off.
            let _ = attack(at % 5, &mut stream, &mut rng).await;
        }
        tokio::time::sleep(PAUSE).await;
    }
}

async fn attack(way: usize, stream: &mut TcpStream, rng: &mut StdRng) -> std::io::Result<()> {
    let hello = hello(&format!("stranger-{}", rng.random::<u32>()));
    match way {
        // A frame of the largest size, a byte a second.
        0 => {
            stream.write_all(&(MAX_FRAME_BYTES as u32).to_le_bytes()).await?;
            loop {
                stream.write_all(&[0x5A]).await?;
                tokio::time::sleep(PAUSE).await;
            }
        }
        // No frame, nor a handshake.
        1 => {
            let mut noise = vec![0; NOISE];
            rng.fill_bytes(&mut noise);
            stream.write_all(&noise).await?;
        }
        // A hello that never ends.
        2 => stream.write_all(&hello[..hello.len() / 2]).await?,
        // A name that nobody has.
        3 => stream.write_all(&hello).await?,
        // The name of somebody who is there.
        _ => stream.write_all(&self::hello("e0")).await?,
    }
    // Until it is turned away.
    let mut bytes = [0; 4096];
    while stream.read(&mut bytes).await? > 0 {}
    Ok(())
}

/// An edge's first frame.
pub(crate) fn hello(name: &str) -> Vec<u8> {
    let mut frame = Vec::new();
    Message::Hello {
        edge: name.to_owned(),
        kind: SwitchKind::Software,
        program: "load".to_owned(),
        holding: None,
        marking: Marking::default(),
    }
    .encode(&mut frame);
    frame
}
