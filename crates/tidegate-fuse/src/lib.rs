//! Tidegate's mount: a volume as a file system of the machine, through FUSE.
//!
//! It does: mount and unmount, as the superuser or through `fusermount3`; speak for the kernel's client to
//! the engine; keep what the kernel knows of. It does not: know a disk format, check permissions (the kernel
//! does, with ACLs, the caller's groups and capabilities), or keep locks (the kernel does: a volume is
//! mounted once).
//!
//! | module | holds |
//! |---|---|
//! | [`session`] | one mount from opening the image to its clean end; signals |
//! | [`control`] | a socket on which a running mount says what it does |
//! | [`options`] | the words of `-o` |
//! | [`mount`] | mount(2), `fusermount3`, unmounting |
//! | [`transport`] | the trait for what carries requests; the one there is, on io_uring or /dev/fuse; CPUs kept awake |
//! | [`server`] | what every operation starts from: the volume, who asks, how inodes look |
//! | [`names`], `attrs`, `data`, [`ioctl`] | the operations |
//! | [`privileges`] | set-id bits, and who may keep them |
//! | `nodes`, `handles` | what the kernel knows: lookup counts, open files |
//! | `refused` | writes that failed after the program was told that they had not |
//! | `dirty_bound` | how much the kernel may keep back of what programs wrote |
//! | `walk` | reading inodes ahead of whoever walks a tree |
//! | `host_space` | a sparse image on a full disk |
//! | [`errno`] | errors become errno |
//!
//! **Who keeps what.** With the write-back cache the kernel holds size, `mtime` and `ctime` of regular files
//! and sends them (`SETATTR`) when it writes a file back; so files are open with `NOCMTIME`, and a write of
//! pages changes neither. Before `FSYNC`, `close` and a truncation it sends what is dirty. `SEEK_DATA` is the
//! one operation that it forwards without: there we make it write first.
//! Names and attributes live long in the kernel, since all changes come through it.
//!
//! **Life of an inode.** A lookup count is a number; an inode is read again when a request names it. Losing its
//! last name while the kernel knows it, it is held open until it is forgotten, and freed then.
//!
//! **Promises.** `fsync` returns when the engine's does, and each open file hears once of a failed write. The
//! kernel forwards no `syncfs`; [`ioctl::TIDEGATE_IOC_SYNC`] is a full sync. If the process dies, the kernel
//! ends all requests with an error, and mounting again recovers what was fsynced.
//!
//! **Locks** (their order is in `docs/locks.md`). `fuse->handles`, `fuse->writers`, `fuse->refused`, `fuse->walk` and
//! `fuse->nodes` are held for a look at a table and never while the engine is called; `control->waiting` while a
//! program that wants to hear how the mount ends is put on a list.
#![forbid(unsafe_code)]

mod attrs;
pub mod control;
mod data;
mod dirty_bound;
pub mod errno;
mod handles;
mod host_space;
pub mod ioctl;
pub mod mount;
pub mod names;
mod nodes;
pub mod options;
pub mod privileges;
mod refused;
pub mod server;
pub mod session;
pub mod transport;
mod walk;

pub use options::MountOptions;
pub use server::Server;
pub use session::serve;
