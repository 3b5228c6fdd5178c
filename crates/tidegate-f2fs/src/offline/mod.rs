//! Volumes as a whole, without the engine: mkfs, check, repair.
//!
//! This folder owns no lock. Caller: the facade. A check shares [`crate::format`] with the engine and next to
//! nothing else: a check that used the engine's code would repeat the engine's mistakes. A repair lets the
//! engine roll forward what was fsynced.
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
