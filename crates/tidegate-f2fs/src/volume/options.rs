//! Mount options: how a volume is opened, and the switches that can be turned while it is in use.

use crate::format::raw::BLOCKS_PER_SEG;
use crate::volume::planted::Planted;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering::Relaxed};
use tidegate_vfs::{Error, ErrorKind, Result};

/// Declares a switch: an enum with the options' spelling, kept as a byte.
macro_rules! switch {
    ($(#[$m:meta])* $name:ident { $($(#[$v:meta])* $pos:ident = $word:literal,)+ }) => {
        $(#[$m])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[repr(u8)]
        pub enum $name { $($(#[$v])* $pos,)+ }
        impl $name {
            /// Every position.
            pub const ALL: &[$name] = &[$($name::$pos,)+];
            /// As it is spelled in options.
            pub fn word(self) -> &'static str {
                match self { $($name::$pos => $word,)+ }
            }
            fn from_byte(b: u8) -> Self {
                Self::ALL.get(b as usize).copied().unwrap_or_default()
            }
            fn parse(name: &str, value: &str) -> Result<Self> {
                Self::ALL.iter().copied().find(|p| p.word() == value).ok_or_else(|| {
                    let words: Vec<_> = Self::ALL.iter().map(|p| p.word()).collect();
                    let words = words.join(", ");
                    invalid(format!("option \"{name}={value}\": it must be one of {words}"))
                })
            }
        }
    };
}

switch! {
    /// What fsync waits for (`fsync_mode=`).
    FsyncMode {
        /// What POSIX asks for.
        #[default]
        Posix = "posix",
        /// Also names: what became of a new file's directory is recovered with it.
        Strict = "strict",
        /// As `posix`, without flushing the device.
        Nobarrier = "nobarrier",
    }
}

/// What opening does with files that were fsynced after the last checkpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Recovery {
    /// They are recovered.
    #[default]
    RollForward,
    /// They are as the last checkpoint has them (`disable_roll_forward`).
    Disabled,
    /// Nothing is recovered, orphans included; for read-only use (`norecovery`).
    None,
}

switch! {
    /// Who keeps a file's allocation and submission together (`writepages=`).
    WritePages {
        /// Nobody: writers take turns block by block of their runs.
        Unlocked = "unlocked",
        /// `sbi->writepages` is held while pages are placed; the last bio goes out after it.
        Locked = "locked",
        /// The last bio goes out inside the lock, too: nobody can split it.
        SubmitLocked = "submit_locked",
        /// No such lock: each run of dirty pages reserves one extent and builds its own bios.
        #[default]
        Extent = "extent",
    }
}

switch! {
    /// Which file data a checkpoint waits for (`checkpoint_data=`).
    CheckpointData {
        /// All that has a place: no checkpoint refers to a block that is not there. What is in flight when it
        /// begins is waited for before operations are frozen.
        #[default]
        Wait = "wait",
        /// Only what cleaning moves and directories, as Linux does. After a power cut, pages that were being written
        /// may show what their new blocks held before, of other files too.
        Linux = "linux",
    }
}

switch! {
    /// Cleaning when nobody waits for it (`background_gc=`).
    BackgroundGc {
        /// A thread moves what is still valid out of mostly stale segments while the volume is idle.
        #[default]
        On = "on",
        /// Never; segments are cleaned when they run out.
        Off = "off",
        /// The thread cleans at once, as a writer that needs room would.
        Sync = "sync",
    }
}

switch! {
    /// Where logs may write (`mode=`).
    AllocMode {
        /// Into free segments, and into holes of used ones while free segments are short.
        #[default]
        Adaptive = "adaptive",
        /// Into free segments alone.
        Lfs = "lfs",
    }
}

/// How to open a volume.
#[derive(Clone, Debug)]
pub struct F2fsOptions {
    /// Change nothing, not even what recovery would.
    pub read_only: bool,
    /// Nothing written depends on the clock or on chance, so that the same operations give the same
    /// bytes.
    pub deterministic: bool,
    /// See [`Recovery`].
    pub recovery: Recovery,
    /// See [`FsyncMode`].
    pub fsync_mode: FsyncMode,
    /// One device flush serves every fsync that waits for one.
    pub flush_merge: bool,
    /// One thread writes checkpoints, each for all who wait (`checkpoint_merge`).
    pub checkpoint_merge: bool,
    /// Its I/O priority: class (1 real-time, 2 best-effort, 3 idle) and level (0 first to 7).
    pub ckpt_thread_ioprio: (u8, u8),
    /// See [`WritePages`].
    pub writepages: WritePages,
    /// With a lock for write-pages, writers that somebody waits for take it when this many pages of their
    /// file are dirty (`min_seq_blocks`, an attribute in sysfs in Linux): a segment's worth, as in Linux since
    /// 4.19. 0: each takes it, as when `submit_locked` was new.
    pub min_seq_blocks: u32,
    /// See [`CheckpointData`].
    pub checkpoint_data: CheckpointData,
    /// See [`BackgroundGc`].
    pub background_gc: BackgroundGc,
    /// See [`AllocMode`].
    pub mode: AllocMode,
    /// Segments are discarded once a checkpoint has freed them.
    pub discard: bool,
    /// Discards wait until nothing else has gone to the device for five seconds, or for the end of the mount
    /// (`[no]discard_io_aware`, the kernel's `discard_io_aware` in sysfs): a device, or a host's file system below
    /// an image, lets others wait meanwhile, and blocks that are soon written again need no discard.
    pub discard_io_aware: bool,
    /// See [`Planted`].
    pub planted: Planted,
}

impl Default for F2fsOptions {
    fn default() -> Self {
        F2fsOptions {
            read_only: false,
            deterministic: false,
            recovery: Recovery::default(),
            fsync_mode: FsyncMode::default(),
            flush_merge: true,
            checkpoint_merge: true,
            ckpt_thread_ioprio: (2, 3),
            writepages: WritePages::default(),
            min_seq_blocks: BLOCKS_PER_SEG,
            checkpoint_data: CheckpointData::default(),
            background_gc: BackgroundGc::default(),
            mode: AllocMode::default(),
            discard: true,
            discard_io_aware: true,
            planted: Planted::default(),
        }
    }
}

/// Options that are nothing without a value.
const VALUED: [&str; 7] = [
    "fsync_mode",
    "ckpt_thread_ioprio",
    "writepages",
    "min_seq_blocks",
    "checkpoint_data",
    "background_gc",
    "mode",
];
/// Words that mean something where a volume is mounted, and nowhere else.
const OF_MOUNTS: [&str; 16] = [
    "allow_other",
    "auto_unmount",
    "noatime",
    "uid",
    "gid",
    "threads",
    "transport",
    "keep_awake",
    "cache",
    "suid",
    "nosuid",
    "dev",
    "nodev",
    "exec",
    "noexec",
    "sync",
];

fn invalid(what: String) -> Error {
    Error::new(ErrorKind::InvalidArgument, what)
}

impl F2fsOptions {
    /// Applies options spelled as for mount(8), such as `fsync_mode=strict,nocheckpoint_merge`.
    ///
    /// # Errors
    /// `InvalidArgument` naming the first that is unknown or has a wrong value; those before it are set.
    pub fn parse(&mut self, list: &str) -> Result<()> {
        for option in list.split(',').filter(|o| !o.is_empty()) {
            self.set(option)?;
        }
        Ok(())
    }

    fn set(&mut self, option: &str) -> Result<()> {
        let (name, value) = match option.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (option, None),
        };
        match (name, value) {
            ("fsync_mode", Some(v)) => self.fsync_mode = FsyncMode::parse(name, v)?,
            ("ckpt_thread_ioprio", Some(v)) => self.ckpt_thread_ioprio = parse_ioprio(v)?,
            ("writepages", Some(v)) => self.writepages = WritePages::parse(name, v)?,
            ("min_seq_blocks", Some(v)) => self.min_seq_blocks = parse_blocks(option, v)?,
            ("checkpoint_data", Some(v)) => self.checkpoint_data = CheckpointData::parse(name, v)?,
            ("background_gc", Some(v)) => self.background_gc = BackgroundGc::parse(name, v)?,
            ("mode", Some(v)) => self.mode = AllocMode::parse(name, v)?,
            _ if VALUED.contains(&name) => {
                return Err(invalid(format!("option \"{name}\": it needs a value, as in {name}=...")));
            }
            _ => self.set_flag(option, name, value)?,
        }
        Ok(())
    }

    fn set_flag(&mut self, option: &str, name: &str, value: Option<&str>) -> Result<()> {
        match name {
            "ro" => self.read_only = true,
            "rw" => self.read_only = false,
            "flush_merge" => self.flush_merge = true,
            "noflush_merge" => self.flush_merge = false,
            "checkpoint_merge" => self.checkpoint_merge = true,
            "nocheckpoint_merge" => self.checkpoint_merge = false,
            "discard" => self.discard = true,
            "nodiscard" => self.discard = false,
            "discard_io_aware" => self.discard_io_aware = true,
            "nodiscard_io_aware" => self.discard_io_aware = false,
            "roll_forward" => self.recovery = Recovery::RollForward,
            "disable_roll_forward" => self.recovery = Recovery::Disabled,
            "norecovery" => (self.recovery, self.read_only) = (Recovery::None, true),
            _ if OF_MOUNTS.contains(&name) => {
                return Err(invalid(format!("option \"{option}\" is for mounts alone (tidegate mount -o)")));
            }
            _ => return Err(invalid(format!("unknown f2fs option \"{option}\""))),
        }
        match value {
            Some(_) => Err(invalid(format!("option \"{option}\": {name} takes no value"))),
            None => Ok(()),
        }
    }
}

fn parse_blocks(option: &str, value: &str) -> Result<u32> {
    value.parse().map_err(|_| invalid(format!("\"{option}\": it must be a number of blocks")))
}

/// Class and level, such as `be/3`; `idle` alone has the last level. (A comma would end the option.)
fn parse_ioprio(value: &str) -> Result<(u8, u8)> {
    let bad =
        || invalid(format!("ckpt_thread_ioprio \"{value}\": it must be rt/0 to rt/7, be/0 to be/7 or idle"));
    let (class, level) = value.split_once('/').unwrap_or((value, "7"));
    let class = match class {
        "rt" => 1,
        "be" => 2,
        "idle" => 3,
        _ => return Err(bad()),
    };
    let level = level.parse().ok().filter(|l| *l <= 7).ok_or_else(bad)?;
    Ok((class, level))
}

/// The switches of an open volume. Each may be turned at any time.
pub(crate) struct Switches {
    fsync_mode: AtomicU8,
    flush_merge: AtomicU8,
    checkpoint_merge: AtomicU8,
    ioprio: [AtomicU8; 2],
    writepages: AtomicU8,
    min_seq_blocks: AtomicU32,
    checkpoint_data: AtomicU8,
    background_gc: AtomicU8,
    mode: AtomicU8,
    discard: AtomicU8,
    discard_io_aware: AtomicU8,
    pub(crate) planted: Planted,
}

impl Switches {
    pub(crate) fn new(o: &F2fsOptions) -> Self {
        let s = Switches {
            fsync_mode: AtomicU8::new(0),
            flush_merge: AtomicU8::new(0),
            checkpoint_merge: AtomicU8::new(0),
            ioprio: [AtomicU8::new(0), AtomicU8::new(0)],
            writepages: AtomicU8::new(0),
            min_seq_blocks: AtomicU32::new(0),
            checkpoint_data: AtomicU8::new(0),
            background_gc: AtomicU8::new(0),
            mode: AtomicU8::new(0),
            discard: AtomicU8::new(0),
            discard_io_aware: AtomicU8::new(0),
            planted: o.planted,
        };
        s.turn(o);
        s
    }

    /// Takes over what `o` says of switches.
    pub(crate) fn turn(&self, o: &F2fsOptions) {
        self.fsync_mode.store(o.fsync_mode as u8, Relaxed);
        self.flush_merge.store(o.flush_merge as u8, Relaxed);
        self.checkpoint_merge.store(o.checkpoint_merge as u8, Relaxed);
        self.ioprio[0].store(o.ckpt_thread_ioprio.0, Relaxed);
        self.ioprio[1].store(o.ckpt_thread_ioprio.1, Relaxed);
        self.writepages.store(o.writepages as u8, Relaxed);
        self.min_seq_blocks.store(o.min_seq_blocks, Relaxed);
        self.checkpoint_data.store(o.checkpoint_data as u8, Relaxed);
        self.background_gc.store(o.background_gc as u8, Relaxed);
        self.mode.store(o.mode as u8, Relaxed);
        self.discard.store(o.discard as u8, Relaxed);
        self.discard_io_aware.store(o.discard_io_aware as u8, Relaxed);
    }

    pub(crate) fn fsync_mode(&self) -> FsyncMode {
        FsyncMode::from_byte(self.fsync_mode.load(Relaxed))
    }
    pub(crate) fn flush_merge(&self) -> bool {
        self.flush_merge.load(Relaxed) != 0
    }
    pub(crate) fn checkpoint_merge(&self) -> bool {
        self.checkpoint_merge.load(Relaxed) != 0
    }
    /// Class and level.
    pub(crate) fn ckpt_thread_ioprio(&self) -> (u8, u8) {
        (self.ioprio[0].load(Relaxed), self.ioprio[1].load(Relaxed))
    }
    pub(crate) fn writepages(&self) -> WritePages {
        WritePages::from_byte(self.writepages.load(Relaxed))
    }
    pub(crate) fn min_seq_blocks(&self) -> u64 {
        self.min_seq_blocks.load(Relaxed) as u64
    }
    pub(crate) fn checkpoint_data(&self) -> CheckpointData {
        CheckpointData::from_byte(self.checkpoint_data.load(Relaxed))
    }
    pub(crate) fn background_gc(&self) -> BackgroundGc {
        BackgroundGc::from_byte(self.background_gc.load(Relaxed))
    }
    pub(crate) fn mode(&self) -> AllocMode {
        AllocMode::from_byte(self.mode.load(Relaxed))
    }
    pub(crate) fn discard(&self) -> bool {
        self.discard.load(Relaxed) != 0
    }
    pub(crate) fn discard_io_aware(&self) -> bool {
        self.discard_io_aware.load(Relaxed) != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_spelled_as_for_mount() {
        let mut o = F2fsOptions::default();
        o.parse("fsync_mode=strict,nocheckpoint_merge,ckpt_thread_ioprio=rt/1,writepages=submit_locked")
            .unwrap();
        assert_eq!(o.fsync_mode, FsyncMode::Strict);
        assert!(!o.checkpoint_merge);
        assert_eq!((o.ckpt_thread_ioprio, o.writepages), ((1, 1), WritePages::SubmitLocked));
        assert_eq!(o.min_seq_blocks, 512);
        o.parse("min_seq_blocks=0").unwrap();
        assert_eq!(o.min_seq_blocks, 0);
        for wrong in ["min_seq_blocks=", "min_seq_blocks=-1", "min_seq_blocks=many"] {
            let e = o.parse(wrong).unwrap_err().to_string();
            assert!(e.contains(wrong) && e.contains("a number of blocks"), "{e}");
        }
        let e = o.parse("fsync_mode=maybe").unwrap_err().to_string();
        assert!(e.contains("\"fsync_mode=maybe\": it must be one of posix, strict, nobarrier"), "{e}");
        for (wrong, why) in [
            ("ro=1", "ro takes no value"),
            ("discard=", "discard takes no value"),
            ("nocheckpoint_merge=7", "takes no value"),
            ("mode", "it needs a value"),
            ("cache=1M", "is for mounts alone"),
        ] {
            let e = o.parse(wrong).unwrap_err().to_string();
            assert!(e.contains(why), "{e}");
        }
        assert!(o.parse("data=journal").is_err());
    }
}
