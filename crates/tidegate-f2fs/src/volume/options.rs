//! Mount options: how a volume is opened, and the switches that can be turned while it is in use.

pub use crate::segment::streams::Streams;
use std::borrow::Cow;
use tidegate_vfs::planted::Planted;
use tidegate_vfs::switch::SwitchValue;
use tidegate_vfs::word::{NORECOVERY, NORECOVERY_HELP, Word, set_word, shown};
use tidegate_vfs::{Error, ErrorKind, Result, positions, switches};

positions! {
    /// The blocks and flushes that fsync waits for (`fsync_mode=`).
    pub enum FsyncMode {
        /// The file's data and inode, as POSIX requires.
        #[default]
        Posix = "posix",
        /// Also the names: a new file is recovered together with its directory.
        Strict = "strict",
        /// As `posix`, without flushing the device.
        Nobarrier = "nobarrier",
    }
}

/// The treatment at opening of files that were fsynced after the last checkpoint.
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

positions! {
    /// The means that keep a file's allocation and submission together (`writepages=`).
    pub enum WritePages {
        /// Nothing: writers take turns, block by block.
        Unlocked = "unlocked",
        /// The lock `sbi->writepages` is held while pages are placed. The last bio is sent after the lock is released.
        Locked = "locked",
        /// The last bio is sent before the lock is released, too, so no other writer can split it.
        SubmitLocked = "submit_locked",
        /// No lock. Each run of dirty pages reserves one extent and builds its own bios.
        #[default]
        Extent = "extent",
    }
}

positions! {
    /// The stream that a run of data blocks goes to (`stream_policy=`).
    pub enum StreamPolicy {
        /// Each run goes to the next stream.
        #[default]
        RoundRobin = "srr",
        /// A file keeps the stream of its first run.
        PerFile = "spf",
        /// A program chooses streams for a file, which take a segment's worth in turn. A file without a choice goes to
        /// the first stream.
        Chosen = "amfs",
        /// A file gets a stream of its own while other files are written, and keeps it until the file is idle.
        Auto = "auto",
    }
}

positions! {
    /// The growing bios that are sent at the end of a pass over a file, and before a thread waits for one
    /// (`stream_flush=`).
    pub enum StreamFlush {
        /// The bios of all streams, behind one `sbi->writepages`, as if the streams of a file were not known.
        All = "all",
        /// The bios with pages of the file. A file that is pinned to a stream has that stream's `sbi->writepages`.
        #[default]
        Inode = "inode",
    }
}

positions! {
    /// The file data that a checkpoint waits for (`checkpoint_data=`).
    pub enum CheckpointData {
        /// All data that has a place, so that a checkpoint refers to written blocks alone. Data that is in flight when
        /// the checkpoint begins is waited for before operations are frozen.
        #[default]
        Wait = "wait",
        /// Only directories and the data that cleaning moves, as in Linux. After a power cut, pages that were being
        /// written may show the earlier content of their new blocks, that of other files included.
        Linux = "linux",
    }
}

positions! {
    /// Cleaning that no thread waits for (`background_gc=`).
    pub enum BackgroundGc {
        /// While the volume is idle, a thread moves the valid blocks out of segments that are mostly stale.
        #[default]
        On = "on",
        /// None: segments are cleaned only when free ones run out.
        Off = "off",
        /// The thread cleans at once, in the way of a writer that needs room.
        Sync = "sync",
    }
}

positions! {
    /// The segments that logs may write to (`mode=`).
    pub enum AllocMode {
        /// Free segments, and holes of used ones while free segments are short.
        #[default]
        Adaptive = "adaptive",
        /// Free segments alone.
        Lfs = "lfs",
    }
}

/// I/O priority of a thread, as ioprio_set(2) has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IoPriority {
    /// 1 real-time, 2 best-effort, 3 idle.
    pub class: u8,
    /// 0 first, 7 last.
    pub level: u8,
}

