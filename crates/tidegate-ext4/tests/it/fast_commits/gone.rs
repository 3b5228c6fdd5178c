//! Inodes that were made since the last commit and are gone again, or that never had a name: their tags are left.

use super::*;
use rustix::fs::{AtFlags, CWD, Mode, OFlags};

fn nameless(at: &Path) -> File {
    let how = OFlags::TMPFILE | OFlags::RDWR;
    let file = File::from(rustix::fs::open(at, how, Mode::from_raw_mode(0o644)).unwrap());
    file.write_all_at(&[7; 9000], 0).unwrap();
    file
}

/// A change of a tree; what it returns stays open.
type Change = fn(&Path) -> Option<File>;

const CHANGES: [(&str, Change); 9] = [
    ("a file that was renamed and removed", |at| {
        std::fs::write(at.join("old"), "x").unwrap();
        std::fs::rename(at.join("old"), at.join("new")).unwrap();
        std::fs::remove_file(at.join("new")).unwrap();
        None
    }),
    ("a directory that was removed with its file", |at| {
        std::fs::create_dir(at.join("dir")).unwrap();
        std::fs::write(at.join("dir/file"), "x").unwrap();
        std::fs::remove_dir_all(at.join("dir")).unwrap();
        None
    }),
    ("a linked file that was removed", |at| {
        std::fs::write(at.join("one"), "x").unwrap();
        std::fs::hard_link(at.join("one"), at.join("two")).unwrap();
        std::fs::remove_file(at.join("one")).unwrap();
        std::fs::remove_file(at.join("two")).unwrap();
        None
    }),
    ("a file that moved out of a directory that was removed", |at| {
        std::fs::create_dir(at.join("dir")).unwrap();
        std::fs::write(at.join("dir/file"), vec![7; 9000]).unwrap();
        std::fs::rename(at.join("dir/file"), at.join("file")).unwrap();
        std::fs::remove_dir(at.join("dir")).unwrap();
        File::open(at.join("file")).unwrap().sync_all().unwrap();
        None
    }),
    ("a directory that has the number of one that held links", |at| {
        std::fs::create_dir(at.join("dir")).unwrap();
        std::fs::hard_link(at.join("base"), at.join("dir/link")).unwrap();
        std::fs::remove_file(at.join("dir/link")).unwrap();
        std::fs::remove_dir(at.join("dir")).unwrap();
        std::fs::create_dir(at.join("another")).unwrap();
        None
    }),
    ("a directory that has the number of a file that moved", |at| {
        std::fs::write(at.join("old"), "x").unwrap();
        std::fs::rename(at.join("old"), at.join("new")).unwrap();
        std::fs::remove_file(at.join("new")).unwrap();
        std::fs::create_dir(at.join("dir")).unwrap();
        None
    }),
    ("a nameless file that has the number of a removed one", |at| {
        std::fs::remove_file(at.join("base")).unwrap();
        let file = nameless(at);
        let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&file));
        rustix::fs::linkat(CWD, path, CWD, at.join("named"), AtFlags::SYMLINK_FOLLOW).unwrap();
        file.sync_all().unwrap();
        Some(file)
    }),
    ("a file without a name", |at| {
        let file = nameless(at);
        file.sync_all().unwrap();
        Some(file)
    }),
    ("a file that got its name last", |at| {
        let file = nameless(at);
        let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&file));
        rustix::fs::linkat(CWD, path, CWD, at.join("named"), AtFlags::SYMLINK_FOLLOW).unwrap();
        file.sync_all().unwrap();
        Some(file)
    }),
];

#[test]
fn tags_of_inodes_that_are_gone_change_nothing() {
    if skip() {
        return;
    }
    let dir = scratch();
    let mut fast = 0;
    for (what, change) in CHANGES {
        let (image, copy) = (dir.path().join("live.img"), dir.path().join("cut.img"));
        mke2fs(&image, &["-t", "ext4", "-O", "fast_commit", "-b", "4096"], "64M");
        let Some(mounted) = Mounted::new(&image, "commit=300") else {
            println!("SKIPPED: the kernel has no fast commits");
            return;
        };
        let at = mounted.path().join("within");
        std::fs::create_dir(&at).unwrap();
        let kept = File::create(at.join("kept")).unwrap();
        std::fs::write(at.join("base"), vec![3; 5000]).unwrap();
        rustix::fs::syncfs(&kept).unwrap();
        // The first fsync after a commit of everything may be another.
        kept.write_all_at(b"1", 0).unwrap();
        kept.sync_all().unwrap();
        let open = change(&at);
        kept.write_all_at(&[1; 5000], 0).unwrap();
        kept.sync_all().unwrap();
        std::fs::copy(&image, &copy).unwrap();
        let live = walk(mounted.path()).unwrap();
        drop((open, kept));
        drop(mounted);
        fast += usize::from(holds_fast_commits(&copy));
        judge(what, &copy, &live);
    }
    assert_eq!(fast, CHANGES.len(), "changes that left fast commits");
}
