//! The measured commands.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use super::measure::{Cost, run};
use tidegate_testing::{oracle, uml};

/// Paths of one benchmark run.
pub struct Bench {
    /// The binary under test.
    pub tidegate: PathBuf,
    /// The scratch directory.
    pub dir: PathBuf,
    /// Bytes of the large file.
    pub large: u64,
}

/// Enough for the tree in every format.
const VOLUME: u64 = 2 << 30;

impl Bench {
    /// A path in the scratch directory.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    fn tidegate(&self, args: &[&str]) -> Command {
        let mut command = Command::new(&self.tidegate);
        command.args(args).current_dir(&self.dir);
        command
    }

    fn fresh(&self, name: &str, size: u64) -> Result<PathBuf> {
        let path = self.path(name);
        let _ = fs::remove_file(&path);
        File::create_new(&path)?.set_len(size).with_context(|| format!("sizing {name}"))?;
        Ok(path)
    }

    fn empty_dir(&self, name: &str) -> Result<PathBuf> {
        let path = self.path(name);
        if path.exists() {
            fs::remove_dir_all(&path).with_context(|| format!("emptying {name}"))?;
        }
        Ok(path)
    }

    /// Makes a volume from the tree with the binary under test, and leaves it in place.
    pub fn populate(&self) -> Result<Cost> {
        let _ = fs::remove_file(self.path("tidegate.img"));
        run(&mut self.tidegate(&["mkfs", "--from", "src", "tidegate.img"]))
    }

    /// Makes a volume from the tree with the reference tools.
    pub fn populate_f2fs_tools(&self) -> Result<Cost> {
        let image = self.fresh("peer.img", VOLUME)?;
        let made = run(Command::new(oracle::require("mkfs.f2fs")?).args(["-q", "-f"]).arg(&image))?;
        let mut load = Command::new(oracle::require("sload.f2fs")?);
        let cost = made.then(run(load.arg("-f").arg(self.path("src")).arg(&image))?);
        fs::remove_file(image)?;
        Ok(cost)
    }

    /// Makes an ext4 volume from the tree with our binary, as large as the volume of mke2fs.
    pub fn populate_own_ext4(&self) -> Result<Cost> {
        let cost = self.own_ext4("own.ext4")?;
        fs::remove_file(self.path("own.ext4"))?;
        Ok(cost)
    }

    /// Makes such a volume; everything random is given.
    fn own_ext4(&self, name: &str) -> Result<Cost> {
        let _ = fs::remove_file(self.path(name));
        let same = ["--uuid", "74696465-6761-7465-2063-726173686573"];
        let mut command = self.tidegate(&["mkfs", "-t", "ext4", "--size", "2G", "--from", "src", name]);
        run(command.args(same).env("SOURCE_DATE_EPOCH", "1600000000"))
    }

    /// The number of bytes in which two such volumes differ.
    pub fn differing_ext4(&self) -> Result<u64> {
        let names = ["own.ext4", "again.ext4"];
        names.iter().try_for_each(|name| self.own_ext4(name).map(drop))?;
        let differing = differing(&self.path(names[0]), &self.path(names[1]));
        names.iter().try_for_each(|name| fs::remove_file(self.path(name)))?;
        differing
    }

    /// Makes an ext4 volume from the tree with mke2fs.
    pub fn populate_ext4(&self) -> Result<Cost> {
        let image = self.path("peer.img");
        let _ = fs::remove_file(&image);
        let mut command = Command::new(oracle::require("mke2fs")?);
        command.args(["-q", "-F", "-t", "ext4", "-d"]).arg(self.path("src")).arg(&image).arg("2G");
        let cost = run(&mut command)?;
        fs::remove_file(image)?;
        Ok(cost)
    }

    /// Copies the tree out of the volume that [`Bench::populate`] left.
    pub fn copy_out(&self) -> Result<Cost> {
        self.empty_dir("out")?;
        let cost = run(&mut self.tidegate(&["cp", "-r", "tidegate.img:/", "out"]))?;
        self.empty_dir("out")?;
        Ok(cost)
    }

    /// Reads the tree from the kernel into one archive.
    pub fn tar_archive(&self) -> Result<Cost> {
        let archive = self.path("out.tar");
        let _ = fs::remove_file(&archive);
        let cost =
            run(Command::new("tar").arg("-C").arg(self.path("src")).arg("-cf").arg(&archive).arg("."))?;
        fs::remove_file(archive)?;
        Ok(cost)
    }

    /// Copies the tree from the kernel with two tars.
    pub fn tar_copy(&self) -> Result<Cost> {
        let out = self.empty_dir("out")?;
        fs::create_dir(&out)?;
        let script = format!("tar -C {} -cf - . | tar -C {} -xf -", uml::sh(self.path("src")), uml::sh(&out));
        let cost = run(Command::new("sh").arg("-c").arg(script))?;
        self.empty_dir("out")?;
        Ok(cost)
    }

    /// Copies the large file into a new volume.
    pub fn large_in(&self) -> Result<Cost> {
        let size = (self.large / 4 * 5).to_string();
        let image = self.path("large.img");
        let _ = fs::remove_file(&image);
        run(&mut self.tidegate(&["mkfs", "--size", &size, "large.img"]))?;
        self.touch_memory()?;
        let cost = run(&mut self.tidegate(&["cp", "large.dat", "large.img:/"]));
        let _ = fs::remove_file(image);
        cost
    }

    /// Touches as much memory as the large file needs, and the file. The host of a virtual machine takes away
    /// memory that was unused for a while; without this, the first program would pay for getting it back.
    fn touch_memory(&self) -> Result<()> {
        let path = self.path("touched");
        std::io::copy(&mut File::open(self.path("large.dat"))?, &mut File::create(&path)?)?;
        fs::remove_file(path).context("removing what was touched")
    }

    /// Writes as many bytes directly into such a backing file.
    pub fn large_fio(&self) -> Result<Cost> {
        let fio = oracle::require("fio")?;
        let attempt = |direct: u32| -> Result<Cost> {
            let image = self.fresh("large.img", self.large / 4 * 5)?;
            self.touch_memory()?;
            let report = self.path("fio.json");
            let mut command = Command::new(&fio);
            command
                .args(["--name=seq", "--rw=write", "--bs=1M", "--ioengine=psync", "--fallocate=none"])
                .arg(format!("--size={}", self.large))
                .arg(format!("--direct={direct}"))
                .arg(format!("--filename={}", image.display()))
                .args(["--output-format=json", "--output"])
                .arg(&report);
            let cost = run(&mut command);
            let _ = fs::remove_file(&image);
            // The start-up of fio is not compared.
            Ok(Cost { wall: fio_seconds(&report)?, ..cost? })
        };
        attempt(1).or_else(|_| attempt(0))
    }

    /// Opens a volume of 1 TiB to see how full it is.
    pub fn open_large(&self) -> Result<Cost> {
        self.open_empty("tera.img", "f2fs", "1T")
    }

    /// Opens an ext4 volume of the largest size to see how full it is.
    pub fn open_large_ext4(&self) -> Result<Cost> {
        self.open_empty("largest.ext4", "ext4", "16T")
    }

    /// Prints how full an empty volume is; the volume is made if it is missing.
    fn open_empty(&self, name: &str, format: &str, size: &str) -> Result<Cost> {
        if !self.path(name).exists() {
            run(&mut self.tidegate(&["mkfs", "-t", format, "--size", size, name]))?;
        }
        run(&mut self.tidegate(&["df", name]))
    }
}

