//! The things that errors are about: paths of the host, paths in a volume, and things that only have a name.

use super::{path_bytes, show};
use std::ffi::OsStr;
use std::fmt::{Display, Formatter};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The thing that an error is about. It is shown in the form for messages ([`show`](crate::error::show)).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    /// A path of the host: an image, a source, a target, a place to mount at.
    Host(PathBuf),
    /// A path in a volume.
    Inside {
        /// The volume's image.
        image: Box<Subject>,
        /// The path from the volume's root, with or without a leading slash.
        path: Vec<u8>,
    },
    /// An option, a stream, or a volume that has a name and no path.
    Named(String),
}

impl Subject {
    /// The path of the host with these bytes.
    pub fn host(path: &[u8]) -> Subject {
        Subject::Host(OsStr::from_bytes(path).into())
    }

    /// `path` in this volume.
    pub(crate) fn inside(&self, path: &[u8]) -> Subject {
        Subject::Inside { image: Box::new(self.clone()), path: path.to_vec() }
    }

    /// The path of the host: itself, or the image that it is in.
    pub fn host_path(&self) -> Option<&Path> {
        match self {
            Subject::Host(path) => Some(path),
            Subject::Inside { image, .. } => image.host_path(),
            Subject::Named(_) => None,
        }
    }
}

impl Display for Subject {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        match self {
            Subject::Host(path) => f.write_str(&show(path_bytes(path))),
            Subject::Inside { image, path } => {
                let slash = if path.starts_with(b"/") { "" } else { "/" };
                write!(f, "{image}:{slash}{}", show(path))
            }
            Subject::Named(name) => f.write_str(name),
        }
    }
}

impl From<&Path> for Subject {
    fn from(path: &Path) -> Self {
        Subject::Host(path.into())
    }
}

impl From<&PathBuf> for Subject {
    fn from(path: &PathBuf) -> Self {
        Subject::Host(path.clone())
    }
}

impl From<PathBuf> for Subject {
    fn from(path: PathBuf) -> Self {
        Subject::Host(path)
    }
}

impl From<&str> for Subject {
    fn from(name: &str) -> Self {
        Subject::Named(name.into())
    }
}

impl From<String> for Subject {
    fn from(name: String) -> Self {
        Subject::Named(name)
    }
}

impl From<&String> for Subject {
    fn from(name: &String) -> Self {
        Subject::Named(name.clone())
    }
}

impl From<&Subject> for Subject {
    fn from(subject: &Subject) -> Self {
        subject.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_subject_is_shown_on_one_line_and_keeps_its_bytes() {
        let image = Subject::host(b"/a\nb.img");
        let inside = image.inside(b"c\xff");
        assert_eq!(inside.to_string(), "/a\\nb.img:/c\\xff");
        assert_eq!(inside.host_path(), Some(Path::new("/a\nb.img")));
        assert_eq!(image.inside(b"/d").to_string(), "/a\\nb.img:/d");
        assert_eq!(Subject::from("--size").host_path(), None);
    }
}
