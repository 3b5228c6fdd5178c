//! `cargo xtask mutants`: small changes, each of which breaks a promise, and the tests that must notice them.
//!
//! `mutants.toml` lists the changes. Each change is made in a copy of the sources, which has a target
//! directory of its own; the change must compile, and the named test must fail. A test that passes with the
//! change does not test what it claims to test, so a survivor fails the whole run.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use tidegate_testing::workspace;

/// The shortest time after which a test with a change counts as hanging, and so as having noticed.
const PATIENCE: Duration = Duration::from_secs(120);
/// A test hangs when it has taken this many times its time without the change, and also `PATIENCE`: a shorter
/// delay may come from a busy machine.
const HANGS: u32 = 10;

/// A change that a test must notice.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mutant {
    /// The promise that the change breaks, in a word or two.
    pub name: String,
    /// The file, relative to the workspace's root.
    pub file: String,
    /// The original text, which occurs once in the file.
    pub find: String,
    /// The text that replaces it.
    pub replace: String,
    /// The package of the test.
    pub package: String,
    /// The arguments of `cargo test` that select the test, such as `--lib sync::pinned`.
    pub test: String,
}

impl Mutant {
    /// The file's content with the change.
    ///
    /// # Errors
    /// The text is missing, or occurs more than once, or its replacement is equal to it.
    pub fn apply(&self, source: &str) -> Result<String> {
        let n = source.matches(&self.find).count();
        ensure!(n == 1, "{}: what is to be found is {n} times in {}", self.name, self.file);
        ensure!(self.find != self.replace, "{}: nothing is changed", self.name);
        Ok(source.replacen(&self.find, &self.replace, 1))
    }

    fn command(&self, place: &Place) -> Command {
        let mut c = Command::new(workspace::cargo());
        c.current_dir(&place.tree).env("CARGO_TARGET_DIR", &place.target);
        c.args(["test", "--quiet", "-p", &self.package]).args(self.test.split_whitespace());
        c.stdin(Stdio::null());
        c
    }
}

/// Loads the list that is kept with the sources.
///
/// # Errors
/// The list cannot be read, or an entry lacks a field.
pub fn load() -> Result<Vec<Mutant>> {
    let path = workspace::root().join("xtask/mutants.toml");
    let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    parse(&text).with_context(|| path.display().to_string())
}

/// Parses the part of TOML that the list uses: tables in an array, and strings without escapes. A crate for
/// all of TOML would be built with every test that uses this crate.
pub fn parse(text: &str) -> Result<Vec<Mutant>> {
    let mut all: Vec<Mutant> = Vec::new();
    let mut lines = text.lines().enumerate();
    while let Some((n, line)) = lines.next() {
        let at = || format!("line {}", n + 1);
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        if line == "[[mutant]]" {
            all.push(Mutant::default());
            continue;
        }
        let (key, value) = line.split_once(" = ").with_context(at)?;
        let value = match value.strip_prefix("'''") {
            Some("") => {
                let mut block = Vec::new();
                loop {
                    let (_, line) = lines.next().with_context(at)?;
                    match line.strip_suffix("'''") {
                        Some(last) => break block.push(last),
                        None => block.push(line),
                    }
                }
                block.join("\n")
            }
            _ => value.trim_matches('\'').to_string(),
        };
        let m = all.last_mut().with_context(at)?;
        let field = match key {
            "name" => &mut m.name,
            "file" => &mut m.file,
            "find" => &mut m.find,
            "replace" => &mut m.replace,
            "package" => &mut m.package,
            "test" => &mut m.test,
            _ => bail!("{}: \"{key}\" is no part of an entry", at()),
        };
        *field = value;
    }
    for m in &all {
        let needed = [&m.name, &m.file, &m.find, &m.package, &m.test];
        ensure!(needed.iter().all(|f| !f.is_empty()), "an entry lacks something: {m:?}");
    }
    Ok(all)
}

/// The directories in which changes are made and built.
struct Place {
    tree: PathBuf,
    target: PathBuf,
}

