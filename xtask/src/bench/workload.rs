//! Runs the `workload` example on an image, on a directory, or in a guest.

use std::collections::BTreeMap;
use std::io::{Read, Seek};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::fs::{MemfdFlags, memfd_create};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use tidegate_testing::{uml, workspace};

/// The output of the example.
#[derive(Debug, Clone, Default, Deserialize)]
pub struct Report {
    /// Seconds of the measured part.
    pub seconds: f64,
    /// The figures of each repetition in the measured part, if there are several repetitions.
    #[serde(default)]
    pub loops: Vec<f64>,
    /// CPU seconds of all CPUs in the measured part, where they were measured.
    #[serde(default)]
    pub cpu_seconds: Option<f64>,
    /// Files made in the measured part.
    pub files: u64,
    /// Bytes that the workload wrote in the measured part.
    pub bytes: u64,
    /// Calls of fsync in the measured part.
    pub fsyncs: u64,
    /// The growth of counters in the measured part.
    pub counts: BTreeMap<String, u64>,
    /// The number of extents of all files afterwards.
    pub fragments: Option<u64>,
    /// Seconds to read all files after the volume was opened again.
    pub read_seconds: Option<f64>,
}

impl Report {
    /// A counter, where the volume's driver has it.
    pub fn count(&self, name: &str) -> Option<f64> {
        self.counts.get(name).map(|n| *n as f64)
    }

    /// One counter divided by another; `None` while the divisor is 0.
    pub fn per(&self, name: &str, by: &str) -> Option<f64> {
        Some(self.count(name)? / self.count(by).filter(|n| *n > 0.0)?)
    }
}

/// The built example.
#[derive(Debug, Clone)]
pub struct Workload {
    binary: PathBuf,
    /// A run that takes longer is taken to hang.
    limit: Duration,
}

impl Workload {
    /// Builds the example. `longest` is the expected maximum time of one run.
    pub fn build(longest: Duration) -> Result<Self> {
        workspace::build_release(&["--package", "tidegate", "--example", "workload"])?;
        let binary = workspace::target_dir().join("release/examples/workload");
        Ok(Workload { binary, limit: longest * 4 + Duration::from_secs(120) })
    }

    /// Runs the example on an image with mount options, in this machine's user space.
    pub fn on_image(&self, image: &Path, options: &str, args: &[String]) -> Result<Report> {
        let mut command = Command::new(&self.binary);
        self.run(command.arg("--image").arg(image).args(["-o", options]).args(args))
    }

    /// Runs the example with a workload that alternates between several ways; returns the reports of the
    /// rounds of each way.
    pub fn in_ways(&self, image: &Path, args: &[String]) -> Result<BTreeMap<String, Vec<Report>>> {
        self.run(Command::new(&self.binary).arg("--image").arg(image).args(args))
    }

    /// Runs the example on a directory of this machine.
    pub fn on_dir(&self, dir: &Path, args: &[String]) -> Result<Report> {
        self.run(Command::new(&self.binary).arg("--dir").arg(dir).args(args))
    }

    /// A shell line that runs the example on the guest's mounted volume.
    pub fn guest_line(&self, args: &[String]) -> String {
        let args: Vec<String> = args.iter().map(uml::sh).collect();
        format!("{} --dir \"$MNT\" {}\n", uml::sh(&self.binary), args.join(" "))
    }

    /// Runs a script of such lines in a guest that has the image; returns the report of the last line.
    pub fn in_guest(&self, image: &Path, script: &str) -> Result<Report> {
        let out = uml::guest(image).synchronous().timeout(self.limit).run(script)?.check()?;
        parse(&out.stdout)
    }

    fn run<T: DeserializeOwned>(&self, command: &mut Command) -> Result<T> {
        let mut output = std::fs::File::from(memfd_create("output", MemfdFlags::CLOEXEC)?);
        command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output.try_clone()?);
        let mut child = command.spawn().context("running the example `workload`")?;
        let deadline = Instant::now() + self.limit;
        let status = loop {
            if let Some(status) = child.try_wait()? {
                break status;
            }
            if Instant::now() > deadline {
                child.kill()?;
                child.wait()?;
                bail!("it hangs: killed after {} s: {command:?}", self.limit.as_secs());
            }
            std::thread::sleep(Duration::from_millis(10));
        };
        let mut text = Vec::new();
        output.rewind()?;
        output.read_to_end(&mut text)?;
        let text = String::from_utf8_lossy(&text);
        ensure!(
            status.success(),
            "{status}: {}: {command:?}",
            text.trim().lines().last().unwrap_or("no output")
        );
        parse(&text)
    }
}

/// The last line of JSON in a text.
fn parse<T: DeserializeOwned>(text: &str) -> Result<T> {
    let line = text.lines().rev().find(|l| l.starts_with('{')).context("the workload reported nothing")?;
    serde_json::from_str(line).with_context(|| format!("the workload's report {line:?}"))
}

/// Splits a text into arguments.
pub fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_report_counts() {
        let line = |n: u32| {
            format!(
                r#"{{"seconds":{n}.5,"files":1,"bytes":8,"fsyncs":0,"counts":{{"writes":{n}}},"fragments":null,"read_seconds":null}}"#
            )
        };
        let r: Report = parse(&format!("{}\nnoise\n{}\nbye\n", line(1), line(2))).unwrap();
        assert_eq!((r.seconds, r.count("writes"), r.count("reads")), (2.5, Some(2.0), None));
        assert_eq!((r.per("writes", "writes"), r.per("writes", "reads")), (Some(1.0), None));
        assert!(parse::<Report>("nothing").is_err());
    }
}
