//! Many small files: unpacked, copied, walked.

use std::cell::OnceCell;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, anyhow};

use super::bytes::drop_caches;
use super::peer::{CONTENTS, Mounted, Peer};
use super::{Bench, FILES, Run, VOLUME};
use crate::bench::image::{Image, quiet, touch_memory};
use crate::bench::measure::run;
use crate::bench::tree::source_tree;
use crate::bench::workload::Report;
use tidegate_testing::oracle;
use tidegate_testing::temp::TempDir;

pub const UNTAR: &str = "untar";
pub const COPY: &str = "copy";
/// Walks with cold caches.
pub const WALKS: [&str; 3] = ["git status", "find", "du"];
pub const CACHES: [&str; 2] = ["cold", "warm"];
const WALKED: [[&str; 3]; 2] =
    [["git status cold", "find cold", "du cold"], ["git status warm", "find warm", "du warm"]];

/// The tree as an archive, and a volume of each peer that contains the tree. Each is made when it is first
/// needed.
pub struct Trees<'a> {
    bench: &'a Bench,
    archive: OnceCell<Archive>,
    volumes: [OnceCell<Image>; Peer::ALL.len()],
}

struct Archive {
    dir: TempDir,
    bytes: u64,
}

impl<'a> Trees<'a> {
    pub fn new(bench: &'a Bench) -> Self {
        Trees { bench, archive: OnceCell::new(), volumes: Default::default() }
    }

    /// The cases of `peer`.
    pub fn cases(&self, peer: Peer) -> Vec<(&'static str, Peer, Run<'_>)> {
        let mut cases: Vec<(&'static str, Peer, Run<'_>)> = vec![
            (UNTAR, peer, Box::new(move || self.untar(peer))),
            (COPY, peer, Box::new(move || self.copy(peer))),
        ];
        for (cold, names) in [true, false].into_iter().zip(WALKED) {
            for (name, what) in names.into_iter().zip(WALKS) {
                cases.push((name, peer, Box::new(move || self.walk(peer, what, cold))));
            }
        }
        cases
    }

    fn untar(&self, peer: Peer) -> Result<Report> {
        let archive = self.archive()?;
        let mounted = self.bench.fresh(peer)?;
        let cost = run(&mut unpack(archive, mounted.dir()))?;
        mounted.end()?;
        Ok(self.report(cost.wall, archive.bytes))
    }

    fn copy(&self, peer: Peer) -> Result<Report> {
        let bytes = self.archive()?.bytes;
        let mounted = self.unpacked(peer, &[])?;
        touch_memory(&self.bench.plan.dir)?;
        drop_caches()?;
        let (from, to) = (mounted.dir().join("src"), mounted.dir().join("copy"));
        let cost = run(Command::new("cp").arg("-a").arg(from).arg(&to))?;
        fs::remove_dir_all(&to).context("removing the copy")?;
        mounted.end()?;
        Ok(self.report(cost.wall, bytes))
    }

    fn walk(&self, peer: Peer, what: &str, cold: bool) -> Result<Report> {
        // Git reads back what it wrote, so the floor has to keep contents.
        let more: &[&str] = if what == WALKS[0] { &[CONTENTS] } else { &[] };
        let mounted = self.unpacked(peer, more)?;
        let dir = mounted.dir().join("src");
        if cold {
            touch_memory(&self.bench.plan.dir)?;
            drop_caches()?;
        } else {
            run(&mut walker(what, &dir))?;
        }
        let cost = run(&mut walker(what, &dir))?;
        mounted.end()?;
        Ok(self.report(cost.wall, 0))
    }

    fn report(&self, seconds: f64, bytes: u64) -> Report {
        Report { seconds, files: self.bench.plan.scaled(FILES), bytes, ..Report::default() }
    }

    fn archive(&self) -> Result<&Archive> {
        if let Some(done) = self.archive.get() {
            return Ok(done);
        }
        let made = Archive::make(&self.bench.plan.dir, self.bench.plan.scaled(FILES))?;
        Ok(self.archive.get_or_init(|| made))
    }

