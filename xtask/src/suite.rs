//! `cargo xtask test`: every check, in the order that fails soonest.

use std::ffi::OsStr;
use std::panic::resume_unwind;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::watched::{self, Limits};
use crate::{licences, programs};
use anyhow::{Context, Result, bail};

use tidegate_testing::temp::TempDir;
use tidegate_testing::{golden, oracle, workspace};

/// How long a test program or a compiler may run: the slowest takes ten minutes where it shares two CPUs with another.
const CHILD: Duration = Duration::from_secs(20 * 60);
/// How long all checks may take together: forty minutes on two idle CPUs, from nothing.
const WHOLE: Duration = Duration::from_secs(75 * 60);

/// Runs all checks; `quick` leaves the golden volumes to the tests that ask
/// for them.
pub fn run(quick: bool) -> Result<()> {
    let start = Instant::now();
    let limits = || Limits { child: CHILD, whole: WHOLE.saturating_sub(start.elapsed()) };
    let cargo = |name: &str, args: &[&str]| cargo_step(name, args, &limits());
    if rustix::process::geteuid().is_root() || oracle::in_ci() {
        step("oracles", oracle::install_missing)?;
    } else {
        for o in oracle::missing() {
            println!("oracle `{}` missing ({})", o.name, o.how());
        }
    }
    let dir = golden::default_dir();
    let make_goldens = || step("golden volumes", || golden::make_all(&dir, &[], false));
    std::thread::scope(|scope| {
        // Guests wait much; compilers use what they leave.
        let goldens = scope.spawn(|| if quick { Ok(()) } else { make_goldens() });
        cargo("format", &["fmt", "--all", "--check"])?;
        cargo("clippy", &["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"])?;
        cargo("documents", &["doc", "--workspace", "--no-deps", "--lib"])?;
        step("licences", licences::check)?;
        cargo("release build", &["build", "--release", "--bin", "tidegate"])?;
        step("the README's first command", first_command)?;
        cargo("building the tests", &["test", "--workspace", "--no-run"])?;
        goldens.join().unwrap_or_else(|panic| resume_unwind(panic))
    })?;
    // The tests of mounts take F2FS by themselves; `soak --format ext4` has the long ones.
    let mounts_of_ext4 = programs::Again {
        program: "tidegate-fuse/tests/mount/main.rs",
        name: "mounts of ext4",
        arguments: &["--skip", "fsx::", "--skip", "stress::"],
        environment: &[("TIDEGATE_TEST_FORMAT", OsStr::new("ext4"))],
    };
    let helper = workspace::helper_binary()?;
    let environment = [("XTASK_BIN", helper.as_os_str())];
    step("tests", || programs::run(&limits, &[mounts_of_ext4], &environment))?;
    cargo("tests in documents", &["test", "--workspace", "--doc"])?;
    println!("xtask test: all checks passed in {:.0} s", start.elapsed().as_secs_f64());
    Ok(())
}

/// Runs what the README tells a newcomer to run first, word for word but for where the image goes, and
/// has the image judged.
fn first_command() -> Result<()> {
    if oracle::skip_or_fail("fsck.f2fs") {
        return Ok(());
    }
    let readme = std::fs::read_to_string(workspace::root().join("README.md")).context("README.md")?;
    let block = readme.lines().skip_while(|l| !l.starts_with("```")).nth(1).unwrap_or_default();
    let words: Vec<&str> = block.split('#').next().unwrap_or_default().split_whitespace().collect();
    let ["cargo", args @ .., image] = &words[..] else {
        bail!("README.md: its first command makes no image with cargo: {block}");
    };
    let dir = TempDir::new("readme")?;
    let image = dir.path().join(image);
    let status = Command::new(workspace::cargo())
        .args(args)
        .arg(&image)
        .current_dir(workspace::root())
        .status()
        .context("running cargo")?;
    if !status.success() {
        bail!("{}: {status}", words.join(" "));
    }
    golden::fsck_f2fs(&image)
}

fn step(name: &str, work: impl FnOnce() -> Result<()>) -> Result<()> {
    let start = Instant::now();
    println!("== {name}");
    work().with_context(|| format!("{name} failed"))?;
    println!("== {name}: {:.1} s", start.elapsed().as_secs_f64());
    Ok(())
}

fn cargo_step(name: &str, args: &[&str], limits: &Limits) -> Result<()> {
    let helper = workspace::helper_binary()?;
    step(name, || {
        let mut command = Command::new(workspace::cargo());
        command.args(args).current_dir(workspace::root());
        command.env("XTASK_BIN", &helper).env("RUSTDOCFLAGS", "-D warnings");
        let status = watched::run(&mut command, limits).context("running cargo")?;
        if !status.success() {
            bail!("cargo {}: {status}", args.join(" "));
        }
        Ok(())
    })
}
