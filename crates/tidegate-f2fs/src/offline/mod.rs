//! Volumes as a whole, without the engine: made, checked, repaired.
//!
//! No lock is owned. Caller: the facade. A check shares [`crate::format`] with the engine and next to nothing
//! else: one that used the engine's code would find the engine's mistakes right. A repair has the engine roll
//! forward what was fsynced.
//!
//! | module | holds |
//! |---|---|
//! | [`mkfs`], [`check`], [`repair`] | making, checking, repairing |
//! | `areas` | the layout of an inode block, for check and repair |
//! | `bits` | a bitmap that takes memory where bits are set, for the same |

mod areas;
mod bits;
pub mod check;
pub mod mkfs;
pub mod repair;
