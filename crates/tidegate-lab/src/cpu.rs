//! Processor time of a run, as time(1) tells it.

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeVal;
use serde::{Deserialize, Serialize};
use tidegate_rt::{Nanos, sim};

/// Processor time, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuTime {
    /// In the program; none in simulated time, which has only one kind.
    pub user_ns: Option<u64>,
    /// In the kernel; in simulated time everything that tasks used.
    pub sys_ns: u64,
}

impl CpuTime {
    /// The time of the whole process until now, or of the calling task's whole world.
    pub fn of_all() -> Option<CpuTime> {
        of(UsageWho::RUSAGE_SELF, |(all, _)| all)
    }

    /// The time of the calling thread until now.
    pub fn of_thread() -> Option<CpuTime> {
        of(UsageWho::RUSAGE_THREAD, |(_, thread)| thread)
    }

    /// The time added since `before`.
    pub fn since(self, before: CpuTime) -> CpuTime {
        let user = self.user_ns.zip(before.user_ns).map(|(now, was)| now.saturating_sub(was));
        CpuTime { user_ns: user, sys_ns: self.sys_ns.saturating_sub(before.sys_ns) }
    }
}

fn of(who: UsageWho, simulated: impl FnOnce((Nanos, Nanos)) -> Nanos) -> Option<CpuTime> {
    if let Some(used) = sim::cpu_time() {
        return Some(CpuTime { user_ns: None, sys_ns: simulated(used).0 });
    }
    let usage = getrusage(who).ok()?;
    let ns = |t: TimeVal| t.tv_sec() as u64 * 1_000_000_000 + t.tv_usec() as u64 * 1000;
    Some(CpuTime { user_ns: Some(ns(usage.user_time())), sys_ns: ns(usage.system_time()) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_works_is_charged() {
        let sum = |t: CpuTime| t.user_ns.unwrap() + t.sys_ns;
        // The thread's time is taken within the process's: that of others may only add to it.
        let work = move || {
            let all = CpuTime::of_all().unwrap();
            let thread = CpuTime::of_thread().unwrap();
            sim::charge(Nanos(5000));
            let begin = tidegate_rt::clock::now();
            let busy = || sum(CpuTime::of_thread().unwrap().since(thread)) < 20_000_000;
            let hangs = || tidegate_rt::clock::now().since(begin) > Nanos(60_000_000_000);
            while !sim::active() && busy() && !hangs() {}
            let thread = CpuTime::of_thread().unwrap().since(thread);
            (CpuTime::of_all().unwrap().since(all), thread)
        };
        let simulated = CpuTime { user_ns: None, sys_ns: 5000 };
        assert_eq!(sim::run(1, 2, work), (simulated, simulated));
        let (all, thread) = work();
        assert!(sum(thread) >= 20_000_000 && sum(all) >= sum(thread), "{all:?} {thread:?}");
    }
}
