//! Debian's kernel and its modules. They are downloaded and unpacked, but not installed, since that would
//! make the kernel the host's.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

use crate::oracle::own_root;

/// The kernel's name among the oracles.
pub const NAME: &str = "zoned";
/// The packages; the first depends on the newest kernel.
pub const PACKAGES: [&str; 2] = ["linux-image-amd64", "busybox-static"];

/// The modules that a guest loads, each after those that it depends on.
const MODULES: &[&str] = &[
    "virtio_pci",
    "virtio_blk",
    "9pnet_virtio",
    "9p",
    "nvme",
    "crc32_generic",
    "crc32c_generic",
    "f2fs",
    "null_blk",
];

/// The directory of the files that are kept of the packages.
#[derive(Debug, Clone)]
pub(super) struct Kernel(PathBuf);

impl Kernel {
    /// The kernel, ready to boot.
    pub fn image(&self) -> PathBuf {
        self.0.join("vmlinuz")
    }

    /// The statically linked shell, with all its commands.
    pub fn busybox(&self) -> PathBuf {
        self.0.join("busybox")
    }

    /// The modules, in load order.
    pub fn modules(&self) -> Result<Vec<PathBuf>> {
        let there = by_name(&self.0.join("modules"))?;
        closure(&there)
    }

    fn is_whole(&self) -> bool {
        self.image().is_file() && self.busybox().is_file() && self.modules().is_ok()
    }
}

fn directory() -> PathBuf {
    own_root().join(NAME)
}

/// The unpacked kernel, if it exists.
pub fn find() -> Option<PathBuf> {
    get().ok().map(|k| k.image())
}

pub(super) fn get() -> Result<Kernel> {
    let kernel = Kernel(directory());
    ensure!(kernel.is_whole(), "no kernel in {}: run cargo xtask oracle --install", kernel.0.display());
    Ok(kernel)
}

/// Downloads and unpacks the kernel. apt needs the lists of packages for this; root is not needed.
///
/// # Errors
/// No network, or another distribution.
pub fn install() -> Result<()> {
    println!("unpacking {}", PACKAGES.join(" "));
    let (dir, part) = (directory(), own_root().join(format!("{NAME}.part")));
    for old in [&dir, &part].into_iter().filter(|d| d.exists()) {
        fs::remove_dir_all(old).with_context(|| old.display().to_string())?;
    }
    let (packages, unpacked) = (part.join("packages"), part.join("unpacked"));
    for dir in [&packages, &unpacked] {
        fs::create_dir_all(dir).with_context(|| dir.display().to_string())?;
    }
    download(&packages)?;
    for package in fs::read_dir(&packages)? {
        run(Command::new("dpkg-deb").arg("--extract").arg(package?.path()).arg(&unpacked))?;
    }
    keep(&unpacked, &part)?;
    for done in [&packages, &unpacked] {
        fs::remove_dir_all(done)?;
    }
    // It gets its name only when it is complete.
    fs::rename(&part, &dir)?;
    get().map(|_| ())
}

fn download(to: &Path) -> Result<()> {
    let [newest, busybox] = PACKAGES;
    let text = run(Command::new("apt-cache").args(["depends", newest]))?;
    let depends = |l: &str| l.trim().strip_prefix("Depends: ").map(str::to_owned);
    let kernel = text.lines().find_map(depends).with_context(|| format!("{newest} depends on no kernel"))?;
    let mut get = Command::new("apt-get");
    get.args(["download", "-q"]).args([&kernel, busybox]).current_dir(to);
    run(&mut get).map(|_| ())
}

/// Copies what a guest needs out of the unpacked packages.
fn keep(unpacked: &Path, to: &Path) -> Result<()> {
    let boot = fs::read_dir(unpacked.join("boot"))?.flatten();
    let kernel = boot.map(|f| f.path()).find(|p| p.to_string_lossy().contains("/vmlinuz-"));
    fs::copy(kernel.context("the package holds no kernel")?, to.join("vmlinuz"))?;
    fs::copy(unpacked.join("bin/busybox"), to.join("busybox"))?;
    let modules = to.join("modules");
    fs::create_dir(&modules)?;
    for module in closure(&by_name(&unpacked.join("lib/modules"))?)? {
        fs::copy(&module, modules.join(module.file_name().context("a module without a name")?))?;
    }
    Ok(())
}

