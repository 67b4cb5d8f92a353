//! Work on the EAL's lcores.
//!
//! The main lcore is the thread that initialised the EAL; it alone gives work to the others, the
//! workers. A panic never leaves an lcore's thread: it is what waiting for the work gives.

use std::any::Any;
use std::ffi::{c_int, c_void};
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, channel};
use std::thread;

use crate::eal::Eal;
use crate::error::{Error, Result, check};

/// What an lcore is started with.
type Job = Box<dyn FnOnce() + Send>;

/// What an lcore's thread calls. A panic here would end the process, not unwind into C.
extern "C" fn entry(job: *mut c_void) -> c_int {
    // SAFETY: `job` comes from `Box::into_raw` in `Eal::start`, and each lcore is given its own
    // once.
    let job = unsafe { Box::from_raw(job.cast::<Job>()) };
    job();
    0
}

/// Work that an lcore has been given. Dropping it waits for the work to end.
///
/// Stays in the main lcore's thread, as nobody else may give an lcore its next work.
#[derive(Debug)]
#[must_use = "dropping it waits for the work to end"]
pub struct LcoreHandle<T> {
    lcore: u32,
    output: Option<Receiver<thread::Result<T>>>,
    /// Keeps the EAL up until the work has ended.
    _eal: Eal,
    not_send: PhantomData<*const ()>,
}

impl<T> LcoreHandle<T> {
    /// The lcore's number.
    pub fn lcore(&self) -> u32 {
        self.lcore
    }

    /// Whether the work has ended.
    pub fn is_finished(&self) -> bool {
        is_idle(self.lcore)
    }

    /// Waits for the work to end, asleep, and gives what it gave.
    ///
    /// # Errors
    /// When it panicked.
    pub fn join(mut self) -> Result<T> {
        let lcore = self.lcore;
        match self.wait() {
            Some(output) => said(lcore, output),
            None => Err(Error::Panicked { lcore, message: "no output".to_owned() }),
        }
    }

    fn wait(&mut self) -> Option<thread::Result<T>> {
        let output = self.output.take()?.recv().ok();
        // The lcore has a few instructions left to do.
        // SAFETY: the lcore was launched, and is launched again by this thread only.
        unsafe { dpdk_sys::rte_eal_wait_lcore(self.lcore) };
        output
    }
}

impl<T> Drop for LcoreHandle<T> {
    fn drop(&mut self) {
        drop(self.wait());
    }
}

impl Eal {
    /// The numbers of the lcores, the main one first.
    pub fn lcores(&self) -> Vec<u32> {
        let mut lcores = vec![self.main_lcore()];
        lcores.append(&mut self.worker_lcores());
        lcores
    }

    /// The number of the main lcore, which is the thread that initialised the EAL.
    pub fn main_lcore(&self) -> u32 {
        // SAFETY: reads the EAL's configuration.
        unsafe { dpdk_sys::rte_get_main_lcore() }
    }

    /// The numbers of the lcores beside the main one.
    pub fn worker_lcores(&self) -> Vec<u32> {
        // SAFETY: reads the EAL's configuration; `u32::MAX` stands for "before the first".
        let next = |lcore: u32| unsafe { dpdk_sys::rte_get_next_lcore(lcore, 1, 0) };
        let exists = |lcore: &u32| *lcore < dpdk_sys::RTE_MAX_LCORE;
        std::iter::successors(Some(next(u32::MAX)).filter(exists), |&lcore| {
            Some(next(lcore)).filter(exists)
        })
        .collect()
    }

    /// Whether an lcore may run on this CPU.
    pub fn has_lcore_on(&self, cpu: usize) -> bool {
        let cpu = u32::try_from(cpu).unwrap_or(u32::MAX);
        // SAFETY: reads the EAL's configuration, of lcores that exist.
        self.lcores()
            .into_iter()
            .any(|lcore| unsafe { dpdk_sys::calumma_lcore_has_cpu(lcore, cpu) })
    }

    /// The number of the lcore that the calling thread is; `None` for a thread that is none.
    pub fn current_lcore(&self) -> Option<u32> {
        // SAFETY: reads a thread-local number.
        let lcore = unsafe { dpdk_sys::calumma_lcore_id() };
        (lcore < dpdk_sys::RTE_MAX_LCORE).then_some(lcore)
    }

    /// Runs `work` on a worker lcore that is at rest, and returns at once.
    ///
    /// # Errors
    /// When the calling thread is not the main lcore, or there is no such worker at rest; the work
    /// is dropped then.
    pub fn launch<T: Send + 'static>(
        &self,
        lcore: u32,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<LcoreHandle<T>> {
        // SAFETY: the work borrows nothing.
        unsafe { self.start(lcore, work) }
    }

    /// Runs `work` once for each input, each on an lcore of its own, the first one on the main
    /// lcore, which is the calling thread. Waits for all of them and gives their outputs in
    /// order.
    ///
    /// An lcore that panics does not stop the others: work that runs until it is stopped should
    /// signal its own end, however it comes.
    ///
    /// # Errors
    /// When there are fewer lcores than inputs, one of those is at work or can't be launched on, or
    /// the calling thread is not the main lcore; nothing runs then. When what ran on an lcore
    /// panicked: the first one of them, after all have ended.
    pub fn run_on_lcores<T, R>(
        &self,
        inputs: Vec<T>,
        work: impl Fn(T) -> R + Sync,
    ) -> Result<Vec<R>>
    where
        T: Send,
        R: Send,
    {
        self.run_on(&self.lcores(), inputs, work)
    }

