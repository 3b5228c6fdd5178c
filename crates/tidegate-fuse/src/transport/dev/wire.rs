//! The kernel's messages: consecutive numbers in the machine's byte order.

use crate::server::Entry;
use rustix::io::Errno;
use std::time::Duration;
use tidegate::Timespec;
use tidegate::vfs::DeviceNumber;

/// The flag in the answer to an open that keeps cached pages.
const KEEP_CACHE: u32 = 1 << 1;
/// Bytes of the head of a request.
pub const IN_HEADER: usize = 40;
/// Bytes of the head of an answer.
pub const OUT_HEADER: usize = 16;
/// Bytes of `struct fuse_entry_out`.
pub const ENTRY: usize = 128;
/// Bytes of a write request before its data, the head included.
pub const WRITE_HEAD: usize = IN_HEADER + 40;

/// Takes a request apart. Each method fails with `EINVAL` where the request is too short.
pub struct Reader<'a>(pub &'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, n: usize) -> Result<&'a [u8], Errno> {
        let (a, b) = self.0.split_at_checked(n).ok_or(Errno::INVAL)?;
        self.0 = b;
        Ok(a)
    }

    /// A number.
    pub fn u32(&mut self) -> Result<u32, Errno> {
        self.take(4).map(|b| u32::from_ne_bytes(b.try_into().unwrap_or_default()))
    }

    /// A number of 64 bits.
    pub fn u64(&mut self) -> Result<u64, Errno> {
        self.take(8).map(|b| u64::from_ne_bytes(b.try_into().unwrap_or_default()))
    }

    /// Skips so many bytes.
    pub fn skip(&mut self, n: usize) -> Result<(), Errno> {
        self.take(n).map(drop)
    }

    /// Size, flags, and flags of the protocol of a SETXATTR. Kernels before 5.13 do not send the last: there the name
    /// is next, and no name begins with a byte as low as the first of those flags.
    pub fn setxattr_in(&mut self) -> Result<(u32, u32, u32), Errno> {
        let (size, flags) = (self.u32()?, self.u32()?);
        let is_short = self.0.first().is_some_and(|b| *b >= b' ');
        let more = if is_short { 0 } else { (self.u32()?, self.u32()?).0 };
        Ok((size, flags, more))
    }

    /// A name, without the zero that ends it.
    pub fn name(&mut self) -> Result<&'a [u8], Errno> {
        let end = self.0.iter().position(|b| *b == 0).ok_or(Errno::INVAL)?;
        let name = self.take(end)?;
        self.skip(1)?;
        Ok(name)
    }

    /// So many bytes.
    pub fn bytes(&mut self, n: usize) -> Result<&'a [u8], Errno> {
        self.take(n)
    }
}

/// Puts an answer together.
#[derive(Default)]
pub struct Writer(pub Vec<u8>);

/// The seconds for which the kernel may keep attributes.
fn attr_ttl(x: &Entry, ttl: Duration) -> u64 {
    if x.is_filling { 1 } else { ttl.as_secs() }
}

impl Writer {
    /// A number of 16 bits.
    pub fn u16(&mut self, v: u16) {
        self.0.extend_from_slice(&v.to_ne_bytes());
    }

    /// A number.
    pub fn u32(&mut self, v: u32) {
        self.0.extend_from_slice(&v.to_ne_bytes());
    }

    /// A number of 64 bits.
    pub fn u64(&mut self, v: u64) {
        self.0.extend_from_slice(&v.to_ne_bytes());
    }

    /// So many bytes of zeros.
    pub fn zeros(&mut self, n: usize) {
        self.0.resize(self.0.len() + n, 0);
    }

    /// `struct fuse_attr`.
    pub fn attr(&mut self, x: &Entry) {
        let a = &x.attr;
        for v in [x.ino, a.size, a.blocks, a.atime.secs as u64, a.mtime.secs as u64, a.ctime.secs as u64] {
            self.u64(v);
        }
        let mode = a.file_type.mode_bits() | a.mode;
        let nanos = [a.atime.nanos, a.mtime.nanos, a.ctime.nanos];
        for v in nanos.into_iter().chain([mode, a.nlink, a.uid, a.gid, encode_dev(a.rdev), 4096, 0]) {
            self.u32(v);
        }
    }