    /// A mount with the tree in it and with cold caches of the peer; the floor is mounted with `more`.
    fn unpacked(&self, peer: Peer, more: &[&str]) -> Result<Mounted> {
        if peer != Peer::Floor {
            return self.bench.mount(peer, self.volume(peer)?);
        }
        let Bench { scratch, tidegate, options, .. } = self.bench;
        let mounted = peer.mount(scratch, tidegate, options, more)?;
        self.fill(&mounted, !more.is_empty())?;
        Ok(mounted)
    }

    /// Unpacks the tree; `reads` says that the peer returns written data.
    fn fill(&self, mounted: &Mounted, reads: bool) -> Result<()> {
        quiet(&mut unpack(self.archive()?, mounted.dir()))?;
        if reads && oracle::available("git").is_some() {
            // The index is to have the times and inode numbers of the files here.
            quiet(git(&mounted.dir().join("src")).args(["status", "--porcelain"]))?;
        }
        Ok(())
    }

    fn volume(&self, peer: Peer) -> Result<&Image> {
        let at = Peer::ALL.iter().position(|p| *p == peer).and_then(|i| self.volumes.get(i));
        let cell = at.ok_or_else(|| anyhow!("no such peer"))?;
        if let Some(done) = cell.get() {
            return Ok(done);
        }
        let image = Image::new(&self.bench.plan.dir, VOLUME)?;
        peer.make(&image)?;
        let mounted = self.bench.mount(peer, &image)?;
        self.fill(&mounted, true)?;
        mounted.end()?;
        Ok(cell.get_or_init(|| image))
    }
}

fn unpack(archive: &Archive, to: &Path) -> Command {
    let mut command = Command::new("tar");
    command.arg("-xf").arg(archive.dir.path().join("src.tar")).arg("-C").arg(to);
    command
}

fn walker(what: &str, dir: &Path) -> Command {
    if what == WALKS[0] {
        let mut command = git(dir);
        // Git must not write during the measurement.
        command.args(["status", "--porcelain"]).env("GIT_OPTIONAL_LOCKS", "0");
        return command;
    }
    let mut command = Command::new(what);
    if what == WALKS[2] {
        command.arg("-s");
    }
    command.arg(dir);
    command
}

fn git(dir: &Path) -> Command {
    let mut command = Command::new("git");
    command.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_NOSYSTEM", "1");
    command.args(["-c", "user.name=bench", "-c", "user.email=bench@localhost", "-c", "safe.directory=*"]);
    command.args(["-c", "core.compression=0", "-c", "gc.auto=0"]).arg("-C").arg(dir);
    command
}

impl Archive {
    fn make(dir: &Path, files: u64) -> Result<Self> {
        let dir = TempDir::new_in(dir, "tree")?;
        let src = dir.path().join("src");
        fs::create_dir(&src)?;
        let bytes = source_tree(&src, files)?;
        if oracle::available("git").is_some() {
            repository(&src)?;
        }
        let tar = dir.path().join("src.tar");
        quiet(Command::new("tar").arg("-C").arg(dir.path()).arg("-cf").arg(tar).arg("src"))?;
        fs::remove_dir_all(src)?;
        Ok(Archive { dir, bytes })
    }
}

/// Makes a repository of the tree without the contents of files: the status does not need them.
fn repository(dir: &Path) -> Result<()> {
    quiet(git(dir).args(["init", "--quiet"]))?;
    quiet(git(dir).args(["add", "--all"]))?;
    quiet(git(dir).args(["commit", "--quiet", "--message", "tree"]))?;
    let script = "git rev-list --objects --filter=blob:none HEAD | git pack-objects -q ../pack && \
                  rm -rf .git/objects/?? .git/hooks && mv ../pack-* .git/objects/pack/";
    quiet(Command::new("sh").args(["-c", script]).current_dir(dir))?;
    Ok(())
}
