//! The volume in memory: what every other module works on.
//!
//! It owns no lock.
//!
//! | module | holds |
//! |---|---|
//! | [`sbi`] | [`Ext4`](sbi::Ext4) |
//! | [`open`] | opening a volume |
//! | [`options`] | how to open it |
//! | [`info`] | what it tells of itself |
//! | `blocks` | its blocks, through the page cache |
//! | `overlay` | what its journal holds |

pub(crate) mod blocks;
pub mod info;
pub mod open;
pub mod options;
pub(crate) mod overlay;
pub mod sbi;
