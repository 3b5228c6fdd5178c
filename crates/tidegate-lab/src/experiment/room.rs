//! The number of runs that there is room for at once.

use tidegate_rt::thread;

/// Memory for a run in a process of its own, in bytes: the largest of the published experiments take about as
/// much, with the content of their model of a device.
const RUN: u64 = 3 << 30;

/// The number of runs for which this process's control groups and the machine have CPUs and memory; at least
/// one.
pub fn for_jobs() -> usize {
    let machine = std::fs::read_to_string("/proc/meminfo").ok().and_then(|text| available(&text));
    bounded(thread::parallelism(), machine.into_iter().chain(tidegate::cgroup::memory_limit()).min())
}

fn bounded(cpus: usize, memory: Option<u64>) -> usize {
    let room = memory.map_or(usize::MAX, |m| usize::try_from(m / RUN).unwrap_or(usize::MAX));
    cpus.min(room).max(1)
}

/// The bytes that programs can have without swapping, by `/proc/meminfo`.
fn available(text: &str) -> Option<u64> {
    let kib = text.lines().find_map(|l| l.strip_prefix("MemAvailable:"))?;
    kib.trim().strip_suffix(" kB")?.parse::<u64>().ok().map(|kib| kib << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_memory_for_each() {
        let text = "MemTotal:       24607720 kB\nMemAvailable:   16777216 kB\nSwapFree: 0 kB\n";
        assert_eq!((available(text), available("MemFree: 5 kB\n")), (Some(16 << 30), None));
        assert_eq!([None, Some(64 << 30), Some(7 << 30), Some(1)].map(|m| bounded(8, m)), [8, 8, 2, 1]);
        assert!((1..=thread::parallelism()).contains(&for_jobs()));
    }
}
