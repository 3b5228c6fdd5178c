//! The volumes that a kernel mounts, by name.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

pub use tidegate::detect::Format;

/// The volume that is mounted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// A new volume for each run.
    New(Format),
    /// An existing volume.
    Image(PathBuf),
}

/// A volume and its mount options: `f2fs,nocheckpoint_merge`, `vol.img,ro`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    /// The volume that is mounted.
    pub what: What,
    /// The mount options, as after mount's `-o`; may be empty.
    pub options: String,
}

/// Mount options of both.
pub(crate) fn joined(a: &str, b: &str) -> String {
    [a, b].into_iter().filter(|o| !o.is_empty()).collect::<Vec<_>>().join(",")
}

impl FromStr for Named {
    type Err = String;

    /// A file with the name of a format needs a path with a slash: `./f2fs`.
    fn from_str(s: &str) -> std::result::Result<Self, String> {
        let (what, options) = s.split_once(',').unwrap_or((s, ""));
        let what = match what.parse() {
            _ if what.is_empty() => return Err("f2fs, ext4 or the path of an image is needed".into()),
            Ok(format) => What::New(format),
            Err(_) => What::Image(what.into()),
        };
        Ok(Named { what, options: options.into() })
    }
}

impl fmt::Display for Named {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.what {
            What::New(format) => f.write_str(format.name())?,
            What::Image(path) => write!(f, "{}", path.display())?,
        }
        if self.options.is_empty() { Ok(()) } else { write!(f, ",{}", self.options) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_format_a_path_and_options_are_told_apart() {
        let named = |s: &str| s.parse::<Named>().unwrap();
        let new = |format, options: &str| Named { what: What::New(format), options: options.into() };
        assert_eq!(named("f2fs"), new(Format::F2fs, ""));
        assert_eq!(named("ext4,data=journal,commit=9"), new(Format::Ext4, "data=journal,commit=9"));
        assert_eq!(named("./f2fs,ro").what, What::Image("./f2fs".into()));
        for text in ["f2fs", "f2fs,nocheckpoint_merge", "ext4,data=journal,commit=9", "/a/v.img,ro"] {
            assert_eq!(named(text).to_string(), text);
        }
        assert!(",ro".parse::<Named>().unwrap_err().contains("path of an image"));
    }
}
