//! Makes one golden volume.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use clap::ValueEnum;

use super::spec::{Recipe, Spec};
use super::{cache, check};
use crate::fill::{Kind, fill};
use crate::manifest::{Manifest, Options, compare};
use crate::oracle;
use crate::temp::TempDir;
use crate::uml::{self, Uml, sh};

const PATIENCE: Duration = Duration::from_secs(300);

/// Mounts read-only and writes a manifest of the tree to `$OUT`.
const DESCRIBE: &str = "mount -t f2fs -o ro $DEV $MNT; $HELPER manifest $MNT -o $OUT; umount $MNT\n";

struct Job<'a> {
    spec: &'a Spec,
    image: PathBuf,
    work: TempDir,
}

/// Makes the image and its manifests in `dir`.
pub fn make(spec: &Spec, dir: &Path) -> Result<()> {
    let work = TempDir::new("golden")?;
    let image = dir.join(format!("{}.part", spec.name));
    let job = Job { spec, image, work };
    job.format()?;
    job.populate()?;
    if spec.is_clean() {
        check::fsck_f2fs(&job.image)?;
    }
    for (from, to) in [("first", "jsonl"), ("second", "recovered.jsonl")] {
        let from = job.work.path().join(from);
        if from.exists() {
            fs::copy(from, dir.join(format!("{}.{to}", spec.name)))?;
        }
    }
    fs::rename(&job.image, dir.join(format!("{}.img", spec.name)))?;
    Ok(())
}

impl Job<'_> {
    fn format(&self) -> Result<()> {
        let _ = fs::remove_file(&self.image);
        File::create_new(&self.image)?.set_len(self.spec.mib << 20)?;
        if !self.spec.is_f2fs() {
            return Ok(());
        }
        let mut args: Vec<&OsStr> = vec!["-q".as_ref(), "-f".as_ref()];
        args.extend(self.spec.mkfs.iter().map(OsStr::new));
        args.push(self.image.as_os_str());
        tool("mkfs.f2fs", &args)
    }

    fn populate(&self) -> Result<()> {
        match self.spec.recipe {
            Recipe::Kernel { kind, mount } => self.by_kernel(kind, mount)?,
            Recipe::Cut { kind } => self.cut(kind)?,
            Recipe::Sload { options } => {
                self.sload(options)?;
                self.describe_if_mountable()?;
            }
            Recipe::Foreign => self.foreign()?,
            Recipe::Ext4 => {
                let source = self.source()?;
                let image = self.image.as_os_str();
                let args = ["-q", "-F", "-t", "ext4", "-d"].map(OsStr::new);
                tool("mke2fs", &[&args[..], &[source.as_os_str(), image]].concat())?;
            }
        }
        if self.spec.name == "nocompact" {
            ensure!(!check::is_compact(&self.image)?, "the checkpoint is compact after all");
        }
        Ok(())
    }

    fn guest(&self, image: &Path, out: &str) -> Uml {
        uml::guest(image).timeout(PATIENCE).env("OUT", self.work.path().join(out))
    }

    fn by_kernel(&self, kind: Kind, mount: &str) -> Result<()> {
        let options = if mount.is_empty() { String::new() } else { format!("-o {mount} ") };
        let body = format!("mount -t f2fs {options}$DEV $MNT\n{}umount $MNT\n{DESCRIBE}", fill_with(kind)?);
        self.guest(&self.image, "first").run(&body)?.check()?;
        Ok(())
    }

    fn cut(&self, kind: Kind) -> Result<()> {
        // On small volumes the kernel overwrites data in place unless told to log it, and data overwritten in
        // place cannot go back to the last checkpoint.
        let body = format!(
            "mount -t f2fs -o background_gc=off,mode=lfs $DEV $MNT\n{}sync -f $MNT\n\
             $HELPER manifest $MNT -o $OUT\n{}echo cut-here\nsleep 1000\n",
            fill_with(Kind::Varied)?,
            fill_with(kind)?
        );
        let mut guest = self.guest(&self.image, "first").spawn(&body)?;
        guest.wait_for_line("cut-here")?;
        guest.kill()?;
        let copy = self.work.path().join("copy.img");
        cache::sparse_copy(&self.image, &copy)?;
        // Unmounting a volume mounted with `norecovery` can crash the kernel; a power cut cannot.
        let body = "mount -t f2fs -o ro,norecovery $DEV $MNT; $HELPER manifest $MNT -o $OUT";
        self.guest(&copy, "cut").run(body)?.check()?;
        let body = format!("mount -t f2fs $DEV $MNT; umount $MNT\n{DESCRIBE}");
        self.guest(&copy, "second").run(&body)?.check()?;
        let load = |name| Manifest::load(&self.work.path().join(name));
        let (synced, cut, recovered) = (load("first")?, load("cut")?, load("second")?);
        // A checkpoint that the kernel made by itself would defeat the volume's purpose.
        let found = compare(&synced, &cut, &Options::default());
        let some = found.iter().take(10).cloned().collect::<Vec<_>>().join("\n");
        ensure!(found.is_empty(), "the last checkpoint is not that of the sync:\n{some}");
        let brought_forward = !compare(&cut, &recovered, &Options::default()).is_empty();
        ensure!(brought_forward == (kind == Kind::Fsynced), "recovered changes: {brought_forward}");
        check::fsck_f2fs(&copy)
    }

    fn source(&self) -> Result<PathBuf> {
        let source = self.work.path().join("source");
        fs::create_dir(&source)?;
        fill(Kind::Simple, &source)?;
        Ok(source)
    }

    fn sload(&self, options: &[&str]) -> Result<()> {
        let source = self.source()?;
        let mut args: Vec<&OsStr> = options.iter().map(OsStr::new).collect();
        args.extend([OsStr::new("-f"), source.as_os_str(), self.image.as_os_str()]);
        tool("sload.f2fs", &args)
    }

    fn foreign(&self) -> Result<()> {
        let readonly = self.spec.name == "foreign-readonly";
        if !readonly && self.mountable()? {
            return self.by_kernel(Kind::Simple, "");
        }
        self.sload(&[])?;
        self.describe_if_mountable()
    }

    fn mountable(&self) -> Result<bool> {
        let out = uml::guest(&self.image).run("mount -t f2fs -o ro $DEV $MNT && umount $MNT")?;
        Ok(out.status == 0)
    }

    fn describe_if_mountable(&self) -> Result<()> {
        if self.mountable()? {
            self.guest(&self.image, "first").timeout(PATIENCE).run(DESCRIBE)?.check()?;
        }
        Ok(())
    }
}

/// The command that fills a guest's volume.
pub(crate) fn fill_with(kind: Kind) -> Result<String> {
    let value = kind.to_possible_value().context("a hidden tree")?;
    Ok(format!("$HELPER guest-fill {} $MNT\n", sh(value.get_name())))
}

fn tool(name: &str, args: &[&OsStr]) -> Result<()> {
    let out = Command::new(oracle::require(name)?).args(args).output()?;
    if !out.status.success() {
        let text = [out.stdout, out.stderr].concat();
        bail!("{name} failed ({}):\n{}", out.status, check::tail(&text));
    }
    Ok(())
}