/// Every module below a directory. Names use `-` and `_` inconsistently.
fn by_name(dir: &Path) -> Result<BTreeMap<String, PathBuf>> {
    let mut found = BTreeMap::new();
    let mut left = vec![dir.to_path_buf()];
    while let Some(dir) = left.pop() {
        for entry in fs::read_dir(&dir).with_context(|| dir.display().to_string())? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().replace('-', "_");
            if entry.file_type()?.is_dir() {
                left.push(entry.path());
            } else if let Some(name) = name.strip_suffix(".ko") {
                found.insert(name.to_owned(), entry.path());
            }
        }
    }
    Ok(found)
}

/// [`MODULES`] and their dependencies, each module after its dependencies.
fn closure(there: &BTreeMap<String, PathBuf>) -> Result<Vec<PathBuf>> {
    let mut order: Vec<String> = Vec::new();
    // Names to load, the next one last. A module stays below its dependencies until they are loaded.
    let mut left: Vec<String> = MODULES.iter().rev().map(|m| m.to_string()).collect();
    while let Some(name) = left.pop() {
        if order.contains(&name) {
            continue;
        }
        let path = there.get(&name).with_context(|| format!("the kernel has no module {name}"))?;
        let needed: Vec<_> = depends(path)?.into_iter().filter(|d| !order.contains(d)).collect();
        if needed.is_empty() {
            order.push(name);
            continue;
        }
        ensure!(left.len() < 1000, "modules need each other");
        left.push(name);
        left.extend(needed);
    }
    Ok(order.iter().filter_map(|n| there.get(n).cloned()).collect())
}

/// The dependencies that a module lists in its section `.modinfo`: `key=value` entries, each followed by a
/// NUL.
fn depends(module: &Path) -> Result<Vec<String>> {
    let bytes = fs::read(module).with_context(|| module.display().to_string())?;
    let entry = bytes.split(|b| *b == 0).find_map(|e| e.strip_prefix(b"depends="));
    let Some(entry) = entry else { bail!("{} does not say what it depends on", module.display()) };
    let names = String::from_utf8_lossy(entry).replace('-', "_");
    Ok(names.split(',').filter(|n| !n.is_empty()).map(str::to_owned).collect())
}

fn run(command: &mut Command) -> Result<String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let out = command.stdin(Stdio::null()).output().with_context(|| format!("running {name}"))?;
    ensure!(out.status.success(), "{name}: {}", String::from_utf8_lossy(&out.stderr).trim());
    Ok(String::from_utf8_lossy(&out.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::temp::TempDir;

    #[test]
    fn modules_follow_what_they_need() {
        let dir = TempDir::new("modules").unwrap();
        let lacking = by_name(dir.path()).and_then(|m| closure(&m)).unwrap_err();
        assert!(lacking.to_string().contains("virtio_pci"), "{lacking}");
        let module = |name: &str, depends: &str| {
            let text = format!("ELF\0license=GPL\0depends={depends}\0name={name}\0");
            fs::write(dir.path().join(format!("{name}.ko")), text).unwrap();
        };
        MODULES.iter().for_each(|m| module(m, ""));
        module("virtio_pci", "virtio-ring,virtio");
        module("virtio-ring", "virtio");
        module("virtio", "");
        let order = closure(&by_name(dir.path()).unwrap()).unwrap();
        let names: Vec<_> = order.iter().map(|p| p.file_stem().unwrap().to_string_lossy()).collect();
        assert_eq!(names[..4], ["virtio", "virtio-ring", "virtio_pci", "virtio_blk"]);
        assert_eq!(names.len(), MODULES.len() + 2);
        module("virtio", "virtio_pci");
        assert!(closure(&by_name(dir.path()).unwrap()).unwrap_err().to_string().contains("each other"));
    }
}
