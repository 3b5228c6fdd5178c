//! An image on a disk that does not tell its size: another file system in user space, whose statfs is all 0.

use crate::rig::{Rig, cannot_mount, fsck};
use fuser::{
    BackgroundSession, Config, Errno, FileAttr, FileHandle, FileType, Filesystem, Generation, INodeNo,
    LockOwner, OpenFlags, ReplyAttr, ReplyData, ReplyEmpty, ReplyEntry, ReplyStatfs, ReplyWrite, Request,
    WriteFlags,
};
use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

const IMAGE: INodeNo = INodeNo(2);

/// A directory with one file, `a.img`, whose bytes are in another file.
struct Host(File);

impl Host {
    fn mount(image: &Path, dir: &Path) -> BackgroundSession {
        let file = File::options().read(true).write(true).open(image).unwrap();
        fuser::spawn_mount(Host(file), dir, &Config::default()).unwrap()
    }

    fn attr(&self, ino: INodeNo) -> FileAttr {
        let m = self.0.metadata().unwrap();
        let root = ino == INodeNo::ROOT;
        FileAttr {
            ino,
            size: if root { 0 } else { m.len() },
            blocks: if root { 0 } else { m.blocks() },
            atime: UNIX_EPOCH,
            mtime: UNIX_EPOCH,
            ctime: UNIX_EPOCH,
            crtime: UNIX_EPOCH,
            kind: if root { FileType::Directory } else { FileType::RegularFile },
            perm: 0o755,
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            flags: 0,
            blksize: 4096,
        }
    }
}

impl Filesystem for Host {
    fn lookup(&self, _: &Request, _: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match name.to_str() {
            Some("a.img") => reply.entry(&Duration::ZERO, &self.attr(IMAGE), Generation(0)),
            _ => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        reply.attr(&Duration::ZERO, &self.attr(ino));
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        reply.statfs(0, 0, 0, 0, 0, 0, 0, 0);
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        at: u64,
        len: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let mut bytes = vec![0; len as usize];
        let n = self.0.read_at(&mut bytes, at).unwrap();
        reply.data(&bytes[..n]);
    }

    fn write(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        at: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        self.0.write_all_at(data, at).unwrap();
        reply.written(data.len() as u32);
    }

    fn fsync(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        reply.ok();
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }
}

/// A total of 0 blocks means that the size is not known, not that the disk is full.
#[test]
fn a_disk_that_keeps_its_size_to_itself_is_not_full() {
    if cannot_mount() {
        return;
    }
    let mut rig = Rig::unmounted(256);
    let (plain, host) = (rig.image.clone(), rig.scratch.path().join("host"));
    std::fs::create_dir(&host).unwrap();
    let session = Host::mount(&plain, &host);
    assert_eq!(rustix::fs::statvfs(&host).unwrap().f_blocks, 0);
    rig.image = host.join("a.img");
    rig.mount("").unwrap();
    let written = std::fs::write(rig.dir.join("f"), vec![7; 3_000_000]).map_err(|e| e.to_string());
    let synced = File::open(rig.dir.join("f")).and_then(|f| f.sync_all()).map_err(|e| e.to_string());
    let made = std::fs::create_dir(rig.dir.join("d")).map_err(|e| e.to_string());
    let ended = rig.unmount();
    session.umount_and_join().unwrap();
    assert_eq!((written, synced, made, ended), (Ok(()), Ok(()), Ok(()), true));
    fsck(&plain);
    rig.image = plain;
    rig.mount("").unwrap();
    assert_eq!(std::fs::read(rig.dir.join("f")).unwrap(), vec![7; 3_000_000]);
    rig.finish();
}
