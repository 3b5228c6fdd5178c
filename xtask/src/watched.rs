//! A command under a watchdog: a child that hangs is reported and killed, so that the rest still runs.
//!
//! `cargo test` has no limit of its own. One hanging test would stop the whole run, and nothing would show
//! where it waits.

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

/// How often the children are checked.
const LOOK: Duration = Duration::from_millis(500);
/// How long a killed process may take to disappear; a process that the kernel holds takes longer.
const GONE: Duration = Duration::from_secs(30);

/// The time limits.
pub struct Limits {
    /// The limit of a process that the command itself starts (a test program, a compiler).
    pub child: Duration,
    /// The limit of the command.
    pub whole: Duration,
}

/// Runs a command without standard input. A child over its limit is described on standard output and killed
/// with all its descendants. The command goes on and decides itself whether to fail.
///
/// # Errors
/// The command cannot be started or is over its own limit (then it is described and killed, too).
pub fn run(command: &mut Command, limits: &Limits) -> Result<ExitStatus> {
    let start = Instant::now();
    let mut child = command.stdin(Stdio::null()).spawn().context("starting it")?;
    let mut seen: Vec<(u32, Instant)> = Vec::new();
    loop {
        if let Some(status) = child.try_wait().context("waiting for it")? {
            return Ok(status);
        }
        if start.elapsed() > limits.whole {
            println!("{}", describe(child.id()));
            kill(child.id());
            gone(&mut child);
            bail!("not ended within {} s", limits.whole.as_secs());
        }
        let now = children(child.id());
        seen.retain(|(pid, _)| now.contains(pid));
        for pid in now {
            match seen.iter().find(|(p, _)| *p == pid) {
                None => seen.push((pid, Instant::now())),
                Some((_, since)) if since.elapsed() > limits.child => {
                    println!("not ended within {} s, killed:\n{}", limits.child.as_secs(), describe(pid));
                    kill(pid);
                    seen.retain(|(p, _)| *p != pid);
                }
                Some(_) => {}
            }
        }
        sleep(LOOK);
    }
}

/// Waits a limited time for a killed child: the kernel may hold it.
fn gone(child: &mut Child) {
    let start = Instant::now();
    while matches!(child.try_wait(), Ok(None)) && start.elapsed() < GONE {
        sleep(LOOK);
    }
}

/// The children of all threads of a process.
fn children(pid: u32) -> Vec<u32> {
    let mut found = Vec::new();
    for (tid, _) in threads(pid) {
        let list = fs::read_to_string(format!("/proc/{pid}/task/{tid}/children")).unwrap_or_default();
        found.extend(list.split_whitespace().filter_map(|p| p.parse::<u32>().ok()));
    }
    found
}

/// The threads of a process and their names. The test harness names a thread after its test.
fn threads(pid: u32) -> Vec<(u32, String)> {
    let Ok(entries) = fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
    let tids = entries.flatten().filter_map(|e| e.file_name().to_str()?.parse::<u32>().ok());
    tids.map(|tid| (tid, read(&format!("/proc/{pid}/task/{tid}/comm")))).collect()
}

/// A process and all its descendants.
fn tree(pid: u32) -> Vec<u32> {
    let mut all = vec![pid];
    let mut at = 0;
    while let Some(&next) = all.get(at) {
        all.extend(children(next).into_iter().filter(|p| !all.contains(p)).collect::<Vec<_>>());
        at += 1;
    }
    all
}

/// Each descendant of `pid` with its command, and where in the kernel each of its threads is.
fn describe(pid: u32) -> String {
    let mut text = String::new();
    for process in tree(pid) {
        let command = read(&format!("/proc/{process}/cmdline")).replace('\0', " ");
        let _ = writeln!(text, "process {process}: {command}");
        for (tid, name) in threads(process) {
            let of = |what: &str| read(&format!("/proc/{process}/task/{tid}/{what}"));
            let state = of("stat").rsplit(") ").next().and_then(|s| s.chars().next()).unwrap_or('?');
            let _ = writeln!(text, "  {name} ({tid}) {state} {} syscall {}", of("wchan"), of("syscall"));
            for line in of("stack").lines().take(8) {
                let _ = writeln!(text, "      {line}");
            }
        }
    }
    text
}

/// A file below `/proc`, without the final newline; empty when it cannot be read (the process is gone, or
/// belongs to another user).
fn read(path: &str) -> String {
    fs::read(path).map(|b| String::from_utf8_lossy(&b).trim_end().to_owned()).unwrap_or_default()
}

/// Kills a process and all its descendants.
fn kill(pid: u32) {
    for process in tree(pid) {
        if let Some(process) = i32::try_from(process).ok().and_then(rustix::process::Pid::from_raw)
            && let Err(err) = rustix::process::kill_process(process, rustix::process::Signal::KILL)
            && io::Error::from(err).kind() != io::ErrorKind::NotFound
        {
            eprintln!("killing {process:?}: {err}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.arg("-c").arg(script);
        command
    }

    #[test]
    fn a_child_that_never_ends_is_killed_and_the_rest_is_run() {
        let limits = Limits { child: Duration::from_secs(1), whole: Duration::from_secs(60) };
        let status = run(&mut shell("sleep 1000; sh -c 'exit 7'"), &limits).unwrap();
        assert_eq!(status.code(), Some(7));
    }

    #[test]
    fn a_command_that_never_ends_is_killed_with_what_is_below_it() {
        let limits = Limits { child: Duration::from_secs(60), whole: Duration::from_secs(1) };
        let err = run(&mut shell("sleep 4242 & wait"), &limits).unwrap_err();
        assert!(err.to_string().contains("not ended"), "{err}");
        let left = || {
            let mut all = fs::read_dir("/proc").unwrap().flatten();
            all.any(|e| read(&format!("{}/cmdline", e.path().display())) == "sleep\x004242\0")
        };
        let start = Instant::now();
        while left() {
            assert!(start.elapsed() < GONE, "still there");
            sleep(Duration::from_millis(10));
        }
    }
}
