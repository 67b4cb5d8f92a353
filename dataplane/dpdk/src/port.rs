//! Ethernet ports.

use std::collections::HashSet;
use std::ffi::{CStr, CString, c_char};
use std::marker::PhantomData;
use std::ops::RangeInclusive;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

use crate::eal::Eal;
use crate::error::{Errno, Error, Result, check};
use crate::mbuf::register_rx_timestamp;
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
    /// Longest packet in bytes, the Ethernet header not counted; `None`: the device stays as it
    /// is.
    pub mtu: Option<u16>,
    /// Receive what is addressed to others, too. Devices that know no such mode always do.
    pub promiscuous: bool,
    /// Spread flows over several receive queues by their 5-tuples, where the device can.
    pub rss: bool,
    /// Let the device stamp packets as they arrive, where it can: see
    /// [`Mbuf::rx_timestamp`](crate::Mbuf::rx_timestamp). Some drivers receive slower then.
    pub timestamps: bool,
}

impl Default for PortConfig {
    fn default() -> Self {
        Self {
            queues: 1,
            rx_descriptors: 1024,
            tx_descriptors: 1024,
            mtu: None,
            promiscuous: true,
            rss: true,
            timestamps: false,
        }
    }
}

/// What a port is and can do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortInfo {
    /// Its driver.
    pub driver: String,
    /// Its Ethernet address.
    pub mac: [u8; 6],
    /// The NUMA socket that it is attached to, where that is known.
    pub socket: Option<u32>,
    /// Index of the interface of the kernel's that it is made on, where it is made on one.
    pub interface: Option<u32>,
    /// Queues it has each way.
    pub max_queues: u16,
    /// MTUs it can be set to.
    pub mtu: RangeInclusive<u16>,
    /// Whether it can spread flows over several receive queues.
    pub rss: bool,
    /// Whether it can stamp packets as they arrive.
    pub timestamps: bool,
}

/// State of a port's link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// Whether there is one.
    pub up: bool,
    /// Whether it carries both ways at once.
    pub full_duplex: bool,
    /// Megabits a second; `None` where the device does not know.
    pub mbps: Option<u32>,
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
///
/// Its methods may be called from any thread, next to the polling of its queues.
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
}

impl Inner {
    #[inline]
    pub(crate) fn number(&self) -> u16 {
        self.number
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let mut opened = opened();
        // SAFETY: the last queue is gone, so nobody polls the port any more.
        unsafe {
            dpdk_sys::rte_eth_dev_stop(self.number);
            dpdk_sys::rte_eth_dev_close(self.number);
        }
        // The device is gone with that; its number may be another's next.
        opened.remove(&self.number);
    }
}

