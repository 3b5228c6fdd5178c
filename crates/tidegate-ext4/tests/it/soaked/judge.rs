//! Judges a volume: with e2fsck, and with Linux and the model.

use super::*;

/// The tree that Linux finds below a directory, by path.
fn kernel_tree(dir: &Path) -> BTreeMap<String, Thing> {
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::PermissionsExt;
    let mut found = BTreeMap::new();
    let mut pending = vec![(dir.to_path_buf(), String::new())];
    while let Some((at, path)) = pending.pop() {
        for e in std::fs::read_dir(&at).unwrap() {
            let e = e.unwrap();
            let name = format!("{path}/{}", e.file_name().to_str().unwrap());
            if name == "/lost+found" {
                assert_eq!(std::fs::read_dir(e.path()).unwrap().count(), 0, "something is lost and found");
                continue;
            }
            let meta = e.metadata().unwrap();
            let (kind, data) = match meta.file_type() {
                t if t.is_dir() => {
                    pending.push((e.path(), name.clone()));
                    (FileType::Directory, Vec::new())
                }
                t if t.is_symlink() => {
                    let to = std::fs::read_link(e.path()).unwrap();
                    (FileType::Symlink, to.as_os_str().as_bytes().to_vec())
                }
                _ => (FileType::Regular, std::fs::read(e.path()).unwrap()),
            };
            let mut xattrs = BTreeMap::new();
            if kind != FileType::Symlink {
                let mut list = vec![0; 4096];
                let n = rustix::fs::listxattr(e.path(), &mut list[..]).unwrap();
                for attr in list[..n].split(|b| *b == 0).filter(|a| !a.is_empty()) {
                    let mut value = vec![0; 4096];
                    let n = rustix::fs::getxattr(e.path(), attr, &mut value[..]).unwrap();
                    xattrs.insert(attr.to_vec(), value[..n].to_vec());
                }
            }
            let mode = meta.permissions().mode() & 0o7777;
            found.insert(name, Thing { kind, data, mode, xattrs });
        }
    }
    found
}

fn differ(path: &str, a: &Thing, b: Option<&Thing>) -> Option<String> {
    let Some(b) = b else { return Some(format!("{path} is missing")) };
    if a == b {
        return None;
    }
    let first = a.data.iter().zip(&b.data).position(|(a, b)| a != b);
    Some(format!(
        "{path}: {:?} {} bytes, {:o}, {} attributes; wanted {:?} {} bytes, {:o}, {}; first other byte {first:?}",
        b.kind,
        b.data.len(),
        b.mode,
        b.xattrs.len(),
        a.kind,
        a.data.len(),
        a.mode,
        a.xattrs.len()
    ))
}

/// Compares a volume below `root` with the model, by Linux's reads; only `file` if it is given.
fn compare(
    found: &BTreeMap<String, Thing>,
    root: &str,
    paths: &BTreeMap<String, usize>,
    things: &BTreeMap<usize, Thing>,
    file: Option<&str>,
) -> Result<(), String> {
    for (path, id) in paths.iter().filter(|p| file.is_none_or(|f| f == p.0)) {
        // An fdatasync promises only the bytes.
        let mut want = things[id].clone();
        if let (Some(_), Some(now)) = (file, found.get(path)) {
            (want.mode, want.xattrs) = (now.mode, now.xattrs.clone());
        }
        if let Some(what) = differ(path, &want, found.get(path)) {
            return Err(what);
        }
    }
    let below = format!("{root}/");
    match (file, found.keys().find(|p| p.starts_with(&below) && !paths.contains_key(*p))) {
        (None, Some(more)) => Err(format!("{more} is there")),
        _ => Ok(()),
    }
}

fn fsck(image: &Path) -> Result<(), String> {
    let (clean, said) = checked_by_e2fsck(image);
    if clean { Ok(()) } else { Err(format!("e2fsck: {said}")) }
}

/// Checks that an unmounted volume is clean, and has everything that was done, before and after Linux mounts
/// it.
pub(super) fn judge_unmounted(s: &Soak, image: &Path) -> Result<(), String> {
    fsck(image)?;
    let found = kernel_tree(Mounted::new(image, "rw").ok_or("no mount")?.path());
    for w in &s.workers {
        compare(&found, &w.root, &w.paths, &w.things, None)?;
    }
    fsck(image).map_err(|e| format!("after Linux: {e}"))
}

pub(super) fn judge_cut(s: &Soak, image: &Path, cut: u64) -> Result<(), String> {
    let copy = image.with_extension("copy");
    std::fs::copy(image, &copy).unwrap();
    // Linux recovers one copy, and our engine the other.
    let found = kernel_tree(Mounted::new(&copy, "rw").ok_or("Linux does not mount it")?.path());
    fsck(&copy).map_err(|e| format!("recovered by Linux: {e}"))?;
    let bytes = std::fs::read(image).unwrap();
    let memory = Arc::new(MemoryDevice::from_bytes(&bytes));
    let recorder = Arc::new(Recorder::new(memory.clone()));
    mount(recorder, "").unmount().map_err(|e| e.to_string())?;
    let mut bytes = vec![0; bytes.len()];
    memory.read_at(0, &mut bytes);
    std::fs::write(&copy, &bytes).unwrap();
    fsck(&copy).map_err(|e| format!("recovered by us: {e}"))?;
    let ours = kernel_tree(Mounted::new(&copy, "ro").ok_or("no mount")?.path());
    for (path, thing) in &found {
        if let Some(e) = differ(path, thing, ours.get(path)) {
            return Err(format!("we recover it otherwise than Linux: {e}"));
        }
    }
    if ours.len() != found.len() {
        return Err("we recover more than Linux".into());
    }
    std::fs::copy(image, &copy).unwrap();
    mended_by_e2fsck(&copy);
    fsck(&copy).map_err(|e| format!("recovered by e2fsck: {e}"))?;
    let theirs = kernel_tree(Mounted::new(&copy, "ro").ok_or("no mount")?.path());
    for w in &s.workers {
        for p in w.promises.iter().filter(|p| p.since <= cut && p.until.is_none_or(|u| cut <= u)) {
            for (who, tree) in [("Linux", &found), ("e2fsck", &theirs)] {
                compare(tree, &w.root, &p.paths, &p.things, p.file.as_deref())
                    .map_err(|e| format!("promised at {}, recovered by {who}: {e}", p.since))?;
            }
        }
    }
    Ok(())
}
