//! Keeps CPUs from halting while requests come close together.
//!
//! A request wakes two threads, whoever serves it and whoever asked. In a virtual machine a CPU with nothing to do
//! is often given back to the host, and having it back takes 50 to 200 µs: many times what a small request takes.
//! So while requests come close together, a thread for each CPU runs there whenever nobody else wants to
//! (`SCHED_IDLE`), and the CPU does not halt. It ends [`LINGER`] after the last request: without requests nothing
//! runs. Where CPUs wake up fast it stays asleep. A busy one may pass for slow: it costs nothing to be kept awake.

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::{Errno, read, write};
use rustix::thread::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};
use tidegate_block::host::run_when_idle;
use tidegate_rt::{clock, thread};

/// Nanoseconds between two requests below which they come close together.
const CLOSE: u64 = 500_000;
/// How long after the last request CPUs stay awake, in nanoseconds.
const LINGER: u64 = 400_000;
/// From how many nanoseconds on waking a CPU is slow, and for how long that is believed.
const SLOW: u64 = 40_000;
const BELIEVED: u64 = 1_000_000_000;
/// How long CPUs that wake up fast are left alone, in nanoseconds.
const REST: u64 = 200_000_000;
/// With more CPUs than this most of them would stay awake for nothing.
const MAX_CPUS: usize = 8;

/// When CPUs are kept awake.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KeepAwake {
    /// Where waking them is slow.
    #[default]
    Auto,
    /// Always while requests come close together.
    On,
    /// Never.
    Off,
}

/// See the module. Ends its threads when dropped.
pub(super) struct Awake(Arc<State>);

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
    over: AtomicBool,
    /// What each thread sleeps on. No lock: who has it might not run for long while others want the CPU.
    bells: Vec<OwnedFd>,
}

impl Awake {
    /// Starts the threads; `None` where there is nothing to gain from them.
    pub(super) fn start(how: KeepAwake) -> Option<Awake> {
        let all = sched_getaffinity(None).ok()?;
        let cpus: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|c| all.is_set(*c)).collect();
        if how == KeepAwake::Off || !(2..=MAX_CPUS).contains(&cpus.len()) {
            return None;
        }
        let bell = |_: &usize| eventfd(0, EventfdFlags::CLOEXEC).ok();
        let state = State {
            always: how == KeepAwake::On,
            last: AtomicU64::new(0),
            running: AtomicBool::new(false),
            woken: AtomicU64::new(0),
            ringer: AtomicUsize::new(0),
            slow_until: AtomicU64::new(0),
            rest_until: AtomicU64::new(0),
            over: AtomicBool::new(false),
            bells: cpus.iter().map(bell).collect::<Option<_>>()?,
        };
        let awake = Awake(Arc::new(state));
        for (i, cpu) in cpus.into_iter().enumerate() {
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

impl Drop for Awake {
    fn drop(&mut self) {
        self.0.over.store(true, SeqCst);
        self.0.ring();
    }
}

impl State {
    fn ring(&self) {
        for bell in &self.bells {
            // It fails only when it was rung 2^64 times.
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
            // Who was awake when the bell rang tells nothing.
            if woken > slept && self.ringer.load(SeqCst) != cpu {
                let slow = now.saturating_sub(woken) > SLOW;
                self.slow_until.store(if slow { now + BELIEVED } else { 0 }, Relaxed);
            }
            let look = woken + 2 * SLOW;
            while now.saturating_sub(self.last.load(Relaxed)) < LINGER && !self.over.load(Relaxed) {
                now = clock::now().0;
                if !self.always && now > self.slow_until.load(Relaxed).max(look) {
                    self.rest_until.store(now + REST, Relaxed);
                    break;
                }
            }
            self.running.store(false, SeqCst);
            slept = clock::now().0;
        }
    }
}
