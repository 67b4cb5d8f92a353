//! A connection to the controller, by TLS or without, that is read and written without waiting.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use calumma_trust::{TlsFiles, is_loopback, tls};
use rustls::ClientConnection;

/// Time for the handshake.
const HANDSHAKE: Duration = Duration::from_secs(5);

/// Whether a switch may call the controller at `address` (host and port) as it is configured.
///
/// # Errors
/// Without TLS, on another host, unless the operator has said that it shall be so.
pub fn check_exposure(
    address: &str,
    tls: Option<&TlsFiles>,
    insecure: bool,
) -> Result<(), &'static str> {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    if tls.is_some() || insecure || is_loopback(host) {
        return Ok(());
    }
    Err(
        "it is on another host, and there is no [tls]: have `calumma-controller pki issue` make this \
         switch a certificate, or write `insecure = true` where nobody else can reach that network",
    )
}

/// See the [module](self).
pub(crate) struct Stream {
    socket: TcpStream,
    tls: Option<Box<ClientConnection>>,
}

/// What the other side has sent or shown is not to be trusted.
fn distrusted(problem: rustls::Error) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, problem)
}

impl Stream {
    /// Takes a connection that stands, and shakes hands where there is to be TLS; waits for it.
    ///
    /// # Errors
    /// When the files can't be used or the other side is not the controller.
    pub(crate) fn begin(socket: TcpStream, files: Option<&TlsFiles>) -> io::Result<Self> {
        socket.set_nodelay(true)?;
        let mut stream = Self { socket, tls: None };
        if let Some(files) = files {
            let config = tls::node_client(files).map_err(|problem| {
                io::Error::new(ErrorKind::InvalidInput, format!("{problem:#}"))
            })?;
            let connection = ClientConnection::new(config, tls::controller());
            stream.shake_hands(connection.map_err(distrusted)?)?;
        }
        stream.socket.set_nonblocking(true)?;
        Ok(stream)
    }

    fn shake_hands(&mut self, mut tls: ClientConnection) -> io::Result<()> {
        let end = Instant::now() + HANDSHAKE;
        while tls.is_handshaking() || tls.wants_write() {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(io::Error::new(ErrorKind::TimedOut, "no handshake in time"));
            }
            self.socket.set_read_timeout(Some(left))?;
            self.socket.set_write_timeout(Some(left))?;
            if tls.wants_write() {
                tls.write_tls(&mut self.socket)?;
            } else if tls.read_tls(&mut self.socket)? == 0 {
                return Err(ErrorKind::UnexpectedEof.into());
            } else if let Err(problem) = tls.process_new_packets() {
                // It is sent the reason, if it can be.
                let _ = tls.write_tls(&mut self.socket);
                return Err(distrusted(problem));
            }
        }
        self.socket.set_read_timeout(None)?;
        self.socket.set_write_timeout(None)?;
        self.tls = Some(Box::new(tls));
        Ok(())
    }

    /// Reads what has arrived; 0 at its end.
    pub(crate) fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let Self { socket, tls } = self;
        let Some(tls) = tls else { return socket.read(buffer) };
        loop {
            // Answers of TLS itself; a broken connection shows below.
            let _ = write_out(tls, socket);
            match tls.reader().read(buffer) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                read => return read,
            }
            tls.read_tls(socket)?;
            if let Err(problem) = tls.process_new_packets() {
                let _ = write_out(tls, socket);
                return Err(distrusted(problem));
            }
        }
    }

    /// Writes as much as is taken at present.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Self { socket, tls } = self;
        let Some(tls) = tls else { return socket.write(bytes) };
        // Records that wait, first: it would take its limit of them in memory else.
        write_out(tls, socket)?;
        let taken = tls.writer().write(bytes)?;
        match write_out(tls, socket) {
            Err(error) if error.kind() != ErrorKind::WouldBlock => Err(error),
            _ => Ok(taken),
        }
    }

    /// Says that no more is written.
    pub(crate) fn shut_down(&mut self) {
        if let Some(tls) = &mut self.tls {
            tls.send_close_notify();
            let _ = write_out(tls, &mut self.socket);
        }
        let _ = self.socket.shutdown(Shutdown::Write);
    }

    /// Writes records that wait; whether none is left.
    pub(crate) fn write_rest(&mut self) -> bool {
        let Self { socket, tls } = self;
        tls.as_mut().is_none_or(|tls| write_out(tls, socket).is_ok())
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Writes the records that wait, all of them.
fn write_out(tls: &mut ClientConnection, socket: &mut TcpStream) -> io::Result<()> {
    while tls.wants_write() {
        match tls.write_tls(socket) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn other_hosts_are_called_by_tls_or_by_the_operators_own_choice() {
        let files = TlsFiles::of(Path::new("pki"), "e1");
        for (address, tls, insecure, may) in [
            ("127.0.0.1:7600", None, false, true),
            ("[::1]:7600", None, false, true),
            ("localhost:7600", None, false, true),
            ("10.0.0.1:7600", None, false, false),
            ("controller.example:7600", None, false, false),
            ("10.0.0.1:7600", Some(&files), false, true),
            ("10.0.0.1:7600", None, true, true),
        ] {
            assert_eq!(check_exposure(address, tls, insecure).is_ok(), may, "{address}");
        }
    }
}
