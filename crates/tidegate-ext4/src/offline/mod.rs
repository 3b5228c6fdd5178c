//! Work on a volume that is not in use.
//!
//! This folder owns no lock. Caller: the facade.
//!
//! | module | holds |
//! |---|---|
//! | [`check`](mod@check) | comparing a volume with named rules, without changing it |
//! | [`repair`](mod@repair) | correcting the faults that the check finds |
//! | [`mkfs`](mod@mkfs) | making an empty one, as mke2fs does |
//! | `bits`, `device`, `node`, `xattr` | what check and repair share: bitmaps, reading through the journal, inodes as bytes, attributes |

mod bits;
pub mod check;
mod device;
pub mod mkfs;
mod node;
pub mod repair;
mod xattr;
