//! Directories with encrypted names: their names are arbitrary bytes.

use crate::rig::*;
use std::os::unix::fs::FileExt;
use tidegate_vfs::ErrorKind;

/// The name that is replaced by others of equal length.
const PLAIN: &[u8; 16] = b"sixteen-letters!";
const SECRET: &[u8; 16] = b"../\0/etc\xff\x01passwd";

#[test]
fn encrypted_names_are_shown_in_a_form_that_is_found() {
    if skip() {
        return;
    }
    let dir = scratch();
    let (image, tree) = (dir.path().join("a.img"), dir.path().join("tree"));
    std::fs::create_dir_all(tree.join("locked")).unwrap();
    std::fs::write(tree.join("locked").join(std::str::from_utf8(PLAIN).unwrap()), "cipher").unwrap();
    let args = ["-t", "ext4", "-O", "encrypt,^metadata_csum", "-d", tree.to_str().unwrap()];
    mke2fs(&image, &args, "16M");
    let set = |path: &str, flags: &str| {
        must(
            "debugfs",
            &["-w", "-R", &format!("set_inode_field {path} flags {flags}"), image.to_str().unwrap()],
        );
    };
    set("/locked/sixteen-letters!", "0x80800");
    set("/locked", "0x80800");
    let bytes = std::fs::read(&image).unwrap();
    let at = bytes.windows(PLAIN.len()).position(|w| w == PLAIN).unwrap();
    let file = std::fs::File::options().write(true).open(&image).unwrap();
    file.write_all_at(SECRET, at as u64).unwrap();

    let v = open(&image).unwrap();
    let locked = v.lookup(&v.root().unwrap(), b"locked").unwrap();
    let names: Vec<Vec<u8>> = v.entries(&locked).unwrap().into_iter().map(|e| e.name).collect();
    assert_eq!(names.len(), 1);
    assert!(names[0].iter().all(|b| b.is_ascii_alphanumeric() || b"-_".contains(b)), "{names:?}");
    let inode = v.lookup(&locked, &names[0]).unwrap();
    let f = v.open(&tidegate_vfs::Cred::ROOT, &inode, tidegate_vfs::OpenFlags::READ).unwrap();
    let e = f.read_at(0, &mut [0; 6]).unwrap_err();
    assert!(e.kind() == ErrorKind::Unsupported && e.what() == "its data is encrypted", "{e}");
    v.unmount().unwrap();

    // If names are not encrypted, the name is damage.
    set("/locked", "0x80000");
    let v = open(&image).unwrap();
    let locked = v.lookup(&v.root().unwrap(), b"locked").unwrap();
    let e = v.entries(&locked).unwrap_err();
    assert!(e.kind() == ErrorKind::Corrupt && e.what().contains("a name with a slash or a zero byte"), "{e}");
    v.unmount().unwrap();
}
