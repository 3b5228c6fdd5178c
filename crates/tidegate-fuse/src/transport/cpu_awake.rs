//! Keeps CPUs from halting while requests come close together.
//!
//! A request wakes two threads, the server's and the client's. In a virtual machine a CPU with nothing to do
//! is often given back to the host, and having it back takes 50 to 200 µs: many times what a small request
//! takes. So while requests come close together, a thread for each CPU runs there whenever nobody else wants
//! to (`SCHED_IDLE`), and the CPU does not halt. It ends [`LINGER`] after the last request: without requests
//! nothing runs. Where CPUs wake up fast it stays asleep, and where programs compute, too: their CPU does not
//! halt, and the scheduler takes one that runs a thread of the idle class for a free one, and sends woken
//! threads there.

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::{Errno, read, write};
use rustix::thread::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};
use tidegate::vfs::positions;
use tidegate_rt::{clock, thread};
use tidegate_sys::host::run_when_idle;

/// Nanoseconds between two requests below which they come close together.
const CLOSE: u64 = 500_000;
/// How long after the last request CPUs stay awake, in nanoseconds.
const LINGER: u64 = 400_000;
/// From how many nanoseconds on waking a CPU is slow: about what a small request takes where CPUs are awake.
const SLOW: u64 = 15_000;
/// For how long that is believed, in nanoseconds.
const BELIEVED: u64 = 1_000_000_000;
/// Nanoseconds in which each CPU has been woken once, if it is not very slow, and they are all kept awake.
const LOOK: u64 = 80_000;
/// Nanoseconds without the CPU from which somebody computes there. Clients and servers sleep more often.
const BUSY: u64 = 10_000_000;
/// How long CPUs that wake up fast or are busy are left alone, in nanoseconds.
const REST: u64 = 200_000_000;
/// With more CPUs than this most of them would stay awake for nothing.
const MAX_CPUS: usize = 8;

positions! {
    /// When CPUs are kept awake.
    pub enum KeepAwake {
        /// Where waking them is slow.
        #[default]
        Auto = "auto",
        /// Always while requests come close together.
        On = "on",
        /// Never.
        Off = "off",
    }
}

/// Threads that keep CPUs from halting. Ends its threads when dropped.
pub(super) struct CpuAwake(Arc<State>);

struct State {
    always: bool,
    /// When the last request came.
    last: AtomicU64,
    /// Threads are to run, and since when.
    running: AtomicBool,
    woken: AtomicU64,
    /// The CPU that rang: it was awake.
    ringer: AtomicUsize,
    /// Until when CPUs are believed to wake up slowly, and until when they are not looked at again.
    slow_until: AtomicU64,
    rest_until: AtomicU64,
    /// [`BUSY`].
    busy: AtomicU64,
    over: AtomicBool,
    /// The descriptor that each thread sleeps on. No lock: a thread that has it might not run for long while
    /// others want the CPU.
    bells: Vec<OwnedFd>,
}

impl CpuAwake {
    /// Starts the threads; `None` where there is nothing to gain from them.
    pub(super) fn start(how: KeepAwake) -> Option<CpuAwake> {
        let all = sched_getaffinity(None).ok()?;
        let cpus: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|c| all.is_set(*c)).collect();
        if how == KeepAwake::Off || !(2..=MAX_CPUS).contains(&cpus.len()) {
            return None;
        }
        Self::on(&cpus, how == KeepAwake::On)
    }

    /// A thread for each of `cpus`.
    fn on(cpus: &[usize], always: bool) -> Option<CpuAwake> {
        let bell = |_: &usize| eventfd(0, EventfdFlags::CLOEXEC).ok();
        let state = State {
            always,
            last: AtomicU64::new(0),
            running: AtomicBool::new(false),
            woken: AtomicU64::new(0),
            ringer: AtomicUsize::new(0),
            slow_until: AtomicU64::new(0),
            rest_until: AtomicU64::new(0),
            busy: AtomicU64::new(BUSY),
            over: AtomicBool::new(false),
            bells: cpus.iter().map(bell).collect::<Option<_>>()?,
        };
        let awake = CpuAwake(Arc::new(state));
        for (i, cpu) in cpus.iter().copied().enumerate() {
            let state = awake.0.clone();
            thread::spawn(&format!("tg-awake-{cpu}"), move || state.keep(cpu, &state.bells[i])).ok()?;
        }
        Some(awake)
    }

    /// A request came.
    pub(super) fn request(&self) {
        let (state, now) = (&self.0, clock::now().0);
        let gap = now.saturating_sub(state.last.swap(now, Relaxed));
        if gap < CLOSE
            && !state.running.load(Relaxed)
            && now >= state.rest_until.load(Relaxed)
            && !state.running.swap(true, SeqCst)
        {
            state.ringer.store(sched_getcpu(), SeqCst);
            state.woken.store(now, SeqCst);
            state.ring();
        }
    }
}

impl Drop for CpuAwake {
    fn drop(&mut self) {
        self.0.over.store(true, SeqCst);
        self.0.ring();
    }
}

impl State {
    fn ring(&self) {
        for bell in &self.bells {
            // The write fails only when the bell was rung 2^64 times.
            let _ = write(bell, &1u64.to_ne_bytes());
        }
    }

