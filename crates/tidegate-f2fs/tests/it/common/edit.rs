//! Changes to a volume that another system filled, and their expected results.

use crate::common::tree::{ROOT, hash, mount, pattern, put, write};
use crate::common::tree::{assert_clean, assert_same, describe, describe_image};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use tidegate_testing::manifest::{Entry, Kind, Manifest, hex, unescape};
use tidegate_vfs::*;

/// Number of files for each kind of change.
const EACH: usize = 40;
/// `FS_IMMUTABLE_FL` and `FS_APPEND_FL`: files that refuse changes.
const UNCHANGEABLE: u32 = 0x30;
/// Files of at least this size are only truncated: they are never read whole.
const HUGE: u64 = 1 << 30;
/// Directory of the added files.
const ADDED: &str = "tidegate-added";
/// The attribute that is set.
const XATTR: &str = "user.tidegate";

/// The expected findings: content by path, and the paths that may differ from before.
#[derive(Default)]
struct Expected {
    touched: BTreeSet<String>,
    gone: BTreeSet<String>,
    content: BTreeMap<String, Vec<u8>>,
    marked: BTreeMap<String, Vec<u8>>,
}

/// A file to change.
struct Victim {
    path: String,
    dir: Arc<Inode>,
    name: Vec<u8>,
    inode: Arc<Inode>,
}

/// Changes the volume in every way, judges it, and returns its new content.
pub fn edit_and_judge(image: &Path, before: &Manifest) -> Manifest {
    let v = mount(image);
    let mut expected = Expected::default();
    let mut victims = victims(&v, before).into_iter();
    add(&v, &mut expected);
    victims.by_ref().take(EACH).for_each(|f| remove(&v, f, &mut expected));
    victims.by_ref().take(EACH).enumerate().for_each(|(n, f)| rename(&v, n, f, &mut expected));
    victims.by_ref().take(EACH).for_each(|f| overwrite(&v, f, &mut expected));
    victims.by_ref().take(EACH).for_each(|f| truncate(&v, f, &mut expected));
    victims.by_ref().take(EACH).enumerate().for_each(|(n, f)| mark(&v, n, f, &mut expected));
    huge_files(&v, before).for_each(|f| cut(&v, f, &mut expected));
    let live = describe(&v);
    v.unmount().unwrap();
    drop(v);
    assert_clean(image);
    let after = describe_image(image);
    assert_same("before unmount against after", &live, &after);
    expected.judge(before, &after);
    after
}

/// Files with one name and little content, spread over the volume.
fn victims(v: &Arc<Vfs>, before: &Manifest) -> Vec<Victim> {
    let fits = |e: &&Entry| {
        let size = e.size.unwrap_or(0);
        e.kind == Kind::File && e.nlink == Some(1) && size < 1 << 20 && e.path.len() < 1000
    };
    let all: Vec<&Entry> = before.entries.iter().filter(fits).collect();
    let step = (all.len() / (EACH * 5)).max(1);
    let spread = all.into_iter().step_by(step);
    spread.filter_map(|e| victim(v, &e.path)).collect()
}

/// Files too large to read whole.
fn huge_files(v: &Arc<Vfs>, before: &Manifest) -> impl Iterator<Item = Victim> {
    let huge = |e: &&Entry| e.nlink == Some(1) && e.size >= Some(HUGE);
    before.entries.iter().filter(huge).filter_map(|e| victim(v, &e.path))
}

fn victim(v: &Arc<Vfs>, path: &str) -> Option<Victim> {
    let raw = unescape(path).unwrap();
    let split = raw.iter().rposition(|&b| b == b'/').map_or(0, |at| at + 1);
    let (head, name) = raw.split_at(split);
    let dir = v.resolve(ROOT, &[b"/", head].concat(), true).unwrap();
    let inode = v.lookup(&dir, name).unwrap();
    let free = [&inode, &dir].iter().all(|i| i.attr().flags & UNCHANGEABLE == 0);
    free.then(|| Victim { path: path.into(), dir, name: name.to_vec(), inode })
}

fn read(v: &Arc<Vfs>, inode: &Arc<Inode>) -> Vec<u8> {
    let f = v.open(ROOT, inode, OpenFlags::READ).unwrap();
    let mut data = vec![0; f.size() as usize];
    assert_eq!(f.read_at(0, &mut data).unwrap(), data.len());
    data
}

