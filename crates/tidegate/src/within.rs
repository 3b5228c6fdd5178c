//! `disk.img@1M`: the volume that begins 1 MiB into a disk's image.
//!
//! Every path of an image may be written in this form. If a file with such a name exists, the path means that
//! file.

use crate::options::bytes_of;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The file or device that `image` names, and the byte at which the volume begins, if it is given: a number in the form
/// of `offset=`, behind the last `@`.
pub fn within(image: &Path) -> (PathBuf, Option<u64>) {
    let whole = (image.to_path_buf(), None);
    let bytes = image.as_os_str().as_bytes();
    let Some(at) = bytes.iter().rposition(|&b| b == b'@').filter(|_| image.symlink_metadata().is_err())
    else {
        return whole;
    };
    let file = Path::new(OsStr::from_bytes(&bytes[..at]));
    let offset = std::str::from_utf8(&bytes[at + 1..]).ok().and_then(bytes_of);
    match offset {
        Some(_) if file.metadata().is_ok_and(|m| !m.is_dir()) => (file.to_path_buf(), offset),
        _ => whole,
    }
}

/// The name with the path of its file made absolute and free of links, as in the table of mounts.
pub fn canonical(image: &Path) -> PathBuf {
    let (file, offset) = within(image);
    let Some(mut path) = std::fs::canonicalize(&file).ok().map(PathBuf::into_os_string) else {
        return image.to_path_buf();
    };
    if let Some(offset) = offset {
        path.push(format!("@{offset}"));
    }
    path.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_in_a_disk_and_a_file_of_that_name() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        std::fs::write(at("d.img"), "").unwrap();
        assert_eq!(within(&at("d.img@1M")), (at("d.img"), Some(1 << 20)));
        assert_eq!(
            canonical(&at("d.img@1M")),
            std::fs::canonicalize(dir.path()).unwrap().join("d.img@1048576")
        );
        for name in ["d.img", "d.img@", "d.img@x", "other@1M", "@1M"] {
            assert_eq!(within(&at(name)), (at(name), None), "{name}");
        }
        std::fs::write(at("d.img@1M"), "").unwrap();
        assert_eq!(within(&at("d.img@1M")), (at("d.img@1M"), None));
    }
}