/// Makes each change whose name contains one of `only` (every change if `only` is empty) and runs its test.
///
/// # Errors
/// Cargo cannot be run.
pub fn run(only: &[String]) -> Result<ExitCode> {
    let mut chosen = load()?;
    chosen.retain(|m| only.is_empty() || only.iter().any(|o| m.name.contains(o)));
    ensure!(!chosen.is_empty(), "no change is called that");
    let base = workspace::target_dir().join("mutants");
    let place = Place { tree: base.join("tree"), target: base.join("target") };
    copy_sources(&place.tree)?;
    let mut tests = BTreeMap::new();
    for m in &chosen {
        let test = (&m.package, &m.test);
        if let Entry::Vacant(e) = tests.entry(test) {
            e.insert(passes_unchanged(m, &place)?);
        }
    }
    let mut bad = 0;
    for m in &chosen {
        let began = Instant::now();
        let said = match tests[&(&m.package, &m.test)] {
            Some(unchanged) => judge(m, &place, unchanged)?,
            None => "FAILS",
        };
        bad += u32::from(said == said.to_uppercase());
        println!("{said:9} {:44} {:4.0} s", m.name, began.elapsed().as_secs_f64());
    }
    println!("{} changes, {bad} not caught", chosen.len());
    Ok(if bad == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Updates a copy of the sources. Unchanged files are left alone, so that little is built again.
fn copy_sources(tree: &Path) -> Result<()> {
    let root = workspace::root();
    let out = Command::new("git")
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .current_dir(&root)
        .output()
        .context("running git")?;
    ensure!(out.status.success(), "git ls-files failed");
    let names = String::from_utf8(out.stdout).context("names of files")?;
    for name in names.split('\0').filter(|n| !n.is_empty()) {
        let (from, to) = (root.join(name), tree.join(name));
        let Ok(now) = std::fs::read(&from) else {
            let _ = std::fs::remove_file(&to);
            continue;
        };
        if std::fs::read(&to).is_ok_and(|was| was == now) {
            continue;
        }
        std::fs::create_dir_all(to.parent().context("a file lies somewhere")?)?;
        std::fs::write(&to, now).with_context(|| to.display().to_string())?;
    }
    Ok(())
}

/// The time that a test takes to pass without any change. A test that does not pass says nothing about
/// changes.
fn passes_unchanged(m: &Mutant, place: &Place) -> Result<Option<Duration>> {
    m.command(place).arg("--no-run").output().context("running cargo test --no-run")?;
    let began = Instant::now();
    let out = m.command(place).output().context("running cargo test")?;
    let text = String::from_utf8_lossy(&out.stdout);
    let ran = |l: &str| l.starts_with("test result: ok.") && !l.contains(" 0 passed");
    let passes = out.status.success() && text.lines().any(ran);
    println!("{:9} -p {} {}", if passes { "passes" } else { "FAILS" }, m.package, m.test);
    if !passes {
        eprintln!("{text}{}", String::from_utf8_lossy(&out.stderr));
    }
    Ok(passes.then(|| began.elapsed()))
}

/// Makes the change, runs its test, and reverts the change; returns the result in words. A result in capitals
/// is bad.
fn judge(m: &Mutant, place: &Place, unchanged: Duration) -> Result<&'static str> {
    let path = place.tree.join(&m.file);
    let source = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    std::fs::write(&path, m.apply(&source)?)?;
    let verdict = judge_changed(m, place, unchanged * HANGS);
    std::fs::write(&path, source)?;
    verdict
}

fn judge_changed(m: &Mutant, place: &Place, long: Duration) -> Result<&'static str> {
    let built = m.command(place).arg("--no-run").output().context("running cargo test --no-run")?;
    if !built.status.success() {
        eprintln!("{}", String::from_utf8_lossy(&built.stderr));
        return Ok("NOT BUILT");
    }
    // A process group of its own: processes that the test started are killed with it.
    let mut test = m.command(place).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0).spawn()?;
    let began = Instant::now();
    loop {
        if let Some(status) = test.try_wait()? {
            return Ok(if status.success() { "SURVIVED" } else { "caught" });
        }
        if began.elapsed() > PATIENCE.max(long) {
            let group = rustix::process::Pid::from_child(&test);
            let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
            test.wait()?;
            return Ok("hangs");
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_change_can_be_made() {
        let all = load().unwrap();
        let mut names = BTreeSet::new();
        for m in &all {
            assert!(names.insert(&m.name), "two are called {}", m.name);
            let path = workspace::root().join(&m.file);
            let source = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", m.file));
            m.apply(&source).unwrap_or_else(|e| panic!("{e}"));
        }
        assert!(all.len() >= 80, "{} changes", all.len());
    }

    #[test]
    fn the_list_is_read_as_toml_has_it() {
        let text = "# a list\n\n[[mutant]]\nname = 'n'\nfile = 'f'\nfind = '''\na\n  'b' '''\nreplace = ''\n\
                    package = 'p'\ntest = '--lib x'\n";
        let m = Mutant {
            name: "n".into(),
            file: "f".into(),
            find: "a\n  'b' ".into(),
            replace: String::new(),
            package: "p".into(),
            test: "--lib x".into(),
        };
        assert_eq!(parse(text).unwrap(), [m]);
        assert!(parse("[[mutant]]\nname = 'n'\n").is_err());
        assert!(parse("[[mutant]]\nwhat = 'n'\n").is_err());
        assert!(parse("name = 'n'\n").is_err());
    }
}
