//! The time of a measurement, and the program and machine.

use crate::units::rfc3339;
use rustix::system::uname;
use tidegate_lab::experiment::outcome::Head;
use tidegate_rt::{clock, thread};

/// The head of the results that were just measured.
pub fn head(quick: bool) -> Head {
    Head {
        date: rfc3339(clock::realtime()),
        version: env!("CARGO_PKG_VERSION").into(),
        commit: env!("TIDEGATE_COMMIT").into(),
        machine: machine(),
        quick,
    }
}

fn machine() -> String {
    let cpus = thread::parallelism();
    let (system, release) = (uname().sysname().to_string_lossy().into_owned(), uname().release().to_owned());
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info.lines().find_map(|l| l.strip_prefix("model name")?.split_once(": "));
    let model = model.map_or(std::env::consts::ARCH, |(_, name)| name);
    let s = if cpus == 1 { "" } else { "s" };
    format!("{model}, {cpus} CPU{s}, {system} {}", release.to_string_lossy())
}
