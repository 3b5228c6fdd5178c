//! Many inodes, and the memory that the serving process takes for them.

use crate::inside::{known, mount_inspected};
use crate::rig::{Rig, cannot_mount, fsck, number};
use rustix::fs::OFlags;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tidegate::vfs::{Cred, OpenFlags};
use tidegate::{OpenOptions, Volume};
use tidegate_fuse::Server;

const IN_A_DIRECTORY: u64 = 1000;

/// A number of bytes that the kernel reports for a process.
fn status(pid: u32, what: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|l| l.starts_with(what)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() << 10
}

/// Makes so many empty files, without a mount.
fn fill(image: &Path, files: u64) {
    let volume = Volume::open(image, &OpenOptions::default()).unwrap();
    let vfs = volume.vfs();
    let root = vfs.root().unwrap();
    for d in 0..files.div_ceil(IN_A_DIRECTORY) {
        let dir = vfs.mkdir(&Cred::ROOT, &root, format!("d{d}").as_bytes(), 0o755).unwrap();
        for f in 0..IN_A_DIRECTORY.min(files - d * IN_A_DIRECTORY) {
            vfs.create(&Cred::ROOT, &dir, format!("f{f}").as_bytes(), 0o644).unwrap();
        }
    }
    volume.unmount().unwrap();
}

/// Looks up every file by its name. Returns their number.
fn look_at_all(dir: &Path) -> u64 {
    let below = |d: std::fs::DirEntry| {
        let files = std::fs::read_dir(d.path()).unwrap();
        files.filter(|f| std::fs::symlink_metadata(f.as_ref().unwrap().path()).is_ok()).count() as u64
    };
    std::fs::read_dir(dir).unwrap().map(|d| below(d.unwrap())).sum()
}

fn wait_for(what: &str, mut done: impl FnMut() -> bool) {
    let since = Instant::now();
    while !done() {
        assert!(since.elapsed() < Duration::from_secs(60), "{what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// The budget is for all memory of the process: pages, inodes, tables, buffers in flight, and code.
#[test]
fn known_inodes_fit_into_the_budget() {
    if cannot_mount() {
        return;
    }
    let files = number("TIDEGATE_FUSE_FILES", 50_000);
    let mib = number("TIDEGATE_FUSE_CACHE", 128);
    let mut rig = Rig::unmounted(1024 + files / 200);
    fill(&rig.image, files);
    mount_inspected(&mut rig, &format!("cache={mib}M"));
    let rss = |what: &str, rig: &Rig| {
        let (now, most) = (status(rig.pid(), "VmRSS:"), status(rig.pid(), "VmHWM:"));
        println!("{what}: {} MiB, at most {} MiB; {} inodes known", now >> 20, most >> 20, known(rig));
        assert!(most <= mib << 20, "{what}: {most} bytes with a budget of {mib} MiB");
    };
    rss("mounted", &rig);
    assert_eq!(look_at_all(&rig.dir), files);
    rss("looked at all", &rig);
    wait_for("the kernel keeps few", || known(&rig) as u64 > files / 2);
    // Pages are added: more than fit are written and read.
    for i in 0..4 {
        std::fs::write(rig.dir.join(format!("large{i}")), vec![i; (mib << 20) as usize / 3]).unwrap();
    }
    for i in 0..4 {
        assert!(std::fs::read(rig.dir.join(format!("large{i}"))).unwrap().iter().all(|b| *b == i));
        std::fs::remove_file(rig.dir.join(format!("large{i}"))).unwrap();
    }
    rss("with pages", &rig);
    assert_eq!(look_at_all(&rig.dir), files);
    rss("looked again", &rig);
    if std::fs::write("/proc/sys/vm/drop_caches", "2").is_ok() {
        wait_for("the kernel forgets, and it is not heard", || (known(&rig) as u64) < files / 100);
        rss("forgotten", &rig);
    }
    assert_eq!(look_at_all(&rig.dir), files);
    assert!(rig.unmount());
    fsck(&rig.image);
}

/// Pages that the kernel caches are not kept here, too; pages that it reads around its cache are.
#[test]
fn pages_that_the_kernel_has_read_are_let_go() {
    const PAGE: usize = 4096;
    let rig = Rig::unmounted(64);
    let volume = Arc::new(Volume::open(&rig.image, &OpenOptions::default()).unwrap());
    let vfs = volume.vfs();
    let inode = vfs.create(&Cred::ROOT, &vfs.root().unwrap(), b"f", 0o644).unwrap();
    let file = vfs.open(&Cred::ROOT, &inode, OpenFlags::WRITE).unwrap();
    let content: Vec<u8> = (0..8 * PAGE + 100).map(|i| (i / 7) as u8).collect();
    file.write_at(0, &content).unwrap();
    file.fsync(false).unwrap();
    inode.mapping.reclaim(false);
    let server = Server::new(volume.clone(), Default::default());
    let fh = server.open(inode.ino.0, 0, tidegate_fuse::privileges::Kill::No).unwrap();
    let cached = || (0..9).filter(|i| inode.mapping.has(*i)).collect::<Vec<_>>();
    let mut got = vec![0; 9 * PAGE];
    for flags in [0, OFlags::DIRECT.bits()] {
        let n = server.read(fh, 0, &mut got, flags).unwrap();
        assert!(got[..n] == content);
        let kept: &[u64] = if flags == 0 { &[] } else { &[0, 1, 2, 3, 4, 5, 6, 7, 8] };
        assert_eq!(cached(), kept, "{flags:o}");
    }
    server.detach();
    drop(file);
    vfs.unmount().unwrap();
}

/// A listing of a large directory reads only the inodes of its first entries, until a name is looked up.
#[test]
fn a_large_directory_is_listed_by_names_alone() {
    const FILES: usize = 20_000;
    let rig = Rig::unmounted(256);
    let volume = Arc::new(Volume::open(&rig.image, &OpenOptions::default()).unwrap());
    let vfs = volume.vfs();
    let root = vfs.root().unwrap();
    let made = vfs.entries(&root).unwrap().len();
    let name = |i: usize| format!("a-name-of-a-file-{i}");
    for i in 0..FILES {
        vfs.create(&Cred::ROOT, &root, name(i).as_bytes(), 0o644).unwrap();
    }
    let server = Server::new(volume.clone(), Default::default());
    let list = || {
        let (mut pos, mut all, mut with_attributes) = (0, 0, 0);
        loop {
            let (from, mut taken) = (pos, 0);
            let mut add = |e: &tidegate::vfs::DirEntry, entry: Option<&tidegate_fuse::server::Entry>| {
                // As many entries as one answer holds.
                if taken == 400 {
                    return false;
                }
                (pos, taken) = (e.next, taken + 1);
                with_attributes += usize::from(entry.is_some());
                true
            };
            server.readdirplus(tidegate_fuse::server::ROOT_NODE, from, &mut add).unwrap();
            if taken == 0 {
                return (all, with_attributes);
            }
            all += taken;
        }
    };
    let (all, few) = list();
    assert_eq!(all, FILES + made + 2);
    assert!(few > 0 && few < FILES / 2, "{few} inodes were read");
    // A name is looked up, as by a walk that looks at each name when it comes.
    server.lookup(tidegate_fuse::server::ROOT_NODE, name(1).as_bytes()).unwrap().unwrap();
    let first = server.known_nodes().0;
    assert!(first <= few + 1, "{first} inodes are known");
    server.detach();
    drop(root);
    vfs.unmount().unwrap();
}
