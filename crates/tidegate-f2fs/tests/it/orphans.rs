//! Files that have no name and are open when the volume is left.

use crate::util;
use tidegate_vfs::*;

#[test]
fn a_device_without_a_name_is_no_file_with_blocks() {
    for features in ["", "extra_attr,inode_checksum"] {
        let dir = tempfile::tempdir().unwrap();
        let path = util::make_image(dir.path(), 64 << 20, features);
        let v = util::mount(&path);
        let root = v.root().unwrap();
        let mut new = v.new_inode(&Cred::ROOT, FileType::CharDevice, 0o644);
        for minor in [1, 70_000] {
            new.rdev = DeviceNumber { major: 0, minor };
            let inode = v.make(&Cred::ROOT, &root, b"d", &new).unwrap();
            let file = v.open(&Cred::ROOT, &inode, OpenFlags::READ).unwrap();
            v.unlink(&Cred::ROOT, &root, b"d").unwrap();
            assert_eq!(inode.attr().rdev, new.rdev);
            std::mem::forget(file);
        }
        v.unmount().unwrap();
        drop(v);
        util::fsck(&path);
    }
}
