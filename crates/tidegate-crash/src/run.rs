//! Does the operations of a run on a volume whose device is recorded.

use crate::base::Base;
use crate::late::{Late, Pace};
use crate::model::{Id, Model};
use crate::ops::{CrashOp, Place, SLOTS, Step, Target, xattr};
use crate::slow::Slow;
use crate::stamp;
use crate::tape::Tape;
use crate::zones::Zoned;
use crate::{Fault, Settings};
use std::sync::Arc;
use tidegate::detect::Format;
use tidegate::{OpenOptions, Volume, VolumeSwitches};
use tidegate_block::{Device, Overlay, QueueLimits, Recorder, RequestQueue};
use tidegate_rt::rng::Rng;
use tidegate_rt::sim::{Config, run_with};
use tidegate_rt::wait::poll;
use tidegate_rt::{Nanos, Timespec};
use tidegate_vfs::{
    Cred, Error, ErrorKind, FallocateFlags, File, FileType, Inode, MemoryLimits, NewInode, OpenFlags,
    RenameFlags, Result, SetAttr, Vfs, VolumeOps, WritebackControl, XattrFlags,
};

/// A run that is done: its writes, and the tree that it should have made.
pub struct Recording {
    /// The operations that were done.
    pub steps: Vec<Step>,
    /// For each operation, the device's events at its beginning and its return.
    pub spans: Vec<(u64, u64)>,
    /// For each operation, the file or directory that it synced.
    pub synced: Vec<Option<Id>>,
    /// The tree after the run.
    pub model: Model,
    /// The requests to the device.
    pub tape: Arc<Tape>,
    /// The event at the end of the run.
    pub end: u64,
    /// The run ended early because the volume was full.
    pub full: bool,
    /// How the run was done.
    pub manner: Manner,
    /// The spans in which other threads, at work at the same time, synced everything.
    pub others: Vec<(u64, u64)>,
}

/// How runs differ besides their operations.
#[derive(Clone, Copy, Debug, Default)]
pub struct Manner {
    /// Memory is so short that the flusher writes between operations.
    pub pressure: bool,
    /// The volume is unmounted at the end.
    pub unmount: bool,
    /// How the volume is mounted.
    pub switches: Switches,
    /// How the device answers.
    pub pace: Pace,
    /// Chooses the order of the threads, where there are several.
    pub seed: u64,
}

/// Switches of the volume that change what it writes and when; by default, none is changed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Switches {
    /// The format, and the number of the value of each switch that is changed.
    turned: Option<(Format, [usize; MOST])>,
    /// F2FS: the streams of data, as an index into [`STREAMS`].
    streams: usize,
}

/// The most switches that are changed.
const MOST: usize = 7;

/// Switches that are changed, and the values that they must not have: with those values, fsync promises less.
type Turned = &'static [(&'static str, &'static [&'static str])];

const OF_EXT4: Turned = &[("journal", &[]), ("data", &["writeback"]), ("sync_wait", &[])];
const OF_F2FS: Turned = &[
    ("writepages", &[]),
    ("mode", &[]),
    ("fsync_mode", &["nobarrier"]),
    ("flush_merge", &[]),
    ("checkpoint_merge", &[]),
    ("discard", &[]),
    ("sync_wait", &[]),
];

/// The number of streams of data, and the files that go to each stream.
const STREAMS: [&str; 7] = [
    "hot_streams=1,warm_streams=1,cold_streams=1",
    "hot_streams=1,warm_streams=2,cold_streams=1,stream_policy=srr",
    "hot_streams=1,warm_streams=4,cold_streams=1,stream_policy=spf",
    "hot_streams=3,warm_streams=5,cold_streams=2,stream_policy=srr",
    "hot_streams=1,warm_streams=11,cold_streams=1,stream_policy=srr",
    "hot_streams=2,warm_streams=6,cold_streams=2,stream_policy=auto",
    "hot_streams=1,warm_streams=4,cold_streams=1,stream_policy=spf,stream_flush=all",
];

/// The options that set a switch to the values that it may have.
fn options_of(name: &str, never: &[&str]) -> Vec<String> {
    let all = OpenOptions::switches();
    let of = all.iter().filter(|s| s.name == name);
    of.flat_map(|s| s.values.iter().filter(|v| !never.contains(&v.as_str())).map(|v| s.option(v))).collect()
}

fn turned(format: Format) -> Turned {
    match format {
        Format::F2fs => OF_F2FS,
        Format::Ext4 => OF_EXT4,
    }
}

