//! Names that are encrypted and fold case have a hash behind them, which can be computed only with the key.

use super::*;

const NAME: &[u8; 16] = b"sixteen-letters!";
const HASH: [u8; 8] = [0xd0, 0xd1, 0xd2, 0xd3, 0xd4, 0xd5, 0xd6, 0xd7];

#[test]
fn hashes_behind_names_are_kept_in_a_block_that_is_written_anew() {
    if skip() {
        return;
    }
    let dir = scratch();
    let (image, tree) = (dir.path().join("a.img"), dir.path().join("tree"));
    std::fs::create_dir_all(tree.join("locked")).unwrap();
    std::fs::write(tree.join("locked").join(std::str::from_utf8(NAME).unwrap()), "cipher").unwrap();
    let args = ["-t", "ext4", "-O", "encrypt,casefold,^metadata_csum", "-d", tree.to_str().unwrap()];
    mke2fs(&image, &args, "16M");
    let debugfs = |what: &str| must("debugfs", &["-w", "-R", what, image.to_str().unwrap()]);
    debugfs("set_inode_field /locked flags 0x40080800");
    debugfs("ea_set /locked user.c how-it-is-encrypted");
    let mut bytes = std::fs::read(&image).unwrap();
    let find = |bytes: &[u8], what: &[u8]| bytes.windows(what.len()).position(|w| w == what).unwrap();
    // The entry (`struct ext4_xattr_entry`) of "user.c" lies behind the magic number; its index becomes that
    // of encryption, whose name is "c".
    let at = find(&bytes, &[0, 0, 2, 0xea, 1, 1]);
    bytes[at + 5] = 9;
    let name = find(&bytes, NAME);
    bytes[name + 16..name + 24].copy_from_slice(&HASH);
    // The byte before the name is the type of its inode.
    assert_eq!(bytes[name - 1], 1);
    bytes[name - 1] = 2;
    let r = repair_bytes(&bytes);
    assert_eq!(r.report.unwrap().outcome, Outcome::Corrected, "{:?}", r.told);
    assert_eq!(r.bytes[name - 1], 1);
    assert_eq!(r.bytes[name + 16..name + 24], HASH, "{:?}", r.told);
}
