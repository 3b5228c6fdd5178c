//! The helpers that tests of the program share.
#![allow(dead_code, missing_docs)]

pub mod chrome;
pub mod damage;
#[allow(clippy::disallowed_types, clippy::disallowed_methods)] // it waits for real processes
pub mod mounted;
#[allow(clippy::disallowed_types, clippy::disallowed_methods)] // it waits for real processes
pub mod tour;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use tidegate_testing::manifest::{self, Options};

/// A scratch directory and the program in it.
pub struct Bench {
    pub dir: tempfile::TempDir,
}

impl Bench {
    pub fn new() -> Self {
        Bench { dir: tempfile::tempdir().unwrap() }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn command(&self, args: &[&str]) -> Command {
        let mut c = Command::new(env!("CARGO_BIN_EXE_tidegate"));
        c.args(args).current_dir(self.dir.path()).env_remove("SOURCE_DATE_EPOCH");
        c
    }

    /// A copy of the program in the bench's directory, for users who cannot reach the original.
    pub fn program(&self) -> PathBuf {
        self.copy_program(Path::new(env!("CARGO_BIN_EXE_tidegate")), "tidegate")
    }

    /// A copy of a program in the bench's directory.
    ///
    /// `cp` makes it: a child that another test forks meanwhile would hold a copy of our descriptor, open for
    /// writing, and the program could not be executed (ETXTBSY).
    pub fn copy_program(&self, program: &Path, name: &str) -> PathBuf {
        let copy = self.path(name);
        assert!(Command::new("cp").arg(program).arg(&copy).status().unwrap().success());
        copy
    }

    /// Runs the program, which must succeed. Returns its standard output.
    pub fn ok(&self, args: &[&str]) -> String {
        let out = self.command(args).output().unwrap();
        assert!(out.status.success(), "{args:?}: {}", String::from_utf8_lossy(&out.stderr));
        String::from_utf8(out.stdout).unwrap()
    }

    /// Runs the program, which must fail with one line and `code`. Returns the line.
    pub fn fails(&self, args: &[&str], code: i32) -> String {
        let out = self.command(args).output().unwrap();
        failed(&out, code)
    }

    /// A tree with a file of every kind; kinds that only root can make only as root.
    pub fn varied(&self) -> PathBuf {
        let dir = self.path("src");
        std::fs::create_dir(&dir).unwrap();
        tidegate_testing::fill::fill(tidegate_testing::fill::Kind::Varied, &dir).unwrap();
        dir
    }

    /// Asserts that Tidegate's check and the stock fsck call the image clean. False when the stock fsck is
    /// not installed.
    pub fn fsck(&self, image: &str) -> bool {
        assert!(self.ok(&["check", image]).contains("clean"));
        let Ok(out) = Command::new("fsck.f2fs").arg("--dry-run").arg(self.path(image)).output() else {
            eprintln!("skipped: fsck.f2fs is not installed");
            return false;
        };
        let text = String::from_utf8_lossy(&out.stdout);
        assert!(out.status.success() && !text.contains("[Fail]") && !text.contains("ASSERT"), "{text}");
        true
    }
}

/// Asserts the exit code, and that standard error has one line that begins with the program's name. Returns
/// the line.
pub fn failed(out: &Output, code: i32) -> String {
    let text = String::from_utf8_lossy(&out.stderr).into_owned();
    assert_eq!(out.status.code(), Some(code), "{text}");
    assert_eq!(text.lines().count(), 1, "{text}");
    text.trim_end().strip_prefix("tidegate: ").expect("the program's name").to_string()
}

/// Asserts that both trees are equal, to the last attribute.
pub fn assert_same(a: &Path, b: &Path, options: &Options) {
    let (x, y) = (manifest::walk(a).unwrap(), manifest::walk(b).unwrap());
    assert!(!x.entries.is_empty());
    let found = manifest::compare(&x, &y, options);
    assert!(found.is_empty(), "{} differences:\n{}", found.len(), found[..found.len().min(20)].join("\n"));
}

pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Whether a program is installed.
pub fn has(program: impl AsRef<OsStr>) -> bool {
    Command::new(program).arg("--version").output().is_ok()
}