impl Switches {
    /// Random switches of a format that keep the promises of fsync.
    pub fn any(rng: &mut Rng, format: Format) -> Self {
        let mut chosen = [0; MOST];
        for ((name, never), n) in turned(format).iter().zip(&mut chosen) {
            *n = rng.below(options_of(name, never).len() as u64) as usize;
        }
        // Volumes for many streams are large, and there, faults that need a shortage of segments are rarely
        // found.
        let streams = if rng.one_in(3) { 1 + rng.below(STREAMS.len() as u64 - 1) as usize } else { 0 };
        Switches { turned: Some((format, chosen)), streams }
    }

    /// Whether the volume may open more than one stream of data.
    pub fn have_streams(&self) -> bool {
        self.streams > 0 && self.turned.is_some_and(|t| t.0 == Format::F2fs)
    }

    /// Whether a file's size may change in several commits.
    pub fn sizes_change_in_steps(&self) -> bool {
        self.turned.is_some_and(|t| t.0 == Format::Ext4)
    }

    /// Whether a file's size is on the medium no sooner than the data that made it.
    pub fn sizes_follow_data(&self) -> bool {
        self.turned.is_some_and(|t| t.0 == Format::Ext4)
    }

    /// The options that set these switches.
    fn list(&self) -> Vec<String> {
        let Some((format, chosen)) = self.turned else { return Vec::new() };
        let option = |((name, never), n): (&(&str, &[&str]), &usize)| options_of(name, never).swap_remove(*n);
        let streams = STREAMS[self.streams].split(',').filter(|_| format == Format::F2fs).map(String::from);
        turned(format).iter().zip(&chosen).map(option).chain(streams).collect()
    }

    /// Puts the switches into options.
    ///
    /// # Panics
    /// A switch has another name than here.
    pub fn set(&self, options: &mut OpenOptions) {
        options.parse(&self.list().join(",")).expect("the volume's own words");
    }
}

/// With so many free blocks besides those for its data, an operation cannot run out of space. The margin
/// covers the blocks that point to the data, and the other threads.
const AMPLE_BLOCKS: u64 = 256;
/// With so many free inodes, an operation cannot run out of inodes.
const AMPLE_INODES: u64 = 16;

/// So little memory that the flusher is mostly at work, and inodes leave memory and come back.
pub(super) const SHORT_OF_MEMORY: MemoryLimits =
    MemoryLimits { cache: 1 << 20, dirty: 256 << 10, background: 32 << 10, inodes: 8 };

/// A volume and its expected content.
pub(super) struct Machine {
    pub vfs: Arc<Vfs>,
    ops: Arc<dyn VolumeOps>,
    pub model: Model,
    held: [Option<File>; SLOTS],
    format: Format,
    /// The directory that serves as the root.
    root: String,
}

/// Does the operations. Where the flusher works beside them, it does so in the simulated world, in an order
/// that the manner's seed chooses.
///
/// # Errors
/// An operation that could be done failed. Lack of space ends the run without a fault.
pub fn record(
    base: &Base,
    steps: &[Step],
    manner: Manner,
    settings: &Settings,
) -> std::result::Result<Recording, Fault> {
    if !manner.pressure && !has_threads(settings.bases.format()) {
        return record_here(base, steps, manner, settings);
    }
    let (base, steps, settings) = (base.clone(), steps.to_vec(), settings.clone());
    simulate(manner.seed, move || record_here(&base, &steps, manner, &settings))
}

/// Whether threads of the volume write at any time, and not only where the flusher works.
fn has_threads(format: Format) -> bool {
    format == Format::Ext4
}

/// Runs `work` of several threads in an order that `seed` chooses, rare orders included.
///
/// # Errors
/// An error of `work`; a deadlock.
pub(super) fn simulate<R: Send + 'static>(
    seed: u64,
    f: impl FnOnce() -> std::result::Result<R, Fault> + Send + 'static,
) -> std::result::Result<R, Fault> {
    let config = Config { seed, cpus: 3, quantum: Nanos(0), jitter: 32, ..Config::default() };
    run_with(&config, f).map_err(|deadlock| Fault::new("run", deadlock.to_string()))?.value
}

