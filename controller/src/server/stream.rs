//! A node's connection, by TLS or without, and how long its certificate is believed.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use calumma_trust::tls::{NodeServer, Peer};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// How often it is looked whether the certificate of a node that stays connected has expired.
const LOOK: Duration = Duration::from_secs(60);

/// See the [module](self).
pub(super) enum Stream {
    /// Without TLS.
    Plain(TcpStream),
    /// With it, after the handshake.
    Tls(Box<TlsStream<TcpStream>>),
}

/// A node's certificate, and by what it is judged as that changes.
pub(super) struct Trusted {
    shown: Peer,
    judge: watch::Receiver<NodeServer>,
}

impl Trusted {
    /// Whether its certificate is that of the node called `name`.
    pub(super) fn is(&self, name: &str) -> bool {
        self.shown.is(name)
    }
}

impl Stream {
    /// Takes a connection; shakes hands where there is TLS, and gives the node's certificate.
    ///
    /// # Errors
    /// When it has none that holds.
    pub(super) async fn begin(
        socket: TcpStream,
        tls: Option<watch::Receiver<NodeServer>>,
    ) -> io::Result<(Self, Option<Trusted>)> {
        let Some(judge) = tls else { return Ok((Self::Plain(socket), None)) };
        let acceptor = TlsAcceptor::from(judge.borrow().config());
        // Larger than the rest of a stranger's task.
        let stream = Box::pin(acceptor.accept(socket)).await?;
        let shown = Peer::of(stream.get_ref().1.peer_certificates());
        Ok((Self::Tls(Box::new(stream)), Some(Trusted { shown, judge })))
    }

    /// Sends bytes.
    ///
    /// # Errors
    /// When the connection is broken.
    pub(super) async fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.write_all(bytes).await?;
        // Records may wait that the socket did not take at once.
        self.flush().await
    }
}

/// Returns once a node's certificate is believed no more, and says why: it has expired, or was
/// revoked. Never without TLS.
pub(super) async fn distrust(peer: Option<Trusted>) -> String {
    let Some(Trusted { shown, mut judge }) = peer else { return std::future::pending().await };
    loop {
        if let Err(problem) = judge.borrow_and_update().check(&shown) {
            return format!("its certificate holds no more: {problem}");
        }
        if let Ok(Err(_)) = timeout(LOOK, judge.changed()).await {
            // The controller stops, and its connections with it.
            return std::future::pending().await;
        }
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_read(context, buffer),
            Self::Tls(stream) => Pin::new(stream).poll_read(context, buffer),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write(context, bytes),
            Self::Tls(stream) => Pin::new(stream).poll_write(context, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_flush(context),
            Self::Tls(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(context),
            Self::Tls(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }
}
