//! The volumes that runs begin with. They are the same in every run; each is made when it is first asked for.

use crate::model::Model;
use crate::ops::CrashOp;
use crate::zones::{OnZones, Pointers, Zoned};
use crate::{Fault, age, crowd, sound};
use std::sync::{Arc, OnceLock};
use tidegate::detect::Format;
use tidegate::new_volume::{self, NewVolume};
use tidegate::volume::Volume;
use tidegate_block::{Blocks, Overlay, QueueLimits, RequestQueue, ZoneSpec};
use tidegate_rt::Timespec;
use tidegate_rt::rng::Rng;

/// The time of everything on a volume.
pub const TIME: Timespec = Timespec { secs: 1_600_000_000, nanos: 0 };

/// The bytes of an empty volume: few, so that it runs short of segments.
const EMPTY: u64 = 40 << 20;
/// The bytes of an empty F2FS volume with room for the segments of many streams, or, with every feature, for
/// sections of two segments.
const ROOMY: u64 = 96 << 20;
/// The bytes of an aged volume. On F2FS, users get a third of them.
const AGED: u64 = 64 << 20;

/// How the volumes of a format differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// The bytes of a block: the unit that a device keeps whole.
    pub block: usize,
    /// F2FS: the volume has every feature, or none.
    pub features: bool,
    /// Ext4: the arguments of mke2fs that make this shape, besides the block size.
    pub how: &'static [&'static str],
    /// Files have extents, which zeroing ranges and moving pages need.
    pub extents: bool,
    /// F2FS: the zones of the device.
    pub zones: Option<ZoneSpec>,
}

const fn shape(block: usize, features: bool) -> Shape {
    Shape { block, features, how: &[], extents: true, zones: None }
}

const OF_F2FS: &[Shape] = &[shape(4096, false), shape(4096, true)];
/// Zones of two segments, behind as many conventional ones as the metadata takes.
const fn zones(capacity: u64) -> Option<ZoneSpec> {
    Some(ZoneSpec { size: 4 << 20, capacity, conventional: 5, max_open: 8, max_active: 10 })
}

const OF_ZONED: &[Shape] = &[
    Shape { zones: zones(4 << 20), ..shape(4096, false) },
    Shape { zones: zones(3 << 20), ..shape(4096, true) },
];

const fn ext4(block: usize, how: &'static [&'static str]) -> Shape {
    Shape { how, ..shape(block, true) }
}

const CHECKSUMS: &[&str] = &["-t", "ext4", "-O", "metadata_csum,64bit"];
const NONE: &[&str] = &["-t", "ext4", "-O", "^metadata_csum,^64bit"];
const OF_EXT4: &[Shape] = &[
    ext4(1024, CHECKSUMS),
    ext4(2048, CHECKSUMS),
    ext4(4096, CHECKSUMS),
    ext4(1024, NONE),
    ext4(2048, NONE),
    ext4(4096, NONE),
    // With smaller blocks, a file of this volume could not reach the far offsets that files of the other
    // volumes have.
    Shape { extents: false, ..ext4(2048, &["-t", "ext3"]) },
    ext4(2048, &["-t", "ext4", "-O", "metadata_csum,64bit,orphan_file"]),
    ext4(4096, &["-t", "ext4", "-O", "metadata_csum,64bit,metadata_csum_seed"]),
    ext4(4096, &["-t", "ext4", "-O", "metadata_csum,64bit", "-I", "128"]),
];
/// The most shapes that a format has.
const MOST: usize = OF_EXT4.len();

/// Returns the bytes of a fresh volume of a shape and size, made by a program that is not ours.
pub type Maker = Arc<dyn Fn(Shape, u64) -> Result<Vec<u8>, String> + Send + Sync>;

/// The content of a device, shared by all runs that begin with it.
#[derive(Clone)]
pub struct Base {
    /// Blocks.
    pub blocks: Arc<Blocks>,
    /// The number of the content of each block.
    pub table: Arc<Vec<u32>>,
    /// The write pointers of the device's zones, if it has zones.
    pub zones: OnZones,
    /// The tree on the volume.
    pub model: Model,
}