/// The number of bytes in which two files of equal size differ.
fn differing(a: &Path, b: &Path) -> Result<u64> {
    let (mut a, mut b) = (File::open(a)?, File::open(b)?);
    let size = a.metadata()?.len();
    ensure!(b.metadata()?.len() == size, "the files have different sizes");
    let (mut x, mut y) = (vec![0; 1 << 20], vec![0; 1 << 20]);
    let (mut at, mut found) = (0, 0);
    while at < size {
        let n = (size - at).min(x.len() as u64) as usize;
        let (x, y) = (&mut x[..n], &mut y[..n]);
        a.read_exact(x)?;
        b.read_exact(y)?;
        if x != y {
            found += x.iter().zip(y.iter()).filter(|(x, y)| x != y).count() as u64;
        }
        at += n as u64;
    }
    Ok(found)
}

fn fio_seconds(report: &Path) -> Result<f64> {
    let text = fs::read_to_string(report).context("reading fio's report")?;
    // Warnings precede the report when fio has any.
    let json = text.find('{').and_then(|at| text.get(at..)).unwrap_or_default();
    let value: serde_json::Value = serde_json::from_str(json).context("parsing fio's report")?;
    match value.pointer("/jobs/0/write/runtime").and_then(serde_json::Value::as_f64) {
        Some(ms) if ms > 0.0 => Ok(ms / 1000.0),
        _ => bail!("fio's report has no runtime"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_differ_are_counted() {
        let dir = tidegate_testing::temp::TempDir::new("differ").unwrap();
        let file = |name: &str, bytes: &[u8]| {
            fs::write(dir.path().join(name), bytes).unwrap();
            dir.path().join(name)
        };
        let mut bytes = vec![7; (1 << 20) + 5];
        let a = file("a", &bytes);
        bytes[3] = 0;
        bytes[(1 << 20) + 4] = 0;
        let b = file("b", &bytes);
        assert_eq!((differing(&a, &a).unwrap(), differing(&a, &b).unwrap()), (0, 2));
        assert!(differing(&a, &file("c", &bytes[1..])).is_err());
    }
}
