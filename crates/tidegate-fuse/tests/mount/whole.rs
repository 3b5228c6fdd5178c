//! Two mounts, a full disk, and trees that are copied in and out.

use crate::rig::{Rig, cannot_mount, fsck, is_ext4, make_image, mkfs_request};
use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::Command;
use tidegate_testing::manifest::{Options, compare, walk};

fn sh(dir: &Path, cmd: &str) {
    let out = Command::new("sh").args(["-ec", cmd]).current_dir(dir).output().unwrap();
    assert!(out.status.success(), "{cmd}: {}", String::from_utf8_lossy(&out.stderr));
}

#[test]
fn a_second_mount_is_refused() {
    if cannot_mount() {
        return;
    }
    let rig = Rig::new(256, "");
    let mut second = Rig::unmounted(64);
    second.image = rig.image.clone();
    let why = second.mount("").unwrap_err();
    assert!(why.contains("in use"), "{why}");
    assert!(second.mount("ro").unwrap_err().contains("in use"));
    fs::write(rig.dir.join("f"), "still served").unwrap();
    rig.finish();
}

#[test]
fn read_only_and_other_owners() {
    if cannot_mount() {
        return;
    }
    let mut rig = Rig::new(256, "");
    fs::write(rig.dir.join("f"), "content").unwrap();
    assert!(rig.unmount());
    rig.mount("ro,uid=77,gid=78").unwrap();
    let s = rustix::fs::stat(rig.dir.join("f")).unwrap();
    assert_eq!((s.st_uid, s.st_gid), (77, 78));
    assert_eq!(fs::read_to_string(rig.dir.join("f")).unwrap(), "content");
    assert_eq!(fs::write(rig.dir.join("g"), "x").unwrap_err().raw_os_error(), Some(30));
    rig.finish();
}

/// The directory of a dead mount can be mounted at again without any other step.
#[test]
fn a_dead_mount_gives_way() {
    if cannot_mount() {
        return;
    }
    let mut rig = Rig::new(256, "");
    let pid = rig.pid();
    sh(&rig.dir, &format!("kill -9 {pid}"));
    while fs::read_dir(&rig.dir).is_ok() {
        std::thread::yield_now();
    }
    rig.mount("").unwrap();
    fs::write(rig.dir.join("f"), "again").unwrap();
    rig.finish();
}

#[test]
fn trees_go_in_and_out() {
    if cannot_mount() {
        return;
    }
    let rig = Rig::new(512, "suid,dev");
    let src = rig.scratch.path().join("src");
    fs::create_dir(&src).unwrap();
    tidegate_testing::fill::fill(tidegate_testing::fill::Kind::Varied, &src).unwrap();
    let all = Options::default();
    // A tar keeps no sockets.
    sh(&src, "find . -type s -delete");
    let want = walk(&src).unwrap();
    sh(rig.scratch.path(), "cp -a src mnt/copied");
    let tar = "tar --xattrs --xattrs-include='*' --acls";
    sh(
        rig.scratch.path(),
        &format!("mkdir mnt/untarred; {tar} -cf - -C src . | {tar} -xpf - -C mnt/untarred"),
    );
    let same = |dir: &Path| {
        let diff = compare(&want, &walk(dir).unwrap(), &all);
        assert!(diff.is_empty(), "{}: {}", dir.display(), diff.join("\n"));
    };
    same(&rig.dir.join("copied"));
    same(&rig.dir.join("untarred"));
    let mut rig = rig;
    assert!(rig.unmount());
    rig.mount("suid,dev").unwrap();
    same(&rig.dir.join("copied"));
    same(&rig.dir.join("untarred"));
    sh(rig.scratch.path(), "cp -a mnt/copied back");
    same(&rig.scratch.path().join("back"));
    sh(rig.scratch.path(), "rm -r mnt/copied mnt/untarred");
    rig.finish();
}

/// A tmpfs of 80 MiB.
struct Disk(std::path::PathBuf);

