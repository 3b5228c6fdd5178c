//! `IMAGE:/path` names a place in a volume.
//!
//! A colon separates image and path where a slash or nothing follows it. So `img:/etc` and `img:` are
//! places in volumes, and `a:b` and `./a:b` are files of the host. The image may be a place in a disk, `img@1M`.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use tidegate::error::{Refusal, path_bytes, show};
use tidegate::within::within;
use tidegate::{Error, Result};

/// A place in a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The image.
    pub image: PathBuf,
    /// The path in it. It begins with a slash.
    pub path: Vec<u8>,
}

/// A place in a volume, or on the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Where {
    /// In a volume.
    Volume(Place),
    /// On the host.
    Host(PathBuf),
}

impl Where {
    /// Parses an argument of a command that takes both.
    pub fn parse(arg: &OsStr) -> Where {
        match split(arg.as_bytes()) {
            Some(place) => Where::Volume(place),
            None => Where::Host(arg.into()),
        }
    }
}

impl Place {
    /// Parses an argument of a command that only takes places in volumes. An image by itself means its root,
    /// and the first slash of the path may be missing.
    pub fn parse(arg: &OsStr) -> Place {
        let bytes = arg.as_bytes();
        if let Some(place) = split(bytes) {
            let whole = !is_image(&place.image) && is_image(Path::new(arg));
            return if whole { Place { image: arg.into(), path: b"/".to_vec() } } else { place };
        }
        match bytes.iter().rposition(|&b| b == b':') {
            Some(at) if !within(Path::new(arg)).0.exists() => {
                let mut path = b"/".to_vec();
                path.extend_from_slice(&bytes[at + 1..]);
                Place { image: path_of(&bytes[..at]), path }
            }
            _ => Place { image: arg.into(), path: b"/".to_vec() },
        }
    }

    /// Parses an argument of a command that takes images: all of it is the path of the image. If that path
    /// does not exist, but does without a trailing `:/...`, the latter is meant.
    pub fn image(arg: &OsStr) -> Place {
        let whole = Place { image: arg.into(), path: b"/".to_vec() };
        match Path::new(arg).symlink_metadata() {
            Ok(_) => whole,
            Err(_) => match split(arg.as_bytes()).filter(|p| within(&p.image).0.exists()) {
                Some(found) => Place { image: found.image, ..whole },
                None => whole,
            },
        }
    }

    /// Refuses an argument without an image.
    ///
    /// # Errors
    /// The refusal.
    pub fn check(&self) -> Result<()> {
        if !self.image.as_os_str().is_empty() {
            return Ok(());
        }
        Err(Error::argument("\"\"", "an empty name; a place in a volume is IMAGE:/path"))
    }

    /// Whether both are in one volume, whatever the spelling of its image.
    pub fn is_in_volume_of(&self, other: &Place) -> bool {
        self.image == other.image || id(&self.image).is_some_and(|i| Some(i) == id(&other.image))
    }

    /// The last component of the path. `None` for the root and for a path that ends in a dot.
    pub fn name(&self) -> Option<&[u8]> {
        let end = self.path.iter().rposition(|&b| b != b'/')? + 1;
        let name = self.path[..end].rsplit(|&b| b == b'/').next()?;
        (name != b"." && name != b"..").then_some(name)
    }
}

/// The refusal of a source whose name an earlier source of the same command has already got in the target directory.
pub fn twice(source: &str) -> Error {
    let what = "left out: what an earlier argument of this name became would be lost";
    Error::refused(Refusal::Occupied, source, what)
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", show(path_bytes(&self.image)), show(&self.path))
    }
}

/// Splits at the first colon that can separate image and path; at a later one only if there is an image before it, and
/// none before the first.
fn split(arg: &[u8]) -> Option<Place> {
    let mut colons =
        (1..arg.len()).filter(|&i| arg[i] == b':' && matches!(arg.get(i + 1), None | Some(b'/')));
    let first = colons.next()?;
    let ends = |at: usize| is_image(&path_of(&arg[..at]));
    let later = if ends(first) { None } else { colons.find(|&at| ends(at)) };
    let at = later.unwrap_or(first);
    let path = if at + 1 == arg.len() { b"/".to_vec() } else { arg[at + 1..].to_vec() };
    Some(Place { image: path_of(&arg[..at]), path })
}

/// Whether `path` leads to something that may be an image.
fn is_image(path: &Path) -> bool {
    within(path).0.metadata().is_ok_and(|m| !m.is_dir())
}

/// The device and inode number of an image, and the byte at which the volume begins in it.
fn id(image: &Path) -> Option<(u64, u64, u64)> {
    let (file, offset) = within(image);
    let m = file.metadata().ok()?;
    Some((m.dev(), m.ino(), offset.unwrap_or(0)))
}

fn path_of(bytes: &[u8]) -> PathBuf {
    OsString::from_vec(bytes.to_vec()).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(image: &str, path: &str) -> Place {
        Place { image: image.into(), path: path.into() }
    }

    #[test]
    fn a_colon_and_a_slash_name_a_volume() {
        let parse = |s: &str| Where::parse(OsStr::new(s));
        assert_eq!(parse("a.img:/etc"), Where::Volume(at("a.img", "/etc")));
        assert_eq!(parse("./a.img:/"), Where::Volume(at("./a.img", "/")));
        assert_eq!(parse("a.img:"), Where::Volume(at("a.img", "/")));
        assert_eq!(parse("a.img:/x:/y"), Where::Volume(at("a.img", "/x:/y")));
        for host in ["./a:b", "a:b", "/etc/passwd", ":", ":/x", "."] {
            assert_eq!(parse(host), Where::Host(host.into()), "{host}");
        }
    }

    #[test]
    fn an_image_alone_is_its_root() {
        let parse = |s: &str| Place::parse(OsStr::new(s));
        assert_eq!(parse("a.img"), at("a.img", "/"));
        assert_eq!(parse("a.img:etc"), at("a.img", "/etc"));
        assert_eq!(parse("a.img:/etc/"), at("a.img", "/etc/"));
    }

    #[test]
    fn an_image_may_have_a_colon_in_its_path() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("a:")).unwrap();
        let image = dir.path().join("a:/b.img");
        std::fs::write(&image, "").unwrap();
        let arg = |tail: &str| OsString::from(format!("{}{tail}", image.display()));
        let place = Place { image: image.clone(), path: b"/x:/y".to_vec() };
        assert_eq!(Place::parse(&arg(":/x:/y")), place);
        let whole = Place { image: image.clone(), path: b"/".to_vec() };
        assert_eq!([Place::image(&arg("")), Place::image(&arg(":/x"))], [whole.clone(), whole]);
        assert_eq!(Place::image(OsStr::new("no:/where")).image, Path::new("no:/where"));
        assert!(Place::parse(OsStr::new("")).check().is_err());
    }

    #[test]
    fn names_of_places() {
        assert_eq!(at("i", "/a/b/").name(), Some(&b"b"[..]));
        for none in ["/", "//", "/a/.", "/.."] {
            assert_eq!(at("i", none).name(), None);
        }
    }
}
