//! Answers that are large or take long to make: few at a time, made away from the threads that
//! serve connections, and sent in pieces.
//!
//! A request waits for its turn for [`TURN`], then it is answered 503. What is large is written
//! piece by piece as the reader takes it, so that no more than a piece of it is in memory; who
//! takes longer than [`SENDING`] is cut off, which shows as a broken connection, never as a short
//! answer.

use std::fmt::Display;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::Json;
use axum::body::{Body, Bytes};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::time::timeout;
use tracing::error;

use super::Problem;

/// Answers that are made or sent at a time: as many threads make them.
pub(super) const MOST: usize = 8;

/// What an answer takes of that: one that holds a piece at a time, and one that adds up flows over
/// all epochs that are remembered, some hundred MiB where each of these lost thousands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cost {
    /// The former.
    Piece = 1,
    /// The latter.
    Sum = 4,
}

/// How long a request waits for its turn.
const TURN: Duration = Duration::from_secs(5);

/// How long an answer may be under way.
const SENDING: Duration = Duration::from_secs(60);

/// Bytes that are made before they are sent.
const PIECE_BYTES: usize = 256 << 10;

/// JSON and plain text.
pub(crate) const JSON: &str = "application/json";

/// The answers under way, and those there were not to be.
#[derive(Clone, Debug)]
pub(crate) struct Answers {
    room: Arc<Semaphore>,
    refused: Arc<AtomicU64>,
    cut: Arc<AtomicU64>,
    /// [`TURN`] and [`SENDING`].
    turn: Duration,
    sending: Duration,
}

impl Default for Answers {
    fn default() -> Self {
        let (refused, cut) = Default::default();
        let room = Arc::new(Semaphore::new(MOST));
        Self { room, refused, cut, turn: TURN, sending: SENDING }
    }
}

impl Answers {
    /// Requests that waited for their turn in vain.
    pub(crate) fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// Answers that were cut off.
    pub(crate) fn cut(&self) -> u64 {
        self.cut.load(Ordering::Relaxed)
    }

    /// Answers with the text that `make` gives, whose type is `kind`.
    pub(crate) async fn text<E: Display + Send + 'static>(
        &self,
        cost: Cost,
        kind: &'static str,
        make: impl FnOnce() -> Result<String, E> + Send + 'static,
    ) -> Response {
        let mut make = Some(make);
        let next = move |piece: &mut Vec<u8>| {
            let made = make.take().map_or_else(|| Ok(String::new()), |make| make());
            piece.append(&mut made.map_err(|problem| problem.to_string())?.into_bytes());
            Ok(false)
        };
        self.pieces(cost, kind, next).await
    }

    /// Answers with what `make` gives, as JSON.
    pub(crate) async fn json<T: Serialize>(
        &self,
        cost: Cost,
        make: impl FnOnce() -> T + Send + 'static,
    ) -> Response {
        self.text(cost, JSON, move || serde_json::to_string(&make())).await
    }

    /// Answers with a JSON array of `items`, each as `write` writes it.
    pub(crate) async fn list<T: Send + 'static>(
        &self,
        items: Vec<T>,
        write: impl Fn(&T, &mut Vec<u8>) -> serde_json::Result<()> + Send + 'static,
    ) -> Response {
        let mut items = items.into_iter();
        let mut before = b'[';
        let next = move |piece: &mut Vec<u8>| {
            for item in items.by_ref() {
                piece.push(std::mem::replace(&mut before, b','));
                write(&item, piece).map_err(|problem| problem.to_string())?;
                if piece.len() >= PIECE_BYTES {
                    return Ok(true);
                }
            }
            if before == b'[' {
                piece.push(before);
            }
            piece.push(b']');
            Ok(false)
        };
        self.pieces(Cost::Piece, JSON, next).await
    }

    /// Answers with the pieces that `next` appends as long as it gives true, and with the last one.
    async fn pieces(
        &self,
        cost: Cost,
        kind: &'static str,
        next: impl FnMut(&mut Vec<u8>) -> Result<bool, String> + Send + 'static,
    ) -> Response {
        let permits = self.room.clone().acquire_many_owned(cost as u32);
        let Ok(Ok(permit)) = timeout(self.turn, permits).await else {
            self.refused.fetch_add(1, Ordering::Relaxed);
            let error = format!("{MOST} large requests are being answered: try again in a moment");
            let after = [(header::RETRY_AFTER, "1")];
            let body = Json(Problem { error });
            return (StatusCode::SERVICE_UNAVAILABLE, after, body).into_response();
        };
        let (made, next) = match make(next).await {
            Ok(made) => made,
            Err(problem) => {
                error!("an answer of the HTTP API could not be made: {problem}");
                return StatusCode::INTERNAL_SERVER_ERROR.into_response();
            }
        };
        let body = match (made, next) {
            (Piece { bytes, more: false }, _) if bytes.len() <= PIECE_BYTES => Body::from(bytes),
            (first, next) => self.clone().send(permit, first, next),
        };
        let kind = HeaderValue::from_static(kind);
        ([(header::CONTENT_TYPE, kind)], body).into_response()
    }

    /// A body of these pieces, which are made and sent by a task of their own that holds the
    /// permit.
    fn send(
        self,
        permit: OwnedSemaphorePermit,
        first: Piece,
        next: impl FnMut(&mut Vec<u8>) -> Result<bool, String> + Send + 'static,
    ) -> Body {
        let (sender, receiver) = mpsc::channel(1);
        tokio::spawn(async move {
            let _until_sent = permit;
            if timeout(self.sending, pump(sender, first, next)).await.is_err() {
                self.cut.fetch_add(1, Ordering::Relaxed);
            }
        });
        Body::from_stream(futures_util::stream::unfold(Some(receiver), async |receiver| {
            let mut receiver = receiver?;
            match receiver.recv().await {
                Some(Sent::Bytes(bytes)) => Some((Ok(bytes), Some(receiver))),
                Some(Sent::End) => None,
                // Whoever makes it has stopped in the middle.
                None => Some((Err(io::Error::other("the answer was cut off")), None)),
            }
        }))
    }
}

