//! The gate from raw bytes to validated values: superblock and checkpoint. Values that pass here are not
//! checked again, so every bound that later code relies on is established here.
//!
//! | module | holds |
//! |---|---|
//! | `features` | which features can be read and changed |
//! | `superblock` | the superblock and its rules |
//! | `checkpoint` | a checkpoint and its rules |
//! | `pack` | reading the two packs, choosing one |

mod checkpoint;
mod features;
mod pack;
mod superblock;

pub use checkpoint::{Checkpoint, NodeStamp};
pub use features::{READABLE, SUPPORTED, feature_name, name_features};
pub use pack::BadPack;
pub use superblock::Superblock;

use tidegate_vfs::{Error, Result};

fn rule(holds: bool, what: impl Into<std::borrow::Cow<'static, str>>) -> Result<()> {
    if holds { Ok(()) } else { Err(Error::corrupt(what)) }
}

/// A number of the format as a size in memory.
fn size(n: u32) -> usize {
    usize::try_from(n).unwrap_or(usize::MAX)
}

/// A size in memory as a size on the volume, which may be larger.
fn wide(n: usize) -> u64 {
    u64::try_from(n).unwrap_or(u64::MAX)
}
