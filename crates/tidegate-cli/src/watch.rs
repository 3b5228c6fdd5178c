//! `--lockstat`, `--trace` and `--profile`: the engine's work while a command runs.

use crate::out;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use tidegate::error::path_bytes;
use tidegate::observe::{Observed, ProfileForm, Recording, TraceForm, Wanted, lockstat};
use tidegate::{Error, Result};

/// The observation of a command.
#[derive(clap::Args, Clone, Debug)]
pub struct Watch {
    /// Print lock statistics, with the columns of /proc/lock_stat
    #[arg(long, global = true, help_heading = "Looking inside")]
    pub lockstat: bool,
    /// Write trace events: JSON for Perfetto where FILE ends in .json, else as the kernel's trace_pipe
    #[arg(long, global = true, value_name = "FILE", help_heading = "Looking inside")]
    pub trace: Option<PathBuf>,
    /// Write a call tree with shares; folded stacks where FILE ends in .folded
    #[arg(long, global = true, value_name = "FILE", help_heading = "Looking inside")]
    pub profile: Option<PathBuf>,
    /// How many events are kept of each thread, the last ones; some 100 bytes each while it runs
    #[arg(long, global = true, value_name = "N", default_value_t = 65_536, help_heading = "Looking inside")]
    pub trace_events: usize,
}

/// The running observation of a command.
pub struct Watching {
    watch: Watch,
    recording: Recording,
    trace: Option<File>,
    profile: Option<File>,
}

impl Watch {
    /// Whether anything is to be observed.
    pub fn anything(&self) -> bool {
        self.lockstat || self.trace.is_some() || self.profile.is_some()
    }

    /// The recordings that are needed.
    pub fn wanted(&self) -> Wanted {
        Wanted {
            locks: self.lockstat,
            events: self.trace.as_ref().map(|_| self.trace_events.max(1)),
            calls: self.profile.is_some(),
            causes: false,
        }
    }

    /// The watch of one part of a command: `name` goes before the extension of each file.
    pub fn named(&self, name: &str) -> Watch {
        let of = |p: &PathBuf| {
            let mut file = p.file_stem().unwrap_or_default().to_owned();
            file.push(".");
            file.push(name);
            if let Some(e) = p.extension() {
                file.push(".");
                file.push(e);
            }
            p.with_file_name(file)
        };
        Watch { trace: self.trace.as_ref().map(of), profile: self.profile.as_ref().map(of), ..self.clone() }
    }

    /// Writes the files, and prints the lock statistics, that were asked for.
    ///
    /// # Errors
    /// Those of making the files, and of writing.
    pub fn write(&self, observed: &Observed) -> Result<()> {
        let (trace, profile) = (create(self.trace.as_deref())?, create(self.profile.as_deref())?);
        self.put(observed, trace, profile)
    }

    fn put(&self, observed: &Observed, trace: Option<File>, profile: Option<File>) -> Result<()> {
        if let (Some(path), Some(f)) = (&self.trace, trace) {
            save(path, f, |to| TraceForm::of(path).write(observed, to))?;
            tell_dropped(path, observed.recorded.events.len() as u64, observed.recorded.dropped);
        }
        if let (Some(path), Some(f)) = (&self.profile, profile) {
            save(path, f, |to| ProfileForm::of(path).write(observed, to))?;
        }
        if self.lockstat {
            // The statistics go to standard error, apart from the output of the command.
            let mut err = BufWriter::new(io::stderr().lock());
            lockstat::write(&observed.locks, &mut err).and_then(|()| err.flush()).map_err(out::error)?;
        }
        Ok(())
    }

    /// Begins the observation, if anything is to be observed. Files are made first: a command that cannot be
    /// observed is not begun.
    ///
    /// # Errors
    /// A file cannot be made.
    pub fn begin(&self) -> Result<Option<Watching>> {
        let wanted = self.wanted();
        if !wanted.anything() {
            return Ok(None);
        }
        let (trace, profile) = (create(self.trace.as_deref())?, create(self.profile.as_deref())?);
        let recording = Recording::start(wanted).ok_or_else(|| Error::argument("--trace", "begun twice"))?;
        Ok(Some(Watching { watch: self.clone(), recording, trace, profile }))
    }
}

/// Makes a file, if one was asked for.
pub fn create(path: Option<&Path>) -> Result<Option<File>> {
    path.map(|p| File::create(p).map_err(|e| Error::os(path_bytes(p), e))).transpose()
}

impl Watching {
    /// Ends the observation, writes files and prints statistics. `image` names the device in events.
    ///
    /// # Errors
    /// Those of writing.
    pub fn end(self, image: Option<&Path>) -> Result<()> {
        let device = image.map_or((0, 0), device);
        let observed = Observed { device, ..self.recording.finish() };
        self.watch.put(&observed, self.trace, self.profile)
    }
}

/// Prints how much of a trace is missing.
pub fn tell_dropped(path: &Path, kept: u64, dropped: u64) {
    if dropped > 0 {
        out::note(format_args!(
            "{}: {dropped} of {} events were dropped, the oldest; --trace-events keeps more",
            path.display(),
            kept + dropped
        ));
    }
}

fn save(path: &Path, file: File, f: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>) -> Result<()> {
    let mut to = BufWriter::with_capacity(1 << 20, file);
    f(&mut to).and_then(|()| to.flush()).map_err(|e| Error::os(path_bytes(path), e))
}

/// The numbers of the device that an image is, or that it lies on.
fn device(image: &Path) -> (u32, u32) {
    use rustix::fs::{FileType, major, minor, stat};
    let Ok(s) = stat(image) else { return (0, 0) };
    let block = FileType::from_raw_mode(s.st_mode) == FileType::BlockDevice;
    let number = if block { s.st_rdev } else { s.st_dev };
    (major(number), minor(number))
}
