//! Volumes made by the kernel and the reference tools, cached: those of F2FS, and the list of all.
//!
//! Each is a sparse image `NAME.img` and, where a kernel could read it, a manifest `NAME.jsonl` of the tree
//! that the kernel found. Two volumes end in a power cut; then `NAME.jsonl` is the tree of the last
//! checkpoint, and `NAME.recovered.jsonl` the tree after the kernel's recovery at the next mount.

mod cache;
mod check;
mod make;
mod spec;

pub(crate) use cache::once;
pub use cache::{Golden, default_dir, ensure, ensure_in, list, make_all, sparse_copy};
pub use check::{checkpoint_flags, fsck_f2fs, is_compact};
pub(crate) use make::fill_with;
pub use spec::{SPECS, Spec, spec};
