//! Features: the features that can be read, the features that can be changed, the names of all.

use crate::format::raw::*;
use tidegate_vfs::{Error, ErrorKind, Result};

/// Features that Tidegate reads and writes in full.
pub const SUPPORTED: Features = Features::EXTRA_ATTR
    .union(Features::INODE_CHKSUM)
    .union(Features::FLEXIBLE_INLINE_XATTR)
    .union(Features::INODE_CRTIME)
    .union(Features::SB_CHKSUM)
    .union(Features::BLKZONED)
    .union(Features::LOST_FOUND);

/// Features whose volumes can be read faithfully but not changed. A file that cannot be read is refused by
/// itself.
pub const READABLE: Features = Features::ENCRYPT
    .union(Features::ATOMIC_WRITE)
    .union(Features::PRJQUOTA)
    .union(Features::QUOTA_INO)
    .union(Features::VERITY)
    .union(Features::COMPRESSION)
    .union(Features::CASEFOLD)
    .union(Features::RO);

/// The mkfs names of features, with their bits.
pub fn name_features(f: Features) -> String {
    let names: Vec<String> =
        f.iter_names().map(|(n, v)| format!("\"{}\" ({:#x})", feature_name(n), v.bits())).collect();
    names.join(", ")
}

/// The name that mkfs gives a feature constant.
pub fn feature_name(constant: &str) -> String {
    match constant {
        "PRJQUOTA" => "project_quota".into(),
        "INODE_CHKSUM" => "inode_checksum".into(),
        "SB_CHKSUM" => "sb_checksum".into(),
        "QUOTA_INO" => "quota".into(),
        n => n.to_lowercase(),
    }
}

/// Refuses features that Tidegate does not know; the error names them.
pub(super) fn check_features(f: Features) -> Result<()> {
    let unknown = f - SUPPORTED - READABLE;
    if unknown.is_empty() {
        return Ok(());
    }
    let known = unknown & Features::all();
    let rest = unknown - Features::all();
    let mut names = name_features(known);
    if !rest.is_empty() {
        names += &format!("{}{:#x}", if names.is_empty() { "" } else { ", " }, rest.bits());
    }
    Err(Error::new(ErrorKind::Unsupported, format!("f2fs feature {names}")))
}
