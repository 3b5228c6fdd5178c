//! Files that grow beside each other lie in as few pieces as Linux leaves them in.

use crate::changed::open_to_write;
use crate::rig::*;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use tidegate_ext4::Ext4Options;
use tidegate_vfs::*;

const ROOT: &Cred = &Cred::ROOT;
const FILES: usize = 8;
const APPENDS: u64 = 96;
const PIECE: usize = 4096;

/// Pieces of all files together.
fn pieces(image: &Path) -> u64 {
    let (v, fs) = open_with(image, Ext4Options::default()).unwrap();
    let of = |n| {
        let inode = v.resolve(ROOT, format!("/f{n}").as_bytes(), true).unwrap();
        VolumeOps::fragments(&*fs, &inode).unwrap()
    };
    let all = (0..FILES).map(of).sum();
    v.unmount().unwrap();
    all
}

#[test]
fn files_that_grow_beside_each_other_stay_whole() {
    if skip() {
        return;
    }
    let dir = scratch();
    let (own, theirs) = (dir.path().join("own"), dir.path().join("kernel"));
    for image in [&own, &theirs] {
        mke2fs(image, &["-t", "ext4", "-b", "4096"], "128M");
    }
    let v = open_to_write(&own);
    let how = OpenFlags::CREATE | OpenFlags::WRITE;
    let ours: Vec<_> =
        (0..FILES).map(|n| v.open_path(ROOT, format!("/f{n}").as_bytes(), how, 0o644).unwrap()).collect();
    for at in 0..APPENDS {
        for (n, f) in ours.iter().enumerate() {
            f.write_at(at * PIECE as u64, &[n as u8 + 1; PIECE]).unwrap();
            f.fsync(false).unwrap();
        }
    }
    drop(ours);
    v.unmount().unwrap();
    drop(v);
    must_be_clean(&own);
    {
        let kernel = Mounted::new(&theirs, "rw").unwrap();
        let files: Vec<_> =
            (0..FILES).map(|n| File::create(kernel.path().join(format!("f{n}"))).unwrap()).collect();
        for at in 0..APPENDS {
            for (n, f) in files.iter().enumerate() {
                f.write_all_at(&[n as u8 + 1; PIECE], at * PIECE as u64).unwrap();
                f.sync_all().unwrap();
            }
        }
    }
    let (ours, theirs) = (pieces(&own), pieces(&theirs));
    println!("ours {ours}, Linux's {theirs}");
    assert!(ours <= theirs, "{ours} pieces; Linux has {theirs}");
}
