//! The tar format: ustar, GNU and pax, read and written.
//!
//! It does: headers of every common writer, long names, negative and fractional times, extended attributes, ACLs and
//! SELinux labels, old GNU and pax sparse files, gzip and zstd. It does not: multi-volume archives, or names of users
//! and groups (only their numbers count).
//!
//! | module | holds |
//! |---|---|
//! | [`number`], [`pax`], [`sparse`] | numbers in headers, pax records, sparse maps |
//! | [`attributes`], [`acl`] | attributes as text, ACLs among them |
//! | [`reader`], [`header`] | reading an archive, and one header of it |
//! | [`writer`] | writing one |
//! | [`compress`] | the compression of an archive |

pub(crate) mod acl;
pub(crate) mod attributes;
pub(crate) mod compress;
pub(crate) mod header;
pub(crate) mod number;
pub(crate) mod pax;
pub(crate) mod reader;
pub(crate) mod sparse;
pub(crate) mod writer;

/// Bytes in a tar block.
pub const BLOCK: usize = 512;

/// An error about an archive's content.
pub(crate) fn invalid(what: impl Into<String>) -> std::io::Error {
    std::io::Error::new(std::io::ErrorKind::InvalidData, what.into())
}
