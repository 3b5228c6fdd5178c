//! Volumes made by the kernel and the reference tools, cached.
//!
//! Each is a sparse image `NAME.img` and, where a kernel could read it, a
//! manifest `NAME.jsonl` of what that kernel found in it. Two of them are cut
//! off by a power loss; `NAME.jsonl` is then what its last checkpoint holds
//! and `NAME.recovered.jsonl` what the kernel makes of it on the next mount.

mod cache;
mod check;
mod make;
mod spec;

pub(crate) use cache::once;
pub use cache::{Golden, default_dir, ensure, ensure_in, make_all, sparse_copy};
pub use check::{checkpoint_flags, fsck_f2fs, is_compact};
pub use spec::{SPECS, Spec, spec};
