//! Options of every command, and how they open a volume.

use crate::failures::Failures;
use crate::out;
use crate::place::Place;
use crate::units;
use crate::watch::Watch;
use clap::ValueEnum;
use std::cell::RefCell;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tidegate::detect::Format;
use tidegate::error::Failed;
use tidegate::vfs::MemoryLimits;
use tidegate::{Backend, Error, OpenOptions, Result, Timespec, Volume};

/// Options of every command.
#[derive(clap::Args)]
pub struct Global {
    /// Print results as JSON
    #[arg(long, global = true)]
    pub json: bool,
    /// Print no summary and no progress
    #[arg(long, short, global = true)]
    pub quiet: bool,
    /// The way of I/O on the image
    #[arg(long, global = true, value_enum, default_value_t, value_name = "HOW")]
    pub io: Io,
    /// Memory for cached pages, such as 64M; of a mount, for the whole process
    #[arg(long, global = true, value_parser = units::size, value_name = "SIZE")]
    pub cache: Option<u64>,
    /// The mount options of all `-o`, which [`crate::arguments`] gathers.
    #[arg(skip)]
    pub options: Vec<String>,
    /// The observation of the command.
    #[command(flatten)]
    pub watch: Watch,
    /// The image that was opened last.
    #[arg(skip)]
    opened: RefCell<Option<PathBuf>>,
    /// The failures after which the command went on.
    #[arg(skip)]
    failures: Failures,
}

/// Backends.
#[derive(Clone, Copy, Default, ValueEnum)]
pub enum Io {
    /// io_uring where the kernel allows it, else threads
    #[default]
    Auto,
    /// io_uring or an error
    Uring,
    /// pread and pwrite
    Threads,
}

/// The least memory that --cache can ask for, in bytes.
const MIN_CACHE: u64 = 4 << 20;

impl Global {
    /// How to open a volume.
    ///
    /// # Errors
    /// An option or the size of the cache is wrong; SOURCE_DATE_EPOCH is no time.
    pub fn open_options(&self, read_only: bool) -> Result<OpenOptions> {
        let options = self.mount_options(read_only, &self.options())?;
        Ok(OpenOptions { fixed_time: source_date_epoch()?, ..options })
    }

    /// The mount options, separated by commas.
    pub fn options(&self) -> String {
        self.options.join(",")
    }

    /// How to open a volume for a mount, with these options. It uses the clock, whatever SOURCE_DATE_EPOCH says: with a
    /// fixed time, dirty pages would be written only by a sync.
    ///
    /// # Errors
    /// An option or the size of the cache is wrong.
    pub fn mount_options(&self, read_only: bool, list: &str) -> Result<OpenOptions> {
        let backend = match self.io {
            Io::Auto => Backend::Auto,
            Io::Uring => Backend::Uring,
            Io::Threads => Backend::Threads,
        };
        let mut memory = MemoryLimits::default();
        if let Some(cache) = self.cache {
            if cache < MIN_CACHE {
                return Err(Error::argument("--cache", "4M is the least that works"));
            }
            memory = memory.with_cache(cache);
        }
        let mut options = OpenOptions { read_only, backend, memory, ..Default::default() };
        for option in list.split(',').filter(|o| !o.is_empty()) {
            if !options.set(option).map_err(|e| Error::argument("-o", e))? {
                return Err(Error::argument("-o", unknown(option)));
            }
        }
        Ok(options)
    }

    /// Refuses --json in a command whose output is in another form, or that has none.
    ///
    /// # Errors
    /// The refusal, with the reason `why`.
    pub fn refuse_json(&self, why: &'static str) -> Result<()> {
        if self.json { Err(Error::argument("--json", why)) } else { Ok(()) }
    }

    /// Opens the volume of `place` for reading.
    ///
    /// # Errors
    /// Those of opening.
    pub fn read(&self, place: &Place) -> Result<Volume> {
        place.check()?;
        self.opening(&place.image);
        let volume = Volume::open(&place.image, &self.open_options(true)?)?;
        self.tell_opened(&volume);
        Ok(volume)
    }

    /// Prints an error. The command may go on; its exit status shows the failure.
    pub fn fail(&self, e: &Error) {
        self.failures.add(e, self.opened().as_deref());
    }

    /// The function with which threads that read the last opened image report failures.
    pub fn failed(&self) -> Failed {
        let (failures, image) = (self.failures.clone(), self.opened());
        Arc::new(move |e| failures.add(&e, image.as_deref()))
    }

    /// Reports an error and goes on with `None`.
    pub fn or_fail<T>(&self, r: Result<T>) -> Option<T> {
        r.inspect_err(|e| self.fail(e)).ok()
    }

    /// Whether anything failed so far.
    pub fn has_failed(&self) -> bool {
        self.failures.any()
    }

    /// The image that the command opened, if any.
    pub fn opened(&self) -> Option<PathBuf> {
        self.opened.borrow().clone()
    }

    /// Notes which image a command is about.
    pub fn opening(&self, image: &Path) {
        self.opened.replace(Some(image.to_path_buf()));
    }

    /// Prints what was recovered when the volume was opened, and which of the options it does not have.
    pub fn tell_opened(&self, volume: &Volume) {
        self.tell_without_effect(volume.options_without_effect(), volume.kind());
        let (n, image) = (volume.recovered(), volume.image());
        if n > 0 && !self.quiet {
            out::line(format_args!("{image}: {n} files that were fsynced before a power cut are recovered"));
        }
    }

    /// Prints which options a volume of this format does not have.
    pub fn tell_without_effect(&self, options: &[String], format: Format) {
        for option in options {
            out::note(format_args!("option \"{option}\" has no effect on {}", format.name()));
        }
    }

    /// Opens the volume of `place` for writing.
    ///
    /// # Errors
    /// Those of opening; the volume is read-only.
    pub fn write(&self, place: &Place) -> Result<Volume> {
        place.check()?;
        self.opening(&place.image);
        let volume = Volume::open(&place.image, &self.open_options(false)?)?;
        volume.check_writable()?;
        self.tell_opened(&volume);
        Ok(volume)
    }

    /// Opens the one volume of all `places`, for writing.
    ///
    /// # Errors
    /// The places are in several volumes; those of opening.
    pub fn write_all(&self, places: &[Place]) -> Result<Volume> {
        let first = &places[0];
        match places.iter().find(|p| !p.is_in_volume_of(first)) {
            Some(other) => {
                Err(Error::argument(other.to_string(), format!("not in the same volume as {first}")))
            }
            None => self.write(first),
        }
    }
}

/// The time that a reproducible build asks for.
///
/// # Errors
/// The variable is set, but is no number.
pub fn source_date_epoch() -> Result<Option<Timespec>> {
    const NAME: &str = "SOURCE_DATE_EPOCH";
    let Some(value) = std::env::var_os(NAME) else { return Ok(None) };
    let secs = value.to_str().and_then(|v| v.trim().parse().ok());
    let bad = || Error::argument(NAME, format!("not a number of seconds: {}", OsStr::display(&value)));
    secs.map(|secs| Some(Timespec { secs, nanos: 0 })).ok_or_else(bad)
}

/// The message on an option that no volume has, with the option that is meant.
fn unknown(option: &str) -> String {
    match tidegate_fuse::options::is_word(option) {
        true => format!("option \"{option}\" is for mounts alone (tidegate mount -o)"),
        false => format!("unknown option \"{option}\": tidegate mount -o help lists all"),
    }
}