fn add(v: &Arc<Vfs>, expected: &mut Expected) {
    let dir = v.mkdir(ROOT, &v.root().unwrap(), ADDED.as_bytes(), 0o755).unwrap();
    for n in 0..EACH * 3 {
        let (name, data) = (format!("f{n}"), pattern(n, n * n * 9));
        put(v, &dir, name.as_bytes(), &data);
        expected.content.insert(format!("{ADDED}/{name}"), data);
    }
}

fn remove(v: &Arc<Vfs>, f: Victim, expected: &mut Expected) {
    v.unlink(ROOT, &f.dir, &f.name).unwrap();
    expected.gone.insert(f.path);
}

fn rename(v: &Arc<Vfs>, n: usize, f: Victim, expected: &mut Expected) {
    let to = v.resolve(ROOT, format!("/{ADDED}").as_bytes(), true).unwrap();
    let name = format!("moved{n}");
    expected.content.insert(format!("{ADDED}/{name}"), read(v, &f.inode));
    v.rename(ROOT, (&f.dir, &f.name), (&to, name.as_bytes()), RenameFlags::default()).unwrap();
    expected.gone.insert(f.path);
}

/// Writes across the old end, so that some files outgrow their inode.
fn overwrite(v: &Arc<Vfs>, f: Victim, expected: &mut Expected) {
    let mut data = read(v, &f.inode);
    let (at, new) = (data.len() / 2, pattern(data.len(), data.len() / 2 + 5000));
    write(v, &f.inode, at as u64, &new);
    data.truncate(at);
    data.extend(new);
    expected.content.insert(f.path.clone(), data);
    expected.touched.insert(f.path);
}

/// Truncates and lengthens again: the bytes cut off must be zeros.
fn truncate(v: &Arc<Vfs>, f: Victim, expected: &mut Expected) {
    let mut data = read(v, &f.inode);
    let (full, cut) = (data.len(), data.len() / 3);
    let file = v.open(ROOT, &f.inode, OpenFlags::WRITE).unwrap();
    for size in [cut, full] {
        file.truncate(size as u64).unwrap();
        data.resize(size, 0);
    }
    expected.content.insert(f.path.clone(), data);
    expected.touched.insert(f.path);
}

/// Truncates files to almost nothing, with nodes of every depth.
fn cut(v: &Arc<Vfs>, f: Victim, expected: &mut Expected) {
    let file = v.open(ROOT, &f.inode, OpenFlags::WRITE).unwrap();
    file.truncate(5000).unwrap();
    expected.content.insert(f.path.clone(), read(v, &f.inode));
    expected.touched.insert(f.path);
}

fn mark(v: &Arc<Vfs>, n: usize, f: Victim, expected: &mut Expected) {
    let value = pattern(n, 1 + n * 20);
    v.setxattr(ROOT, &f.inode, XATTR.as_bytes(), Some(&value), XattrFlags::empty()).unwrap();
    expected.marked.insert(f.path.clone(), value);
    expected.touched.insert(f.path);
}

impl Expected {
    fn judge(&self, before: &Manifest, after: &Manifest) {
        let found: BTreeMap<&str, &Entry> = after.entries.iter().map(|e| (&*e.path, e)).collect();
        for path in &self.gone {
            assert!(!found.contains_key(&**path), "{path} is still there");
        }
        for (path, data) in &self.content {
            let is = found[&**path];
            assert_eq!((is.size, is.crc32), (Some(data.len() as u64), Some(hash(data))), "{path}");
        }
        for (path, value) in &self.marked {
            assert_eq!(found[&**path].xattrs.get(XATTR), Some(&hex(value)), "{path}");
        }
        assert_same("what was left alone", &self.untouched(before), &self.untouched(after));
    }

    /// Files without a change; times of directories follow the changes of their names.
    fn untouched(&self, all: &Manifest) -> Manifest {
        let alone = |e: &&Entry| {
            let ours = self.touched.contains(&e.path) || self.gone.contains(&e.path);
            !ours && !e.path.starts_with(ADDED)
        };
        let mut entries: Vec<Entry> = all.entries.iter().filter(alone).cloned().collect();
        for e in entries.iter_mut().filter(|e| e.kind == Kind::Dir) {
            e.mtime = tidegate_testing::manifest::Time(0, 0);
        }
        Manifest { entries }
    }
}
