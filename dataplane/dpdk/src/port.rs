//! Ethernet ports.

use std::ffi::{CStr, CString, c_char};
use std::marker::PhantomData;
use std::sync::Arc;

use crate::eal::Eal;
use crate::error::{Error, Result, check};
use crate::mempool::Mempool;
use crate::queue::{RxQueue, TxQueue};

/// How a port is set up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortConfig {
    /// Receive queues, and as many transmit queues.
    pub queues: u16,
    /// Descriptors of each receive queue; adjusted to what the device takes.
    pub rx_descriptors: u16,
    /// Descriptors of each transmit queue; adjusted to what the device takes.
    pub tx_descriptors: u16,
}

impl Default for PortConfig {
    fn default() -> Self {
        Self { queues: 1, rx_descriptors: 1024, tx_descriptors: 1024 }
    }
}

/// Totals of a port since it was started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortStats {
    /// Packets received.
    pub rx_packets: u64,
    /// Packets sent.
    pub tx_packets: u64,
    /// Bytes received.
    pub rx_bytes: u64,
    /// Bytes sent.
    pub tx_bytes: u64,
    /// Packets that came while the receive queues were full.
    pub rx_missed: u64,
    /// Packets received in error.
    pub rx_errors: u64,
    /// Packets that could not be sent.
    pub tx_errors: u64,
    /// Packets that came while there was no mbuf for them.
    pub rx_no_mbuf: u64,
}

/// A started port. Its queues keep it running; with the last of them it stops and closes.
#[derive(Clone, Debug)]
pub struct Port {
    inner: Arc<Inner>,
    name: String,
}

#[derive(Debug)]
pub(crate) struct Inner {
    number: u16,
    /// What the queues receive into, and what keeps the EAL up.
    _pool: Mempool,
    _eal: Eal,
}

impl Inner {
    #[inline]
    pub(crate) fn number(&self) -> u16 {
        self.number
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // SAFETY: the last queue is gone, so nobody polls the port any more.
        unsafe {
            dpdk_sys::rte_eth_dev_stop(self.number);
            dpdk_sys::rte_eth_dev_close(self.number);
        }
    }
}

impl Port {
    /// Names of all ports that DPDK has.
    pub fn names(_eal: &Eal) -> Vec<String> {
        let mut names = Vec::new();
        let mut number = 0;
        loop {
            // SAFETY: reads the EAL's list of ports.
            let next = unsafe { dpdk_sys::rte_eth_find_next(number) };
            if u32::from(next) >= dpdk_sys::RTE_MAX_ETHPORTS {
                return names;
            }
            number = next;
            let mut name = [0 as c_char; dpdk_sys::RTE_ETH_NAME_MAX_LEN as usize];
            // SAFETY: DPDK writes at most that many bytes, the last of them NUL.
            if unsafe { dpdk_sys::rte_eth_dev_get_name_by_port(number, name.as_mut_ptr()) } == 0 {
                // SAFETY: as above.
                let name = unsafe { CStr::from_ptr(name.as_ptr()) };
                names.push(name.to_string_lossy().into_owned());
            }
            number += 1;
        }
    }

