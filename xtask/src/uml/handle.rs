//! A started guest: its output as it comes, its end, and the power cut.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Child, ExitStatus};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process_group, test_kill_process_group};

use super::{BEGIN, END, RESULT};
use crate::temp::TempDir;

/// What a guest left behind.
#[derive(Debug, Clone)]
pub struct GuestOutput {
    /// Exit status of the body.
    pub status: i32,
    /// What the body wrote to its standard output and error.
    pub stdout: String,
    /// All console output, the kernel's messages included.
    pub console: String,
}

impl GuestOutput {
    /// Turns a failed body into an error that shows its output.
    pub fn check(self) -> Result<Self> {
        ensure!(self.status == 0, "guest script exited with {}:\n{}", self.status, self.stdout);
        Ok(self)
    }
}

/// A guest that runs; dropping it kills it.
#[derive(Debug)]
pub struct Running {
    child: Child,
    group: Pid,
    job: TempDir,
    lines: Receiver<String>,
    seen: Vec<String>,
    deadline: Instant,
    ended: bool,
}

impl Running {
    pub(super) fn new(mut child: Child, job: TempDir, timeout: Duration) -> Result<Self> {
        let group = Pid::from_child(&child);
        let out = child.stdout.take().context("guest without output")?;
        let (send, lines) = channel();
        thread::spawn(move || {
            let mut out = BufReader::new(out);
            let mut line = Vec::new();
            while matches!(out.read_until(b'\n', &mut line), Ok(n) if n > 0) {
                let text = String::from_utf8_lossy(&line);
                if send.send(text.trim_end_matches(['\n', '\r']).to_owned()).is_err() {
                    break;
                }
                line.clear();
            }
        });
        let deadline = Instant::now() + timeout;
        Ok(Running { child, group, job, lines, seen: Vec::new(), deadline, ended: false })
    }

    /// The next line of the body's output; none when the body has ended.
    pub fn next_line(&mut self) -> Result<Option<String>> {
        loop {
            let Some(line) = self.next_console_line()? else { return Ok(None) };
            if line == BEGIN {
                continue;
            }
            if line.starts_with(END) {
                return Ok(None);
            }
            if self.seen.iter().any(|l| l == BEGIN) {
                return Ok(Some(line));
            }
        }
    }

    /// Waits until the body prints a line, given whole.
    pub fn wait_for_line(&mut self, wanted: &str) -> Result<()> {
        while let Some(line) = self.next_line()? {
            if line == wanted {
                return Ok(());
            }
        }
        bail!("the guest ended without the line {wanted:?}:\n{}", self.seen.join("\n"))
    }

    /// Power cut: kills the whole session and waits until it is gone.
    pub fn kill(mut self) -> Result<()> {
        self.cut()
    }

    /// Waits for the guest to power off by itself.
    pub fn wait(mut self) -> Result<GuestOutput> {
        while self.next_console_line()?.is_some() {}
        let exit = self.child.wait().context("waiting for the guest")?;
        self.cut()?;
        self.output(exit)
    }

    fn output(&self, exit: ExitStatus) -> Result<GuestOutput> {
        let console = self.seen.join("\n");
        let result = match fs::read_to_string(self.job.path().join(RESULT)) {
            Ok(text) => text,
            Err(_) => bail!("the guest died before its script ended ({exit}):\n{console}"),
        };
        let status = result.trim().parse().with_context(|| format!("guest status {result:?}"))?;
        let body = self.seen.iter().skip_while(|l| *l != BEGIN).skip(1);
        let body: Vec<&str> = body.take_while(|l| !l.starts_with(END)).map(String::as_str).collect();
        let mut stdout = body.join("\n");
        if !stdout.is_empty() {
            stdout.push('\n');
        }
        Ok(GuestOutput { status, stdout, console })
    }

    fn next_console_line(&mut self) -> Result<Option<String>> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        match self.lines.recv_timeout(left) {
            Ok(line) => {
                self.seen.push(line.clone());
                Ok(Some(line))
            }
            Err(RecvTimeoutError::Disconnected) => Ok(None),
            Err(RecvTimeoutError::Timeout) => {
                self.cut()?;
                bail!("the guest ran out of time:\n{}", self.seen.join("\n"))
            }
        }
    }

    /// Power cut as [`Running::kill`]; what was printed before it can still be read.
    pub fn cut(&mut self) -> Result<()> {
        if self.ended {
            return Ok(());
        }
        self.ended = true;
        let _ = kill_process_group(self.group, Signal::KILL);
        self.child.wait().context("waiting for the killed guest")?;
        // The kernel's helper processes are not ours to wait for; until they
        // are gone they could still write to the image.
        let patience = Instant::now() + Duration::from_secs(10);
        while test_kill_process_group(self.group).is_ok() {
            ensure!(Instant::now() < patience, "guest processes do not die");
            thread::sleep(Duration::from_millis(2));
        }
        Ok(())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.cut();
    }
}
