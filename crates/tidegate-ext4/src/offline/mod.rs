//! What is done with a volume that nobody uses.
//!
//! | module | holds |
//! |---|---|
//! | [`check`](mod@check) | holding a volume against named rules, without changing it |
//! | [`mkfs`](mod@mkfs) | making an empty one, as mke2fs does |

pub mod check;
pub mod mkfs;