/// The numbers of the ports that are open. Held for every call that sets a port up, asks it or
/// closes it: DPDK wants those one at a time.
fn opened() -> MutexGuard<'static, HashSet<u16>> {
    static OPENED: LazyLock<Mutex<HashSet<u16>>> = LazyLock::new(Mutex::default);
    OPENED.lock().unwrap_or_else(PoisonError::into_inner)
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
                names.push(text(&name));
            }
            number += 1;
        }
    }

    /// Opens and starts the port of this name, receiving into `pool`. Gives the port and its
    /// queues, each of which has one owner from then on.
    ///
    /// # Errors
    /// When there is no such port, it is open already, it can't do what `config` asks for, or the
    /// device refuses. A device that has refused half-way is closed, and gone.
    pub fn open(
        eal: &Eal,
        name: &str,
        config: PortConfig,
        pool: &Mempool,
    ) -> Result<(Self, Vec<(RxQueue, TxQueue)>)> {
        let c_name = CString::new(name).map_err(|_| Error::Nul(name.to_owned()))?;
        let mut open_ports = opened();
        let mut number = 0;
        // SAFETY: the name is NUL-terminated and `number` is written to.
        if unsafe { dpdk_sys::rte_eth_dev_get_port_by_name(c_name.as_ptr(), &mut number) } != 0 {
            return Err(Error::NoPort { name: name.to_owned(), ports: Self::names(eal) });
        }
        if open_ports.contains(&number) {
            return Err(Error::Call {
                what: format!("opening port {name}"),
                reason: "it has been opened before, and its queues given out".to_owned(),
            });
        }
        let info = ask(number, name)?;
        check_config(name, &info, &config)?;
        open_ports.insert(number);
        // From here on whatever fails closes the port, which takes the lock: after it is given
        // back.
        let inner = Arc::new(Inner { number, _pool: pool.clone() });
        let set_up = set_up(number, name, &info, &config, pool);
        drop(open_ports);
        set_up?;

        let mut queues: Vec<(RxQueue, TxQueue)> = (0..config.queues)
            .map(|queue| {
                let not_sync = PhantomData;
                (
                    RxQueue { port: inner.clone(), queue, not_sync },
                    TxQueue { port: inner.clone(), queue, not_sync },
                )
            })
            .collect();
        let port = Self { inner, name: name.to_owned() };
        if info.driver == "net_af_packet" {
            // Until it was bound to its interface, the socket received from all others as well.
            queues.iter_mut().for_each(|(rx, _)| rx.discard_waiting());
            port.reset_stats()?;
        }
        Ok((port, queues))
    }

    /// The port's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The port's number, as [`Mbuf::port`](crate::Mbuf::port) gives it.
    pub fn number(&self) -> u16 {
        self.inner.number
    }

    /// What the port is and can do.
    ///
    /// # Errors
    /// When the device can't tell.
    pub fn info(&self) -> Result<PortInfo> {
        let _one_at_a_time = opened();
        ask(self.inner.number, &self.name)
    }

    /// The port's Ethernet address.
    ///
    /// # Errors
    /// When the device can't tell.
    pub fn mac(&self) -> Result<[u8; 6]> {
        Ok(self.info()?.mac)
    }

    /// The port's MTU.
    ///
    /// # Errors
    /// When the device can't tell.
    pub fn mtu(&self) -> Result<u16> {
        let _one_at_a_time = opened();
        let mut mtu = 0;
        // SAFETY: the port is open and `mtu` is written to.
        let code = unsafe { dpdk_sys::rte_eth_dev_get_mtu(self.inner.number, &mut mtu) };
        check(code, || format!("reading the MTU of port {}", self.name))?;
        Ok(mtu)
    }

    /// The state of the port's link, without waiting for one.
    ///
    /// # Errors
    /// When the device can't tell.
    pub fn link(&self) -> Result<Link> {
        let _one_at_a_time = opened();
        let mut raw = dpdk_sys::calumma_port_link::default();
        // SAFETY: the port is open and `raw` is written to.
        let code = unsafe { dpdk_sys::calumma_port_link(self.inner.number, &mut raw) };
        check(code, || format!("reading the link of port {}", self.name))?;
        let mbps = (raw.mbps != 0).then_some(raw.mbps);
        Ok(Link { up: raw.up, full_duplex: raw.full_duplex, mbps })
    }

    /// Totals since the port was started, or since [`reset_stats`](Self::reset_stats).
    ///
    /// # Errors
    /// When the device can't tell.
    pub fn stats(&self) -> Result<PortStats> {
        let _one_at_a_time = opened();
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

    /// Lets all totals start from zero.
    ///
    /// # Errors
    /// When the device can't.
    pub fn reset_stats(&self) -> Result<()> {
        let _one_at_a_time = opened();
        // SAFETY: the port is open.
        let code = unsafe { dpdk_sys::rte_eth_stats_reset(self.inner.number) };
        check(code, || format!("resetting the totals of port {}", self.name))?;
        Ok(())
    }
}

/// Asks what a port is and can do.
fn ask(number: u16, name: &str) -> Result<PortInfo> {
    let mut raw = dpdk_sys::calumma_port_info::default();
    // SAFETY: the port exists and `raw` is written to.
    let code = unsafe { dpdk_sys::calumma_port_info(number, &mut raw) };
    check(code, || format!("asking what port {name} can do"))?;
    Ok(PortInfo {
        driver: text(&raw.driver),
        mac: raw.mac,
        socket: u32::try_from(raw.socket).ok(),
        interface: (raw.interface_index != 0).then_some(raw.interface_index),
        max_queues: raw.max_rx_queues.min(raw.max_tx_queues),
        mtu: raw.min_mtu..=raw.max_mtu,
        rss: raw.rss,
        timestamps: raw.timestamps,
    })
}

