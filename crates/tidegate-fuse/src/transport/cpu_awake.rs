//! Keeps CPUs from halting while requests come close together.
//!
//! A request wakes two threads, one of the server and one of the client. In a virtual machine an idle CPU is
//! often given back to the host, and getting it back takes 50 to 200 µs: many times what a small request
//! takes. So while requests come close together, a thread for each CPU runs there whenever no other thread
//! does (`SCHED_IDLE`), and the CPU does not halt. The thread stops [`LINGER`] after the last request:
//! without requests none runs. It stays asleep where CPUs wake up fast. It also stays asleep where programs
//! compute: their CPU does not halt anyway, and the scheduler would take a CPU that runs an idle-class thread
//! for a free one, and send woken threads there.

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::{Errno, read, write};
use rustix::thread::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};
use tidegate::vfs::positions;
use tidegate_rt::{clock, thread};
use tidegate_sys::host::run_when_idle;

/// Requests with less than so many nanoseconds between them come close together.
const CLOSE: u64 = 500_000;
/// How long after the last request CPUs stay awake, in nanoseconds.
const LINGER: u64 = 400_000;
/// Waking a CPU is slow if it takes at least so many nanoseconds: about the time of a small request where
/// CPUs are awake.
const SLOW: u64 = 15_000;
/// How long such a measurement is used, in nanoseconds.
const BELIEVED: u64 = 1_000_000_000;
/// The nanoseconds of a measurement: each CPU is woken once in that time, if it is not very slow, and all are
/// kept awake.
const LOOK: u64 = 80_000;
/// If the thread does not get its CPU for so many nanoseconds, a program computes there. Clients and servers
/// sleep more often.
const BUSY: u64 = 10_000_000;
/// How long CPUs that wake up fast or are busy are left alone, in nanoseconds.
const REST: u64 = 200_000_000;
/// The most CPUs. With more, most of them would stay awake for nothing.
const MAX_CPUS: usize = 8;

positions! {
    /// When CPUs are kept awake.
    pub enum KeepAwake {
        /// Where waking CPUs is slow.
        #[default]
        Auto = "auto",
        /// Always while requests come close together.
        On = "on",
        /// Never.
        Off = "off",
    }
}

/// Threads that keep CPUs from halting. They end when this is dropped.
pub(super) struct CpuAwake(Arc<State>);

struct State {
    always: bool,
    /// When the last request came.
    last: AtomicU64,
    /// Whether the threads are to run, and since when.
    running: AtomicBool,
    woken: AtomicU64,
    /// The CPU that rang the bells: it was awake.
    ringer: AtomicUsize,
    /// The time until which CPUs are taken to wake up slowly, and the time until which they are not measured
    /// again.
    slow_until: AtomicU64,
    rest_until: AtomicU64,
    /// The value of [`BUSY`], which tests change.
    busy: AtomicU64,
    over: AtomicBool,
    /// The descriptor on which each thread sleeps. It is no lock, since the holder of a lock might not run
    /// for long while other threads use the CPU.
    bells: Vec<OwnedFd>,
}

impl CpuAwake {
    /// Starts the threads. `None` where they bring nothing.
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

    /// Notes that a request came.
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

    /// Runs on `cpu` while the CPU is to be awake.
    fn keep(&self, cpu: usize, bell: &OwnedFd) {
        let mut here = CpuSet::new();
        here.set(cpu);
        // At any other priority the thread would delay others.
        if run_when_idle().is_err() || sched_setaffinity(None, &here).is_err() {
            return;
        }
        let (mut rung, mut slept) = ([0; 8], 0);
        while !self.over.load(SeqCst) {
            if !matches!(read(bell, &mut rung), Ok(_) | Err(Errno::INTR)) {
                return;
            }
            let (mut now, woken) = (clock::now().0, self.woken.load(SeqCst));
            // A thread that was awake when the bell rang measures nothing.
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

    /// Waits for an event that comes soon or never.
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

    /// Starts one thread, whose CPU's wake-up time is not measured.
    fn on_one(always: bool) -> CpuAwake {
        let awake = CpuAwake::on(&[first_cpu()], always).unwrap();
        awake.0.ringer.store(first_cpu(), SeqCst);
        awake
    }

    /// Makes the thread run, as an endless row of requests does.
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
        // This thread may be delayed between any two calls.
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
        // Other programs may compute beside the test.
        state.busy.store(u64::MAX, SeqCst);
        ring(state);
        // The sleep is longer than it takes to see that a CPU is fast.
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
        // Two readings of the clock are always so far apart.
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
