//! Channels whose operations a test's scheduler puts in order.

use std::cell::Cell;

use crossbeam_channel as channel;
pub use crossbeam_channel::TrySendError;

thread_local! {
    static SWITCH: Cell<fn()> = const { Cell::new(|| ()) };
}

/// Lets `switch` be called at every [`point`] of this thread from here on.
pub fn switch_by(switch: fn()) {
    SWITCH.set(switch);
}

/// Another thread may go on here.
pub fn point() {
    SWITCH.get()();
}

/// As `crossbeam_channel::Sender`.
#[derive(Debug)]
pub struct Sender<T>(channel::Sender<T>);

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T> Sender<T> {
    /// As `crossbeam_channel::Sender::try_send`.
    ///
    /// # Errors
    /// Where there is no room, or no receiver.
    pub fn try_send(&self, message: T) -> Result<(), TrySendError<T>> {
        point();
        self.0.try_send(message)
    }

    /// As `crossbeam_channel::Sender::send`, for channels that always have room.
    ///
    /// # Errors
    /// Where there is no receiver.
    pub fn send(&self, message: T) -> Result<(), channel::SendError<T>> {
        point();
        self.0.send(message)
    }

    /// Messages that wait.
    pub fn len(&self) -> usize {
        point();
        self.0.len()
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// As `crossbeam_channel::Receiver`.
#[derive(Debug)]
pub struct Receiver<T>(channel::Receiver<T>);

impl<T> Receiver<T> {
    /// As `crossbeam_channel::Receiver::try_recv`.
    ///
    /// # Errors
    /// Where nothing waits.
    pub fn try_recv(&self) -> Result<T, channel::TryRecvError> {
        point();
        self.0.try_recv()
    }

    /// As `crossbeam_channel::Receiver::try_iter`.
    pub fn try_iter(&self) -> impl Iterator<Item = T> + '_ {
        std::iter::from_fn(|| self.try_recv().ok())
    }

    /// Messages that wait.
    pub fn len(&self) -> usize {
        point();
        self.0.len()
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// As `crossbeam_channel::bounded`.
pub fn bounded<T>(capacity: usize) -> (Sender<T>, Receiver<T>) {
    let (sender, receiver) = channel::bounded(capacity);
    (Sender(sender), Receiver(receiver))
}

/// As `crossbeam_channel::unbounded`.
pub fn unbounded<T>() -> (Sender<T>, Receiver<T>) {
    let (sender, receiver) = channel::unbounded();
    (Sender(sender), Receiver(receiver))
}