/// Refuses what the device would refuse, in clearer words.
fn check_config(name: &str, info: &PortInfo, config: &PortConfig) -> Result<()> {
    let (most, wanted) = (info.max_queues, config.queues);
    if wanted == 0 || wanted > most {
        return Err(Error::Queues { port: name.to_owned(), most, wanted });
    }
    match config.mtu {
        Some(mtu) if !info.mtu.contains(&mtu) => Err(Error::Call {
            what: format!("setting the MTU of port {name} to {mtu}"),
            reason: format!("it takes {} to {}", info.mtu.start(), info.mtu.end()),
        }),
        _ => Ok(()),
    }
}

/// Configures and starts a port that is claimed and stopped.
fn set_up(
    number: u16,
    name: &str,
    info: &PortInfo,
    config: &PortConfig,
    pool: &Mempool,
) -> Result<()> {
    let mut raw = dpdk_sys::calumma_port_config {
        queues: config.queues,
        rx_descriptors: config.rx_descriptors,
        tx_descriptors: config.tx_descriptors,
        mtu: config.mtu.unwrap_or(0),
        data_room: pool.data_room(),
        rss: config.rss,
        timestamps: config.timestamps,
    };
    if config.timestamps {
        register_rx_timestamp()?;
    }
    // SAFETY: the port exists, is stopped and nobody polls it; the numbers are written to.
    let code = unsafe { dpdk_sys::calumma_port_configure(number, &mut raw) };
    check(code, || format!("configuring port {name} with {} queues", config.queues))?;

    // SAFETY: reads the EAL's list of ports. Negative, that is any socket, wraps as DPDK expects.
    let socket = unsafe { dpdk_sys::rte_eth_dev_socket_id(number) } as u32;
    for queue in 0..config.queues {
        // SAFETY: the port is configured and stopped; null asks for the device's defaults; the pool
        // outlives the port, which holds it.
        let code = unsafe {
            dpdk_sys::rte_eth_rx_queue_setup(
                number,
                queue,
                raw.rx_descriptors,
                socket,
                std::ptr::null(),
                pool.as_ptr(),
            )
        };
        check(code, || format!("setting up receive queue {queue} of port {name}"))?;
        // SAFETY: as above.
        let code = unsafe {
            let depth = raw.tx_descriptors;
            dpdk_sys::rte_eth_tx_queue_setup(number, queue, depth, socket, std::ptr::null())
        };
        check(code, || format!("setting up transmit queue {queue} of port {name}"))?;
    }
    if let Some(mtu) = config.mtu {
        // SAFETY: the port is configured and stopped.
        let code = unsafe { dpdk_sys::rte_eth_dev_set_mtu(number, mtu) };
        unless_unsupported(code, || format!("setting the MTU of port {name} to {mtu}"))?;
    }
    // SAFETY: all queues are set up.
    let code = unsafe { dpdk_sys::rte_eth_dev_start(number) };
    check(code, || {
        let memif = info.driver == "net_memif";
        let hint =
            if memif { " (a memif client starts only while its server listens)" } else { "" };
        format!("starting port {name}{hint}")
    })?;
    if config.promiscuous {
        // SAFETY: the port is started.
        let code = unsafe { dpdk_sys::rte_eth_promiscuous_enable(number) };
        unless_unsupported(code, || format!("making port {name} promiscuous"))?;
    }
    Ok(())
}

/// An error, but for devices that have no such switch because there is nothing to set.
fn unless_unsupported(code: i32, what: impl FnOnce() -> String) -> Result<()> {
    if Errno(code).is_unsupported() { Ok(()) } else { check(code, what).map(drop) }
}

/// A NUL-terminated text of DPDK's.
fn text(chars: &[c_char]) -> String {
    let bytes: Vec<u8> = chars.iter().map(|&char| char as u8).collect();
    CStr::from_bytes_until_nul(&bytes).unwrap_or_default().to_string_lossy().into_owned()
}