fn record_here(
    base: &Base,
    steps: &[Step],
    manner: Manner,
    settings: &Settings,
) -> std::result::Result<Recording, Fault> {
    let zoned = Zoned::new(Arc::new(Overlay::new(base.blocks.clone(), base.table.to_vec())), &base.zones);
    let device = zoned.device();
    let (device, _polling) = match manner.pace {
        Pace::Late(seed) if has_threads(settings.bases.format()) => {
            (Arc::new(Slow::new(device, Rng::new(seed))) as Arc<dyn Device>, None)
        }
        pace => Late::attach(device, pace),
    };
    let recorder = Arc::new(Recorder::new(device));
    let queue = Arc::new(RequestQueue::new(recorder.clone(), QueueLimits::default()));
    let mut options = settings.writer();
    manner.switches.set(&mut options);
    options.memory = if manner.pressure {
        SHORT_OF_MEMORY
    } else {
        // So much memory that the flusher never writes by itself.
        MemoryLimits { dirty: 512 << 20, background: 256 << 20, ..MemoryLimits::default() }
    };
    let volume = open(queue, &options).map_err(|e| Fault::new("run", format!("the volume: {e}")))?;
    let machine = Machine::new(&volume, base.model.clone());
    let mut r = machine.run(steps, &|| recorder.position(), manner)?;
    if manner.unmount && !r.full {
        settle();
        volume.vfs().unmount().map_err(|e| Fault::new("run", format!("unmount: {e}")))?;
        r.model.state += 1;
        let serial = r.steps.last().map_or(0, |s| s.serial) + 1;
        r.steps.push(Step { serial, op: CrashOp::Sync });
        r.synced.push(None);
        r.spans.push((r.end, recorder.position()));
        r.end = recorder.position();
    }
    r.tape = Arc::new(Tape::new(&base.blocks, &base.table, recorder.take()).on(&base.zones));
    zoned.check(volume.queue())?;
    ended(volume);
    Ok(r)
}

/// Drops a volume once its device has answered everything. Otherwise the last completion would drop it, at a
/// moment that the seed does not determine.
pub(super) fn ended(volume: Volume) {
    let queue = volume.queue().clone();
    drop(volume);
    queue.drain();
}

pub(super) fn open(queue: Arc<RequestQueue>, options: &OpenOptions) -> tidegate::Result<Volume> {
    let volume = Volume::from_queue("volume", queue, options)?;
    volume.check_writable()?;
    Ok(volume)
}

/// Has the device answer all requests. This comes before the flusher is asked to work: otherwise this thread
/// would poll completions meanwhile, at moments that the seed does not determine.
fn settle() {
    while poll() {}
}

/// The file or directory that an operation makes durable.
pub(super) fn synced_by(model: &Model, op: &CrashOp) -> Option<Id> {
    match op {
        CrashOp::Fsync { file } | CrashOp::Fdatasync { file } | CrashOp::WriteSync { file, .. } => {
            model.file(*file)
        }
        CrashOp::FsyncDir { at } if model.can(op) => model.find(*at),
        _ => None,
    }
}

const ROOT: &Cred = &Cred::ROOT;

impl Machine {
    pub fn new(volume: &Volume, model: Model) -> Self {
        Self::below(volume, model, "")
    }

    /// A machine with `root` as its root directory.
    pub fn below(volume: &Volume, model: Model, root: &str) -> Self {
        let (vfs, ops) = (volume.vfs().clone(), volume.ops().clone());
        let format = volume.kind();
        Machine { vfs, ops, model, held: Default::default(), format, root: root.into() }
    }

    /// Does operations until the volume is full; `position` returns the device's current event. The tape is
    /// empty.
    pub fn run(
        mut self,
        steps: &[Step],
        position: &dyn Fn() -> u64,
        manner: Manner,
    ) -> std::result::Result<Recording, Fault> {
        let (mut done, mut spans, mut synced) = (Vec::new(), Vec::new(), Vec::new());
        for step in steps {
            let start = position();
            synced.push(synced_by(&self.model, &step.op));
            let outcome = self.step(step);
            done.push(step.clone());
            match outcome {
                Ok(()) => spans.push((start, position())),
                Err(e) if self.is_full(&step.op, e.kind()) => {
                    spans.push((start, u64::MAX)); // in progress until it returns
                    break;
                }
                Err(e) => return Err(Fault::new("run", format!("operation {step}: {e}"))),
            }
        }
        let full = spans.last().is_some_and(|s| s.1 == u64::MAX);
        let (end, tape) = (position(), Arc::default());
        Ok(Recording {
            steps: done,
            spans,
            synced,
            model: self.model,
            tape,
            end,
            full,
            manner,
            others: Vec::new(),
        })
    }

