//! A comparable description of every name, attribute and byte of a tree.
//!
//! Two implementations agree on a volume when their manifests are equal. The
//! form is JSON lines sorted by path, so that manifests also compare by eye.

mod compare;
mod entry;
mod escape;
mod hash;
mod walk;

pub use compare::{Options, compare};
pub use entry::{Builder, Entry, Kind, Manifest, Time};
pub use escape::{escape, hex, unescape};
pub use hash::{BLOCK, ContentHash, hash_file};
pub use walk::walk;
