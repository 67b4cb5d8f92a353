//! On which CPUs the threads of a program run, one CPU each. A switch's lcores poll without pause
//! on theirs, so that its other threads, and a controller on the same machine, belong on others.
//! DPDK's EAL pins the lcores.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{Builder, JoinHandle};

use core_affinity::CoreId;
use tracing::warn;

/// CPUs that a set of the kernel's has room for (`CPU_SETSIZE`).
const MAX_CPUS: usize = 1024;

/// CPUs to run threads on, in turn; never none. Clones share the turn.
#[derive(Clone, Debug)]
pub struct Cpus {
    cpus: Vec<usize>,
    next: Arc<AtomicUsize>,
}

impl Cpus {
    /// Those that the calling thread may run on.
    ///
    /// # Errors
    /// When the kernel doesn't say.
    pub fn of_this_thread() -> io::Result<Self> {
        let cpus = core_affinity::get_core_ids().filter(|cpus| !cpus.is_empty());
        let cpus = cpus.ok_or_else(io::Error::last_os_error)?;
        Ok(Self::of(cpus.into_iter().map(|cpu| cpu.id).collect()))
    }

    /// One only.
    ///
    /// # Errors
    /// When the number is larger than the kernel's sets have room for.
    pub fn only(cpu: usize) -> io::Result<Self> {
        Self::these(vec![cpu])
    }

    /// These.
    ///
    /// # Errors
    /// When there are none, or a number is larger than the kernel's sets have room for.
    pub fn these(cpus: Vec<usize>) -> io::Result<Self> {
        if cpus.is_empty() || cpus.iter().any(|&cpu| cpu >= MAX_CPUS) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        Ok(Self::of(cpus))
    }

    fn of(cpus: Vec<usize>) -> Self {
        Self { cpus, next: Arc::default() }
    }

    /// Those of them that are not `taken`; all of them where none would be left.
    #[must_use]
    pub fn besides(&self, taken: impl Fn(usize) -> bool) -> Self {
        let left: Vec<usize> = self.cpus.iter().copied().filter(|&cpu| !taken(cpu)).collect();
        Self::of(if left.is_empty() { self.cpus.clone() } else { left })
    }

    /// Pins the calling thread, and so those it starts from here on, to the next of these CPUs.
    ///
    /// # Errors
    /// When the machine doesn't have it, or this process may not use it.
    pub fn pin(&self) -> io::Result<()> {
        let turn = self.next.fetch_add(1, Ordering::Relaxed);
        let id = self.cpus[turn % self.cpus.len()];
        if core_affinity::set_for_current(CoreId { id }) {
            Ok(())
        } else {
            Err(io::Error::last_os_error())
        }
    }

    /// Starts a thread on the next of these CPUs. Where it can't be pinned, it says so and runs
    /// where the thread that started it may.
    ///
    /// # Errors
    /// When the system has no thread left.
    pub fn spawn<T: Send + 'static>(
        &self,
        name: &'static str,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<JoinHandle<T>> {
        let cpus = self.clone();
        Builder::new().name(name.to_owned()).spawn(move || {
            cpus.pin_or_warn();
            work()
        })
    }

    /// As [`pin`](Self::pin); where the thread can't be pinned, it says so and runs where it did.
    pub fn pin_or_warn(&self) {
        if let Err(error) = self.pin() {
            let thread = std::thread::current();
            warn!(thread = thread.name(), "not pinned to a CPU: {error}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_keep_off_lcores_where_there_are_other_cpus() {
        let three = Cpus::of(vec![1, 2, 5]);
        assert_eq!(three.besides(|cpu| cpu < 3).cpus, [5]);
        assert_eq!(three.besides(|cpu| cpu == 7).cpus, [1, 2, 5]);
        assert_eq!(three.besides(|_| true).cpus, [1, 2, 5], "there is nowhere else to go");
        assert!(Cpus::only(MAX_CPUS).is_err());
        assert!(Cpus::these(Vec::new()).is_err());
    }

    #[test]
    fn threads_are_pinned_in_turn_with_what_they_start() {
        let allowed = Cpus::of_this_thread().unwrap();
        let where_it_runs = || Cpus::of_this_thread().unwrap().cpus;
        for turn in 0..=allowed.cpus.len() {
            let thread = allowed.spawn("pinned", move || {
                (where_it_runs(), std::thread::spawn(where_it_runs).join().unwrap())
            });
            let cpu = allowed.cpus[turn % allowed.cpus.len()];
            assert_eq!(thread.unwrap().join().unwrap(), (vec![cpu], vec![cpu]));
        }
        assert_eq!(where_it_runs(), allowed.cpus);
    }
}