/// Identifies a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kind {
    /// The number of its shape in its format.
    pub shape: usize,
    /// It is full and fragmented.
    pub aged: bool,
    /// An aged volume was unmounted, not only synced.
    pub clean: bool,
    /// An empty volume has room for many streams.
    pub roomy: bool,
}

/// All volumes of one format.
#[derive(Default)]
pub struct Bases {
    format: Format,
    maker: Option<Maker>,
    zoned: bool,
    made: [[OnceLock<Result<Base, Fault>>; 4]; MOST],
    crowds: [[OnceLock<Result<Base, Fault>>; 2]; MOST],
}

impl Bases {
    /// Volumes of ext4, made by `maker`.
    pub fn ext4(maker: Maker) -> Self {
        Bases { format: Format::Ext4, maker: Some(maker), ..Bases::default() }
    }

    /// Volumes of F2FS on zones.
    pub fn zoned() -> Self {
        Bases { zoned: true, ..Bases::default() }
    }

    /// Their format.
    pub fn format(&self) -> Format {
        self.format
    }

    /// The shapes of the volumes.
    pub fn shapes(&self) -> &'static [Shape] {
        match self.format {
            Format::F2fs if self.zoned => OF_ZONED,
            Format::F2fs => OF_F2FS,
            Format::Ext4 => OF_EXT4,
        }
    }

    /// The number of any shape.
    pub fn any_shape(&self, rng: &mut Rng) -> usize {
        match self.format {
            Format::F2fs => usize::from(!rng.one_in(4)),
            Format::Ext4 => rng.below(OF_EXT4.len() as u64) as usize,
        }
    }

    /// The shape of a volume for several threads.
    pub fn crowd_shape(&self, rng: &mut Rng) -> usize {
        match self.format {
            Format::F2fs => 1,
            Format::Ext4 => self.any_shape(rng),
        }
    }

    /// Whether a volume of a shape supports an operation. An unsupported operation would fail and end the
    /// run.
    pub fn takes(&self, shape: usize, op: &CrashOp) -> bool {
        let Shape { block, extents, .. } = self.shapes()[shape];
        match (self.format, op) {
            (Format::F2fs, CrashOp::Collapse { .. } | CrashOp::Insert { .. }) => false,
            (Format::F2fs, _) => true,
            // A symbolic link is shorter than a block, and the attributes of a file have one block.
            (_, CrashOp::Symlink { len, .. }) => usize::from(*len) < block,
            (_, CrashOp::SetXattr { len, .. }) => usize::from(*len) < block / 3,
            (_, CrashOp::Clean { .. }) => false,
            (_, CrashOp::Allocate { .. } | CrashOp::Zero { .. }) => extents,
            (_, CrashOp::Collapse { .. } | CrashOp::Insert { .. }) => extents,
            _ => true,
        }
    }

    /// The volume of a kind.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn get(&self, kind: Kind) -> Result<&Base, Fault> {
        let other = if kind.aged { kind.clean } else { kind.roomy };
        let n = kind.aged as usize | (other as usize) << 1;
        let made = self.made[kind.shape][n].get_or_init(|| match kind.aged {
            true => self.aged(kind),
            false => self.empty(if kind.roomy { ROOMY } else { EMPTY }, kind.shape),
        });
        made.as_ref().map_err(Clone::clone)
    }

    /// An empty volume of a shape for several threads at once.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn crowd(&self, shape: usize, roomy: bool) -> Result<&Base, Fault> {
        let bytes = if roomy { ROOMY } else { EMPTY };
        // An empty volume with a directory for each thread.
        let make = || used(self.empty(bytes, shape)?, true, |v| crowd::prepare(v).map(|()| Model::default()));
        self.crowds[shape][roomy as usize].get_or_init(make).as_ref().map_err(Clone::clone)
    }

    /// A fresh volume.
    fn empty(&self, bytes: u64, shape: usize) -> Result<Base, Fault> {
        let shape = self.shapes()[shape];
        // Sections of two segments leave fewer sections.
        let bytes = if shape.zones.is_some() { bytes.max(ROOMY) + (32 << 20) } else { bytes };
        let Some(maker) = &self.maker else { return f2fs(bytes, shape, bytes == ROOMY) };
        // Journaled volumes have no segments to run short of, and a larger journaled volume is only slower.
        let bytes =
            maker(shape, bytes / 2).map_err(|e| Fault::new("run", format!("making a volume: {e}")))?;
        let mut blocks = Blocks::of_size(shape.block);
        let table = bytes.chunks(shape.block).map(|b| number(&mut blocks, b)).collect();
        Ok(Base { blocks: Arc::new(blocks), table: Arc::new(table), zones: None, model: Model::default() })
    }

    /// A volume that has been changed a lot.
    fn aged(&self, kind: Kind) -> Result<Base, Fault> {
        used(self.empty(AGED, kind.shape)?, kind.clean, |volume| age::age(volume).map(Model::settled))
    }
}