const CLASSES: [(u8, &str); 3] = [(1, "rt"), (2, "be"), (3, "idle")];

/// The spelling is class and level, such as `be/3`; `idle` alone has the last level. (A comma would end the
/// option.)
impl SwitchValue for IoPriority {
    fn parse(text: &str) -> Option<Self> {
        let (class, level) = text.split_once('/').unwrap_or((text, "7"));
        let class = CLASSES.iter().find(|c| c.1 == class)?.0;
        level.parse().ok().filter(|l| *l <= 7).map(|level| IoPriority { class, level })
    }

    fn spelled(self) -> String {
        let class = CLASSES.iter().find(|c| c.0 == self.class).map_or("be", |c| c.1);
        format!("{class}/{}", self.level)
    }

    fn expected() -> String {
        "rt/0 to rt/7, be/0 to be/7 or idle".into()
    }

    fn to_bits(self) -> u64 {
        u64::from(self.class) << 8 | u64::from(self.level)
    }

    fn from_bits(bits: u64) -> Self {
        let [level, class, ..] = bits.to_le_bytes();
        IoPriority { class, level }
    }
}

switches! {
    /// How to open a volume.
    pub struct F2fsOptions {
        /// Nothing is changed, and recovery writes nothing.
        pub read_only: bool = false,
        /// Nothing written depends on the clock or on chance, so that the same operations give the same
        /// bytes.
        pub deterministic: bool = false,
        /// The treatment of files that were fsynced after the last checkpoint.
        pub recovery: Recovery = Recovery::RollForward,
        /// The planted bugs, for tests.
        pub planted: Planted = Planted::default(),
    }

    /// The switches of an open volume. Each may be changed at any time.
    pub(crate) struct Switches {
        /// The blocks and flushes that fsync waits for.
        fsync_mode: FsyncMode = FsyncMode::Posix,
        /// One flush of the device serves all fsyncs that wait for a flush.
        flush_merge: bool = true,
        /// One thread writes checkpoints. A checkpoint serves all threads that wait for one.
        checkpoint_merge: bool = true,
        /// The I/O priority of the thread that writes checkpoints.
        ckpt_thread_ioprio: IoPriority = IoPriority { class: 2, level: 3 },
        /// The means that keep the placing and sending of a file's pages together.
        writepages: WritePages = WritePages::Extent,
        /// The number of dirty pages from which a pass that a thread waits for takes the lock of `writepages`. The
        /// default is a segment, as in Linux since 4.19. 0 stands for always, as when `submit_locked` was new.
        min_seq_blocks: u64 = 512,
        /// The number of streams of hot data, which are logs that are written side by side. All streams and the three
        /// logs of nodes are 16 at most. Also spelled `hot_data_streams`.
        hot_streams: Streams = Streams::ONE,
        /// The number of streams of warm data, as `hot_streams`.
        warm_streams: Streams = Streams::ONE,
        /// The number of streams of cold data, as `hot_streams`.
        cold_streams: Streams = Streams::ONE,
        /// The stream that each run of blocks goes to.
        stream_policy: StreamPolicy = StreamPolicy::RoundRobin,
        /// The streams that an fsync or a pass over a file sends. With one log of each kind, both positions do the same.
        stream_flush: StreamFlush = StreamFlush::Inode,
        /// The file data that a checkpoint waits for.
        checkpoint_data: CheckpointData = CheckpointData::Wait,
        /// Cleaning while the volume is idle.
        background_gc: BackgroundGc = BackgroundGc::On,
        /// The segments that logs may write to.
        mode: AllocMode = AllocMode::Adaptive,
        /// Segments are discarded once a checkpoint has freed them.
        discard: bool = true,
        /// Discards wait until the device has been idle for five seconds, or until the mount ends. Other requests wait
        /// while a device, or the file system below an image, works on a discard; and blocks that are written again
        /// soon need none.
        discard_io_aware: bool = true,
    }
}

