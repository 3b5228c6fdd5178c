//! Job files: sections in brackets, keys and values, comments.

use super::job::Job;
use std::collections::BTreeMap;

/// The fault of a job file, and its place.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {what}")]
pub struct ParseError {
    /// The line, from 1; 0 for the file as a whole.
    pub line: usize,
    /// The fault.
    pub what: String,
}

/// A job file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct JobFile {
    /// The options of `[global]`, as they are written.
    pub global: BTreeMap<String, String>,
    /// The jobs, in order.
    pub jobs: Vec<Job>,
    /// Deviations from the request, with reasons.
    pub notes: Vec<String>,
}

/// One line with a key.
struct Setting<'a> {
    line: usize,
    key: &'a str,
    value: &'a str,
}

impl JobFile {
    /// Reads the text of a job file. Each later `[global]` adds to what the jobs after it begin with.
    ///
    /// # Errors
    /// The first malformed line, unknown key, or impossible value.
    pub fn parse(text: &str) -> Result<JobFile, ParseError> {
        let mut file = JobFile::default();
        let mut global = Job::default();
        let mut current: Option<(usize, Job)> = None;
        let mut in_global = false;
        for (i, raw) in text.lines().enumerate() {
            let (number, line) = (i + 1, strip(raw));
            if line.is_empty() {
                continue;
            }
            if let Some(name) = line.strip_prefix('[') {
                let name = name.strip_suffix(']').ok_or_else(|| error(number, "a section without its ]"))?;
                file.end(current.take())?;
                in_global = name == "global";
                if !in_global {
                    current = Some((number, Job { name: name.to_string(), ..global.clone() }));
                }
                continue;
            }
            let (key, value) = line.split_once('=').unwrap_or((line, ""));
            let s = Setting { line: number, key: key.trim(), value: value.trim() };
            let job = match (&mut current, in_global) {
                (_, true) => {
                    file.global.insert(s.key.to_string(), s.value.to_string());
                    &mut global
                }
                (Some((_, job)), false) => {
                    job.options.insert(s.key.to_string(), s.value.to_string());
                    job
                }
                (None, false) => return Err(error(number, "a key before the first section")),
            };
            file.set(job, &s)?;
        }
        file.end(current)?;
        if file.jobs.is_empty() {
            return Err(error(0, "no job: [global] alone does nothing"));
        }
        Ok(file)
    }

    fn set(&mut self, job: &mut Job, s: &Setting<'_>) -> Result<(), ParseError> {
        match job.set(s.key, s.value) {
            Ok(None) => Ok(()),
            Ok(Some(note)) => {
                self.notes.push(format!("line {}: {note}", s.line));
                Ok(())
            }
            Err(what) => Err(error(s.line, what)),
        }
    }

    fn end(&mut self, job: Option<(usize, Job)>) -> Result<(), ParseError> {
        if let Some((line, job)) = job {
            let note = job.check().map_err(|what| error(line, what))?;
            self.notes.extend(note);
            self.jobs.push(job);
        }
        Ok(())
    }
}

fn error(line: usize, what: impl Into<String>) -> ParseError {
    ParseError { line, what: what.into() }
}

/// The line without spaces around it, or nothing when it is a comment.
fn strip(line: &str) -> &str {
    let line = line.trim();
    if line.starts_with([';', '#']) { "" } else { line }
}

#[cfg(test)]
mod tests {
    use super::super::Pattern;
    use super::*;
    use std::time::Duration;

    const FILE: &str = "
; a comment
[global]
directory=/d
bs=8k
size=1m
group_reporting

[first]
rw=randrw
rwmixread=70
bs=4k,16k
numjobs=4
fsync=32
ioengine=libaio
iodepth=16

# another
[second]
stonewall
rw=write
filename=a:b
runtime=2
time_based=1
rate_iops=100
thinktime=5ms
";

    #[test]
    fn keys_are_understood_and_globals_are_inherited() {
        let f = JobFile::parse(FILE).unwrap();
        let [a, b] = &f.jobs[..] else { panic!("{f:?}") };
        assert_eq!(
            (a.name.as_str(), a.pattern, a.bs, a.size),
            ("first", Pattern::RANDRW, [4096, 16384], 1 << 20)
        );
        assert_eq!(
            (a.mix_read, a.numjobs, a.fsync, a.group_reporting, a.stonewall),
            (70, 4, 32, true, false)
        );
        assert_eq!(
            (b.bs, b.runtime, b.time_based, b.stonewall),
            ([8192; 2], Some(Duration::from_secs(2)), true, true)
        );
        assert_eq!((b.rate_iops, b.thinktime), ([100; 2], Duration::from_millis(5)));
        assert_eq!(b.paths(0), ["/d/a", "/d/b"]);
        assert_eq!(a.paths(3), ["/d/first.3.0"]);
        assert_eq!(f.global["bs"], "8k");
        assert_eq!(b.options["filename"], "a:b");
        assert_eq!(f.notes.len(), 2, "{:?}", f.notes);
        assert!(f.notes[0].contains("libaio") && f.notes[1].contains("iodepth=16"), "{:?}", f.notes);
    }

    #[test]
    fn keys_of_many_job_files_are_taken() {
        let text = "[a]\nsize=1m\nthread\nbuffered=0\nrwmixwrite=30\nloops=3\nnorandommap\nrandrepeat=1";
        let f = JobFile::parse(text).unwrap();
        let [a] = &f.jobs[..] else { panic!("{f:?}") };
        assert_eq!((a.direct, a.mix_read, a.total(), a.file_bytes()), (true, 70, 3 << 20, 1 << 20));
        assert_eq!(f.notes, ["line 7: norandommap is not done"]);
    }

    #[test]
    fn what_is_not_understood_is_named_with_its_line() {
        for (text, line, word) in [
            ("[a]\nsize=1m\nfrobnicate=3", 3, "frobnicate"),
            ("[a]\nsize=1m\nbs=4x", 3, "bs=4x"),
            ("[a]\nrw=sideways\nsize=1m", 2, "sideways"),
            ("rw=read", 1, "before the first section"),
            ("[a\nsize=1m", 1, "]"),
            ("[global]\nsize=1m", 0, "no job"),
            ("\n[a]\nrw=read", 2, "size"),
            ("[a]\nsize=1m\nbs=0", 1, "bs"),
            ("[a]\nsize=1m\ntime_based", 1, "runtime"),
            ("[a]\nsize=1m\nloops=0", 1, "loops"),
        ] {
            let e = JobFile::parse(text).unwrap_err();
            assert!(e.line == line && e.what.contains(word), "{text:?}: {e}");
        }
    }
}
