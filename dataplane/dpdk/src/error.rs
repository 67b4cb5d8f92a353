//! DPDK's error numbers in words.

use std::ffi::CStr;
use std::io::ErrorKind;

/// What DPDK refused, and why.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
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
         say more. {hint}"
    )]
    Init {
        /// The EAL arguments.
        arguments: Vec<String>,
        /// DPDK's words for its error number.
        reason: String,
        /// What helps most often.
        hint: &'static str,
    },
    /// Words that the EAL does not know.
    #[error(
        "DPDK's EAL does not know what to do with {0:?}: its arguments are options, like -l 0-3"
    )]
    Leftover(Vec<String>),
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
    /// Work for an lcore that is not there, or is the main one.
    #[error("the EAL has no worker lcore {lcore}: its workers are {workers:?}")]
    NoLcore {
        /// The lcore that was asked for.
        lcore: u32,
        /// The lcores that can be given work.
        workers: Vec<u32>,
    },
    /// Work for an lcore that has not finished its last.
    #[error("lcore {0} is still at work")]
    Busy(u32),
    /// Work can be given to lcores only from the main one.
    #[error("lcores can be given work only from the thread that initialised the EAL")]
    NotMain,
    /// What ran on an lcore panicked.
    #[error("lcore {lcore} panicked: {message}")]
    Panicked {
        /// The lcore's number.
        lcore: u32,
        /// The panic's message.
        message: String,
    },
}

/// A result whose error is an [`Error`].
pub type Result<T> = std::result::Result<T, Error>;

/// An error number of DPDK's, of either sign.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Errno(pub(crate) i32);

impl Errno {
    /// DPDK's words for it.
    pub(crate) fn reason(self) -> String {
        // SAFETY: rte_strerror takes any number and gives a NUL-terminated string that lives until
        // the thread's next call; it is copied at once.
        unsafe { CStr::from_ptr(dpdk_sys::rte_strerror(self.0.abs())) }
            .to_string_lossy()
            .into_owned()
    }

    fn kind(self) -> ErrorKind {
        std::io::Error::from_raw_os_error(self.0.abs()).kind()
    }

    /// Whether a device reports that it does not support this.
    pub(crate) fn is_unsupported(self) -> bool {
        self.kind() == ErrorKind::Unsupported
    }

    /// What helps most often when the EAL can't be initialised.
    pub(crate) fn init_hint(self) -> &'static str {
        match self.kind() {
            ErrorKind::PermissionDenied => {
                "Either there are no hugepages (reserve some in /proc/sys/vm/nr_hugepages and mount \
                 hugetlbfs or pass `--in-memory`; or do without: `--no-huge -m 1024`), or this user \
                 may not use them or the devices (run as root)"
            }
            ErrorKind::OutOfMemory => {
                "Too few hugepages are free: reserve more in /proc/sys/vm/nr_hugepages, ask for less \
                 with -m, or pass `--no-huge -m 1024`"
            }
            ErrorKind::InvalidInput | ErrorKind::NotFound => "Check the arguments",
            _ => {
                "Next to another DPDK program, pass `--file-prefix NAME` or `--no-shconf`; without \
                 hugepages, `--no-huge -m 1024`"
            }
        }
    }

    /// Why there is no pool.
    pub(crate) fn pool_reason(self) -> String {
        let reason = self.reason();
        match self.kind() {
            ErrorKind::OutOfMemory => {
                format!("{reason}; give the EAL more memory (-m, hugepages) or ask for fewer mbufs")
            }
            ErrorKind::AlreadyExists => format!("{reason}; give each pool a name of its own"),
            _ => reason,
        }
    }
}

/// The calling thread's DPDK error number.
pub(crate) fn last_error() -> Errno {
    // SAFETY: reads a thread-local number.
    Errno(unsafe { dpdk_sys::calumma_errno() })
}

/// An error if `code` is negative.
pub(crate) fn check(code: i32, what: impl FnOnce() -> String) -> Result<i32> {
    if code < 0 {
        Err(Error::Call { what: what(), reason: Errno(code).reason() })
    } else {
        Ok(code)
    }
}
