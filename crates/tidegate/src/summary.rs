//! The cost of an operation.

use serde::Serialize;
use tidegate_block::QueueStats;
use tidegate_rt::{Nanos, clock};
use tidegate_vfs::VolumeStats;

/// Time spent in one part of an operation.
#[derive(Clone, Debug, Serialize)]
pub struct Phase {
    /// The part.
    pub name: &'static str,
    /// How long, in seconds.
    pub seconds: f64,
}

/// The bytes moved, the I/O for that, and the time of each step.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Summary {
    /// Files, links and special files.
    pub files: u64,
    /// Directories.
    pub dirs: u64,
    /// Bytes of content, holes not counted.
    pub bytes: u64,
    /// Size of the image, in bytes.
    pub image_bytes: u64,
    /// Bios written.
    pub bios: u64,
    /// Bytes in them.
    pub bio_bytes: u64,
    /// Their mean size in bytes.
    pub mean_bio_bytes: u64,
    /// Requests that reached the device, after merging.
    pub requests: u64,
    /// Bios read.
    pub read_bios: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Blocks of file data and directories written.
    pub data_blocks: u64,
    /// Blocks written of inodes, and of blocks that lead from them to data.
    pub metadata_blocks: u64,
    /// Blocks written for commits. F2FS: of checkpoints and of the metadata area.
    pub log_blocks: u64,
    /// Commits. F2FS: checkpoints.
    pub commits: u64,
    /// Time in each part.
    pub phases: Vec<Phase>,
    /// Time in all, in seconds.
    pub seconds: f64,
}

impl Summary {
    /// The I/O part.
    pub fn of(queue: &QueueStats, fs: &VolumeStats) -> Self {
        Summary {
            bios: queue.write_bios,
            bio_bytes: queue.write_bytes,
            mean_bio_bytes: queue.write_bytes.checked_div(queue.write_bios).unwrap_or(0),
            requests: queue.write_requests,
            read_bios: queue.read_bios,
            read_bytes: queue.read_bytes,
            data_blocks: fs.data.blocks,
            metadata_blocks: fs.metadata.blocks,
            log_blocks: fs.log.blocks,
            commits: fs.commits,
            ..Default::default()
        }
    }

    /// Notes that the part `name` lasted from `start` until now. Returns the time.
    pub fn phase(&mut self, name: &'static str, start: Nanos) {
        self.phases.push(Phase { name, seconds: since(start) });
    }

    /// Notes that the whole operation lasted from `start` until now.
    pub fn total(&mut self, start: Nanos) {
        self.seconds = since(start);
    }
}

fn since(start: Nanos) -> f64 {
    clock::now().since(start).duration().as_secs_f64()
}
