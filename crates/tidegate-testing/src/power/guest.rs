//! The workers on a mounted directory.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow};
use rustix::fs::{FallocateFlags, XattrFlags};

use super::judge::{Promises, Seen, View};
use super::model::{Step, UNIT, XATTR, content};
use super::plan::{self, Failure, Store, Worker};

/// Works in `dir` until the process is killed or something fails; prints a line for each operation.
pub fn work(seed: u64, id: u32, dir: &Path) -> Result<()> {
    fs::create_dir_all(dir)?;
    let mut say = |line: &str| {
        let line = format!("{line}\n");
        std::io::stdout().write_all(line.as_bytes()).is_ok() && std::io::stdout().flush().is_ok()
    };
    let mut worker = Worker::new(seed, id);
    if let Err(e) = plan::run(&mut worker, id, &mut Tree(dir.to_path_buf()), &mut say) {
        say(&e);
        return Err(anyhow!(e));
    }
    Ok(())
}

/// Prints all broken promises below `dir`; returns whether there are none.
pub fn verify(promises: &Path, dir: &Path) -> Result<bool> {
    let text = fs::read_to_string(promises).with_context(|| promises.display().to_string())?;
    let broken = Promises::parse(&text)?.broken(&mut Tree(dir.to_path_buf()))?;
    broken.iter().for_each(|b| println!("{b}"));
    Ok(broken.is_empty())
}

/// A directory.
struct Tree(PathBuf);

fn failure(e: std::io::Error) -> Failure {
    match e.kind() {
        ErrorKind::StorageFull => Failure::NoSpace,
        _ => Failure::Other(e.to_string()),
    }
}

impl Tree {
    fn at(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    fn open(&self, name: &str) -> std::io::Result<File> {
        OpenOptions::new().read(true).write(true).open(self.at(name))
    }

    fn try_run(&self, key: u64, step: &Step) -> std::io::Result<()> {
        match step {
            Step::MakeDir(name) => fs::create_dir_all(self.at(name)),
            Step::Create(name) => {
                let new = OpenOptions::new().write(true).create_new(true).mode(0o644).open(self.at(name))?;
                new.set_permissions(fs::Permissions::from_mode(0o644))
            }
            Step::Write { name, unit, units, stamp } => {
                let bytes: Vec<u8> = (*unit..unit + units).flat_map(|u| content(key, *stamp, u)).collect();
                self.open(name)?.write_all_at(&bytes, (unit * UNIT) as u64)
            }
            Step::Truncate(name, units) => self.open(name)?.set_len((units * UNIT) as u64),
            Step::Punch(name, unit, units) => {
                let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                let (at, len) = ((unit * UNIT) as u64, (units * UNIT) as u64);
                Ok(rustix::fs::fallocate(self.open(name)?, hole, at, len)?)
            }
            Step::Xattr(name, Some(value)) => {
                Ok(rustix::fs::setxattr(self.at(name), XATTR, value, XattrFlags::empty())?)
            }
            Step::Xattr(name, None) => match rustix::fs::removexattr(self.at(name), XATTR) {
                Err(rustix::io::Errno::NODATA) => Ok(()),
                r => Ok(r?),
            },
            Step::Chmod(name, mode) => fs::set_permissions(self.at(name), fs::Permissions::from_mode(*mode)),
            Step::Unlink(name) => match fs::remove_file(self.at(name)) {
                Err(e) if e.kind() == ErrorKind::NotFound => Ok(()),
                r => r,
            },
            Step::Rename(from, to) => fs::rename(self.at(from), self.at(to)),
            Step::Link(from, to) => fs::hard_link(self.at(from), self.at(to)),
            Step::Sync(name, true) => self.open(name)?.sync_data(),
            Step::Sync(name, false) => self.open(name)?.sync_all(),
        }
    }
}

impl Store for Tree {
    fn run(&mut self, key: u64, step: &Step) -> Result<(), Failure> {
        self.try_run(key, step).map_err(failure)
    }
}

impl Tree {
    fn find(&self, path: &str) -> Result<Option<Seen>> {
        let path = self.0.join(path);
        let data = match fs::read(&path) {
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
            r => r.context("reading")?,
        };
        let mode = fs::metadata(&path)?.permissions().mode() & 0o7777;
        let mut value = vec![0; 4096];
        let xattr = match rustix::fs::getxattr(&path, XATTR, &mut value[..]) {
            Ok(n) => Some(value[..n].to_vec()),
            Err(rustix::io::Errno::NODATA) => None,
            Err(e) => return Err(e).context("getxattr"),
        };
        Ok(Some(Seen { data, mode, xattr }))
    }
}

impl View for Tree {
    fn look(&mut self, path: &str) -> Result<Option<Seen>, String> {
        self.find(path).map_err(|e| format!("{e:#}"))
    }
}
