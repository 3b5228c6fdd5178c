//! The volumes that runs begin with. They are the same each time; each is made when it is first asked for.

use crate::model::Model;
use crate::{Fault, age, crowd, sound};
use std::sync::{Arc, OnceLock};
use tidegate::detect::Format;
use tidegate::new_volume::{self, NewVolume};
use tidegate::volume::Volume;
use tidegate_block::{Blocks, Device, Overlay, QueueLimits, RequestQueue};
use tidegate_rt::Timespec;

/// The time of everything.
pub const TIME: Timespec = Timespec { secs: 1_600_000_000, nanos: 0 };

/// Bytes of empty volumes: small, so that segments run short.
const EMPTY: u64 = 40 << 20;
/// Bytes of aged ones. Users get a third of it.
const AGED: u64 = 64 << 20;

/// The content of a device, shared by all that begin with it.
#[derive(Clone)]
pub struct Base {
    /// Blocks.
    pub blocks: Arc<Blocks>,
    /// Which block stands where.
    pub table: Arc<Vec<u32>>,
    /// What is on it.
    pub model: Model,
}

/// Which volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kind {
    /// With every feature, or with none.
    pub features: bool,
    /// Full and fragmented.
    pub aged: bool,
    /// Unmounted, where it is aged; else only synced.
    pub clean: bool,
}

/// All of them.
#[derive(Default)]
pub struct Bases {
    made: [OnceLock<Result<Base, Fault>>; 8],
    crowd: OnceLock<Result<Base, Fault>>,
}

impl Bases {
    /// The volume of a kind.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn get(&self, kind: Kind) -> Result<&Base, Fault> {
        let n = kind.features as usize | (kind.aged as usize) << 1 | (kind.clean as usize) << 2;
        let made =
            self.made[n].get_or_init(|| if kind.aged { aged(kind) } else { empty(EMPTY, kind.features) });
        made.as_ref().map_err(Clone::clone)
    }

    /// An empty volume for several threads at once.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn crowd(&self) -> Result<&Base, Fault> {
        self.crowd.get_or_init(crowd).as_ref().map_err(Clone::clone)
    }
}

/// A fresh volume.
fn empty(bytes: u64, features: bool) -> Result<Base, Fault> {
    let device = Arc::new(Overlay::new(Arc::default(), vec![0; (bytes / 4096) as usize]));
    let queue = RequestQueue::new(device.clone(), QueueLimits::default());
    // A directory that is there from the beginning is nothing the model knows of.
    let all = new_volume::features(Format::F2fs).filter(|f| *f != "lost_found");
    let new = NewVolume {
        features: all.filter(|_| features).map(String::from).collect(),
        uuid: Some(*b"tidegate crashes"),
        time: Some(TIME),
        no_discard: true,
        ..NewVolume::default()
    };
    new.make("volume", &queue).map_err(|e| Fault::new("run", format!("mkfs: {e}")))?;
    Ok(Base::of(&device, Model::default()))
}

/// A volume that saw a lot.
fn aged(kind: Kind) -> Result<Base, Fault> {
    used(empty(AGED, kind.features)?, kind.clean, |volume| age::age(volume).map(Model::settled))
}

/// One with a directory for each thread.
fn crowd() -> Result<Base, Fault> {
    used(empty(EMPTY, true)?, true, |volume| crowd::prepare(volume).map(|()| Model::default()))
}

/// What `work` makes of a volume.
fn used(
    fresh: Base,
    unmount: bool,
    work: impl FnOnce(&Volume) -> tidegate_vfs::Result<Model>,
) -> Result<Base, Fault> {
    let device = Arc::new(Overlay::new(fresh.blocks, fresh.table.to_vec()));
    let queue = Arc::new(RequestQueue::new(device.clone() as Arc<dyn Device>, QueueLimits::default()));
    let fail = |e: &dyn std::fmt::Display| Fault::new("run", format!("making a volume: {e}"));
    let volume = Volume::from_queue("volume", queue, &sound()).map_err(|e| fail(&e))?;
    let model = work(&volume).map_err(|e| fail(&e))?;
    if unmount {
        volume.unmount().map_err(|e| fail(&e))?;
    }
    Ok(Base::of(&device, model))
}

impl Base {
    fn of(device: &Overlay, model: Model) -> Base {
        let mut blocks = Blocks::default();
        let table = (0..device.len())
            .map(|n| device.with_block(n, |b| if b.iter().all(|&b| b == 0) { 0 } else { blocks.push(b) }));
        let table = Arc::new(table.collect());
        Base { blocks: Arc::new(blocks), table, model }
    }
}
