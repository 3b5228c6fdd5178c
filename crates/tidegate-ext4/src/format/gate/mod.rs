//! The gate turns raw structures into validated ones, which no later code checks again.
//!
//! | module | holds |
//! |---|---|
//! | [`features`] | the features that can be read, the features that can be written, their names |
//! | [`superblock`] | [`Superblock`]: geometry that is consistent and fits the device |
//! | `copies` | the groups that have copies of it |
//! | [`group`] | [`GroupDesc`]: the places of a group's tables, inside the volume |

mod copies;
pub mod features;
pub mod group;
pub mod superblock;

pub use features::{READ_ONLY, SUPPORTED_INCOMPAT, name_features};
pub use group::GroupDesc;
pub use superblock::{Journal, Superblock};

use tidegate_vfs::{Error, Result};

/// A size in memory as a number of the format.
fn number(size: usize) -> u32 {
    u32::try_from(size).unwrap_or(u32::MAX)
}

/// `Corrupt` with `what` unless a rule holds. Most rules hold, so the text is made only for those that do
/// not.
pub(crate) fn rule(holds: bool, what: impl std::fmt::Display) -> Result<()> {
    if holds { Ok(()) } else { Err(Error::corrupt(what.to_string())) }
}
