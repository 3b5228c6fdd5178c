//! The workspace's test programs, as many at once as there are CPUs.
//!
//! `cargo test` runs one program after the other. Many tests wait (for guests, devices, a lock that the
//! simulator's tests share), so that one program keeps fewer than two CPUs busy.

use std::cmp::Reverse;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::available_parallelism;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;
use tidegate_testing::temp::TempDir;
use tidegate_testing::workspace;

use crate::watched::{self, Limits};

/// The programs that take longest, in the order in which they begin: what begins last should be short.
const FIRST: [&str; 5] = [
    "tidegate-f2fs/tests/it/main.rs",
    "tidegate-lab/src/lib.rs",
    "tidegate-fuse/tests/mount/main.rs",
    "tidegate-ext4/tests/it/main.rs",
    "tidegate-cli/tests/it/main.rs",
];

/// A test program: how it is called, where it is, and where it runs (as under `cargo test`, its package's directory).
#[derive(Debug, Clone)]
struct Program {
    name: String,
    file: PathBuf,
    package: PathBuf,
}

/// Another run of a program behind its first: the two would be in each other's way.
pub struct Again<'a> {
    /// The program's name.
    pub program: &'a str,
    /// The name of this run.
    pub name: &'a str,
    /// Its arguments.
    pub arguments: &'a [&'a str],
    /// Its environment, beside the one of all programs.
    pub environment: &'a [(&'a str, &'a OsStr)],
}

