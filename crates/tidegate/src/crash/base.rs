//! The empty volume that runs begin with.

use super::Fault;
use std::sync::Arc;
use tidegate_block::{Blocks, Device, MemoryDevice, QueueLimits, RequestQueue};
use tidegate_f2fs::mkfs::{MkfsOptions, SUPPORTED_FEATURES, mkfs};
use tidegate_f2fs::raw::Features;
use tidegate_rt::Timespec;

/// The time of everything.
pub const TIME: Timespec = Timespec { secs: 1_600_000_000, nanos: 0 };

/// The content of a device, shared by all that begin with it.
pub struct Base {
    /// Blocks.
    pub blocks: Arc<Blocks>,
    /// Which block stands where.
    pub table: Arc<Vec<u32>>,
}

impl Base {
    /// A fresh volume of `bytes` bytes, with every feature or with none.
    ///
    /// # Errors
    /// Those of mkfs.
    pub fn new(bytes: u64, features: bool) -> Result<Base, Fault> {
        let device = Arc::new(MemoryDevice::new(bytes));
        let queue = RequestQueue::new(device.clone(), QueueLimits::default());
        let features = if features { SUPPORTED_FEATURES - Features::LOST_FOUND } else { Features::empty() };
        let options = MkfsOptions {
            features,
            uuid: Some(*b"tidegate crashes"),
            time: TIME,
            discard: false,
            ..Default::default()
        };
        mkfs(&queue, &options).map_err(|e| Fault::new("run", format!("mkfs: {e}")))?;
        let mut blocks = Blocks::default();
        let mut block = vec![0; 4096];
        let table = (0..device.size() / 4096).map(|n| {
            device.read_at(n * 4096, &mut block);
            if block.iter().all(|&b| b == 0) { 0 } else { blocks.push(&block) }
        });
        let table = Arc::new(table.collect());
        Ok(Base { blocks: Arc::new(blocks), table })
    }
}