/// The number under which a block's bytes are kept.
fn number(blocks: &mut Blocks, bytes: &[u8]) -> u32 {
    if bytes.iter().all(|&b| b == 0) { 0 } else { blocks.push(bytes) }
}

/// A fresh volume of F2FS.
fn f2fs(bytes: u64, shape: Shape, roomy: bool) -> Result<Base, Fault> {
    let features = shape.features;
    let device = Arc::new(Overlay::new(Arc::default(), vec![0; (bytes / 4096) as usize]));
    let empty = shape.zones.map(|spec| {
        let at = (0..bytes / spec.size).map(|n| n * spec.size).collect();
        Arc::new(Pointers { spec, at })
    });
    let zoned = Zoned::new(device.clone(), &empty);
    let queue = RequestQueue::new(zoned.device(), QueueLimits::default());
    // The model knows nothing of a directory that is there from the beginning.
    let all = new_volume::features(Format::F2fs).filter(|f| *f != "lost_found");
    let new = NewVolume {
        features: all.filter(|_| features).map(String::from).collect(),
        uuid: Some(*b"tidegate crashes"),
        time: Some(TIME),
        no_discard: true,
        segments_per_section: (features && roomy).then_some(2),
        zoned: shape.zones.is_some(),
        ..NewVolume::default()
    };
    new.make("volume", &queue).map_err(|e| Fault::new("run", format!("mkfs: {e}")))?;
    Ok(Base::of(&device, 4096, zoned.pointers(shape.zones), Model::default()))
}

/// The volume after `work`.
fn used(
    fresh: Base,
    unmount: bool,
    work: impl FnOnce(&Volume) -> tidegate_vfs::Result<Model>,
) -> Result<Base, Fault> {
    let size = fresh.blocks.block_size();
    let device = Arc::new(Overlay::new(fresh.blocks, fresh.table.to_vec()));
    let zoned = Zoned::new(device.clone(), &fresh.zones);
    let queue = Arc::new(RequestQueue::new(zoned.device(), QueueLimits::default()));
    let fail = |e: &dyn std::fmt::Display| Fault::new("run", format!("making a volume: {e}"));
    let volume = Volume::from_queue("volume", queue.clone(), &sound()).map_err(|e| fail(&e))?;
    let model = work(&volume).map_err(|e| fail(&e))?;
    if unmount {
        volume.unmount().map_err(|e| fail(&e))?;
    }
    zoned.check(&queue)?;
    Ok(Base::of(&device, size, zoned.pointers(fresh.zones.map(|z| z.spec)), model))
}

impl Base {
    fn of(device: &Overlay, size: usize, zones: OnZones, model: Model) -> Base {
        let mut blocks = Blocks::of_size(size);
        let table = (0..device.len()).map(|n| device.with_block(n, |b| number(&mut blocks, b)));
        let table = Arc::new(table.collect());
        Base { blocks: Arc::new(blocks), table, zones, model }
    }
}
