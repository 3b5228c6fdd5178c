//! Times, owners and extended attributes.
//!
//! Attribute values are given in the form the kernel takes, so that no
//! `setfacl` or `setcap` is needed in a guest.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use anyhow::{Context, Result};
use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, XattrFlags, lsetxattr, utimensat};

/// Sets the modification time, of a symlink itself too.
pub fn set_mtime(path: &Path, sec: i64, nsec: u32) -> Result<()> {
    let time = Timespec { tv_sec: sec, tv_nsec: nsec.into() };
    let times = Timestamps { last_access: time, last_modification: time };
    utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW)
        .with_context(|| format!("setting the time of {} to {sec}", path.display()))
}

/// Sets an extended attribute, of a symlink itself too.
pub fn set_xattr(path: &Path, name: &str, value: &[u8]) -> Result<()> {
    lsetxattr(path, OsStr::from_bytes(name.as_bytes()), value, XattrFlags::empty())
        .with_context(|| format!("setting {name} ({} bytes) of {}", value.len(), path.display()))
}

const USER_OBJ: u16 = 0x01;
const USER: u16 = 0x02;
const GROUP_OBJ: u16 = 0x04;
const GROUP: u16 = 0x08;
const MASK: u16 = 0x10;
const OTHER: u16 = 0x20;
const NO_ID: u32 = u32::MAX;

/// An access-control list with named users and groups.
pub fn acl(users: &[(u32, u16)], groups: &[(u32, u16)]) -> Vec<u8> {
    let mut out = 2u32.to_le_bytes().to_vec();
    let mut add = |tag: u16, perm: u16, id: u32| {
        out.extend_from_slice(&tag.to_le_bytes());
        out.extend_from_slice(&perm.to_le_bytes());
        out.extend_from_slice(&id.to_le_bytes());
    };
    add(USER_OBJ, 7, NO_ID);
    users.iter().for_each(|&(id, perm)| add(USER, perm, id));
    add(GROUP_OBJ, 5, NO_ID);
    groups.iter().for_each(|&(id, perm)| add(GROUP, perm, id));
    add(MASK, 7, NO_ID);
    add(OTHER, 1, NO_ID);
    out
}

/// File capabilities (revision 2, effective) with the given permitted bits.
pub fn capabilities(permitted: u64) -> Vec<u8> {
    let words = [0x0200_0001, permitted as u32, 0, (permitted >> 32) as u32, 0];
    words.iter().flat_map(|w: &u32| w.to_le_bytes()).collect()
}
