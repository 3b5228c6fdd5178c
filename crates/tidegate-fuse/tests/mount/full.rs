//! A volume that is full, as programs see it.

use crate::rig::{Rig, cannot_mount};
use std::fs;
use std::io::Write;
use std::path::Path;

/// A program that writes on and on to a full volume hears of it from write(2), soon, and the size is that of what
/// is there.
#[test]
fn a_full_volume_is_told_to_who_writes() {
    if cannot_mount() {
        return;
    }
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
    // Still open, and then closed. Some of the last pages may have found room: between them are holes.
    settled_size(&path, written);
    drop(file);
    let there = settled_size(&path, written);
    let mut rig = rig;
    assert!(rig.unmount());
    rig.mount("").unwrap();
    assert_eq!(fs::metadata(&path).unwrap().len(), there);
    // There may be room again.
    fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(1 << 20).unwrap();
    let mut file = fs::OpenOptions::new().append(true).open(&path).unwrap();
    file.write_all(b"more").unwrap();
    file.sync_all().unwrap();
    assert_eq!(fs::metadata(&path).unwrap().len(), (1 << 20) + 4);
    drop(file);
    rig.finish();
}

/// A file that was closed when the volume turned out to be full shows the size of what is there.
#[test]
fn a_copy_that_did_not_fit_is_as_long_as_what_is_there() {
    if cannot_mount() {
        return;
    }
    let rig = Rig::new(64, "");
    let path = rig.dir.join("copy");
    let mut file = fs::File::create(&path).unwrap();
    file.write_all(&vec![7; 100 << 20]).unwrap_or_default();
    let e = file.sync_all().unwrap_err();
    assert_eq!(e.raw_os_error(), Some(28));
    drop(file);
    let there = settled_size(&path, 100 << 20);
    assert_eq!(fs::read(&path).unwrap().len() as u64, there);
    let mut rig = rig;
    assert!(rig.unmount());
    rig.mount("").unwrap();
    assert_eq!(fs::metadata(&path).unwrap().len(), there);
    rig.finish();
}

/// The size of a file when it is no longer `wrong`, and has been the same for a while: it is set right by another
/// process.
fn settled_size(path: &Path, wrong: u64) -> u64 {
    let mut seen = (u64::MAX, 0);
    for _ in 0..1000 {
        let size = fs::metadata(path).unwrap().len();
        seen = if size == seen.0 { (size, seen.1 + 1) } else { (size, 0) };
        if seen.1 == 10 && size < wrong {
            return size;
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    panic!("the size stays {}", seen.0);
}
