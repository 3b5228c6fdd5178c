//! Tells the program the commit from which it is built.

use std::process::Command;

/// The output of git, if git is installed and this is its tree.
fn git(args: &[&str]) -> Option<String> {
    let done = Command::new("git").args(args).output().ok().filter(|o| o.status.success())?;
    Some(String::from_utf8(done.stdout).ok()?.trim().to_owned())
}

fn main() {
    let commit = git(&["rev-parse", "--short=12", "HEAD"]).unwrap_or_else(|| "unknown".into());
    let changed =
        git(&["status", "--porcelain", "--untracked-files=no", ".."]).is_some_and(|s| !s.is_empty());
    println!("cargo::rustc-env=TIDEGATE_COMMIT={commit}{}", if changed { " with changes" } else { "" });
    // The value changes with a commit, a checkout, or a change of any crate.
    for file in ["HEAD", "logs/HEAD"] {
        if let Some(path) = git(&["rev-parse", "--git-path", file]) {
            println!("cargo::rerun-if-changed={path}");
        }
    }
    println!("cargo::rerun-if-changed=..");
}