    /// Opens and starts the port of this name, promiscuous where the device can be, receiving into
    /// `pool`. Gives the port and its queues, each of which has one owner from then on.
    ///
    /// # Errors
    /// When there is no such port, it has been opened before, it has fewer queues, or the device
    /// refuses.
    pub fn open(
        eal: &Eal,
        name: &str,
        config: PortConfig,
        pool: &Mempool,
    ) -> Result<(Self, Vec<(RxQueue, TxQueue)>)> {
        let c_name = CString::new(name).map_err(|_| Error::Nul(name.to_owned()))?;
        let mut number = 0;
        // SAFETY: the name is NUL-terminated and `number` is written to.
        if unsafe { dpdk_sys::rte_eth_dev_get_port_by_name(c_name.as_ptr(), &mut number) } != 0 {
            return Err(Error::NoPort { name: name.to_owned(), ports: Self::names(eal) });
        }
        claim(number, name)?;
        let queues = config.queues;
        let mut info = dpdk_sys::calumma_port_info::default();
        // SAFETY: the port exists and `info` is written to.
        let code = unsafe { dpdk_sys::calumma_port_info(number, &mut info) };
        check(code, || format!("asking what port {name} can do"))?;
        let most = info.max_rx_queues.min(info.max_tx_queues);
        if queues > most {
            return Err(Error::Queues { port: name.to_owned(), most, wanted: queues });
        }

        let (mut rx, mut tx) = (config.rx_descriptors, config.tx_descriptors);
        // SAFETY: the port exists, is stopped and nobody polls it; the numbers are written to.
        let code = unsafe { dpdk_sys::calumma_port_configure(number, queues, &mut rx, &mut tx) };
        check(code, || format!("configuring port {name} with {queues} queues"))?;
        let socket = info.socket as u32;
        for queue in 0..queues {
            // SAFETY: the port is configured and stopped; null asks for the device's defaults; the
            // pool outlives the port, which holds it.
            let code = unsafe {
                dpdk_sys::rte_eth_rx_queue_setup(
                    number,
                    queue,
                    rx,
                    socket,
                    std::ptr::null(),
                    pool.as_ptr(),
                )
            };
            check(code, || format!("setting up receive queue {queue} of port {name}"))?;
            // SAFETY: as above.
            let code = unsafe {
                dpdk_sys::rte_eth_tx_queue_setup(number, queue, tx, socket, std::ptr::null())
            };
            check(code, || format!("setting up transmit queue {queue} of port {name}"))?;
        }
        // SAFETY: all queues are set up.
        let code = unsafe { dpdk_sys::rte_eth_dev_start(number) };
        check(code, || format!("starting port {name}"))?;
        // SAFETY: the port is started. Devices that know no such mode receive everything anyway.
        unsafe { dpdk_sys::rte_eth_promiscuous_enable(number) };

        let inner = Arc::new(Inner { number, _pool: pool.clone(), _eal: eal.clone() });
        let queues = (0..queues)
            .map(|queue| {
                let not_sync = PhantomData;
                (
                    RxQueue { port: inner.clone(), queue, not_sync },
                    TxQueue { port: inner.clone(), queue, not_sync },
                )
            })
            .collect();
        Ok((Self { inner, name: name.to_owned() }, queues))
    }

    /// The port's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Totals since the port was started.
    ///
    /// # Errors
    /// When the device can't tell.
    pub fn stats(&self) -> Result<PortStats> {
        let mut raw = dpdk_sys::calumma_port_stats::default();
        // SAFETY: the port is open and `raw` is written to.
        let code = unsafe { dpdk_sys::calumma_port_stats(self.inner.number, &mut raw) };
        check(code, || format!("reading the totals of port {}", self.name))?;
        Ok(PortStats {
            rx_packets: raw.rx_packets,
            tx_packets: raw.tx_packets,
            rx_bytes: raw.rx_bytes,
            tx_bytes: raw.tx_bytes,
            rx_missed: raw.rx_missed,
            rx_errors: raw.rx_errors,
            tx_errors: raw.tx_errors,
            rx_no_mbuf: raw.rx_no_mbuf,
        })
    }
}

/// Marks a port as opened: its queues are given out only once.
fn claim(number: u16, name: &str) -> Result<()> {
    use std::collections::HashSet;
    use std::sync::{LazyLock, Mutex, PoisonError};
    static OPENED: LazyLock<Mutex<HashSet<u16>>> = LazyLock::new(Mutex::default);
    let mut opened = OPENED.lock().unwrap_or_else(PoisonError::into_inner);
    if opened.insert(number) {
        Ok(())
    } else {
        Err(Error::Call {
            what: format!("opening port {name}"),
            reason: "it has been opened before, and its queues given out".to_owned(),
        })
    }
}
