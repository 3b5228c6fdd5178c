//! The flag that sends a file's data through the journal (`chattr +j`): who may set it, and passes while it
//! changes.

use crate::journaled::*;
use crate::rig::{scratch, skip};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use tidegate_block::MemoryDevice;
use tidegate_rt::thread;
use tidegate_vfs::*;

/// The flag takes space in the journal, so the owner of a file may not set it; other flags can be set with
/// it.
#[test]
fn the_flag_is_the_superusers_and_comes_with_others() {
    if skip() {
        return;
    }
    let dir = scratch();
    let device = fresh(dir.path(), KINDS[0]);
    let v = mount(&device, "", MemoryLimits::default()).unwrap();
    let f = make(&v, "f", false, &content(1, 20_000));
    let owner = Cred { uid: 7, gid: 7, groups: vec![] };
    v.setattr(ROOT, f.inode(), &SetAttr { uid: Some(7), ..SetAttr::default() }).unwrap();
    let flags = f.inode().attr().flags;
    let set = |flags| SetAttr { flags: Some(flags), ..SetAttr::default() };
    let e = v.setattr(&owner, f.inode(), &set(flags | JOURNAL_DATA)).unwrap_err();
    assert_eq!((e.kind(), f.inode().attr().flags), (ErrorKind::NotPermitted, flags));
    // The owner may set NODUMP, which stays when the superuser sets others.
    v.setattr(&owner, f.inode(), &set(flags | 0x40)).unwrap();
    let acl = [
        &[2, 0, 0, 0, 1, 0, 6, 0, 0xff, 0xff, 0xff, 0xff, 2, 0, 4, 0, 9, 0, 0, 0][..],
        &[4, 0, 4, 0, 0xff, 0xff, 0xff, 0xff, 0x10, 0, 4, 0, 0xff, 0xff, 0xff, 0xff],
        &[0x20, 0, 4, 0, 0xff, 0xff, 0xff, 0xff],
    ];
    v.setxattr(ROOT, f.inode(), b"system.posix_acl_access", Some(&acl.concat()), XattrFlags::empty())
        .unwrap();
    let both = SetAttr { mode: Some(0o600), ..set(flags | JOURNAL_DATA) };
    v.setattr(ROOT, f.inode(), &both).unwrap();
    assert_eq!(f.inode().mapping.nr_dirty(), 0, "what was written before is in place");
    f.write_at(0, &content(2, 20_000)).unwrap();
    assert_eq!(f.inode().mapping.nr_dirty(), 0, "it is in the transaction");
    let e = v.setattr(&owner, f.inode(), &set(flags)).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::NotPermitted);
    drop(f);
    v.unmount().unwrap();
}

/// Passes that have begun go on while the flag changes.
#[test]
fn passes_follow_the_flag() {
    if skip() {
        return;
    }
    let dir = scratch();
    for option in ["", "nomap_first=off", "nomap_first=on"] {
        let device = fresh(dir.path(), KINDS[0]);
        let v = mount(&device, option, MemoryLimits::default()).unwrap();
        let f = Arc::new(make(&v, "f", false, &content(1, 200_000)));
        let over = Arc::new(AtomicBool::new(false));
        let pass = {
            let (v, f, over) = (v.clone(), f.clone(), over.clone());
            thread::spawn("pass", move || {
                while !over.load(SeqCst) {
                    v.fs().writepages(f.inode(), &mut WritebackControl::background(u64::MAX)).unwrap();
                }
            })
        };
        let mut want = content(1, 200_000);
        for n in 0..150_usize {
            set_logged(&v, f.inode(), n.is_multiple_of(2));
            for at in (0..40).step_by(1 + n % 3) {
                let part = content(n as u32, 4096);
                f.write_at(at * 4096, &part).unwrap();
                want[at as usize * 4096..][..4096].copy_from_slice(&part);
            }
            if n % 10 == 9 {
                f.fsync(false).unwrap();
                recovered_by_us(&bytes(&device), "f", &want);
            }
        }
        over.store(true, SeqCst);
        pass.unwrap().join();
        drop(f);
        v.unmount().unwrap();
        recovered_by_us(&bytes(&device), "f", &want);
    }
}

fn recovered_by_us(left: &[u8], name: &str, want: &[u8]) {
    let v = mount(&Arc::new(MemoryDevice::from_bytes(left)), "", MemoryLimits::default()).unwrap();
    let found = read(&v, name);
    let other = found.chunks(4096).zip(want.chunks(4096)).position(|(a, b)| a != b);
    assert_eq!(other, None, "a page that is not as it was written");
    v.unmount().unwrap();
}
