//! DPDK's error numbers in words.

use std::ffi::CStr;

/// What DPDK refused, and why.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A call failed.
    #[error("{what}: {reason}")]
    Call {
        /// What was to be done.
        what: String,
        /// DPDK's words for its error number.
        reason: String,
    },
    /// The EAL could not be initialised.
    #[error(
        "DPDK's EAL could not be initialised with {arguments:?}: {reason}. Its own messages above \
          say more. Without hugepages, pass `--no-huge -m 512`; next to another DPDK program, \
         `--file-prefix NAME` or `--no-shconf`"
    )]
    Init {
        /// The EAL arguments.
        arguments: Vec<String>,
        /// DPDK's words for its error number.
        reason: String,
    },
    /// The EAL can be initialised once in a process's life.
    #[error("DPDK's EAL can be initialised only once in a process")]
    AlreadyInitialised,
    /// An argument with a NUL byte in it.
    #[error("{0:?} has a NUL byte in it, which DPDK can't be given")]
    Nul(String),
    /// No such port.
    #[error(
        "DPDK has no port {name}; it has: {}. Name it with --vdev, or bind its PCI device and allow \
         it with -a",
        if ports.is_empty() { "none".to_owned() } else { ports.join(", ") }
    )]
    NoPort {
        /// The name that was asked for.
        name: String,
        /// The names that there are.
        ports: Vec<String>,
    },
    /// More queues than the device has.
    #[error("port {port} has at most {most} queues each way, {wanted} were asked for")]
    Queues {
        /// The port's name.
        port: String,
        /// Queues that the device has.
        most: u16,
        /// Queues that were asked for.
        wanted: u16,
    },
    /// More work than lcores.
    #[error("{wanted} lcores are needed, but the EAL was given {lcores}: see its -l argument")]
    Lcores {
        /// The EAL's lcores.
        lcores: usize,
        /// Lcores that were asked for.
        wanted: usize,
    },
    /// Work can be given to lcores only from the main one.
    #[error("lcores can be given work only from the thread that initialised the EAL")]
    NotMain,
    /// What ran on an lcore panicked.
    #[error("lcore {lcore} panicked: {message}")]
    Panicked {
        /// The lcore's number.
        lcore: u32,
        /// What it said.
        message: String,
    },
}

/// A result whose error is an [`Error`].
pub type Result<T> = std::result::Result<T, Error>;

/// DPDK's words for an error number, of either sign.
pub(crate) fn reason(number: i32) -> String {
    // SAFETY: rte_strerror takes any number and gives a NUL-terminated string that lives until the
    // thread's next call; it is copied at once.
    unsafe { CStr::from_ptr(dpdk_sys::rte_strerror(number.abs())) }.to_string_lossy().into_owned()
}

/// The calling thread's DPDK error number, in words.
pub(crate) fn last_reason() -> String {
    // SAFETY: reads a thread-local number.
    reason(unsafe { dpdk_sys::calumma_errno() })
}

/// An error unless `code` is zero or positive.
pub(crate) fn check(code: i32, what: impl FnOnce() -> String) -> Result<i32> {
    if code < 0 { Err(Error::Call { what: what(), reason: reason(code) }) } else { Ok(code) }
}
