//! Tidegate's mount: a volume as a file system of the machine, through FUSE.
//!
//! It does: mount and unmount, as the superuser or through `fusermount3`; pass requests of the kernel's
//! client to the engine; keep the inodes and files that the kernel knows. It does not: know a disk format,
//! check permissions (the kernel does, with ACLs, the caller's groups and capabilities), or keep file locks
//! (the kernel does: a volume is mounted once).
//!
//! | module | holds |
//! |---|---|
//! | [`session`] | one mount from opening the image to its clean end; signals |
//! | [`control`] | a socket on which a running mount reports its work |
//! | [`options`] | the words of `-o` |
//! | [`mount`] | mount(2), `fusermount3`, unmounting |
//! | [`transport`] | the trait of transports of requests; the transport on io_uring or /dev/fuse; CPUs kept awake |
//! | [`server`] | the base of every operation: the volume, the caller, the view of inodes |
//! | [`names`], `attrs`, `data`, [`ioctl`] | the operations |
//! | [`privileges`] | set-id bits, and which callers may keep them |
//! | `nodes`, `handles` | the kernel's references: lookup counts, open files |
//! | `refused` | writes that failed after write(2) had succeeded |
//! | `dirty_bound` | the bound on dirty pages that the kernel may keep |
//! | `walk` | reading inodes ahead of a program that walks a tree |
//! | `host_space` | a sparse image on a full disk |
//! | [`errno`] | errors become errno |
//!
//! **Division of work.** With the write-back cache the kernel keeps size, `mtime` and `ctime` of regular
//! files and sends them (`SETATTR`) when it writes a file back. So files are open with `NOCMTIME`, and a
//! write of pages does not change the times. Before `FSYNC`, `close` and a truncation the kernel sends its
//! dirty pages. Only `SEEK_DATA` is forwarded without that: there the server makes the kernel write first.
//! Names and attributes stay long in the kernel, since all changes come through it.
//!
//! **Life of an inode.** A lookup count is only a number; an inode is read again when a request names it. An inode that
//! loses its last name while the kernel knows it is held open until the kernel forgets it, and is freed then.
//!
//! **Promises.** `fsync` returns when the engine's does, and a failed write is reported once to each open
//! file. The kernel forwards `syncfs` to `fuseblk` mounts alone, from Linux 6.18 on; elsewhere
//! [`ioctl::TIDEGATE_IOC_SYNC`] is a full sync. If the process dies,
//! the kernel ends all requests with an error, and the next mount recovers fsynced data.
//!
//! **Locks** (their order is in `docs/locks.md`). `fuse->handles`, `fuse->writers`, `fuse->refused`, `fuse->walk` and
//! `fuse->nodes` are held only to access a table, and never while the engine is called. `control->waiting` is held
//! while a program that waits for the end of the mount is put on a list.
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
