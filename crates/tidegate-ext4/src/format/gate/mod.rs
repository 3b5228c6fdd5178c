//! Where raw structures become validated ones: nothing past it checks again.
//!
//! | module | holds |
//! |---|---|
//! | [`features`] | which features are read, which could be written, their names |
//! | [`superblock`] | [`Superblock`]: geometry that holds together and fits the device |
//! | `copies` | which groups have copies of it |
//! | [`group`] | [`GroupDesc`]: where a group's tables are, inside the volume |

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

/// `Corrupt` with `what` unless a rule holds. Most hold: text is made for those that don't.
pub(crate) fn rule(holds: bool, what: impl std::fmt::Display) -> Result<()> {
    if holds { Ok(()) } else { Err(Error::corrupt(what.to_string())) }
}
