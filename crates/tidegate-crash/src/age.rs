//! Makes an aged volume: nearly full, with fragmented files, and with stale blocks everywhere.

use crate::model::Model;
use crate::ops::{CrashOp, Place, Step, Target};
use crate::run::Machine;
use tidegate::volume::Volume;
use tidegate_rt::rng::Rng;
use tidegate_vfs::Result;

/// The numbers of the objects on an aged volume start here: above the numbers of any run.
pub const FIRST_SERIAL: u32 = 1 << 20;

/// The sizes in MiB of large files that are written in one go.
const SOLID: [u64; 3] = [4, 2, 2];
/// How full the volume gets, in percent.
const FULL: u64 = 85;
/// How many changes are made once the volume is full.
const CHANGES: u64 = 250;

struct Life {
    machine: Machine,
    serial: u32,
    rng: Rng,
}

/// Ages a fresh volume; returns its tree afterwards, all of it synced.
pub(super) fn age(volume: &Volume) -> Result<Model> {
    let machine = Machine::new(volume, Model::default());
    let mut life = Life { machine, serial: FIRST_SERIAL, rng: Rng::new(7) };
    life.act(CrashOp::Mkdir { at: Place::OLD })?;
    for at in Place::FILLERS.map(Place) {
        life.act(CrashOp::Create { at })?;
    }
    for (at, mib) in Place::FILLERS.map(Place).zip(SOLID) {
        for n in 0..mib {
            life.write(at, n << 20, 1 << 20)?;
        }
    }
    life.act(CrashOp::Sync)?;
    life.fill()?;
    for n in 0..CHANGES {
        life.change()?;
        if n % 16 == 0 {
            life.fill()?;
        }
    }
    life.fill()?;
    life.act(CrashOp::Sync)?;
    Ok(life.machine.model)
}

impl Life {
    fn act(&mut self, op: CrashOp) -> Result<()> {
        let step = Step { serial: self.serial, op };
        self.serial += 1;
        self.machine.step(&step)
    }

    /// Writes a piece and writes it back to the device.
    fn write(&mut self, at: Place, pos: u64, len: u32) -> Result<()> {
        let file = Target::At(at);
        self.act(CrashOp::Write { file, pos, len })?;
        self.act(CrashOp::Writeback { file })
    }

    fn any(&mut self) -> Place {
        let small = Place::FILLERS.start as u64 + SOLID.len() as u64;
        Place((small + self.rng.below(Place::FILLERS.end as u64 - small)) as u8)
    }

    fn size(&self, at: Place) -> u64 {
        let model = &self.machine.model;
        model.file(Target::At(at)).map_or(0, |id| *model.objects[&id].size.now())
    }

    /// Lets files grow in turns, so that each segment holds pieces of many files.
    fn fill(&mut self) -> Result<()> {
        loop {
            let s = self.machine.vfs.statfs();
            if s.blocks_free * 100 <= s.blocks * (100 - FULL) {
                return Ok(());
            }
            let (at, len) = (self.any(), 4096 * (1 + self.rng.below(12)));
            self.write(at, self.size(at).next_multiple_of(4096), len as u32)?;
        }
    }

    fn change(&mut self) -> Result<()> {
        let at = self.any();
        let (file, size) = (Target::At(at), self.size(at));
        match self.rng.below(12) {
            0 => {
                self.act(CrashOp::Unlink { at })?;
                self.act(CrashOp::Create { at })
            }
            1 => self.act(CrashOp::Truncate { file, size: size / 2 }),
            2 => self.act(CrashOp::Punch { file, pos: size / 3, len: size / 4 + 1 }),
            3 => self.act(CrashOp::Fsync { file }),
            4 => self.act(CrashOp::Sync),
            _ => {
                let pos = self.rng.below(size / 4096 + 1) * 4096;
                self.write(at, pos, 4096 * (1 + self.rng.clone().below(6)) as u32)
            }
        }
    }
}
