//! A started guest: its output as it comes, its end, and the power cut.

use crate::error::{Error, Result};
use crate::job::{BEGIN, END, ERRORS, RESULT};
use rustix::process::{Pid, Signal, kill_process_group, test_kill_process_group};
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, ExitStatus};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;
use tempfile::TempDir;
use tidegate_rt::{Nanos, clock, thread};

/// The time that killed processes get to disappear.
const PATIENCE: Duration = Duration::from_secs(60);

/// The output of a guest.
#[derive(Debug, Clone)]
pub struct GuestOutput {
    /// Exit status of the body.
    pub status: i32,
    /// The body's standard output and error.
    pub stdout: String,
    /// All console output, the kernel's messages included.
    pub console: String,
}

impl GuestOutput {
    /// Turns a failed body into an error that shows its output.
    ///
    /// # Errors
    /// The status of the body, with its output.
    pub fn check(self) -> Result<Self> {
        let GuestOutput { status, stdout, .. } = &self;
        let failed = || Error::Guest(format!("guest script exited with {status}:\n{stdout}"));
        if *status == 0 { Ok(self) } else { Err(failed()) }
    }
}

/// A running guest; dropping it kills it.
#[derive(Debug)]
pub struct Running {
    child: Child,
    group: Pid,
    job: TempDir,
    lines: Receiver<String>,
    seen: Vec<String>,
    /// When the guest's time is over.
    deadline: Nanos,
    ended: bool,
}

impl Running {
    pub(super) fn new(mut child: Child, job: TempDir, timeout: Duration) -> Result<Self> {
        let group = Pid::from_child(&child);
        let Some(out) = child.stdout.take() else {
            return Err(Error::Guest("a guest without output".into()));
        };
        let (send, lines) = channel();
        let read = move || {
            let mut out = BufReader::new(out);
            let mut line = Vec::new();
            while matches!(out.read_until(b'\n', &mut line), Ok(n) if n > 0) {
                let text = String::from_utf8_lossy(&line);
                if send.send(text.trim_end_matches(['\n', '\r']).to_owned()).is_err() {
                    break;
                }
                line.clear();
            }
        };
        thread::spawn("guest-output", read).map_err(Error::io("starting a thread"))?;
        let deadline = clock::now() + timeout;
        Ok(Running { child, group, job, lines, seen: Vec::new(), deadline, ended: false })
    }

    /// The next line of the body's output; `None` when the body has ended.
    ///
    /// # Errors
    /// The guest ran out of time.
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

    /// Waits until the body prints this whole line.
    ///
    /// # Errors
    /// The body ended without the line, or the guest ran out of time.
    pub fn wait_for_line(&mut self, wanted: &str) -> Result<()> {
        while let Some(line) = self.next_line()? {
            if line == wanted {
                return Ok(());
            }
        }
        Err(Error::Guest(format!("the guest ended without the line {wanted:?}:\n{}", self.seen.join("\n"))))
    }

    /// Power cut: kills all processes of the guest and waits until they are gone.
    ///
    /// # Errors
    /// The processes do not die.
    pub fn kill(mut self) -> Result<()> {
        self.cut()
    }

    /// The directory that the guest and the host share; it is deleted with this value.
    pub fn job(&self) -> &Path {
        self.job.path()
    }

    /// Waits for the guest to power off by itself.
    ///
    /// # Errors
    /// The guest died, or ran out of time.
    pub fn wait(mut self) -> Result<GuestOutput> {
        self.finish()
    }

    /// Waits like [`Running::wait`]; the job's directory can still be read.
    ///
    /// # Errors
    /// As there.
    pub fn finish(&mut self) -> Result<GuestOutput> {
        while self.next_console_line()?.is_some() {}
        let exit = self.child.wait().map_err(Error::io("waiting for the guest"))?;
        self.cut()?;
        self.output(exit)
    }

    fn output(&self, exit: ExitStatus) -> Result<GuestOutput> {
        let console = self.seen.join("\n");
        let Ok(result) = fs::read_to_string(self.job.path().join(RESULT)) else {
            let errors = fs::read(self.job.path().join(ERRORS)).unwrap_or_default();
            let errors = String::from_utf8_lossy(&errors);
            let died = format!("the guest died before its script ended ({exit}):\n{errors}{console}");
            return Err(Error::Guest(died));
        };
        let no_status = |_| Error::Guest(format!("the guest's status is {result:?}"));
        let status = result.trim().parse().map_err(no_status)?;
        let body = self.seen.iter().skip_while(|l| *l != BEGIN).skip(1);
        let body: Vec<&str> = body.take_while(|l| !l.starts_with(END)).map(String::as_str).collect();
        let mut stdout = body.join("\n");
        if !stdout.is_empty() {
            stdout.push('\n');
        }
        Ok(GuestOutput { status, stdout, console })
    }

    fn next_console_line(&mut self) -> Result<Option<String>> {
        let left = self.deadline.since(clock::now()).duration();
        match self.lines.recv_timeout(left) {
            Ok(line) => {
                self.seen.push(line.clone());
                Ok(Some(line))
            }
            Err(RecvTimeoutError::Disconnected) => Ok(None),
            Err(RecvTimeoutError::Timeout) => {
                self.cut()?;
                Err(Error::Guest(format!("the guest ran out of time:\n{}", self.seen.join("\n"))))
            }
        }
    }

    /// Power cut like [`Running::kill`]; earlier output can still be read.
    ///
    /// # Errors
    /// As there.
    pub fn cut(&mut self) -> Result<()> {
        if self.ended {
            return Ok(());
        }
        self.ended = true;
        let _ = kill_process_group(self.group, Signal::KILL);
        self.child.wait().map_err(Error::io("waiting for the killed guest"))?;
        // The kernel's helper processes are not our children, so they cannot be waited for; until they are
        // gone they could still write to the image.
        let begin = clock::now();
        while test_kill_process_group(self.group).is_ok() {
            if clock::now().since(begin).duration() > PATIENCE {
                return Err(Error::Guest("processes of the guest do not die".into()));
            }
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
