//! Disks with partitions, and images of other kinds: the messages about them, and how a volume in one is
//! opened.

use crate::common::Bench;
use std::fs;
use std::process::{Command, Stdio};

const M: usize = 1 << 20;

/// A disk's image with these contents one after the other, each at a full MiB, the first at 1 MiB.
struct Disk {
    bytes: Vec<u8>,
    /// Where each begins, and its length, in bytes.
    parts: Vec<(usize, usize)>,
}

impl Disk {
    fn of(contents: &[Vec<u8>]) -> Disk {
        let mut disk = Disk { bytes: vec![0; M], parts: Vec::new() };
        for c in contents {
            disk.parts.push((disk.bytes.len(), c.len()));
            disk.bytes.extend(c);
            disk.bytes.resize(disk.bytes.len().next_multiple_of(M), 0);
        }
        disk
    }

    fn put(&mut self, at: usize, bytes: &[u8]) {
        self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
    }

    /// With a DOS table.
    fn dos(mut self) -> Vec<u8> {
        for (n, (start, len)) in self.parts.clone().into_iter().enumerate() {
            let at = 446 + 16 * n;
            self.bytes[at + 4] = 0x83;
            self.put(at + 8, &(start as u32 / 512).to_le_bytes());
            self.put(at + 12, &(len as u32 / 512).to_le_bytes());
        }
        self.put(510, &[0x55, 0xaa]);
        self.bytes
    }

    /// With a GPT: the header in sector 1, entries of 128 bytes from sector 2 on.
    fn gpt(mut self) -> Vec<u8> {
        self.put(446 + 4, &[0xee]);
        self.put(446 + 8, &1u32.to_le_bytes());
        self.put(446 + 12, &u32::MAX.to_le_bytes());
        self.put(510, &[0x55, 0xaa]);
        self.put(512, b"EFI PART");
        self.put(512 + 72, &2u64.to_le_bytes());
        self.put(512 + 80, &128u32.to_le_bytes());
        self.put(512 + 84, &128u32.to_le_bytes());
        for (n, (start, len)) in self.parts.clone().into_iter().enumerate() {
            let at = 1024 + 128 * n;
            self.put(at, &[0xaf; 16]);
            self.put(at + 32, &(start as u64 / 512).to_le_bytes());
            self.put(at + 40, &((start + len) as u64 / 512 - 1).to_le_bytes());
        }
        self.bytes
    }
}

fn volume(b: &Bench) -> Vec<u8> {
    b.ok(&["mkfs", "--force", "--size", "64M", "a.img", "--quiet"]);
    fs::read(b.path("a.img")).unwrap()
}

fn squashfs() -> Vec<u8> {
    [&b"hsqs"[..], &[7; M - 4]].concat()
}

#[test]
fn a_partition_is_named_and_opened() {
    let b = Bench::new();
    let contents = [vec![0; M], volume(&b), squashfs()];
    for (name, disk) in [("dos.img", Disk::of(&contents).dos()), ("gpt.img", Disk::of(&contents).gpt())] {
        fs::write(b.path(name), &disk).unwrap();
        let at = |tail: &str| format!("{name}@{tail}");
        let line = b.fails(&["ls", &format!("{name}:/")], 1);
        let want = format!(
            "{name}: a disk with a partition table: partition 1 at 1M holds nothing, partition 2 at 2M holds an f2fs \
             volume, partition 3 at 66M holds a squashfs file system; name one as {name}@2M"
        );
        assert_eq!(line, want);
        b.ok(&["mkdir", &at("2M:/made")]);
        b.ok(&["cp", "a.img", &at("2097152:/made/")]);
        b.ok(&["mv", &at("2M:/made/a.img"), &at("2M:/made/b.img")]);
        assert_eq!(b.ok(&["ls", &at("2048K:/made")]), "b.img\n");
        assert_eq!(b.ok(&["ls", "-o", "offset=2M", name]), "made\n");
        assert!(b.ok(&["check", &at("2M")]).starts_with(&format!("{name}@2M: clean")));
        assert!(b.ok(&["df", &at("2M")]).contains(&at("2M")));
        b.ok(&["rm", "-r", &at("2M:/made")]);
        // The other parts are unchanged.
        let now = fs::read(b.path(name)).unwrap();
        assert!(now[..2 * M] == disk[..2 * M] && now[66 * M..] == disk[66 * M..]);
        assert_ne!(now[2 * M..66 * M], disk[2 * M..66 * M]);
    }
}

