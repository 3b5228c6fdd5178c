use super::*;
use crate::testing::new_volume;
use crate::volume::open::load_checkpoint;
use std::sync::Arc;
use tidegate_vfs::{Cred, File, FileType, OpenFlags, RenameFlags, Vfs};

const ROOT: &Cred = &Cred::ROOT;

fn tmpfile(v: &Arc<Vfs>) -> Result<File> {
    let new = v.new_inode(ROOT, FileType::Regular, 0o644);
    v.tmpfile(ROOT, &v.root().unwrap(), &new, OpenFlags::READ | OpenFlags::WRITE)
}

fn file(v: &Arc<Vfs>, name: &str) -> File {
    let path = format!("/{name}");
    v.open_path(ROOT, path.as_bytes(), OpenFlags::WRITE | OpenFlags::CREATE, 0o644).unwrap()
}

fn is_full<T>(r: Result<T>) -> bool {
    r.is_err_and(|e| e.kind() == ErrorKind::NoSpace)
}

#[test]
fn a_pack_of_most_orphans_is_a_segment() {
    for payload in [0, 4] {
        let blocks = max_orphans(payload).div_ceil(ORPHANS_PER_BLOCK);
        assert_eq!(1 + payload as usize + blocks + NR_CURSEG_TYPE + 1, BLOCKS_PER_SEG as usize);
    }
    assert_eq!(max_orphans(BLOCKS_PER_SEG), 0);
}

#[test]
fn who_would_add_one_too_many_is_refused_and_nothing_has_changed() {
    let open = new_volume();
    let (v, top) = (&open.vfs, open.vfs.root().unwrap());
    open.fs.orphans.lock().max = 2;
    for name in ["gone", "stays", "moved"] {
        file(v, name);
    }
    let first = tmpfile(v).unwrap();
    let gone = file(v, "gone");
    v.unlink(ROOT, &top, b"gone").unwrap();
    let before = open.fs.info().unwrap();
    let rename = || v.rename(ROOT, (&top, b"moved"), (&top, b"stays"), RenameFlags::empty());
    assert!(is_full(tmpfile(v)));
    assert!(is_full(v.unlink(ROOT, &top, b"stays")));
    assert!(is_full(rename()));
    for name in [&b"/stays"[..], b"/moved"] {
        assert_eq!(v.resolve(ROOT, name, false).unwrap().attr().nlink, 1);
    }
    let after = open.fs.info().unwrap();
    assert_eq!((after.orphans, after.valid_nodes), (before.orphans, before.valid_nodes));
    // An operation that adds no orphan is not refused.
    v.rename(ROOT, (&top, b"moved"), (&top, b"elsewhere"), RenameFlags::empty()).unwrap();
    v.rename(ROOT, (&top, b"elsewhere"), (&top, b"moved"), RenameFlags::empty()).unwrap();
    drop(first);
    rename().unwrap();
    drop(gone);
    assert_eq!(open.fs.orphans.lock().len(), 0);
    assert_eq!(open.fs.orphans.lock().acquired, 0);
    v.unmount().unwrap();
}

#[test]
fn a_pack_that_is_too_large_is_not_written() {
    let open = new_volume();
    drop(file(&open.vfs, "f"));
    open.vfs.sync().unwrap();
    let version = || load_checkpoint(&open.fs.queue, &open.fs.sb).unwrap().version();
    let before = version();
    let writes = open.fs.queue_stats().write_bytes;
    open.fs.orphans.lock().inos.extend(4..600_000);
    open.fs.orphans_changed.store(true, std::sync::atomic::Ordering::SeqCst);
    assert!(open.fs.checkpoint(false).is_err());
    assert_eq!((version(), open.fs.queue_stats().write_bytes), (before, writes));
    assert!(open.fs.why_read_only().is_some(), "nothing more may be promised");
}
