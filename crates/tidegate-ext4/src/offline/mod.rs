//! What is done with a volume that nobody uses.
//!
//! | module | holds |
//! |---|---|
//! | [`check`](mod@check) | holding a volume against named rules, without changing it |

pub mod check;
pub mod mkfs;