/// An option in this crate's spelling: `warm_streams=4` for `warm_data_streams=4`.
pub(crate) fn spelling(option: &str) -> Cow<'_, str> {
    match option.split_once("_data_streams") {
        Some((kind, value)) => format!("{kind}_streams{value}").into(),
        None => option.into(),
    }
}

impl F2fsOptions {
    /// Applies options spelled as for mount(8), such as `fsync_mode=strict,nocheckpoint_merge`.
    ///
    /// # Errors
    /// `InvalidArgument` naming the first option that is unknown or has a wrong value; the options before it
    /// are set.
    pub fn parse(&mut self, list: &str) -> Result<()> {
        for option in list.split(',').filter(|o| !o.is_empty()) {
            if !self.set(option)? {
                let what = format!("unknown f2fs option \"{option}\"");
                return Err(Error::new(ErrorKind::InvalidArgument, what));
            }
        }
        Ok(())
    }

    /// Applies one option; false if there is no option of this name.
    ///
    /// # Errors
    /// `InvalidArgument` when its value is wrong.
    pub fn set(&mut self, option: &str) -> Result<bool> {
        Ok(set_word(WORDS, self, option)? || self.set_switch(&spelling(option))?)
    }

    /// The options that are not switches, with their effects.
    pub fn words() -> impl Iterator<Item = (&'static str, &'static str)> {
        shown(WORDS)
    }
}

const WORDS: &[Word<F2fsOptions>] = &[
    Word { name: "ro", help: "", set: |o| o.read_only = true },
    Word { name: "rw", help: "", set: |o| o.read_only = false },
    Word {
        name: "roll_forward",
        help: "recover files that were fsynced (the default)",
        set: |o| o.recovery = Recovery::RollForward,
    },
    Word {
        name: "disable_roll_forward",
        help: "discard the fsyncs after the last checkpoint",
        set: |o| o.recovery = Recovery::Disabled,
    },
    Word {
        name: NORECOVERY,
        help: NORECOVERY_HELP,
        set: |o| (o.recovery, o.read_only) = (Recovery::None, true),
    },
];

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
        assert_eq!(
            (o.ckpt_thread_ioprio.spelled().as_str(), o.writepages),
            ("rt/1", WritePages::SubmitLocked)
        );
        assert_eq!(IoPriority::from_bits(o.ckpt_thread_ioprio.to_bits()), o.ckpt_thread_ioprio);
        assert_eq!(o.min_seq_blocks, 512);
        o.parse("min_seq_blocks=0").unwrap();
        assert_eq!(o.min_seq_blocks, 0);
        for wrong in ["min_seq_blocks=", "min_seq_blocks=-1", "min_seq_blocks=many"] {
            let e = o.parse(wrong).unwrap_err().to_string();
            assert!(e.contains(wrong) && e.contains("a number"), "{e}");
        }
        let e = o.parse("fsync_mode=maybe").unwrap_err().to_string();
        assert!(e.contains("\"fsync_mode=maybe\": it must be one of posix, strict, nobarrier"), "{e}");
        for (wrong, why) in [
            ("ro=1", "ro takes no value"),
            ("discard=", "discard takes no value"),
            ("nocheckpoint_merge=7", "takes no value"),
            ("mode", "it needs a value"),
            ("ckpt_thread_ioprio=be/8", "it must be rt/0 to rt/7, be/0 to be/7 or idle"),
            ("warm_streams=0", "it must be a number from 1 to 11"),
            ("hot_data_streams=12", "\"hot_streams=12\": it must be a number from 1 to 11"),
            ("cache=1M", "unknown f2fs option \"cache=1M\""),
        ] {
            let e = o.parse(wrong).unwrap_err().to_string();
            assert!(e.contains(why), "{e}");
        }
        assert!(!o.set("data=journal").unwrap());
        assert_eq!(u64::from(crate::format::raw::BLOCKS_PER_SEG), F2fsOptions::default().min_seq_blocks);
    }
}
