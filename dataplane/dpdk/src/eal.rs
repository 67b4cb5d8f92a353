//! DPDK's environment abstraction layer: memory, lcores, devices.

use std::ffi::{CStr, CString, c_char};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::error::{Error, Result, check, last_error};
use crate::lcore::is_idle;

/// The initialised library. Clones stand for the same; the last one that goes, together with all
/// ports and pools, cleans up.
///
/// ```no_run
/// use dpdk::{Burst, Eal, Mempool, Port, PortConfig};
///
/// let eal = Eal::init(&["--no-huge", "-m", "256", "--no-pci", "--vdev=net_null0"])?;
/// let pool = Mempool::new(&eal, "packets", 8191, -1)?;
/// let (port, mut queues) = Port::open(&eal, "net_null0", PortConfig::default(), &pool)?;
/// let (mut rx, mut tx) = queues.remove(0);
/// let mut burst = Burst::<32>::new();
/// rx.rx(&mut burst);
/// burst.for_each(|packet| packet.data_mut().reverse());
/// tx.tx(&mut burst);
/// println!("{:?}", port.stats()?);
/// # Ok::<(), dpdk::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Eal {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    /// Set when memory is still in use that cleaning up would take away.
    leaked: AtomicBool,
}

static INITIALISED: AtomicBool = AtomicBool::new(false);

impl Eal {
    /// Initialises the library with EAL arguments, without a program name in front. The calling
    /// thread becomes the main lcore and is pinned to its CPU.
    ///
    /// # Errors
    /// When the EAL refuses the arguments or was initialised before in this process, even if in
    /// vain.
    pub fn init<S: AsRef<str>>(arguments: &[S]) -> Result<Self> {
        let words = std::iter::once("calumma").chain(arguments.iter().map(AsRef::as_ref));
        let words = words
            .map(|word| CString::new(word).map_err(|_| Error::Nul(word.to_owned())))
            .collect::<Result<Vec<_>>>()?;
        if INITIALISED.swap(true, Ordering::SeqCst) {
            return Err(Error::AlreadyInitialised);
        }
        // The EAL may keep pointers to its arguments and reorder them: they live for good.
        let words: Vec<*mut c_char> = words.into_iter().map(CString::into_raw).collect();
        let count = words.len() as i32;
        // SAFETY: `argv` points to `count` NUL-terminated strings, none of which is ever freed.
        let result = unsafe { dpdk_sys::rte_eal_init(count, words.leak().as_mut_ptr()) };
        let arguments = || arguments.iter().map(|word| word.as_ref().to_owned());
        if result < 0 {
            let error = last_error();
            return Err(Error::Init {
                arguments: arguments().collect(),
                reason: error.reason(),
                hint: error.init_hint(),
            });
        }
        let eal = Self { inner: Arc::new(Inner { leaked: AtomicBool::new(false) }) };
        // The EAL stops at the first word that is no option; what follows had no effect.
        let leftover: Vec<String> = arguments().skip(result as usize).collect();
        if leftover.is_empty() { Ok(eal) } else { Err(Error::Leftover(leftover)) }
    }

    /// Creates a virtual device, as `--vdev NAME,ARGUMENTS` does when the EAL starts.
    ///
    /// # Errors
    /// When there is no such driver, the driver refuses the arguments, or the name is taken.
    pub fn attach_vdev(&self, name: &str, arguments: &str) -> Result<()> {
        let text = |text: &str| CString::new(text).map_err(|_| Error::Nul(text.to_owned()));
        let (c_name, c_arguments) = (text(name)?, text(arguments)?);
        // SAFETY: all three are NUL-terminated and copied.
        let code = unsafe {
            dpdk_sys::rte_eal_hotplug_add(c"vdev".as_ptr(), c_name.as_ptr(), c_arguments.as_ptr())
        };
        check(code, || format!("creating the device {name} with {arguments:?}"))?;
        Ok(())
    }

    /// Whether the calling thread is the main lcore's and no other lcore is at work. Only this
    /// thread can give them work, so they stay at rest for as long as it does something else.
    pub(crate) fn at_rest(&self) -> bool {
        self.current_lcore() == Some(self.main_lcore())
            && self.worker_lcores().into_iter().all(is_idle)
    }

    /// Forgoes cleaning up, since memory is still in use.
    pub(crate) fn leak(&self) {
        self.inner.leaked.store(true, Ordering::Relaxed);
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if !*self.leaked.get_mut() {
            // SAFETY: this is the last handle: no port and no pool is left, and none of the pools
            // was leaked with mbufs in use.
            unsafe { dpdk_sys::rte_eal_cleanup() };
        }
    }
}

/// DPDK's version, as in "DPDK 22.11.11".
pub fn version() -> String {
    // SAFETY: gives a static NUL-terminated string.
    unsafe { CStr::from_ptr(dpdk_sys::rte_version()) }.to_string_lossy().into_owned()
}

/// The time stamp counter: about 20 cycles.
#[inline]
pub fn tsc() -> u64 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 CPU has the instruction.
    unsafe {
        core::arch::x86_64::_rdtsc()
    }
    #[cfg(not(target_arch = "x86_64"))]
    // SAFETY: reads a counter.
    unsafe {
        dpdk_sys::calumma_tsc()
    }
}

/// Ticks of the time stamp counter in a second; known once the EAL is initialised.
pub fn tsc_hz() -> u64 {
    // SAFETY: reads a number.
    unsafe { dpdk_sys::rte_get_tsc_hz() }
}