    /// Whether an operation failed because the volume has no room for it.
    fn is_full(&self, op: &CrashOp, error: ErrorKind) -> bool {
        use CrashOp::*;
        match (error, op) {
            (ErrorKind::TooBig, _) => true,
            // Space for data was reserved when it was written.
            (_, Fsync { .. } | Fdatasync { .. } | FsyncDir { .. } | Sync | Writeback { .. }) => false,
            // An attribute list can be full by itself.
            (ErrorKind::NoSpace, SetXattr { .. }) => true,
            (ErrorKind::NoSpace, op) => {
                let s = self.vfs.statfs();
                let blocks = op.bytes() / u64::from(s.block_size);
                s.blocks_available < blocks + blocks / 8 + AMPLE_BLOCKS || s.files_free < AMPLE_INODES
            }
            _ => false,
        }
    }

    /// The path of a place on the volume.
    fn path(&self, at: Place) -> String {
        match at.path() {
            "/" if !self.root.is_empty() => self.root.clone(),
            path => self.root.clone() + path,
        }
    }

    /// Does an operation if it is possible; the model gets the operation in any case.
    pub fn step(&mut self, step: &Step) -> Result<()> {
        let outcome = if self.model.can(&step.op) { self.execute(step) } else { Ok(()) };
        self.model.apply(step);
        outcome
    }

    fn inode(&self, at: Place) -> Result<Arc<Inode>> {
        self.vfs.resolve(ROOT, self.path(at).as_bytes(), false)
    }

    fn parent(&self, at: Place) -> Result<(Arc<Inode>, Vec<u8>)> {
        let path = self.path(at);
        let p = self.vfs.resolve_parent(ROOT, path.as_bytes())?;
        Ok((p.dir, p.name.to_vec()))
    }

    /// Calls `f` with the file open.
    fn on(&self, t: Target, f: impl FnOnce(&File) -> Result<()>) -> Result<()> {
        match t {
            Target::At(p) => f(&self.vfs.open(ROOT, &self.inode(p)?, OpenFlags::READ | OpenFlags::WRITE)?),
            Target::Held(n) => match &self.held[n as usize % SLOTS] {
                Some(file) => f(file),
                None => Err(Error::new(ErrorKind::BadFile, "nothing is held")),
            },
        }
    }

    fn make(&self, at: Place, id: Id, file_type: FileType, mode: u32, target: &[u8]) -> Result<()> {
        let (dir, name) = self.parent(at)?;
        // The owner is the object's number and never changes.
        let new = NewInode { uid: id, target, ..self.vfs.new_inode(ROOT, file_type, mode) };
        self.vfs.make(ROOT, &dir, &name, &new).map(drop)
    }

    fn execute(&mut self, step: &Step) -> Result<()> {
        use CrashOp::*;
        let id = step.serial;
        match &step.op {
            Create { at } => self.make(*at, id, FileType::Regular, 0o644, b""),
            Mkdir { at } => self.make(*at, id, FileType::Directory, 0o755, b""),
            Symlink { at, len } => {
                self.make(*at, id, FileType::Symlink, 0o777, &stamp::text(id, *len as usize))
            }
            Rename { from, to, exchange } => {
                let ((old_dir, old), (new_dir, new)) = (self.parent(*from)?, self.parent(*to)?);
                let flags = if *exchange { RenameFlags::EXCHANGE } else { RenameFlags::empty() };
                self.vfs.rename(ROOT, (&old_dir, &old), (&new_dir, &new), flags)
            }
            Link { from, to } => {
                let (dir, name) = self.parent(*to)?;
                self.vfs.link(ROOT, &self.inode(*from)?, &dir, &name)
            }
            Tmpfile { slot } => {
                let dir = self.inode(Place::ROOT)?;
                let new = NewInode { uid: id, ..self.vfs.new_inode(ROOT, FileType::Regular, 0o600) };
                let flags = OpenFlags::READ | OpenFlags::WRITE;
                self.held[*slot as usize % SLOTS] = Some(self.vfs.tmpfile(ROOT, &dir, &new, flags)?);
                Ok(())
            }
            LinkHeld { slot, to } => {
                let (dir, name) = self.parent(*to)?;
                self.on(Target::Held(*slot), |f| self.vfs.link(ROOT, f.inode(), &dir, &name))
            }
            Unlink { at } => {
                let (dir, name) = self.parent(*at)?;
                self.vfs.unlink(ROOT, &dir, &name)
            }
            Rmdir { at } => {
                let (dir, name) = self.parent(*at)?;
                self.vfs.rmdir(ROOT, &dir, &name)
            }
            SetXattr { at, name, len } => {
                let value = stamp::text(id, *len as usize);
                self.set_xattr(*at, *name, Some(&value))
            }
            RemoveXattr { at, name } => self.set_xattr(*at, *name, None),
            Chmod { at, mode } => {
                let set = SetAttr { mode: Some(*mode), ..Default::default() };
                self.vfs.setattr(ROOT, &self.inode(*at)?, &set)
            }
            Chown { at, gid } => {
                let set = SetAttr { gid: Some(*gid), ..Default::default() };
                self.vfs.setattr(ROOT, &self.inode(*at)?, &set)
            }
            Utimes { at, atime } => {
                let time = Timespec { secs: *atime, nanos: 0 };
                let set = SetAttr { atime: Some(time), ..Default::default() };
                self.vfs.setattr(ROOT, &self.inode(*at)?, &set)
            }
            FsyncDir { at } => self.vfs.open(ROOT, &self.inode(*at)?, OpenFlags::READ)?.fsync(false),
            Sync => {
                settle();
                self.vfs.sync()
            }
            Hold { at, slot } => {
                let file = self.vfs.open(ROOT, &self.inode(*at)?, OpenFlags::READ | OpenFlags::WRITE)?;
                self.held[*slot as usize % SLOTS] = Some(file);
                Ok(())
            }
            Release { slot } => {
                self.held[*slot as usize % SLOTS] = None;
                Ok(())
            }
            Clean { sync } => self.ops.clean(*sync).map(drop),
            Trim => self.ops.trim(0..u64::MAX, 0).map(drop),
            Turn { seed } => {
                let mut list = Switches::any(&mut Rng::new(*seed), self.format).list();
                // The journal and its data mode stay as they were at mount.
                list.retain(|o| !o.starts_with("journal=") && !o.starts_with("data="));
                let mut own = VolumeSwitches { sync_wait: self.vfs.sync_wait(), ..VolumeSwitches::default() };
                let mut of_format = Vec::new();
                for option in list {
                    if !own.set_switch(&option)? {
                        of_format.push(option);
                    }
                }
                self.ops.remount(&of_format.join(","))?;
                self.vfs.set_sync_wait(own.sync_wait);
                Ok(())
            }
            _ => self.on_file(step),
        }
    }

