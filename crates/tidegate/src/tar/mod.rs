//! The tar format: ustar, GNU and pax, read and written.
//!
//! It does: headers of every common writer, long names, negative and fractional times, extended
//! attributes and ACLs, old GNU and pax sparse files, gzip and zstd. It does not: multi-volume archives,
//! or names of users and groups (numbers count).
//!
//! | module | holds |
//! |---|---|
//! | [`number`], [`pax`], [`sparse`], [`acl`] | numbers in headers, pax records, sparse maps, ACLs as text |
//! | [`reader`], [`header`] | reading an archive, and one header of it |
//! | [`writer`] | writing one |
//! | [`compress`] | what an archive is compressed with |

pub mod acl;
pub mod compress;
pub mod header;
pub mod number;
pub mod pax;
pub mod reader;
pub mod sparse;
pub mod writer;

/// Bytes in a tar block.
pub const BLOCK: usize = 512;

/// An error about what an archive holds.
pub(crate) fn invalid(what: impl Into<String>) -> std::io::Error {
    std::io::Error::new(std::io::ErrorKind::InvalidData, what.into())
}
