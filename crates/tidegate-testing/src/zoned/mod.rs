//! A real kernel with zoned devices, without hardware: Debian's kernel in QEMU, which emulates NVMe's zoned
//! namespaces.
//!
//! The guest's root is the host's, read-only, so it sees every program at its usual path; `/dev`, `/proc`, `/sys` and
//! `/run` are its own. QEMU interprets every instruction (no KVM), so a guest boots in some seconds anywhere.
//!
//! QEMU keeps the data of a zoned device in a file, but not its zones. So the zones are kept in a second file
//! beside the data (an [`Image`]): before a script is run, each zone is written again up to its write
//! pointer; after the script, the kernel's report of the zones is kept.
//!
//! ```no_run
//! use tidegate_testing::zoned::{Geometry, Image, Machine};
//! # fn main() -> anyhow::Result<()> {
//! let zones = Geometry { zones: 32, zone_size: 16 << 20, capacity: 12 << 20, ..Geometry::DEFAULT };
//! Image::create("zoned.img".as_ref(), zones)?;
//! let machine = Machine::new().disk("conventional.img").zoned("zoned.img");
//! machine.run("mkfs.f2fs -q -m -c $ZONED0 $DISK0; mount -t f2fs $DISK0 $MNT; echo a > $MNT/a; umount $MNT")?.check()?;
//! println!("{:?}", Image::open("zoned.img".as_ref())?.zones);
//! # Ok(())
//! # }
//! ```
//!
//! | module | holds |
//! |---|---|
//! | [`devices`] | the devices of a volume: for a guest, and for an engine of ours |
//! | `kernel` | Debian's kernel and its modules: downloaded, unpacked, not installed |
//! | `initrd` | the archive that the guest boots from |
//! | [`golden`] | volumes made by the kernel on such devices, cached |
//! | [`image`] | a zoned device as files: data, and zones with their write pointers |
//! | [`machine`] | a guest: its devices, its script, its end |

pub mod devices;
pub mod golden;
pub mod image;
mod initrd;
pub mod kernel;
pub mod machine;

pub use devices::{Devices, Opened};
pub use image::{Condition, Geometry, Image, Zone};
pub use machine::{Guest, Machine};

use crate::oracle;

/// The programs that a guest with zones needs, by their names among the oracles.
pub const ORACLES: &[&str] = &["qemu-system-x86_64", kernel::NAME, "mkfs.f2fs", "f2fs_io", "blkzone"];

/// Whether a test must be skipped because one of [`ORACLES`] is missing.
///
/// # Panics
/// As [`oracle::skip_or_fail`].
pub fn skip_or_fail() -> bool {
    ORACLES.iter().any(|name| oracle::skip_or_fail(name))
}
