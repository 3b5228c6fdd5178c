//! Volumes as a whole, without the engine: made, checked, repaired.
//!
//! They own no lock. A check shares [`crate::format`] with the engine and next to nothing else: one that used the
//! engine's code would find the engine's mistakes right. A repair has the engine roll forward what was fsynced.

pub mod check;
pub mod mkfs;
pub mod repair;
