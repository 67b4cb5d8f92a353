//! A cable between two plugs of one process.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, Sender, channel};

use crate::Plug;

/// One end of a cable: what is sent into it comes out of the other end. It loses nothing.
#[derive(Debug)]
pub struct Cable {
    to: Sender<Vec<u8>>,
    from: Receiver<Vec<u8>>,
    /// Readable when frames may have come.
    wake: UnixStream,
}

impl Cable {
    /// A cable's two ends.
    ///
    /// # Errors
    /// When the system gives no sockets.
    pub fn pair() -> io::Result<(Cable, Cable)> {
        let (near, far) = UnixStream::pair()?;
        near.set_nonblocking(true)?;
        far.set_nonblocking(true)?;
        let ((to_far, from_near), (to_near, from_far)) = (channel(), channel());
        let near = Cable { to: to_far, from: from_far, wake: near };
        let far = Cable { to: to_near, from: from_near, wake: far };
        Ok((near, far))
    }
}

impl Plug for Cable {
    fn receive<'a>(&mut self, buffer: &'a mut [u8]) -> Option<&'a [u8]> {
        let frame = self.from.try_recv().or_else(|_| {
            // Whoever sends puts the frame in first: one that comes now wakes again.
            let mut bytes = [0; 4096];
            while let Ok(4096) = self.wake.read(&mut bytes) {}
            self.from.try_recv()
        });
        let frame = frame.ok()?;
        let bytes = buffer.get_mut(..frame.len())?;
        bytes.copy_from_slice(&frame);
        Some(bytes)
    }

    fn send(&mut self, frame: &[u8]) {
        if self.to.send(frame.to_vec()).is_ok() {
            // A full socket wakes as well.
            let _ = self.wake.write(&[0]);
        }
    }
}

impl AsFd for Cable {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }
}