#[test]
fn a_place_in_a_disk_that_cannot_be() {
    let b = Bench::new();
    fs::write(b.path("d.img"), Disk::of(&[volume(&b)]).dos()).unwrap();
    for (image, cause) in [
        ("d.img@1G", "no volume begins at byte 1073741824: it is 68157440 bytes long, which is shorter"),
        ("d.img@7", "no volume begins at byte 7: that is not a multiple of 512"),
        ("d.img@2M", "not an f2fs or ext4 volume"),
        ("d.img@x", "no such file or directory"),
        ("no.img@1M", "no such file or directory"),
    ] {
        let line = b.fails(&["ls", image], 1);
        assert!(line.starts_with(&format!("{image}: {cause}")), "{line}");
    }
    assert!(b.fails(&["ls", "-o", "offset=1M", "d.img@1M"], 1).contains("said twice"));
    assert!(b.fails(&["ls", "-o", "offset=7", "d.img"], 1).contains("multiple of 512"));
    let line = b.fails(&["mkfs", "--size", "64M", "d.img@1M"], 1);
    assert!(line.starts_with("d.img@1M: a place in a disk"), "{line}");
    let line = b.fails(&["cp", "d.img@1M:/", "d.img"], 1);
    assert!(line.starts_with("d.img: "), "{line}");
    // A file that has such a name is that file.
    b.ok(&["mkfs", "--size", "64M", "e.img@1M"]);
    fs::write(b.path("e.img"), b"beside it").unwrap();
    assert_eq!(b.ok(&["ls", "e.img@1M"]), "");
}

/// No hint names something that cannot be opened.
#[test]
fn a_disk_without_a_volume_gets_no_name_to_try() {
    let b = Bench::new();
    fs::write(b.path("d.img"), Disk::of(&[squashfs()]).gpt()).unwrap();
    let line = b.fails(&["ls", "d.img"], 1);
    let want = "d.img: a disk with a partition table, and no volume that can be opened: partition 1 at 1M holds a \
                squashfs file system";
    assert_eq!(line, want);
}

/// The hint of a disk that holds ext4 alone is kept.
#[test]
fn what_is_said_of_ext4_in_a_disk_holds() {
    if tidegate_testing::oracle::skip_or_fail("mke2fs") {
        return;
    }
    let b = Bench::new();
    let mke2fs = ["-q", "-t", "ext4", "ext4.img", "16M"];
    assert!(Command::new("mke2fs").args(mke2fs).current_dir(b.dir.path()).status().unwrap().success());
    fs::write(b.path("d.img"), Disk::of(&[squashfs(), fs::read(b.path("ext4.img")).unwrap()]).gpt()).unwrap();
    let line = b.fails(&["ls", "d.img"], 1);
    assert!(line.contains("partition 2 at 2M holds an ext2, ext3 or ext4 file system"), "{line}");
    let (_, named) = line.split_once("name one as ").unwrap();
    assert!(b.ok(&["ls", named]).contains("lost+found"));
}

#[test]
fn images_of_other_kinds_are_named() {
    let b = Bench::new();
    let marked = |at: usize, mark: &[u8]| {
        let mut bytes = vec![0; 100_000];
        bytes[at..at + mark.len()].copy_from_slice(mark);
        bytes
    };
    for (at, mark, what) in [
        (0, &b"QFI\xfb"[..], "a qcow2 image; qemu-img convert -O raw"),
        (0, b"\x3a\xff\x26\xed", "an Android sparse image; simg2img"),
        (64, b"\x7f\x10\xda\xbe", "a VDI image; qemu-img convert"),
        (0, b"hsqs", "a squashfs file system"),
        (32_769, b"CD001", "an ISO 9660 file system"),
        (1024, b"\xe2\xe1\xf5\xe0", "an erofs file system"),
    ] {
        fs::write(b.path("x.img"), marked(at, mark)).unwrap();
        let line = b.fails(&["ls", "x.img"], 1);
        assert!(line.starts_with(&format!("x.img: not an f2fs or ext4 volume, but {what}")), "{line}");
    }
}

/// An image is recognised however short it is after compression.
#[test]
fn compressed_images_are_named() {
    let b = Bench::new();
    for (size, range) in [(0, 1..512), (1 << 20, 512..4096), (24 << 20, 4096..1 << 20)] {
        fs::write(b.path("plain"), vec![0; size]).unwrap();
        let input = fs::File::open(b.path("plain")).unwrap();
        let output = fs::File::create(b.path("x.img")).unwrap();
        let gzip = Command::new("gzip").arg("-n").stdin(input).stdout(output).stderr(Stdio::null()).status();
        assert!(gzip.unwrap().success());
        let len = fs::metadata(b.path("x.img")).unwrap().len();
        assert!(range.contains(&len), "{len}");
        for command in ["ls", "info"] {
            let line = b.fails(&[command, "x.img"], 1);
            assert_eq!(line, "x.img: not an f2fs or ext4 volume, but gzip data; unpack it first");
        }
    }
    for (magic, what) in [(&b"\xfd7zXZ\0"[..], "xz"), (b"\x28\xb5\x2f\xfd", "zstd"), (b"BZh9", "bzip2")] {
        fs::write(b.path("x.img"), [magic, &[1; 60]].concat()).unwrap();
        assert!(b.fails(&["ls", "x.img"], 1).contains(&format!("but {what} data; unpack it first")));
    }
    fs::write(b.path("x.img"), b"hello").unwrap();
    assert_eq!(b.fails(&["ls", "x.img"], 1), "x.img: not an f2fs or ext4 volume: only 5 bytes long");
}