    /// `struct fuse_entry_out`.
    pub fn entry(&mut self, x: &Entry, ttl: Duration) {
        for v in [x.node, x.attr.generation as u64, ttl.as_secs(), attr_ttl(x, ttl), 0] {
            self.u64(v);
        }
        self.attr(x);
    }

    /// `struct fuse_open_out` of the handle `fh`.
    pub fn opened(&mut self, fh: u64) {
        self.u64(fh);
        self.u32(KEEP_CACHE);
        self.u32(0);
    }

    /// `struct fuse_attr_out`.
    pub fn attr_out(&mut self, x: &Entry, ttl: Duration) {
        self.u64(attr_ttl(x, ttl));
        self.u64(0);
        self.attr(x);
    }

    /// `struct fuse_statx_out`, with the time of birth.
    pub fn statx(&mut self, x: &Entry, ttl: Duration) {
        const BASIC: u32 = 0x7ff;
        const BTIME: u32 = 0x800;
        let a = &x.attr;
        self.u64(attr_ttl(x, ttl));
        self.zeros(24);
        self.u32(if a.crtime.is_some() { BASIC | BTIME } else { BASIC });
        self.u32(4096);
        self.u64(0);
        for v in [a.nlink, a.uid, a.gid] {
            self.u32(v);
        }
        self.u16((a.file_type.mode_bits() | a.mode) as u16);
        self.u16(0);
        for v in [x.ino, a.size, a.blocks, 0] {
            self.u64(v);
        }
        for t in [a.atime, a.crtime.unwrap_or_default(), a.ctime, a.mtime] {
            self.u64(t.secs as u64);
            self.u32(t.nanos);
            self.u32(0);
        }
        for v in [a.rdev.major, a.rdev.minor, 0, 0] {
            self.u32(v);
        }
        self.zeros(14 * 8);
    }

    /// A directory entry after `head` (its attributes, or nothing), if it fits in `room` bytes.
    pub fn dirent(
        &mut self,
        head: impl FnOnce(&mut Writer),
        ino: u64,
        next: u64,
        kind: u32,
        name: &[u8],
        room: usize,
    ) -> bool {
        let start = self.0.len();
        head(self);
        self.u64(ino);
        self.u64(next);
        self.u32(name.len() as u32);
        self.u32(kind);
        self.0.extend_from_slice(name);
        self.0.resize(self.0.len().next_multiple_of(8), 0);
        if self.0.len() <= room {
            return true;
        }
        self.0.truncate(start);
        false
    }
}

/// The kernel's 32-bit form of a device number.
pub fn encode_dev(d: DeviceNumber) -> u32 {
    d.minor & 0xff | d.major << 8 | (d.minor & !0xff) << 12
}

/// A device number from the kernel's 32-bit form.
pub fn decode_dev(d: u32) -> DeviceNumber {
    DeviceNumber { major: d >> 8 & 0xfff, minor: d & 0xff | d >> 12 & 0xf_ff00 }
}

/// The head of a request: `struct fuse_in_header`.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)] // as there
pub struct Head {
    pub opcode: u32,
    pub unique: u64,
    pub node: u64,
    pub uid: u32,
    pub gid: u32,
    pub pid: u32,
}

impl Head {
    /// Takes a head off the front of a request.
    ///
    /// # Errors
    /// `EINVAL` where the request is too short.
    pub fn parse(r: &mut Reader<'_>) -> Result<Head, Errno> {
        r.skip(4)?;
        let (opcode, unique, node) = (r.u32()?, r.u64()?, r.u64()?);
        let head = Head { opcode, unique, node, uid: r.u32()?, gid: r.u32()?, pid: r.u32()? };
        r.skip(4)?;
        Ok(head)
    }
}

