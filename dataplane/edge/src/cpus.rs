//! Which CPUs the switch's threads run on: lcores poll without pause on theirs, so whatever else there is to do
//! belongs on others.

use std::io;
use std::thread::{Builder, JoinHandle};

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;
use tracing::warn;

/// A set of CPUs to run threads on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cpus(CpuSet);

impl Cpus {
    /// Those that the calling thread may run on.
    ///
    /// # Errors
    /// When the kernel doesn't say.
    pub fn of_this_thread() -> nix::Result<Self> {
        sched_getaffinity(Pid::from_raw(0)).map(Self)
    }

    /// One only.
    ///
    /// # Errors
    /// When the number is too large for a set.
    pub fn only(cpu: usize) -> nix::Result<Self> {
        let mut set = CpuSet::new();
        set.set(cpu)?;
        Ok(Self(set))
    }

    /// Those of them that are not `taken`; all of them where none would be left.
    pub fn besides(self, taken: impl Fn(usize) -> bool) -> Self {
        let mut left = CpuSet::new();
        for cpu in (0..CpuSet::count()).filter(|&cpu| !taken(cpu)) {
            if self.0.is_set(cpu).unwrap_or(false) {
                left.set(cpu).expect("a set takes what another holds");
            }
        }
        if left == CpuSet::new() { self } else { Self(left) }
    }

    /// Lets the calling thread, and those it starts from here on, run on these only.
    ///
    /// # Errors
    /// When the machine has none of them, or this process may use none.
    pub fn keep_to(self) -> nix::Result<()> {
        sched_setaffinity(Pid::from_raw(0), &self.0)
    }

    /// Starts a thread that runs on these only. Where it can't, it says so and runs where the kernel puts it.
    ///
    /// # Errors
    /// When the system has no thread left.
    pub fn spawn<T: Send + 'static>(
        self,
        name: &'static str,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<JoinHandle<T>> {
        Builder::new().name(name.to_owned()).spawn(move || {
            if let Err(problem) = self.keep_to() {
                warn!(thread = name, "can't be kept to the CPUs meant for it: {problem}");
            }
            work()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_keep_off_the_cpus_of_lcores_where_there_are_others() {
        let mut three = CpuSet::new();
        [1, 2, 5].into_iter().for_each(|cpu| three.set(cpu).unwrap());
        let three = Cpus(three);
        assert_eq!(three.besides(|cpu| cpu < 3), Cpus::only(5).unwrap());
        assert_eq!(three.besides(|cpu| cpu == 7), three);
        assert_eq!(three.besides(|_| true), three, "there is nowhere else to go");
    }

    #[test]
    fn a_thread_and_what_it_starts_run_where_it_was_told() {
        let allowed = Cpus::of_this_thread().unwrap();
        let first = (0..CpuSet::count()).find(|&cpu| allowed.0.is_set(cpu).unwrap()).unwrap();
        let one = Cpus::only(first).unwrap();
        let thread = one.spawn("one", || {
            std::thread::spawn(|| Cpus::of_this_thread().unwrap()).join().unwrap()
        });
        assert_eq!(thread.unwrap().join().unwrap(), one);
        assert_eq!(Cpus::of_this_thread().unwrap(), allowed);
    }
}