    /// Runs on `cpu` while it is to be awake.
    fn keep(&self, cpu: usize, bell: &OwnedFd) {
        let mut here = CpuSet::new();
        here.set(cpu);
        // At any other priority it would be in the way.
        if run_when_idle().is_err() || sched_setaffinity(None, &here).is_err() {
            return;
        }
        let (mut rung, mut slept) = ([0; 8], 0);
        while !self.over.load(SeqCst) {
            if !matches!(read(bell, &mut rung), Ok(_) | Err(Errno::INTR)) {
                return;
            }
            let (mut now, woken) = (clock::now().0, self.woken.load(SeqCst));
            // A thread that was awake when the bell rang tells nothing.
            if woken > slept && self.ringer.load(SeqCst) != cpu {
                let slow = now.saturating_sub(woken) > SLOW;
                self.slow_until.store(if slow { now + BELIEVED } else { 0 }, Relaxed);
            }
            let look = woken + LOOK;
            let (limit, mut busy) = (self.busy.load(Relaxed), false);
            while now.saturating_sub(self.last.load(Relaxed)) < LINGER && !self.over.load(Relaxed) {
                let before = std::mem::replace(&mut now, clock::now().0);
                busy |= now.saturating_sub(before) > limit;
                if !self.always && (busy || now > self.slow_until.load(Relaxed).max(look)) {
                    self.rest_until.store(now + REST, Relaxed);
                    break;
                }
            }
            self.running.store(false, SeqCst);
            slept = clock::now().0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    /// Waits for what comes soon or never.
    fn until(what: &str, done: impl Fn() -> bool) {
        for _ in 0..20_000 {
            if done() {
                return;
            }
            thread::sleep(Duration::from_millis(1));
        }
        panic!("{what}");
    }

    fn first_cpu() -> usize {
        let all = sched_getaffinity(None).unwrap();
        (0..CpuSet::MAX_CPU).find(|c| all.is_set(*c)).unwrap()
    }

    /// One thread, of which it is not measured how fast its CPU wakes up.
    fn on_one(always: bool) -> CpuAwake {
        let awake = CpuAwake::on(&[first_cpu()], always).unwrap();
        awake.0.ringer.store(first_cpu(), SeqCst);
        awake
    }

    /// Has the thread run as requests that come without end do.
    fn ring(state: &State) {
        state.last.store(u64::MAX, SeqCst);
        state.woken.store(clock::now().0, SeqCst);
        state.running.store(true, SeqCst);
        state.ring();
    }

    #[test]
    fn nothing_starts_where_it_is_switched_off() {
        assert!(CpuAwake::start(KeepAwake::Off).is_none());
    }

    #[test]
    fn requests_close_together_wake_and_their_end_lets_sleep() {
        let awake = on_one(true);
        let state = &awake.0;
        // Time begins with the first look at the clock.
        clock::now();
        thread::sleep(Duration::from_nanos(2 * CLOSE));
        awake.request();
        assert!(!state.running.load(SeqCst), "one request is none that follows another");
        state.rest_until.store(u64::MAX, SeqCst);
        for _ in 0..100 {
            awake.request();
        }
        assert!(!state.running.load(SeqCst), "a rest is kept");
        state.rest_until.store(0, SeqCst);
        // This thread may be held up between any two.
        while !state.running.load(SeqCst) {
            awake.request();
        }
        until("it runs on without requests", || !state.running.load(SeqCst));
        assert_eq!(state.rest_until.load(SeqCst), 0, "who is told to run always does not rest");
    }

    #[test]
    fn a_cpu_that_wakes_up_fast_is_left_alone() {
        let awake = on_one(false);
        let state = &awake.0;
        ring(state);
        until("it runs though it need not", || !state.running.load(SeqCst));
        assert!(state.rest_until.load(SeqCst) > state.woken.load(SeqCst));
    }

    #[test]
    fn a_slow_cpu_stays_awake_until_requests_end() {
        let awake = on_one(false);
        let state = &awake.0;
        state.slow_until.store(u64::MAX, SeqCst);
        // Others may compute beside the test.
        state.busy.store(u64::MAX, SeqCst);
        ring(state);
        // Longer than it takes to see that a CPU is fast.
        thread::sleep(Duration::from_nanos(10 * LOOK));
        assert!(state.running.load(SeqCst));
        state.last.store(0, SeqCst);
        until("it runs on without requests", || !state.running.load(SeqCst));
        assert_eq!(state.rest_until.load(SeqCst), 0);
    }

    #[test]
    fn a_slow_cpu_is_left_alone_where_somebody_computes() {
        let awake = on_one(false);
        let state = &awake.0;
        state.slow_until.store(u64::MAX, SeqCst);
        // Two looks at the clock are always so far apart.
        state.busy.store(0, SeqCst);
        ring(state);
        until("it runs beside others", || !state.running.load(SeqCst));
        assert!(state.rest_until.load(SeqCst) > state.woken.load(SeqCst));
    }

    #[test]
    fn threads_end_with_it_also_while_they_run() {
        for runs in [false, true] {
            let awake = on_one(true);
            if runs {
                ring(&awake.0);
            }
            let state = Arc::downgrade(&awake.0);
            drop(awake);
            until("a thread goes on", || state.upgrade().is_none());
        }
    }
}