/// What is made at a time, and whether more comes after it.
struct Piece {
    bytes: Vec<u8>,
    more: bool,
}

/// What goes from who makes an answer to who sends it.
enum Sent {
    Bytes(Bytes),
    End,
}

/// Makes the next piece.
async fn make<N>(mut next: N) -> Result<(Piece, N), String>
where
    N: FnMut(&mut Vec<u8>) -> Result<bool, String> + Send + 'static,
{
    let made = tokio::task::spawn_blocking(move || {
        let mut bytes = Vec::new();
        let more = next(&mut bytes)?;
        Ok((Piece { bytes, more }, next))
    });
    made.await.unwrap_or_else(|problem| Err(problem.to_string()))
}

/// Sends pieces until the last one, or until nobody wants them.
async fn pump<N>(sender: mpsc::Sender<Sent>, first: Piece, mut next: N)
where
    N: FnMut(&mut Vec<u8>) -> Result<bool, String> + Send + 'static,
{
    let mut piece = first;
    loop {
        let more = piece.more;
        let mut bytes = Bytes::from(piece.bytes);
        while !bytes.is_empty() {
            let part = bytes.split_to(bytes.len().min(PIECE_BYTES));
            if sender.send(Sent::Bytes(part)).await.is_err() {
                return;
            }
        }
        if !more {
            // Nobody there any more has no use for it.
            let _ = sender.send(Sent::End).await;
            return;
        }
        (piece, next) = match make(next).await {
            Ok(made) => made,
            Err(problem) => return error!("an answer of the HTTP API broke off: {problem}"),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::BodyExt;

    fn numbers(most: u64) -> impl Future<Output = Response> {
        let answers = Answers::default();
        async move {
            answers
                .list((0..most).collect(), |number, piece| serde_json::to_writer(piece, number))
                .await
        }
    }

    #[tokio::test]
    async fn lists_of_any_length_come_whole() {
        for most in [0, 1, 2, 500_000] {
            let body = numbers(most).await.into_body().collect().await.unwrap().to_bytes();
            let read: Vec<u64> = serde_json::from_slice(&body).unwrap();
            assert_eq!(read, (0..most).collect::<Vec<_>>());
        }
    }

    /// Readers that take nothing hold what they asked for, and no more than there is room for.
    #[tokio::test]
    async fn who_reads_nothing_is_cut_off_and_the_next_one_is_answered() {
        let [turn, sending] = [50, 1000].map(Duration::from_millis);
        let answers = Answers { turn, sending, ..Answers::default() };
        let long = || {
            let answers = answers.clone();
            async move { answers.text::<String>(Cost::Sum, JSON, || Ok("x".repeat(1 << 20))).await }
        };
        let [mut first, _second] = [long().await, long().await];
        assert_eq!(long().await.status(), StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(answers.refused(), 1);
        tokio::time::sleep(2 * sending).await;
        assert_eq!(long().await.status(), StatusCode::OK);
        assert_eq!(answers.cut(), 2);
        let mut pieces = Vec::new();
        while let Some(piece) = first.body_mut().frame().await {
            pieces.push(piece.is_ok());
        }
        assert_eq!(pieces, [true, false], "its end is no end");
    }
}
