//! Volumes that mke2fs fills, with many sets of features: we and the host's kernel read equal content.

use crate::rig::*;
use tidegate_testing::manifest::{Manifest, Options, walk};
use tidegate_testing::tree::assert_same_but;
use tidegate_vfs::ErrorKind;

/// Sets of features, with mke2fs's arguments.
pub const SETS: &[(&str, &[&str])] = &[
    ("debian", &["-t", "ext4"]),
    ("upstream", &["-t", "ext4", "-O", "metadata_csum_seed,orphan_file"]),
    ("1k", &["-t", "ext4", "-b", "1024"]),
    ("2k", &["-t", "ext4", "-b", "2048"]),
    ("4k", &["-t", "ext4", "-b", "4096"]),
    ("32bit", &["-t", "ext4", "-b", "4096", "-O", "^64bit"]),
    ("32bit-1k", &["-t", "ext4", "-b", "1024", "-O", "^64bit"]),
    ("no-csum", &["-t", "ext4", "-O", "^metadata_csum"]),
    ("uninit_bg", &["-t", "ext4", "-O", "^metadata_csum,uninit_bg"]),
    ("uninit_bg-32bit", &["-t", "ext4", "-b", "1024", "-O", "^metadata_csum,uninit_bg,^64bit"]),
    ("no-journal", &["-t", "ext4", "-O", "^has_journal"]),
    ("no-flex", &["-t", "ext4", "-b", "1024", "-O", "^flex_bg"]),
    ("meta_bg", &["-t", "ext4", "-b", "1024", "-O", "meta_bg,^resize_inode"]),
    ("meta_bg-4k", &["-t", "ext4", "-b", "4096", "-O", "meta_bg,^resize_inode,^64bit"]),
    ("sparse_super2", &["-t", "ext4", "-b", "1024", "-O", "sparse_super2,^resize_inode"]),
    ("no-sparse", &["-t", "ext4", "-b", "1024", "-O", "^sparse_super,^resize_inode"]),
    ("128-byte", &["-t", "ext4", "-I", "128", "-O", "^extra_isize"]),
    ("128-byte-csum", &["-t", "ext4", "-I", "128"]),
    ("512-byte", &["-t", "ext4", "-I", "512"]),
    ("1024-byte", &["-t", "ext4", "-I", "1024", "-b", "4096"]),
    ("no-extents", &["-t", "ext4", "-O", "^extents,^64bit"]),
    ("no-index", &["-t", "ext4", "-O", "^dir_index"]),
    ("no-filetype", &["-t", "ext4", "-O", "^filetype"]),
    ("large_dir", &["-t", "ext4", "-O", "large_dir"]),
    ("stable_inodes", &["-t", "ext4", "-O", "stable_inodes"]),
    ("fast_commit", &["-t", "ext4", "-O", "fast_commit"]),
    ("ext2", &["-t", "ext2"]),
    ("ext2-1k", &["-t", "ext2", "-b", "1024"]),
    ("ext2-4k", &["-t", "ext2", "-b", "4096", "-I", "128"]),
    ("ext3", &["-t", "ext3"]),
    ("ext3-2k", &["-t", "ext3", "-b", "2048"]),
    ("revision-0", &["-t", "ext2", "-r", "0"]),
    ("project", &["-t", "ext4", "-O", "project,quota"]),
    ("bigalloc", &["-t", "ext4", "-b", "4096", "-O", "bigalloc"]),
    ("bigalloc-1k", &["-t", "ext4", "-b", "1024", "-O", "bigalloc", "-C", "16384"]),
    ("inline_data", &["-t", "ext4", "-O", "inline_data"]),
    ("inline_data-1024", &["-t", "ext4", "-O", "inline_data", "-I", "1024", "-b", "4096"]),
    ("ea_inode", &["-t", "ext4", "-O", "ea_inode"]),
    ("encrypt", &["-t", "ext4", "-O", "encrypt"]),
    ("verity", &["-t", "ext4", "-O", "verity"]),
    ("casefold", &["-t", "ext4", "-O", "casefold"]),
    ("mmp", &["-t", "ext4", "-O", "mmp"]),
];

/// Properties that mke2fs does not copy: fractions of seconds, times of directories that it fills, and its
/// own directory lost+found.
fn as_made() -> Options {
    Options {
        ignore_nanoseconds: true,
        ignore_dir_mtime: true,
        ignore_root: true,
        ignore_lost_found: true,
        ..Options::default()
    }
}

/// 32 bits of seconds end in 2038; only longer inodes and newer programs go beyond that.
fn until_2038(mut m: Manifest) -> Manifest {
    m.entries.retain(|e| !e.path.starts_with("times/time-"));
    m
}

/// Every `parts`-th set from number `of` on, so that several tests run side by side.
fn compare_sets(of: usize, parts: usize) {
    if skip() {
        return;
    }
    let dir = scratch();
    let sources = [false, true].map(|small| source(dir.path(), small));
    let trees = sources.each_ref().map(|s| until_2038(walk(s).unwrap()));
    for (name, args) in SETS.iter().skip(of).step_by(parts) {
        let image = dir.path().join(format!("{name}.img"));
        // 128-byte inodes keep all attributes in a block; small volumes may have 1 KiB blocks.
        let small = !args.contains(&"4096");
        let from = ["-d", sources[usize::from(small)].to_str().unwrap()];
        mke2fs(&image, &[*args, &from].concat(), "160M");
        let ours = describe(&image);
        match describe_by_kernel(&image) {
            Some(kernel) => assert_same_but(name, &kernel, &ours, &Options::default()),
            None => println!("{name}: the host's kernel does not mount it"),
        }
        // With inline data mke2fs 1.47.0 truncates sparse files: Linux reads them as we do, not as the
        // originals.
        if !name.starts_with("inline_data") {
            // The format's first revision has no attributes.
            let but = Options { ignore_xattrs: *name == "revision-0", ..as_made() };
            assert_same_but(&format!("{name}, as made"), &trees[usize::from(small)], &until_2038(ours), &but);
        }
        compare_capacity(name, &image);
        let _ = std::fs::remove_file(&image);
    }
}

/// Compares statfs, and the reason why nothing is changed.
fn compare_capacity(name: &str, image: &std::path::Path) {
    let v = open(image).unwrap();
    let ours = v.statfs();
    if let Some(m) = Mounted::new(image, "ro") {
        let k = rustix::fs::statvfs(m.path()).unwrap();
        let ours = (ours.blocks, ours.blocks_free, ours.blocks_available, ours.files, ours.files_free);
        assert_eq!(ours, (k.f_blocks, k.f_bfree, k.f_bavail, k.f_files, k.f_ffree), "{name}");
    }
    let e = v.create(&tidegate_vfs::Cred::ROOT, &v.root().unwrap(), b"new", 0o644).map(drop).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::ReadOnly, "{name}: {e}");
    v.unmount().unwrap();
}

#[test]
fn volumes_of_every_kind_are_read_as_linux_reads_them_1() {
    compare_sets(0, 3);
}

#[test]
fn volumes_of_every_kind_are_read_as_linux_reads_them_2() {
    compare_sets(1, 3);
}

#[test]
fn volumes_of_every_kind_are_read_as_linux_reads_them_3() {
    compare_sets(2, 3);
}
