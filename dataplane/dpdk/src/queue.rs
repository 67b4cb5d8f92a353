//! Receive and transmit queues.

use std::cell::Cell;
use std::marker::PhantomData;
use std::sync::Arc;

use crate::burst::Burst;
use crate::port::Inner;

/// Bursts that the largest rings hold.
const MOST_BURSTS_WAITING: usize = 4096;

/// A port's receive queue. One owner at a time polls it: it can move to another thread, but not be
/// shared.
#[derive(Debug)]
pub struct RxQueue {
    pub(crate) port: Arc<Inner>,
    pub(crate) queue: u16,
    pub(crate) not_sync: PhantomData<Cell<()>>,
}

/// A port's transmit queue, with one owner at a time.
#[derive(Debug)]
pub struct TxQueue {
    pub(crate) port: Arc<Inner>,
    pub(crate) queue: u16,
    pub(crate) not_sync: PhantomData<Cell<()>>,
}

impl RxQueue {
    /// Receives packets into what room `burst` has, and gives their number. Never waits.
    ///
    /// One call into the driver, whatever the number of packets; an empty queue costs a few
    /// nanoseconds (a system call with the kernel's interfaces). Vector drivers receive in fours at
    /// least: poll with an empty burst.
    #[inline]
    pub fn rx<const N: usize>(&mut self, burst: &mut Burst<N>) -> usize {
        self.rx_at_most(burst, N)
    }

    /// The same, but no more than `most` packets. Vector drivers may give none where that is less
    /// than eight.
    #[inline]
    pub fn rx_at_most<const N: usize>(&mut self, burst: &mut Burst<N>, most: usize) -> usize {
        let vacant = burst.vacant();
        let room = vacant.len().min(most).min(usize::from(u16::MAX)) as u16;
        // SAFETY: the port is started, the queue was set up and has this one owner, and there is
        // room for as many mbufs.
        let received = unsafe {
            dpdk_sys::calumma_rx_burst(
                self.port.number(),
                self.queue,
                vacant.as_mut_ptr().cast(),
                room,
            )
        };
        // SAFETY: DPDK has put as many mbufs there, and they are ours now.
        unsafe { burst.assume_filled(usize::from(received)) };
        usize::from(received)
    }

    /// How many packets wait to be received; `None` where the driver can't tell. Some drivers walk
    /// over the descriptors for it.
    #[inline]
    pub fn waiting(&mut self) -> Option<u32> {
        // SAFETY: the port is started, and the queue was set up and has this one owner.
        let waiting = unsafe { dpdk_sys::calumma_rx_queue_count(self.port.number(), self.queue) };
        u32::try_from(waiting).ok()
    }

    /// The port's number, as [`Mbuf::port`](crate::Mbuf::port) gives it.
    #[inline]
    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// Frees what waits to be received; not for ever where more comes all the time.
    pub(crate) fn discard_waiting(&mut self) {
        let mut burst: Burst = Burst::new();
        for _ in 0..MOST_BURSTS_WAITING {
            if self.rx(&mut burst) == 0 {
                return;
            }
            burst.clear();
        }
    }
}

impl TxQueue {
    /// Sends packets from the front of `burst`, and gives their number; what the queue has no room
    /// for stays in the burst, moved to its front. Never waits.
    ///
    /// One call into the driver, whatever the number of packets; none for an empty burst.
    #[inline]
    pub fn tx<const N: usize>(&mut self, burst: &mut Burst<N>) -> usize {
        let len = burst.len().min(usize::from(u16::MAX)) as u16;
        if len == 0 {
            return 0;
        }
        // SAFETY: the port is started, the queue was set up and has this one owner, and the burst
        // holds as many mbufs.
        let sent = unsafe {
            dpdk_sys::calumma_tx_burst(self.port.number(), self.queue, burst.as_raw(), len)
        };
        // SAFETY: DPDK owns the mbufs that it has taken; they are at most as many as it was given.
        unsafe { burst.forget_first(usize::from(sent)) };
        usize::from(sent)
    }
}
