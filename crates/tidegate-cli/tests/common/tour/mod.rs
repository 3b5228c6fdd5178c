//! Runs the `sh` blocks of a document as they are, and compares their output with the text below them.
//!
//! A line that begins with `$ ` is a command, which continues after a backslash at its end. The lines below
//! it are its output, on both streams. `…` stands for anything within a line, and a line of only `…` for any
//! lines. Times, dates, rates and ratios differ from run to run: only their presence is compared.
//!
//! All blocks of a document run one after the other in one directory, by one shell. Blocks marked `sh mount` need the
//! superuser and /dev/fuse.

mod compare;

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use tidegate_testing::workspace;

/// How long one command may take.
const LIMIT: Duration = Duration::from_secs(120);

/// A fenced block of a document.
pub struct Block {
    /// The words behind the fence.
    pub info: String,
    /// Line of the fence, from 1.
    pub line: usize,
    pub text: Vec<String>,
}

/// One command, and what it is to print.
struct Step {
    line: usize,
    command: String,
    expected: Vec<String>,
}

/// README and what is in `docs/`, as paths below the workspace.
pub fn documents() -> Vec<PathBuf> {
    let docs = fs::read_dir(workspace::root().join("docs")).unwrap().map(|e| e.unwrap().path());
    let mut all: Vec<PathBuf> = docs.filter(|p| p.extension().is_some_and(|e| e == "md")).collect();
    all.push(workspace::root().join("README.md"));
    all.sort();
    all
}

/// The blocks of a document.
pub fn blocks(document: &Path) -> Vec<Block> {
    let text = fs::read_to_string(document).unwrap();
    let mut blocks: Vec<Block> = Vec::new();
    let mut inside = false;
    for (i, line) in text.lines().enumerate() {
        match (line.strip_prefix("```"), inside) {
            (Some(_), true) => inside = false,
            (Some(info), false) => {
                inside = true;
                blocks.push(Block { info: info.trim().into(), line: i + 1, text: Vec::new() });
            }
            (None, true) => blocks.last_mut().unwrap().text.push(line.into()),
            (None, false) => {}
        }
    }
    assert!(!inside, "{}: a block is not closed", document.display());
    blocks
}

/// Runs the blocks of a document; those that mount only where `mounts` says so. Returns how many commands it
/// ran.
pub fn run(document: &Path, program: &Path, mounts: bool) -> usize {
    let dir = tempfile::tempdir().unwrap();
    let bin = dir.path().join(".bin");
    fs::create_dir(&bin).unwrap();
    std::os::unix::fs::symlink(program, bin.join("tidegate")).unwrap();
    let _mounted = Unmount(dir.path());
    let blocks = blocks(document);
    let wanted = |b: &&Block| b.info == "sh" || mounts && b.info == "sh mount";
    let steps: Vec<Step> = blocks.iter().filter(wanted).flat_map(steps).collect();
    for step in &steps {
        let said = shell(dir.path(), &bin, step, document);
        if let Err(why) = compare::lines(&step.expected, &said) {
            panic!(
                "{}:{}: {}\n{why}\n--- it printed\n{}",
                document.display(),
                step.line,
                step.command,
                said.join("\n")
            );
        }
    }
    steps.len()
}

fn steps(block: &Block) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let mut goes_on = false;
    for (i, text) in block.text.iter().enumerate() {
        if goes_on {
            let step = steps.last_mut().unwrap();
            step.command = format!("{}\n{text}", step.command);
            goes_on = text.ends_with('\\');
        } else if let Some(command) = text.strip_prefix("$ ") {
            let line = block.line + 1 + i;
            steps.push(Step { line, command: command.into(), expected: Vec::new() });
            goes_on = command.ends_with('\\');
        } else {
            let step = steps.last_mut();
            step.unwrap_or_else(|| panic!("line {}: a block begins with a command", block.line))
                .expected
                .push(text.clone());
        }
    }
    steps
}

/// Runs a command. Returns its output. It must end with 0, unless an error is expected.
///
/// Its output goes to a file: a mount that it leaves behind would keep a pipe open.
fn shell(dir: &Path, bin: &Path, step: &Step, document: &Path) -> Vec<String> {
    let at = format!("{}:{}: {}", document.display(), step.line, step.command);
    let file = dir.join(".bin/said");
    let out = fs::File::create(&file).unwrap();
    // Variables that one command exports are kept for the next.
    let script = format!(
        "exec 2>&1; [ -f .bin/env ] && . ./.bin/env\n{}\ns=$?; export -p > .bin/env; exit $s",
        step.command
    );
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap_or_default());
    let mut command = Command::new("sh");
    command.args(["-c", &script]).current_dir(dir).env("PATH", path).env_remove("SOURCE_DATE_EPOCH");
    command.stdin(Stdio::null()).stdout(out).stderr(Stdio::null()).process_group(0);
    let mut child = command.spawn().unwrap();
    let start = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if start.elapsed() > LIMIT {
            let _ = Command::new("kill").args(["-9", &format!("-{}", child.id())]).status();
            let _ = child.wait();
            panic!("{at}: still running after {LIMIT:?}");
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    let said = String::from_utf8_lossy(&fs::read(&file).unwrap()).into_owned();
    let fails = step.expected.iter().any(|l| l.starts_with("tidegate: "));
    assert_eq!(status.success(), !fails, "{at}: {status}\n{said}");
    said.lines().map(str::to_string).collect()
}

/// Unmounts what a failed document left mounted.
struct Unmount<'a>(&'a Path);

impl Drop for Unmount<'_> {
    fn drop(&mut self) {
        let table = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        let below = format!("{}/", self.0.display());
        for dir in table.lines().filter_map(|l| l.split(' ').nth(1)).filter(|d| d.starts_with(&below)) {
            let _ = Command::new("fusermount3").args(["-q", "-u", "-z", dir]).status();
        }
    }
}
