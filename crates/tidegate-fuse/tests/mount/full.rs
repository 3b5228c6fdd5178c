//! A volume that is full, as programs see it.

use crate::rig::{Rig, cannot_mount, number};
use std::fs;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::time::Duration;

/// A program that writes without end to a full volume soon gets an error from write(2). Existing content
/// stays.
#[test]
fn a_full_volume_is_told_to_who_writes() {
    if cannot_mount() {
        return;
    }
    for round in 0..number("TIDEGATE_FULL_ROUNDS", 1) {
        println!("round {round}");
        fill();
    }
}

fn fill() {
    let rig = Rig::new(64, "");
    let (path, piece) = (rig.dir.join("fill"), vec![7; 64 << 10]);
    let mut file = fs::File::create(&path).unwrap();
    // Far more than the kernel keeps before it writes, and far less than for ever.
    let most = 16u64 << 30;
    let mut written = 0;
    let e = loop {
        assert!(written < most, "{written} bytes went into 64 MiB");
        match file.write_all(&piece) {
            Ok(()) => written += piece.len() as u64,
            Err(e) => break e,
        }
    };
    println!("{written} bytes until {e}");
    assert_eq!(e.raw_os_error(), Some(28));
    drop(file);
    let mut rig = rig;
    assert!(rig.unmount());
    rig.mount("").unwrap();
    let is = fs::metadata(&path).unwrap();
    let there = is.len();
    assert!((1 << 20..=written).contains(&there), "{there} of {written}");
    // The file has what was written, and not many more blocks were allocated.
    assert!(is.blocks() * 512 >= there, "{} bytes in {} blocks", there, is.blocks());
    assert!(fs::read(&path).unwrap().iter().all(|b| *b == 7), "a hole where something was written");
    assert!(written < there + (16 << 20), "{written} bytes were taken, {there} kept");
    // Now there is room again.
    fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(1 << 20).unwrap();
    let mut file = fs::OpenOptions::new().append(true).open(&path).unwrap();
    file.write_all(b"more").unwrap();
    file.sync_all().unwrap();
    assert_eq!(fs::metadata(&path).unwrap().len(), (1 << 20) + 4);
    drop(file);
    rig.finish();
}

/// Once a file is closed, it is as long as its kept content, also for a program that ignores the error of close. This
/// also holds in the mount of an ordinary user, where the kernel's default bounds hold and a program gets the error
/// late.
#[test]
fn a_closed_file_is_as_long_as_what_was_kept() {
    if cannot_mount() {
        return;
    }
    const USER: u32 = 65_534;
    const O_PATH: i32 = rustix::fs::OFlags::PATH.bits() as i32;
    let mut rig = Rig::unmounted(64);
    rig.mount_as(USER, "uid=65534,gid=65534").unwrap();
    let path = rig.dir.join("fill");
    let as_user = || {
        become_user(USER);
        let mut file = fs::File::create(&path).unwrap();
        let written = (0..420).take_while(|_| file.write_all(&[7; 64 << 10]).is_ok()).count() * (64 << 10);
        let length = || fs::metadata(&path).unwrap().len() as usize;
        // A lookup while the inode is in use finds the size that the kernel computed, and keeps it.
        let held = fs::OpenOptions::new().read(true).custom_flags(O_PATH).open(&path).unwrap();
        drop(file);
        std::thread::sleep(Duration::from_millis(100));
        length();
        drop(held);
        // The server gets the message of a close only after close(2) has returned.
        for _ in 0..500 {
            if length() < written {
                break;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        (written, length())
    };
    let (written, kept) = std::thread::scope(|scope| scope.spawn(as_user).join().unwrap());
    assert!(rig.unmount());
    rig.mount("").unwrap();
    let read = fs::read(&path).unwrap();
    assert_eq!(kept, read.len(), "of {written} written");
    assert!(read.len() >= 1 << 20 && read.iter().all(|b| *b == 7));
    rig.finish();
}

/// Makes this thread, and no other, that of another user.
fn become_user(user: u32) {
    let (uid, gid) = (rustix::fs::Uid::from_raw(user), rustix::fs::Gid::from_raw(user));
    rustix::thread::set_thread_res_gid(gid, gid, gid).unwrap();
    rustix::thread::set_thread_res_uid(uid, uid, uid).unwrap();
}