/// Builds all test programs, and then runs them.
///
/// # Errors
/// Something does not build, or programs fail: all are run, and those that failed are named.
pub fn run(
    limits: &(dyn Fn() -> Limits + Sync),
    again: &[Again<'_>],
    environment: &[(&str, &OsStr)],
) -> Result<()> {
    let mut programs = list(&limits())?;
    for name in FIRST.into_iter().chain(again.iter().map(|run| run.program)) {
        ensure!(programs.iter().any(|p| p.name == name), "there is no test program {name}");
    }
    // The queue is taken from its end.
    programs.sort_by_key(|p| Reverse(FIRST.iter().position(|name| p.name == *name).unwrap_or(FIRST.len())));
    let queue = Mutex::new(programs);
    let failed = Mutex::new(Vec::new());
    let note = |name: &str, end: Result<()>| {
        if let Err(err) = end {
            println!("{name}: {err:#}");
            locked(&failed).push(name.to_owned());
        }
    };
    let work = || {
        loop {
            // The queue is free again before the program runs.
            let Some(program) = locked(&queue).pop() else { break };
            note(&program.name, one(&program, &program.name, &[], environment, &limits()));
            for run in again.iter().filter(|run| program.name == run.program) {
                let all = [environment, run.environment].concat();
                note(run.name, one(&program, run.name, run.arguments, &all, &limits()));
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..available_parallelism().map_or(1, usize::from) {
            scope.spawn(work);
        }
    });
    let failed = locked(&failed);
    ensure!(failed.is_empty(), "failed: {}", failed.join(", "));
    Ok(())
}

fn locked<T>(it: &Mutex<T>) -> MutexGuard<'_, T> {
    it.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs a program, and prints what it printed when it has ended.
fn one(
    program: &Program,
    name: &str,
    arguments: &[&str],
    environment: &[(&str, &OsStr)],
    limits: &Limits,
) -> Result<()> {
    let dir = TempDir::new("printed")?;
    let path = dir.path().join("printed");
    let printed = File::create(&path).with_context(|| path.display().to_string())?;
    println!("       Begun {name}");
    let start = Instant::now();
    let mut command = Command::new(&program.file);
    command.args(arguments).current_dir(&program.package).env("CARGO_MANIFEST_DIR", &program.package);
    command.envs(environment.iter().copied()).stdout(printed.try_clone()?).stderr(printed);
    let whole = limits.child.min(limits.whole);
    let end = watched::run(&mut command, &Limits { child: whole, whole });
    let text = std::fs::read(&path).with_context(|| path.display().to_string())?;
    let mut out = std::io::stdout().lock();
    writeln!(out, "     Running {name}: {:.1} s", start.elapsed().as_secs_f64())?;
    out.write_all(&text)?;
    drop(out);
    let status = end?;
    if !status.success() {
        bail!("{status}");
    }
    Ok(())
}

/// A message of cargo's about a thing it built.
#[derive(Deserialize)]
struct Artifact {
    reason: String,
    manifest_path: Option<PathBuf>,
    target: Option<Target>,
    profile: Option<Profile>,
    executable: Option<PathBuf>,
}

#[derive(Deserialize)]
struct Target {
    src_path: PathBuf,
}

#[derive(Deserialize)]
struct Profile {
    test: bool,
}

/// Builds the programs.
fn list(limits: &Limits) -> Result<Vec<Program>> {
    let dir = TempDir::new("artifacts")?;
    let path = dir.path().join("artifacts.json");
    let said = File::create(&path).with_context(|| path.display().to_string())?;
    let mut command = Command::new(workspace::cargo());
    command.args(["test", "--workspace", "--no-run", "--message-format=json-render-diagnostics"]);
    command.current_dir(workspace::root()).stdout(said);
    let status = watched::run(&mut command, limits).context("running cargo")?;
    ensure!(status.success(), "building the test programs: {status}");
    let said = File::open(&path).with_context(|| path.display().to_string())?;
    let mut programs = Vec::new();
    for line in BufReader::new(said).lines() {
        programs.extend(program(&line?)?);
    }
    ensure!(!programs.is_empty(), "cargo named no test program");
    Ok(programs)
}

/// The test program that a line of cargo's tells of, if it does.
fn program(line: &str) -> Result<Option<Program>> {
    let artifact: Artifact = serde_json::from_str(line).with_context(|| format!("cargo said {line}"))?;
    let tests = artifact.reason == "compiler-artifact" && artifact.profile.is_some_and(|p| p.test);
    let (true, Some(file), Some(manifest), Some(target)) =
        (tests, artifact.executable, artifact.manifest_path, artifact.target)
    else {
        return Ok(None);
    };
    let package = manifest.parent().context("a manifest without a directory")?.to_path_buf();
    let source = target.src_path.strip_prefix(workspace::root()).unwrap_or(&target.src_path);
    let name = source.strip_prefix("crates").unwrap_or(source).display().to_string();
    Ok(Some(Program { name, file, package }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn programs_of_tests_alone_are_taken() {
        let root = workspace::root();
        let line = |test: bool, file: &str| {
            let (manifest, source) =
                (root.join("crates/a/Cargo.toml"), root.join("crates/a/tests/it/main.rs"));
            serde_json::json!({
                "reason": "compiler-artifact",
                "manifest_path": manifest,
                "target": { "src_path": source, "kind": ["test"] },
                "profile": { "test": test, "opt_level": "1" },
                "executable": (!file.is_empty()).then_some(file),
            })
        };
        let taken = program(&line(true, "/t/it-1").to_string()).unwrap().unwrap();
        assert_eq!((taken.name.as_str(), taken.file), ("a/tests/it/main.rs", PathBuf::from("/t/it-1")));
        assert_eq!(taken.package, root.join("crates/a"));
        assert!(program(&line(false, "/t/a").to_string()).unwrap().is_none());
        assert!(program(&line(true, "").to_string()).unwrap().is_none());
        assert!(program(r#"{"reason":"build-finished","success":true}"#).unwrap().is_none());
        assert!(program("warning: no JSON").is_err());
    }

    #[test]
    fn a_program_that_fails_is_told_of() {
        let program =
            |file: &str| Program { name: file.into(), file: file.into(), package: std::env::temp_dir() };
        let limits = Limits { child: Duration::from_secs(60), whole: Duration::from_secs(60) };
        let end = |file: &str, arguments: &[&str]| one(&program(file), "a program", arguments, &[], &limits);
        end("true", &[]).unwrap();
        end("false", &[]).unwrap_err();
        end("/no/such/program", &[]).unwrap_err();
        end("sh", &["-c", "test \"$CARGO_MANIFEST_DIR\" = \"$PWD\""]).unwrap();
    }
}
