//! Work on the EAL's lcores.

use std::any::Any;
use std::ffi::{c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::eal::Eal;
use crate::error::{Error, Result, check};

/// One lcore's share of the work.
struct Job<'f, T, R> {
    work: &'f (dyn Fn(T) -> R + Sync),
    input: Option<T>,
    output: Option<std::thread::Result<R>>,
}

impl<T, R> Job<'_, T, R> {
    fn run(&mut self) {
        if let Some(input) = self.input.take() {
            self.output = Some(catch_unwind(AssertUnwindSafe(|| (self.work)(input))));
        }
    }
}

/// What an lcore's thread is started with.
extern "C" fn start<T, R>(job: *mut c_void) -> c_int {
    // SAFETY: `job` is the `Job<T, R>` that `run_on_lcores` launched this lcore with; it lives, and
    // nobody else touches it, until the lcore has been waited for.
    let job = unsafe { &mut *job.cast::<Job<'_, T, R>>() };
    job.run();
    0
}

impl Eal {
    /// The numbers of the lcores, the main one first.
    pub fn lcores(&self) -> Vec<u32> {
        // SAFETY: reads the EAL's configuration.
        let main = unsafe { dpdk_sys::rte_get_main_lcore() };
        let mut lcores = vec![main];
        let mut next = u32::MAX;
        loop {
            // SAFETY: as above; `u32::MAX` stands for "before the first".
            next = unsafe { dpdk_sys::rte_get_next_lcore(next, 1, 0) };
            if next >= dpdk_sys::RTE_MAX_LCORE {
                return lcores;
            }
            lcores.push(next);
        }
    }

    /// Runs `work` once for each input, each on an lcore of its own, the first one on the main lcore,
    /// which is the calling thread. Waits for all of them and gives their outputs in order.
    ///
    /// # Errors
    /// When there are fewer lcores than inputs or the calling thread is not the main lcore; nothing
    /// runs then. When what ran on an lcore panicked: the first one of them, after all have ended.
    pub fn run_on_lcores<T, R>(
        &self,
        inputs: Vec<T>,
        work: impl Fn(T) -> R + Sync,
    ) -> Result<Vec<R>>
    where
        T: Send,
        R: Send,
    {
        let lcores = self.lcores();
        if inputs.len() > lcores.len() {
            return Err(Error::Lcores { lcores: lcores.len(), wanted: inputs.len() });
        }
        // SAFETY: reads a thread-local number.
        if unsafe { dpdk_sys::calumma_lcore_id() } != lcores[0] {
            return Err(Error::NotMain);
        }
        let mut jobs: Vec<Job<'_, T, R>> = inputs
            .into_iter()
            .map(|input| Job { work: &work, input: Some(input), output: None })
            .collect();

        let Some((first, others)) = jobs.split_first_mut() else { return Ok(Vec::new()) };
        let mut launched = Vec::new();
        let mut refused = Ok(0);
        for (job, &lcore) in others.iter_mut().zip(&lcores[1..]) {
            let job: *mut Job<'_, T, R> = job;
            // SAFETY: the job stays where it is and untouched until the lcore is waited for below,
            // and `T` and `R` may cross threads.
            let code =
                unsafe { dpdk_sys::rte_eal_remote_launch(Some(start::<T, R>), job.cast(), lcore) };
            refused = check(code, || format!("launching on lcore {lcore}"));
            if refused.is_err() {
                break;
            }
            launched.push(lcore);
        }
        if refused.is_ok() {
            first.run();
        }
        for lcore in launched {
            // SAFETY: the lcore was launched; afterwards it no longer touches its job.
            unsafe { dpdk_sys::rte_eal_wait_lcore(lcore) };
        }
        refused?;
        jobs.into_iter()
            .zip(lcores)
            .filter_map(|(job, lcore)| Some((job.output?, lcore)))
            .map(|(output, lcore)| {
                output.map_err(|panic| Error::Panicked { lcore, message: message(&*panic) })
            })
            .collect()
    }
}

/// What a panic said.
fn message(panic: &(dyn Any + Send)) -> String {
    match (panic.downcast_ref::<&str>(), panic.downcast_ref::<String>()) {
        (Some(text), _) => (*text).to_owned(),
        (_, Some(text)) => text.clone(),
        _ => "no message".to_owned(),
    }
}
