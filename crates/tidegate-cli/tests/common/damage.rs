//! Damage to `a.img` as by a failing disk.

use super::Bench;
use std::fs;

const BLOCK: usize = 4096;
/// Offsets in an inode block.
const I_NAME: usize = 92;
const I_EXT: usize = 348;
const I_ADDR: usize = 360;

/// Changes the inode blocks with this name.
pub fn inodes(b: &Bench, name: &str, f: impl Fn(&mut [u8])) {
    let mut bytes = fs::read(b.path("a.img")).unwrap();
    let mark = [name.as_bytes(), b"\0"].concat();
    let mut found = 0;
    for block in bytes.chunks_mut(BLOCK).filter(|b| b[I_NAME..].starts_with(&mark)) {
        found += 1;
        f(block);
    }
    assert!(found > 0, "no inode of {name}");
    fs::write(b.path("a.img"), &bytes).unwrap();
}

/// Its footer names no inode.
pub fn no_inode(block: &mut [u8]) {
    block[BLOCK - 24..BLOCK - 16].fill(0);
}

/// A page of the file, the 801st, lies outside the volume.
pub fn points_outside(block: &mut [u8]) {
    block[I_EXT..I_ADDR].fill(0);
    block[I_ADDR + 4 * 800..I_ADDR + 4 * 801].fill(0xee);
}
