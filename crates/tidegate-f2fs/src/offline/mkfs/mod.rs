//! Makes an empty volume, with the geometry that `mkfs.f2fs` 1.15 gives it.
//!
//! This module chooses the geometry for a size, and writes the metadata areas, the root directory and, if
//! asked, lost+found. It puts no files on the volume, and makes no features that [`SUPPORTED_FEATURES`]
//! leaves out.
//!
//! A volume is valid only when its superblock is there. So the old superblocks are removed first, everything
//! else is made durable, and the new superblocks are written last: an interrupted attempt leaves no volume.
//!
//! | module | holds |
//! |---|---|
//! | `options` | [`MkfsOptions`] and its checks |
//! | `error` | [`MkfsError`] |
//! | `layout` | [`Layout`]: where the areas lie |
//! | `overprovision` | how much is kept back for cleaning |
//! | `superblock`, `checkpoint`, `tables`, `tree` | what is written |
//! | `writer` | how it is written |
//! | `zones` | what a zoned device asks for |

mod checkpoint;
mod error;
mod layout;
mod options;
mod overprovision;
mod superblock;
mod tables;
mod tree;
mod writer;
mod zones;

#[cfg(test)]
mod oracle;
#[cfg(test)]
mod tests;

pub use error::MkfsError;
pub use layout::{Layout, layout};
pub use options::{COLD_EXTENSIONS, DevicePart, HOT_EXTENSIONS, MkfsOptions, SUPPORTED_FEATURES};

use crate::format::raw::{BLOCK_SIZE, BLOCKS_PER_SEG};
use crate::format::units::BlockAddr;
use checkpoint::FirstCheckpoint;
use tidegate_block::RequestQueue;
use tidegate_rt::clock;
use tree::NewDir;
use writer::Writer;

/// The new volume in figures.
#[derive(Clone, Debug, PartialEq)]
pub struct MkfsReport {
    /// Identity of the volume, given or drawn.
    pub uuid: [u8; 16],
    /// The geometry of the volume: blocks, segments, the users' share and the part that is kept back.
    pub layout: Layout,
    /// Version of the first checkpoint.
    pub checkpoint_version: u64,
}

/// Where the two superblocks lie.
const SUPERBLOCKS: [BlockAddr; 2] = [BlockAddr(0), BlockAddr(1)];

/// Makes an empty volume on the whole of `queue`'s device. The device's old content is lost.
///
/// Equal options with a UUID make equal volumes, the first checkpoint's version included. Node blocks of an
/// earlier volume with that UUID could then pass for new ones after a power cut; if such a volume is found,
/// the main area is zeroed too.
///
/// # Errors
/// An option or size that makes no volume: nothing was written. A device error: the device holds no volume.
pub fn mkfs(queue: &RequestQueue, options: &MkfsOptions) -> Result<MkfsReport, MkfsError> {
    let device = queue.device();
    let (options, zones) = zones::on_device(&**device, options)?;
    let options = &options;
    let layout = layout::layout_on(device.size(), options, zones.as_ref().map(|z| &z.of_layout))?;
    if device.read_only() {
        return Err(MkfsError::ReadOnly(device.name().into()));
    }
    let uuid = options.uuid.unwrap_or_else(random_uuid);
    let version = first_version(&uuid, options);
    let writer = Writer(queue);
    clear(&writer, &layout, options, &uuid, zones.as_ref())?;
    fill(&writer, &layout, options, &uuid, version)?;
    writer.flush()?;
    for at in SUPERBLOCKS {
        writer.write(at, superblock::superblock(&layout, options, &uuid))?;
    }
    writer.flush()?;
    Ok(MkfsReport { uuid, layout, checkpoint_version: version })
}

/// Removes the old volume, and leaves zeros where the new volume reads before it writes.
fn clear(
    w: &Writer,
    l: &Layout,
    options: &MkfsOptions,
    uuid: &[u8; 16],
    zones: Option<&zones::OnDevice>,
) -> Result<(), MkfsError> {
    let mut was_here = false;
    for at in SUPERBLOCKS {
        was_here |= superblock::has_uuid(&w.read(at)?, uuid);
    }
    for at in SUPERBLOCKS {
        w.write(at, superblock::placeholder(uuid))?;
    }
    w.flush()?;
    let behind = BlockAddr(SUPERBLOCKS.len() as u32);
    if options.discard && zones.is_none() {
        w.discard(behind, l.block_count - behind.0 as u64)?;
    }
    clear_fronts(w, options, zones)?;
    // Blocks up to the SSA are zeroed: a summary in the SSA is written before it is read.
    w.zero(behind, (l.ssa.0 - behind.0) as u64)?;
    if let Some(zones) = zones {
        zones.list.iter().filter(|z| z.is_sequential()).try_for_each(|z| w.reset(z))?;
    } else if was_here {
        w.zero(l.main, l.segment_count_main as u64 * BLOCKS_PER_SEG as u64)?;
    }
    Ok(())
}

/// Removes the traces of an earlier volume from the front of each device behind the first. Zones that are
/// written in order are reset.
fn clear_fronts(w: &Writer, options: &MkfsOptions, zones: Option<&zones::OnDevice>) -> Result<(), MkfsError> {
    let mut start = 0;
    for device in &options.devices {
        let block = BlockAddr((start / BLOCK_SIZE as u64) as u32);
        if start > 0 && zones.is_none_or(|z| u64::from(block.0) < z.of_layout.first) {
            w.zero(block, u64::from(BLOCKS_PER_SEG))?;
        }
        start += device.bytes;
    }
    Ok(())
}

/// Writes everything but the superblocks.
fn fill(
    w: &Writer,
    layout: &Layout,
    options: &MkfsOptions,
    uuid: &[u8; 16],
    version: u64,
) -> Result<(), MkfsError> {
    let dirs: Vec<NewDir> = tree::new_dirs(layout, options);
    for dir in &dirs {
        w.write(dir.data, dir.dentry_block(&dirs))?;
        w.write(dir.node, dir.node_block(dir.subdirs(&dirs), options, uuid))?;
    }
    w.write(layout.nat, tables::nat_block(&dirs))?;
    let first = FirstCheckpoint { layout, dirs: &dirs, options, version };
    first.blocks().into_iter().try_for_each(|(at, block)| w.write(at, block))
}

/// A version-4 UUID.
fn random_uuid() -> [u8; 16] {
    let mut uuid = [0; 16];
    uuid[..8].copy_from_slice(&clock::entropy().to_le_bytes());
    uuid[8..].copy_from_slice(&clock::entropy().to_le_bytes());
    uuid[6] = uuid[6] & 0x0f | 0x40;
    uuid[8] = uuid[8] & 0x3f | 0x80;
    uuid
}

/// The first checkpoint's version: 31 bits of a hash (FNV-1a) of the UUID and the time. It is odd and large,
/// so that two volumes made on one device, one after the other, hardly share a version.
fn first_version(uuid: &[u8; 16], options: &MkfsOptions) -> u64 {
    let time = options.time.secs.to_le_bytes().into_iter().chain(options.time.nanos.to_le_bytes());
    let hash = uuid
        .iter()
        .copied()
        .chain(time)
        .fold(0xcbf2_9ce4_8422_2325_u64, |h, byte| (h ^ byte as u64).wrapping_mul(0x0000_0100_0000_01b3));
    hash >> 34 | 0x4000_0001
}
