//! The contract of host and guest: a script, its variables, its output and its status.
//!
//! A job is a directory that both see. The guest runs the script [`BODY`] there, prints [`BEGIN`] before its first
//! output and [`END`] with the exit status after its last, and leaves the status in the file [`RESULT`].

use crate::error::{Error, Result};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Line the guest prints before the body's first output.
pub const BEGIN: &str = "@@guest-begin";
/// Line the guest prints, with the exit status, after the body's last output.
pub const END: &str = "@@guest-end";
/// File of the job directory that holds the exit status.
pub const RESULT: &str = "result";
/// File of the job directory that holds the shell script to run.
pub const BODY: &str = "body";

/// File of the job directory that holds the standard error of the guest's process.
pub const ERRORS: &str = "errors";

/// Lines of a shell script that export these variables.
///
/// # Errors
/// A name that is not valid in the shell.
pub fn exports(env: &[(String, OsString)]) -> Result<Vec<u8>> {
    let mut script = Vec::new();
    for (name, value) in env {
        let fits = |(i, c): (usize, char)| c == '_' || c.is_ascii_alphabetic() || i > 0 && c.is_ascii_digit();
        if name.is_empty() || !name.chars().enumerate().all(fits) {
            return Err(Error::Guest(format!("{name:?} is no name of a variable")));
        }
        script.extend_from_slice(format!("export {name}=").as_bytes());
        script.extend(quoted(value));
        script.push(b'\n');
    }
    Ok(script)
}

/// A word that the shell takes literally.
pub(crate) fn quoted(word: &OsStr) -> Vec<u8> {
    let mut out = vec![b'\''];
    for &b in word.as_bytes() {
        match b {
            b'\'' => out.extend_from_slice(b"'\\''"),
            b => out.push(b),
        }
    }
    out.push(b'\'');
    out
}

/// A path as a literal shell word, for use in bodies.
pub fn sh(path: impl AsRef<Path>) -> String {
    String::from_utf8_lossy(&quoted(path.as_ref().as_os_str())).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_stay_what_they_are() {
        assert_eq!(sh("it's a $HOME"), "'it'\\''s a $HOME'");
    }

    #[test]
    fn names_of_variables_are_checked() {
        let one = |name: &str| exports(&[(name.into(), "a b".into())]);
        assert_eq!(one("_A1").unwrap(), b"export _A1='a b'\n");
        for name in ["", "1A", "A-B", "A=B"] {
            assert!(matches!(one(name), Err(Error::Guest(_))), "{name}");
        }
    }
}
