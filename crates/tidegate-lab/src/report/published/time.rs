//! The lines that time(1) prints.

use super::NONE;
use crate::cpu::CpuTime;

/// `real`, `user` and `sys` of these durations.
pub(super) fn text(real_ns: u64, cpu: Option<CpuTime>) -> String {
    let row = |name: &str, ns: Option<u64>| format!("{name:<8}{}\n", ns.map_or(NONE.into(), minutes));
    let (user, sys) = (cpu.and_then(|c| c.user_ns), cpu.map(|c| c.sys_ns));
    row("real", Some(real_ns)) + &row("user", user) + &row("sys", sys)
}

fn minutes(ns: u64) -> String {
    let ms = (ns + 500_000) / 1_000_000;
    format!("{}m{}.{:03}s", ms / 60_000, ms / 1000 % 60, ms % 1000)
}

/// The notes that belong below it.
pub(super) fn notes(simulated: bool) -> &'static str {
    match simulated {
        true => {
            "In simulated time sys is the CPU time of what the simulator has costs of (calls into the system, \
            copies, pages, places, bios, locks and spinning for them, switches); it knows no other, so user is a dash."
        }
        false => "The file system runs in the process: what the kernel does for Linux's counts as user here.",
    }
}