impl Disk {
    fn mount(dir: &Path) -> Disk {
        let disk = dir.join("disk");
        fs::create_dir(&disk).unwrap();
        let mounted =
            Command::new("mount").args(["-t", "tmpfs", "-o", "size=80m", "none"]).arg(&disk).status();
        assert!(mounted.unwrap().success());
        Disk(disk)
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

/// Another program fills the disk while the volume is written: fsynced data stays, and the volume can be used
/// again when there is space.
#[test]
fn a_disk_that_others_fill_is_no_damage() {
    if cannot_mount() {
        return;
    }
    let mut rig = Rig::unmounted(64);
    let disk = Disk::mount(rig.scratch.path());
    rig.image = disk.0.join("a.img");
    make_image(&rig.image, 512);
    rig.mount("cache=16M").unwrap();
    let data = |i: u8| vec![i; 500_000];
    let put = |i: u8| {
        let mut f = fs::File::create(rig.dir.join(format!("f{i}")))?;
        f.write_all(&data(i))?;
        f.sync_all()
    };
    for i in 0..20 {
        put(i).unwrap();
    }
    // This data is not fsynced when the disk fills: it may be lost, but nothing else.
    fs::write(rig.dir.join("dirty"), vec![9; 3 << 20]).unwrap();
    let _ = Command::new("dd")
        .args(["if=/dev/zero", "bs=64k", "status=none"])
        .arg(format!("of={}/filler", disk.0.display()))
        .output();
    let refused = (20..40).filter(|i| put(*i).is_err()).count();
    assert!(refused > 0, "a full disk took everything");
    let check = |rig: &Rig| (0..20).all(|i| fs::read(rig.dir.join(format!("f{i}"))).unwrap() == data(i));
    assert!(check(&rig));
    fs::remove_file(disk.0.join("filler")).unwrap();
    let mut rig = rig;
    rig.unmount();
    rig.mount("cache=16M").unwrap();
    assert!(check(&rig));
    let mut f = fs::File::create(rig.dir.join("again")).unwrap();
    f.write_all(&data(1)).and_then(|()| f.sync_all()).unwrap();
    drop(f);
    assert!(rig.unmount());
    fsck(&rig.image);
}

/// The image promises more than its disk has: a writing program gets an error, and the volume stays whole.
#[test]
fn a_full_disk_is_no_damage() {
    if cannot_mount() {
        return;
    }
    let mut rig = Rig::unmounted(64);
    let disk = Disk::mount(rig.scratch.path());
    rig.image = disk.0.join("a.img");
    make_image(&rig.image, 512);
    rig.mount("cache=16M").unwrap();
    let block: Vec<u8> = (0..1 << 20).map(|i: u32| (i / 7) as u8).collect();
    let mut kept = 0;
    let error = loop {
        let path = rig.dir.join(format!("f{kept}"));
        let r = fs::File::create(&path).and_then(|mut f| f.write_all(&block).and_then(|()| f.sync_all()));
        if let Err(e) = r {
            break e;
        }
        kept += 1;
        assert!(kept < 200, "nothing was full");
    };
    assert_eq!(error.raw_os_error(), Some(28), "{error}");
    assert!(kept > 10, "{kept}");
    let intact = |rig: &Rig, from: u32| {
        for i in from..kept {
            assert!(fs::read(rig.dir.join(format!("f{i}"))).unwrap() == block, "f{i} of {kept} differs");
        }
    };
    intact(&rig, 0);
    // Space can be freed and used again.
    for i in 0..kept / 2 {
        fs::remove_file(rig.dir.join(format!("f{i}"))).unwrap();
    }
    fs::File::open(&rig.dir).unwrap().sync_all().unwrap();
    if is_ext4() {
        // The volume gives no space back to the disk by itself.
        sh(rig.scratch.path(), "fstrim mnt");
    }
    let again = (0..100).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(100));
        fs::File::create(rig.dir.join("again"))
            .and_then(|mut f| f.write_all(&block).and_then(|()| f.sync_all()))
            .is_ok()
    });
    assert!(again, "no room came back");
    assert!(rig.unmount(), "the volume was damaged");
    fsck(&rig.image);
    rig.mount("").unwrap();
    intact(&rig, kept / 2);
    assert!(fs::read(rig.dir.join("again")).unwrap() == block);
    assert!(rig.unmount());
    fsck(&rig.image);
}

/// The disk below the second file of a volume is full: programs get errors as with one file, and the volume stays
/// whole.
#[test]
fn a_full_disk_below_a_second_file_is_no_damage() {
    if cannot_mount() {
        return;
    }
    let mut rig = Rig::unmounted(64);
    let disk = Disk::mount(rig.scratch.path());
    let second = disk.0.join("b.img");
    for (path, mib) in [(&rig.image, 64), (&second, 512)] {
        fs::File::create(path).unwrap().set_len(mib << 20).unwrap();
    }
    let mut request = mkfs_request(&rig.image, 64);
    request.devices = vec![second.clone()];
    tidegate::mkfs(request).unwrap();
    rig.mount(&format!("cache=16M,device={}", second.display())).unwrap();
    let block = vec![7; 1 << 20];
    let put = |i: u32| {
        let mut f = fs::File::create(rig.dir.join(format!("f{i}")))?;
        f.write_all(&block).and_then(|()| f.sync_all())
    };
    let kept = (0..300).take_while(|i| put(*i).is_ok()).count() as u32;
    assert!((20..200).contains(&kept), "{kept} MiB fit");
    assert_eq!(put(kept).unwrap_err().raw_os_error(), Some(28));
    for i in 0..kept {
        assert!(fs::read(rig.dir.join(format!("f{i}"))).unwrap() == block, "f{i} of {kept}");
    }
    fs::remove_file(rig.dir.join("f0")).unwrap();
    assert!(rig.unmount(), "the volume was damaged");
}

/// A full volume returns errors to programs that write, close or sync, and goes on when there is space.
#[test]
fn a_full_volume_says_so() {
    if cannot_mount() {
        return;
    }
    let rig = Rig::new(100, "");
    let put = |name: String| {
        let mut f = fs::File::create(rig.dir.join(name))?;
        f.write_all(&[5; 1 << 20]).and_then(|()| f.sync_all())
    };
    let kept = (0..200).take_while(|i| put(format!("f{i}")).is_ok()).count();
    assert!((10..110).contains(&kept), "{kept} MiB fit");
    let error = put("more".to_string()).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(28), "{error}");
    for i in 0..kept {
        assert!(fs::read(rig.dir.join(format!("f{i}"))).unwrap() == [5; 1 << 20], "f{i}");
    }
    fs::remove_file(rig.dir.join("more")).unwrap();
    for i in 0..kept / 2 {
        fs::remove_file(rig.dir.join(format!("f{i}"))).unwrap();
    }
    // A removed file is freed when the kernel has forgotten it.
    let again = (0..100).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(20));
        put("again".to_string()).is_ok()
    });
    assert!(again, "no room came back");
    rig.finish();
}