    fn set_xattr(&self, at: Place, name: u8, value: Option<&[u8]>) -> Result<()> {
        let inode = self.inode(at)?;
        self.vfs.setxattr(ROOT, &inode, xattr(name).as_bytes(), value, XattrFlags::empty())
    }

    fn on_file(&self, step: &Step) -> Result<()> {
        use CrashOp::*;
        match &step.op {
            Write { file, pos, len } => {
                let Some(id) = self.model.file(*file) else { return Ok(()) };
                let mut data = vec![0; *len as usize];
                stamp::fill(id, step.serial, *pos, &mut data);
                self.on(*file, |f| f.write_at(*pos, &data).map(drop))
            }
            WriteSync { file, pos, len } => {
                let Some(id) = self.model.file(*file) else { return Ok(()) };
                let mut data = vec![0; *len as usize];
                stamp::fill(id, step.serial, *pos, &mut data);
                self.on(*file, |f| {
                    let flags = OpenFlags::READ | OpenFlags::WRITE | OpenFlags::SYNC;
                    self.vfs.open(ROOT, f.inode(), flags)?.write_at(*pos, &data).map(drop)
                })
            }
            Collapse { file, pos, len } => {
                self.on(*file, |f| f.fallocate(FallocateFlags::COLLAPSE_RANGE, *pos, *len))
            }
            Insert { file, pos, len } => {
                self.on(*file, |f| f.fallocate(FallocateFlags::INSERT_RANGE, *pos, *len))
            }
            Truncate { file, size } => self.on(*file, |f| f.truncate(*size)),
            Punch { file, pos, len } => self.on(*file, |f| {
                f.fallocate(FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, *pos, *len)
            }),
            Allocate { file, pos, len, keep } => self.on(*file, |f| {
                let flags = if *keep { FallocateFlags::KEEP_SIZE } else { FallocateFlags::empty() };
                f.fallocate(flags, *pos, *len)
            }),
            Zero { file, pos, len, keep } => self.on(*file, |f| {
                let flags = if *keep { FallocateFlags::KEEP_SIZE } else { FallocateFlags::empty() };
                f.fallocate(flags | FallocateFlags::ZERO_RANGE, *pos, *len)
            }),
            Fsync { file } => self.on(*file, |f| f.fsync(false)),
            Fdatasync { file } => self.on(*file, |f| f.fsync(true)),
            Writeback { file } => self.on(*file, |f| {
                self.vfs.fs().writepages(f.inode(), &mut WritebackControl::background(u64::MAX))?;
                self.vfs.bdi().submit_pending();
                Ok(())
            }),
            _ => Ok(()),
        }
    }
}
