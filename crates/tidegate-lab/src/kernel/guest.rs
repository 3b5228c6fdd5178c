//! A workload in a guest: the host's side and the guest's.

use super::fresh::Fresh;
use super::{Named, What, joined};
use crate::error::{Error, Result};
use crate::result::RunResult;
use crate::target::{Directory, Target};
use crate::workload::{Spec, run};
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tidegate_block::file;
use tidegate_uml::{Running, Uml, sh};

/// The command with which the running program works in a guest; the job's directory and the directory to work
/// in follow.
pub const WORK: &str = "guest-work";

/// Files of a job.
const JOB: &str = "job.json";
const ANSWER: &str = "answer.json";
/// The line that is printed when the answer is ready.
const DONE: &str = "@@guest-worked";
/// A time longer than that of any workload of the lab, so that one that hangs is ended.
const LONGEST: Duration = Duration::from_secs(3600);
/// Last lines of a guest's output that explain its failure.
const LAST: usize = 3;

/// The work to be done in a guest.
#[derive(Debug, Serialize, Deserialize)]
struct Job {
    spec: Spec,
    /// The volume stays: the workload's files are removed, unless something was in their place before.
    stays: bool,
}

/// The result of a run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Ran {
    /// The measurements.
    pub result: RunResult,
    /// Files in the workload's place were there before, and were left.
    pub was_there: bool,
}

/// The sharing of a guest's I/O, if it matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shares {
    /// Bytes that may be dirty; the flusher begins at half of them.
    pub dirty: u64,
}

/// A guest to run a workload in. Each of its writes waits until it is on the host's disk: an fsync in the
/// guest keeps its promise, and takes as long as on that disk.
#[derive(Clone, Debug)]
pub struct Guest<'a> {
    /// The volume that it mounts.
    pub volume: &'a Named,
    /// Mount options besides the volume's; may be empty.
    pub options: &'a str,
    /// Bytes of a new volume.
    pub size: u64,
    /// If given, the elevator is `bfq` with its `strict_guarantees`; otherwise it is the kernel's choice.
    pub shares: Option<Shares>,
}

impl Guest<'_> {
    /// Boots it and runs `spec`. A new volume and the guest are discarded afterwards; from an image the
    /// workload's files are removed, unless something was in their place before.
    ///
    /// # Errors
    /// The kernel is not installed, the image is in use, the kernel does not mount it, or the workload fails:
    /// the guest's message in one line.
    pub fn run(&self, spec: &Spec) -> Result<Ran> {
        match &self.volume.what {
            What::New(format) => {
                let fresh = Fresh::new(*format, self.size)?;
                let how = format!("-t {}", format.name());
                self.with_image(&fresh.path(), &how, spec)
            }
            What::Image(path) => {
                // The file is held while the guest has it, so that no mount of ours writes to it.
                let how = file::OpenOptions::default();
                let _held = file::open(path, how).map_err(|e| Error::spec(e.to_string()))?;
                self.with_image(path, "", spec)
            }
        }
    }

    fn with_image(&self, image: &Path, how: &str, spec: &Spec) -> Result<Ran> {
        let scratch = tidegate_uml::scratch_directory();
        let job = tempfile::Builder::new().prefix("tidegate-job-").tempdir_in(&scratch);
        let job = job.map_err(|e| Error::host(&scratch, e))?;
        let stays = matches!(self.volume.what, What::Image(_));
        Job { spec: spec.clone(), stays }.write(job.path())?;
        let uml = Uml::new(image).timeout(LONGEST).synchronous();
        let mut guest = uml.spawn(&self.body(how, job.path()))?;
        match answered(&mut guest)? {
            // An unmount would write data that is not needed.
            true if !stays => guest.kill()?,
            true => guest.wait()?.check().map(drop).map_err(|e| Error::spec(last_lines(&e.to_string())))?,
            false => {
                let said = guest.wait().map_or_else(|e| e.to_string(), |out| out.stdout);
                return Err(Error::spec(last_lines(&said)));
            }
        }
        let path = job.path().join(ANSWER);
        let json = fs::read(&path).map_err(|e| Error::host(&path, e))?;
        serde_json::from_slice(&json).map_err(|e| Error::spec(format!("the guest's answer: {e}")))
    }

    fn body(&self, how: &str, job: &Path) -> String {
        let options = match joined(&self.volume.options, self.options) {
            none if none.is_empty() => String::new(),
            some => format!("-o {}", sh(some)),
        };
        let shares = self.shares.map_or(String::new(), |Shares { dirty }| {
            format!(
                "cd /sys/block/ubda/queue; echo bfq >scheduler; echo 1 >iosched/strict_guarantees\n\
                 cd /proc/sys/vm; echo {} >dirty_background_bytes; echo {dirty} >dirty_bytes; cd /\n",
                dirty / 2
            )
        });
        let job = sh(job);
        format!(
            "{shares}mount {how} {options} $DEV $MNT\n\"$HELPER\" {WORK} {job} $MNT\necho {DONE}\numount $MNT\n"
        )
    }
}

