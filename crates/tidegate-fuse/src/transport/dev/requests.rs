//! A span for each request, from its arrival to its answer, named after its operation.

use super::opcode::*;
use super::wire::Head;
use tidegate_rt::trace::{Span, SpanPoint};

/// The kernel's numbers of the node and of the request.
const KEYS: [&str; 2] = ["node", "unique"];
/// More than the number of any operation.
const MOST: usize = 64;

const NAMES: &[(u32, &str)] = &[
    (LOOKUP, "fuse_lookup"),
    (FORGET, "fuse_forget"),
    (GETATTR, "fuse_getattr"),
    (SETATTR, "fuse_setattr"),
    (READLINK, "fuse_readlink"),
    (SYMLINK, "fuse_symlink"),
    (MKNOD, "fuse_mknod"),
    (MKDIR, "fuse_mkdir"),
    (UNLINK, "fuse_unlink"),
    (RMDIR, "fuse_rmdir"),
    (RENAME, "fuse_rename"),
    (LINK, "fuse_link"),
    (OPEN, "fuse_open"),
    (READ, "fuse_read"),
    (WRITE, "fuse_write"),
    (STATFS, "fuse_statfs"),
    (RELEASE, "fuse_release"),
    (FSYNC, "fuse_fsync"),
    (SETXATTR, "fuse_setxattr"),
    (GETXATTR, "fuse_getxattr"),
    (LISTXATTR, "fuse_listxattr"),
    (REMOVEXATTR, "fuse_removexattr"),
    (FLUSH, "fuse_flush"),
    (READDIR, "fuse_readdir"),
    (FSYNCDIR, "fuse_fsyncdir"),
    (CREATE, "fuse_create"),
    (INTERRUPT, "fuse_interrupt"),
    (DESTROY, "fuse_destroy"),
    (IOCTL, "fuse_ioctl"),
    (BATCH_FORGET, "fuse_batch_forget"),
    (FALLOCATE, "fuse_fallocate"),
    (READDIRPLUS, "fuse_readdirplus"),
    (RENAME2, "fuse_rename2"),
    (LSEEK, "fuse_lseek"),
    (COPY_FILE_RANGE, "fuse_copy_file_range"),
    (SYNCFS, "fuse_syncfs"),
    (TMPFILE, "fuse_tmpfile"),
    (STATX, "fuse_statx"),
];

static REQUESTS: [SpanPoint<2>; MOST] = {
    let mut all = [const { SpanPoint::new("fuse_request", KEYS) }; MOST];
    let mut i = 0;
    while i < NAMES.len() {
        all[NAMES[i].0 as usize] = SpanPoint::new(NAMES[i].1, KEYS);
        i += 1;
    }
    all
};

/// Begins the span of a request.
#[inline]
pub(super) fn begin(h: &Head) -> Span {
    // An unknown request gets the name of number 0, which no operation has.
    let number = if (h.opcode as usize) < MOST { h.opcode as usize } else { 0 };
    REQUESTS[number].enter([h.node, h.unique])
}
