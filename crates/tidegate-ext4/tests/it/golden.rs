//! Volumes that the kernel filled, read and changed by us: every name, attribute and byte is what the kernel found.

use crate::changed::open_to_write;
use crate::checked::check_bytes;
use crate::rig::*;
use tidegate_testing::ext4::{self, golden};
use tidegate_testing::manifest::{Manifest, Options};
use tidegate_testing::oracle::skip_or_fail;
use tidegate_testing::tree::assert_same_but;
use tidegate_uml::programs::KERNEL;
use tidegate_vfs::{Cred, OpenFlags};

/// Reads a volume; then a copy is opened for writing, gets a file, and is judged by e2fsck and the host's kernel.
fn read_and_change(spec: &golden::Spec) {
    let (name, made) = (spec.name, golden::ensure(spec.name).unwrap());
    let kernels = if spec.is_unmounted() { made.manifest } else { made.recovered };
    let kernels = Manifest::load(kernels.as_deref().unwrap()).unwrap();
    assert!(kernels.entries.len() > 5, "{name}");
    assert_same_but(name, &kernels, &describe(&made.image), &Options::default());

    if spec.is_unmounted() {
        let checked = check_bytes(&std::fs::read(&made.image).unwrap()).unwrap();
        assert!(checked.is_clean(), "{name}: {checked:?}");
    }

    let dir = scratch();
    let copy = dir.path().join("copy.img");
    tidegate_testing::golden::sparse_copy(&made.image, &copy).unwrap();
    let v = open_to_write(&copy);
    let found = tidegate_testing::tree::describe(&v).unwrap();
    assert_same_but(name, &kernels, &found, &Options::default());
    let inode = v.create(&Cred::ROOT, &v.root().unwrap(), b"later", 0o644).unwrap();
    let file = v.open(&Cred::ROOT, &inode, OpenFlags::WRITE).unwrap();
    file.write_at(0, &[7; 100_000]).unwrap();
    file.fsync(false).unwrap();
    drop(file);
    v.unmount().unwrap();
    drop(v);
    ext4::is_clean(&copy).unwrap();
    let after = describe_by_kernel(&copy).unwrap();
    assert_eq!(after.entries.len(), kernels.entries.len() + 1, "{name}");
}

#[test]
fn volumes_that_the_kernel_filled_are_read_and_changed() {
    if skip() || skip_or_fail(KERNEL) {
        return;
    }
    golden::SPECS.iter().for_each(read_and_change);
}
