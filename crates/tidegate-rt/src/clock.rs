//! Monotonic and wall-clock time.

use crate::sim::{self, task};
use std::ops::Add;
use std::sync::OnceLock;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// A point on the monotonic clock, or a span of it, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Nanos(pub u64);

impl Nanos {
    /// Nanoseconds from `earlier` to `self`; 0 if `earlier` is later.
    pub fn since(self, earlier: Nanos) -> Nanos {
        Nanos(self.0.saturating_sub(earlier.0))
    }

    /// The span as a `Duration`.
    pub fn duration(self) -> Duration {
        Duration::from_nanos(self.0)
    }
}

impl Add<Duration> for Nanos {
    type Output = Nanos;

    /// The time so much later, at most the end of the clock.
    fn add(self, time: Duration) -> Nanos {
        Nanos(self.0.saturating_add(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)))
    }
}

/// Wall-clock time: seconds since 1970 (negative before) and nanoseconds `0..1_000_000_000`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timespec {
    /// Whole seconds since 1970-01-01 00:00 UTC.
    pub secs: i64,
    /// Nanoseconds past `secs`.
    pub nanos: u32,
}

/// The monotonic clock, counted from the first call in this process, or from the beginning of the simulated
/// run.
#[inline]
pub fn now() -> Nanos {
    task::with(|t| Nanos(t.now())).unwrap_or_else(monotonic)
}

fn monotonic() -> Nanos {
    static START: OnceLock<Instant> = OnceLock::new();
    Nanos(START.get_or_init(Instant::now).elapsed().as_nanos() as u64 + 1)
}

/// The time as [`now`], for observers: from the processor's counter where that is steady, at a third of the
/// cost. Readings must not be mixed with those of [`now`], from which they may drift by parts in a million.
/// Two processors may be some nanoseconds apart.
#[inline]
pub fn stamp() -> Nanos {
    task::with(|t| Nanos(t.now())).unwrap_or_else(|| COUNTER.get_or_init(Counter::start).now())
}

/// Measures the rate of the processor's counter, which takes up to a fifth of a second once, so that no call
/// of [`stamp`] does it.
pub(crate) fn prepare_stamps() {
    COUNTER.get_or_init(Counter::start);
}

static COUNTER: OnceLock<Counter> = OnceLock::new();

/// The processor's counter, or the monotonic clock where there is no steady counter.
struct Counter {
    clock: quanta::Clock,
    /// The counter's value when [`now`] was `start`.
    raw: u64,
    start: Nanos,
}

impl Counter {
    fn start() -> Counter {
        let clock = quanta::Clock::new();
        Counter { raw: clock.raw(), start: monotonic(), clock }
    }

    fn now(&self) -> Nanos {
        Nanos(self.start.0 + self.clock.delta_as_nanos(self.raw, self.clock.raw()))
    }
}

/// The wall clock.
pub fn realtime() -> Timespec {
    task::with(|t| simulated(t.sim().epoch(), t.now())).unwrap_or_else(wall)
}

/// The wall clock at its last tick (`ktime_get_coarse_real_ts64`). Times of files are taken from it, so that
/// further changes within a tick leave them as they are. The tick is that of the kernel; in a simulated run
/// it is [`TICK`].
pub fn realtime_coarse() -> Timespec {
    task::with(|t| simulated(t.sim().epoch(), t.now() / TICK * TICK)).unwrap_or_else(|| {
        let t = rustix::time::clock_gettime(rustix::time::ClockId::RealtimeCoarse);
        Timespec { secs: t.tv_sec, nanos: t.tv_nsec as u32 }
    })
}

/// Nanoseconds from one tick of [`realtime_coarse`] to the next in a simulated run: those of a kernel with `HZ=250`.
pub const TICK: u64 = 4_000_000;

fn simulated(epoch: i64, now: u64) -> Timespec {
    Timespec { secs: epoch.saturating_add_unsigned(now / 1_000_000_000), nanos: (now % 1_000_000_000) as u32 }
}

fn wall() -> Timespec {
    match SystemTime::now().duration_since(UNIX_EPOCH) {
        Ok(d) => Timespec { secs: d.as_secs() as i64, nanos: d.subsec_nanos() },
        Err(e) => {
            let d = e.duration();
            let (secs, nanos) = (d.as_secs() as i64, d.subsec_nanos());
            if nanos == 0 {
                Timespec { secs: -secs, nanos: 0 }
            } else {
                Timespec { secs: -secs - 1, nanos: 1_000_000_000 - nanos }
            }
        }
    }
}

/// Entropy for UUIDs, generations and hash seeds, not for cryptography. In a simulated run it comes from the
/// run's seed.
pub fn entropy() -> u64 {
    sim::random().unwrap_or_else(random)
}

fn random() -> u64 {
    use std::hash::{BuildHasher, Hasher};
    let mut h = std::collections::hash_map::RandomState::new().build_hasher();
    h.write_u64(monotonic().0);
    h.finish()
}