/// `struct fuse_setattr_in`, of `include/uapi/linux/fuse.h`, without the unused fields.
#[allow(missing_docs)] // as there
pub struct SetAttrIn {
    /// The fields that are given, by bit: `FATTR_MODE` and so on.
    pub valid: u32,
    pub size: u64,
    /// The times of access, modification and change.
    pub times: [Timespec; 3],
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
}

impl SetAttrIn {
    /// Takes the structure off the front of a request.
    ///
    /// # Errors
    /// `EINVAL` where the request is too short.
    pub fn read(r: &mut Reader<'_>) -> Result<Self, Errno> {
        let valid = r.u32()?;
        r.skip(12)?;
        let size = r.u64()?;
        r.skip(8)?;
        let secs = [r.u64()?, r.u64()?, r.u64()?];
        let nanos = [r.u32()?, r.u32()?, r.u32()?];
        let mode = r.u32()?;
        r.skip(4)?;
        let (uid, gid) = (r.u32()?, r.u32()?);
        let times = std::array::from_fn(|i| Timespec { secs: secs[i] as i64, nanos: nanos[i] });
        Ok(SetAttrIn { valid, size, times, mode, uid, gid })
    }

    /// Whether bit number `bit` says that the field is given.
    pub fn given(&self, bit: u32) -> bool {
        self.valid & 1 << bit != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate::vfs::{Attr, FileType};

    fn entry() -> Entry {
        let t = Timespec::default();
        let attr = Attr {
            file_type: FileType::Regular,
            mode: 0o644,
            uid: 1,
            gid: 2,
            nlink: 1,
            size: 3,
            blocks: 8,
            atime: t,
            mtime: t,
            ctime: t,
            crtime: Some(t),
            rdev: DeviceNumber::default(),
            generation: 7,
            flags: 0,
        };
        Entry { node: 5, ino: 5, attr, is_filling: false }
    }

    /// The sizes that the kernel checks.
    #[test]
    fn answers_have_the_kernels_sizes() {
        let size = |f: &dyn Fn(&mut Writer)| {
            let mut w = Writer::default();
            f(&mut w);
            w.0.len()
        };
        assert_eq!(size(&|w| w.attr(&entry())), 88);
        assert_eq!(size(&|w| w.entry(&entry(), Duration::from_secs(1))), 128);
        assert_eq!(size(&|w| w.attr_out(&entry(), Duration::from_secs(1))), 104);
        assert_eq!(size(&|w| w.statx(&entry(), Duration::from_secs(1))), 288);
        assert_eq!(size(&|w| assert!(w.dirent(|_| (), 1, 2, 3, b"name", 100))), 32);
        assert_eq!(size(&|w| assert!(!w.dirent(|_| (), 1, 2, 3, b"name", 31))), 0);
    }

    #[test]
    fn attributes_are_set_by_kernels_of_any_age() {
        let numbers = |n: &[u32]| n.iter().flat_map(|n| n.to_ne_bytes()).collect::<Vec<u8>>();
        for (head, more) in [(&[3, 1][..], 0), (&[3, 1, 0, 0], 0), (&[3, 1, 1, 0], 1)] {
            let message = [&numbers(head)[..], b"user.key\0abc"].concat();
            let mut r = Reader(&message);
            assert_eq!(r.setxattr_in(), Ok((3, 1, more)));
            assert_eq!((r.name().unwrap(), r.bytes(3).unwrap()), (&b"user.key"[..], &b"abc"[..]));
        }
    }

    #[test]
    fn a_short_request_is_an_error() {
        assert_eq!(Reader(&[1, 2, 3]).u32(), Err(Errno::INVAL));
        assert_eq!(Reader(b"name without end").name(), Err(Errno::INVAL));
        assert!(Head::parse(&mut Reader(&[0; 39])).is_err());
        for major in [0, 8, 259] {
            let d = DeviceNumber { major, minor: 70_000 };
            assert_eq!(decode_dev(encode_dev(d)), d);
        }
    }
}