    /// The same on these lcores, the main one first.
    fn run_on<T, R>(
        &self,
        lcores: &[u32],
        inputs: Vec<T>,
        work: impl Fn(T) -> R + Sync,
    ) -> Result<Vec<R>>
    where
        T: Send,
        R: Send,
    {
        if inputs.len() > lcores.len() {
            return Err(Error::Lcores { lcores: lcores.len(), wanted: inputs.len() });
        }
        for &lcore in &lcores[1..inputs.len().max(1)] {
            self.check_idle_worker(lcore)?;
        }
        self.check_main()?;

        // Whether all are launched: none begins before.
        let begin = OnceLock::<bool>::new();
        let (begin, work) = (&begin, &work);
        let mut inputs = inputs.into_iter();
        let Some(first) = inputs.next() else { return Ok(Vec::new()) };
        let mut launched = Vec::with_capacity(inputs.len());
        let mut failed = None;
        for (input, &lcore) in inputs.zip(&lcores[1..]) {
            let job = move || begin.wait().then(|| work(input));
            // SAFETY: the handle is joined or dropped before this function returns or unwinds, so
            // `begin`, `work` and what the input borrows are still there.
            match unsafe { self.start(lcore, job) } {
                Ok(handle) => launched.push(handle),
                Err(error) => {
                    failed = Some(error);
                    break;
                }
            }
        }
        let _ = begin.set(failed.is_none());
        if let Some(error) = failed {
            return Err(error);
        }
        let first = catch_unwind(AssertUnwindSafe(|| work(first)));
        let mut outputs = vec![said(lcores[0], first)];
        // All have begun.
        outputs.extend(launched.into_iter().filter_map(|handle| handle.join().transpose()));
        outputs.into_iter().collect()
    }

    /// Launches work that may borrow.
    ///
    /// # Safety
    /// The handle must be joined or dropped before what the work borrows goes.
    unsafe fn start<'a, T: Send + 'a>(
        &self,
        lcore: u32,
        work: impl FnOnce() -> T + Send + 'a,
    ) -> Result<LcoreHandle<T>> {
        self.check_main()?;
        self.check_idle_worker(lcore)?;
        let (give, output) = channel();
        let job: Box<dyn FnOnce() + Send + 'a> = Box::new(move || {
            let _ = give.send(catch_unwind(AssertUnwindSafe(work)));
        });
        // SAFETY: only the lifetime changes. The job has ended when the handle is gone, and until
        // then what it borrows is there, by the caller's word.
        let job: Job = unsafe { std::mem::transmute(job) };
        let job = Box::into_raw(Box::new(job));
        // SAFETY: the lcore is a worker at rest, and `entry` takes such a job.
        let code = unsafe { dpdk_sys::rte_eal_remote_launch(Some(entry), job.cast(), lcore) };
        if code != 0 {
            // SAFETY: the lcore has not taken it.
            drop(unsafe { Box::from_raw(job) });
        }
        check(code, || format!("launching on lcore {lcore}"))?;
        let not_send = PhantomData;
        Ok(LcoreHandle { lcore, output: Some(output), _eal: self.clone(), not_send })
    }

    fn check_main(&self) -> Result<()> {
        let main = self.current_lcore() == Some(self.main_lcore());
        if main { Ok(()) } else { Err(Error::NotMain) }
    }

    /// Anything but a worker of the EAL's must not reach `rte_eal_remote_launch`, which checks
    /// little.
    fn check_idle_worker(&self, lcore: u32) -> Result<()> {
        let workers = self.worker_lcores();
        if !workers.contains(&lcore) {
            return Err(Error::NoLcore { lcore, workers });
        }
        if is_idle(lcore) { Ok(()) } else { Err(Error::Busy(lcore)) }
    }
}

/// Whether a worker lcore is at rest.
pub(crate) fn is_idle(lcore: u32) -> bool {
    // SAFETY: reads the state of an lcore that exists.
    unsafe { dpdk_sys::rte_eal_get_lcore_state(lcore) == dpdk_sys::WAIT }
}

/// What an lcore's work gave, or its panic's message.
fn said<T>(lcore: u32, output: thread::Result<T>) -> Result<T> {
    output.map_err(|panic| {
        let message = message(&*panic);
        // Dropping what was thrown could panic in turn.
        std::mem::forget(panic);
        Error::Panicked { lcore, message }
    })
}

fn message(panic: &(dyn Any + Send)) -> String {
    match (panic.downcast_ref::<&str>(), panic.downcast_ref::<String>()) {
        (Some(text), _) => (*text).to_owned(),
        (_, Some(text)) => text.clone(),
        _ => "no message".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    use std::time::{Duration, Instant};

    /// Alone in its process, as the EAL can be initialised once.
    #[test]
    fn where_one_lcore_is_not_launched_none_works_and_none_is_left_behind() {
        let eal = crate::common::eal(3, &[]);
        let (stop, begun) = (AtomicBool::new(false), AtomicUsize::new(0));
        let work = |()| {
            begun.fetch_add(1, Ordering::Relaxed);
            let end = Instant::now() + Duration::from_secs(10);
            while !stop.load(Ordering::Relaxed) && Instant::now() < end {
                thread::yield_now();
            }
        };
        // The third is at rest when that is asked, and at work when it is launched.
        let failed = eal.run_on(&[0, 1, 2, 2], vec![(); 4], work);
        assert!(matches!(failed, Err(Error::Busy(2))), "{failed:?}");
        assert_eq!(begun.load(Ordering::Relaxed), 0);
        assert!(is_idle(1) && is_idle(2));

        stop.store(true, Ordering::Relaxed);
        assert_eq!(eal.run_on_lcores(vec![(); 3], work).unwrap().len(), 3);
        assert_eq!(begun.load(Ordering::Relaxed), 3);
    }
}