impl Job {
    fn write(&self, dir: &Path) -> Result<()> {
        let json = serde_json::to_vec(self).map_err(|e| Error::spec(e.to_string()))?;
        let path = dir.join(JOB);
        fs::write(&path, json).map_err(|e| Error::host(&path, e))
    }

    fn read(dir: &Path) -> Result<Job> {
        let path = dir.join(JOB);
        let json = fs::read(&path).map_err(|e| Error::host(&path, e))?;
        serde_json::from_slice(&json).map_err(|e| Error::spec(format!("{}: {e}", path.display())))
    }
}

/// Waits for the answer; false when the guest ended without one.
fn answered(guest: &mut Running) -> Result<bool> {
    while let Some(line) = guest.next_line().map_err(|e| Error::spec(last_lines(&e.to_string())))? {
        if line == DONE {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The end of the output, in one line; if the kernel died, the cause.
fn last_lines(text: &str) -> String {
    if let Some((_, why)) = text.split_once("Kernel panic") {
        return format!("the guest's kernel died: panic{}", why.lines().next().unwrap_or_default());
    }
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|l| !l.is_empty()).collect();
    let from = lines.len().saturating_sub(LAST);
    if lines.is_empty() { "the guest ended without a word".into() } else { lines[from..].join("; ") }
}

/// The guest's side: runs the job on `dir` and leaves the answer with the job.
///
/// # Errors
/// Those of the workload; a job that cannot be read.
pub fn work(job: &Path, dir: &Path) -> Result<()> {
    let Job { spec, stays } = Job::read(job)?;
    let target: Arc<dyn Target> = Arc::new(Directory::open(dir)?);
    let was_there = target.exists(spec.root())?;
    let mut result = run(&spec, &target)?;
    if stays && !was_there {
        target.remove_tree(spec.root())?;
    }
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    result.target = format!("Linux {release} in user-mode-linux");
    let path = job.join(ANSWER);
    let json = serde_json::to_vec(&Ran { result, was_there }).map_err(|e| Error::spec(e.to_string()))?;
    fs::write(&path, json).map_err(|e| Error::host(&path, e))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::FsMark;

    #[test]
    fn the_guests_side_answers_and_removes_what_it_made() {
        let (job, dir) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let spec = Spec::FsMark(FsMark { files: 3, ..FsMark::default() });
        Job { spec, stays: true }.write(job.path()).unwrap();
        let answer = || -> Ran {
            work(job.path(), dir.path()).unwrap();
            serde_json::from_slice(&fs::read(job.path().join(ANSWER)).unwrap()).unwrap()
        };
        let ran = answer();
        assert_eq!((ran.result.ops["file"].latency.count, ran.was_there), (3, false));
        assert!(ran.result.target.starts_with("Linux "), "{}", ran.result.target);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
        let mine = dir.path().join("fs_mark/mine");
        fs::create_dir(dir.path().join("fs_mark")).unwrap();
        fs::write(&mine, "mine").unwrap();
        assert!(answer().was_there && mine.exists());
    }

    #[test]
    fn options_of_both_are_mounted_with() {
        let volume: Named = "f2fs,mode=lfs".parse().unwrap();
        let guest = Guest { volume: &volume, options: "nocheckpoint_merge", size: 0, shares: None };
        let body = guest.body("-t f2fs", Path::new("/tmp/it's"));
        let lines: Vec<&str> = body.lines().collect();
        assert_eq!(lines[0], "mount -t f2fs -o 'mode=lfs,nocheckpoint_merge' $DEV $MNT");
        assert_eq!(lines[1], "\"$HELPER\" guest-work '/tmp/it'\\''s' $MNT");
        let shared = Guest { options: "", shares: Some(Shares { dirty: 8 }), ..guest };
        let body = shared.body("", Path::new("/tmp/j"));
        assert!(
            body.contains("echo bfq >scheduler") && body.contains("echo 4 >dirty_background_bytes"),
            "{body}"
        );
    }

    #[test]
    fn a_failure_is_told_in_a_line() {
        assert_eq!(last_lines("a\n\nb \nc\nd\n"), "b; c; d");
        let died = "<4>x\n<0>Kernel panic - not syncing: no init\n<4> [<60>] ? trace";
        assert_eq!(last_lines(died), "the guest's kernel died: panic - not syncing: no init");
        assert_eq!(last_lines("\n"), "the guest ended without a word");
    }
}
