//! Errors about damaged structures name their places as data: the inode or directory, and the block.

use crate::damaged::small_tree;
use crate::rig::*;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tidegate_testing::temp::TempDir;
use tidegate_vfs::{At, Cred, Error, ErrorKind, Inode, OpenFlags, Vfs};

const BLOCK: u64 = 1024;

/// A volume with something of each kind.
fn volume(args: &[&str]) -> Option<(TempDir, PathBuf)> {
    if skip() {
        return None;
    }
    let dir = scratch();
    let (image, tree) = (dir.path().join("a.img"), dir.path().join("tree"));
    std::fs::create_dir(&tree).unwrap();
    small_tree(&tree);
    mke2fs(&image, &[args, &["-b", "1024", "-I", "256", "-d", tree.to_str().unwrap()]].concat(), "4M");
    Some((dir, image))
}

/// The number that debugfs prints behind `word`.
fn number(image: &Path, command: &str, word: &str) -> u64 {
    let said = must("debugfs", &["-R", command, image.to_str().unwrap()]);
    let rest = said.split_once(word).unwrap_or_else(|| panic!("no {word}: {said}")).1.trim_start();
    rest.split(|c: char| !c.is_ascii_digit()).next().unwrap().parse().unwrap_or_else(|_| panic!("{said}"))
}

fn find(v: &Arc<Vfs>, path: &str) -> Result<Arc<Inode>, Error> {
    path.split('/').try_fold(v.root()?, |dir, name| v.lookup(&dir, name.as_bytes()))
}

fn read(v: &Arc<Vfs>, path: &str) -> Result<(), Error> {
    let f = v.open(&Cred::ROOT, &find(v, path)?, OpenFlags::READ)?;
    f.read_at(0, &mut vec![0; 64 << 10]).map(drop)
}

/// Puts `bytes` at `at` while `f` reads; returns the places in the error. None may be named twice.
fn told(image: &Path, at: u64, bytes: &[u8], f: fn(&Arc<Vfs>) -> Result<(), Error>) -> Vec<At> {
    let mut damaged = std::fs::read(image).unwrap();
    damaged[at as usize..][..bytes.len()].copy_from_slice(bytes);
    let copy = image.with_extension("damaged");
    std::fs::write(&copy, damaged).unwrap();
    let v = open(&copy).unwrap();
    let e = f(&v).unwrap_err();
    v.unmount().unwrap();
    assert_eq!(e.kind(), ErrorKind::Corrupt, "{e}");
    let places: Vec<At> = e.places().cloned().collect();
    for at in &places {
        assert_eq!(e.to_string().matches(&at.to_string()).count(), 1, "{e}");
    }
    places
}

#[test]
fn damage_is_told_with_its_place() {
    let Some((_dir, image)) = volume(&["-t", "ext4"]) else { return };
    let v = open(&image).unwrap();
    let ino = |path| find(&v, path).unwrap().ino;
    const NAME: &str = "directory/name-7-yyyyyyy";

    let block = number(&image, "stat /pieces", "(ETB0):");
    let places = told(&image, block * BLOCK + 13, &[0xfe], |v| read(v, "pieces"));
    assert_eq!(places, [At::Inode(ino("pieces")), At::Part("extent block", block)]);

    let block = number(&image, "bmap /directory 0", "");
    let places = told(&image, block * BLOCK + 6, &[0xfe], |v| find(v, NAME).map(drop));
    assert_eq!(places, [At::Dir(ino("directory")), At::Part("block", 0)]);

    let block = number(&image, &format!("stat /{NAME}"), "File ACL:");
    let get = |v: &Arc<Vfs>| v.listxattr(&Cred::ROOT, find(v, NAME)?.as_ref()).map(drop);
    let places = told(&image, block * BLOCK + 100, &[0xfe], get);
    assert_eq!(places, [At::Inode(ino(NAME)), At::Part("attribute block", block)]);

    let block = number(&image, "imap /short", "located at block");
    let first = number(&image, "imap <1>", "located at block");
    let at = first * BLOCK + (ino("short").0 - 1) * 256;
    assert_eq!(at / BLOCK, block);
    let places = told(&image, at + 0x64, &[0xfe; 4], |v| find(v, "short").map(drop));
    assert_eq!(places, [At::Inode(ino("short"))]);
    v.unmount().unwrap();
}

#[test]
fn a_map_that_leads_outside_is_told_with_its_place() {
    let Some((_dir, image)) = volume(&["-t", "ext2"]) else { return };
    let v = open(&image).unwrap();
    let ino = find(&v, "pieces").unwrap().ino;
    v.unmount().unwrap();
    let block = number(&image, "stat /pieces", "(IND):");
    let outside = [0xff, 0xff, 0xff, 0].repeat(BLOCK as usize / 4);
    let places = told(&image, block * BLOCK, &outside, |v| read(v, "pieces"));
    assert_eq!(places, [At::Inode(ino), At::Block(0x00ff_ffff)]);
}
