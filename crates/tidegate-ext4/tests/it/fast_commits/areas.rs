//! Fast-commit areas that are torn, damaged, or made up.

use super::*;

/// The fast-commit area of an image: its first byte, and its length. The journal is in one piece.
fn area(image: &Path, bytes: &[u8]) -> (usize, usize) {
    let path = image.to_str().unwrap();
    let block = must("debugfs", &["-R", "bmap <8> 0", path]);
    let number = |text: &str| {
        text.lines().find(|l| !l.starts_with("debugfs")).unwrap().trim().parse::<usize>().expect(text)
    };
    let bs = 1 << (10 + u32::from(bytes[1024 + 24]));
    let head = number(&block) * bs;
    let be32 = |at: usize| u32::from_be_bytes(bytes[head + at..head + at + 4].try_into().unwrap()) as usize;
    let (blocks, area) = (be32(16), if be32(0x54) == 0 { 256 } else { be32(0x54) });
    let last = must("debugfs", &["-R", &format!("bmap <8> {}", blocks - 1), path]);
    assert_eq!(number(&last), number(&block) + blocks - 1, "the journal is in pieces");
    (head + (blocks - area + 1) * bs, (area - 1) * bs)
}

/// Where each tag of an area begins, up to the last tail.
fn tags(area: &[u8], bs: usize) -> Vec<usize> {
    let (mut at, mut all) = (0, Vec::new());
    while at + 4 <= area.len() {
        let tag = u16::from_le_bytes([area[at], area[at + 1]]);
        let len = u16::from_le_bytes([area[at + 2], area[at + 3]]);
        if !(1..=9).contains(&tag) {
            break;
        }
        all.push(at);
        at += 4 + usize::from(len);
        if bs - at % bs < 4 {
            at = at.next_multiple_of(bs);
        }
    }
    all
}

/// Areas that end at each of their tags, and areas with a wrong byte in each tag: our result is Linux's.
#[test]
fn torn_areas_are_what_linux_makes_of_them() {
    if skip() {
        return;
    }
    let seed = seed();
    let dir = scratch();
    let Some((image, _)) = cut(&dir, &["-b", "1024"], seed, 6, true) else { return };
    let whole = std::fs::read(&image).unwrap();
    let (first, len) = area(&image, &whole);
    let all = tags(&whole[first..first + len], 1024);
    assert!(all.len() > 3, "seed {seed}: {} tags", all.len());
    let mut rng = Rng::new(seed);
    let (mut refused, mut recovered) = (0, 0);
    let torn = dir.path().join("torn.img");
    for (n, at) in all.iter().enumerate().step_by(all.len().div_ceil(10)) {
        let end = all.get(n + 1).copied().unwrap_or(at + 8);
        for kind in 0..2 {
            let mut bytes = whole.clone();
            match kind {
                0 => bytes[first + at..first + len].fill(0),
                _ => bytes[first + at + rng.below((end - at) as u64) as usize] ^= 1 << rng.below(8),
            }
            std::fs::write(&torn, &bytes).unwrap();
            let what = format!("seed {seed}, tag {n} at {at}, kind {kind}");
            match (recovered_by_kernel(&torn), described(&bytes)) {
                (Some(theirs), Ok(ours)) => {
                    recovered += 1;
                    assert_same_but(&what, &theirs, &ours, &LINUX);
                }
                (None, Err(e)) => {
                    refused += 1;
                    // Repair leaves damage out. Features are not for it to judge.
                    let repaired = repair_bytes(&bytes).report;
                    match e.kind() {
                        ErrorKind::Corrupt => {
                            assert_eq!(repaired.unwrap().outcome, Outcome::Corrected, "{what}")
                        }
                        kind => assert_eq!(repaired.unwrap_err().kind(), kind, "{what}"),
                    }
                }
                (theirs, ours) => panic!("{what}: Linux {}, we {:?}", theirs.is_some(), ours.map(drop)),
            }
        }
    }
    println!("{recovered} recovered, {refused} refused");
    assert!(recovered > 0, "seed {seed}");
}

/// An area of one fast commit with a right checksum.
fn sealed(tid: &[u8], tag: u16, value: &[u8]) -> Vec<u8> {
    let mut area = Vec::new();
    let mut put = |tag: u16, len: usize, value: &[u8]| {
        area.extend(tag.to_le_bytes());
        area.extend((len as u16).to_le_bytes());
        area.extend(value);
    };
    put(9, 8, &[&[0; 4], tid].concat());
    put(tag, value.len(), value);
    put(8, 1024 - 16 - value.len() - 4, tid);
    let sum = tidegate_ext4::format::crc::crc32c(0, &area);
    area.extend(sum.to_le_bytes());
    area.resize(1024, 0);
    area
}

/// Impossible fast commits with a right checksum.
#[test]
fn what_cannot_be_is_an_error_by_name() {
    if skip() {
        return;
    }
    let dir = scratch();
    let Some((image, _)) = cut(&dir, &["-b", "1024"], 1, 2, true) else { return };
    let whole = std::fs::read(&image).unwrap();
    let (first, len) = area(&image, &whole);
    let tid = whole[first + 8..first + 12].to_vec();
    let words = |all: &[u32]| all.iter().flat_map(|n| n.to_le_bytes()).collect::<Vec<u8>>();
    let name = |ino: u32, name: &[u8]| [&words(&[2, ino])[..], name].concat();
    let extent = |ino: u32, len: u32, start: u32| words(&[ino, 0, len, start]);
    let file = {
        let said = must("debugfs", &["-R", "ls -p /dir0", image.to_str().unwrap()]);
        let line = said.lines().find(|l| l.contains("/100")).expect("a file").to_owned();
        line.split('/').nth(1).unwrap().parse::<u32>().unwrap()
    };
    let cases: [(&str, u16, Vec<u8>); 9] = [
        ("an inode behind all", 6, [words(&[4_000_000]), vec![0; 128]].concat()),
        ("a reserved inode", 6, [words(&[8]), vec![0; 128]].concat()),
        ("a mode of nothing", 6, [words(&[file]), vec![0; 128]].concat()),
        ("a long inode", 6, [words(&[file]), vec![0; 600]].concat()),
        ("a name with a slash", 4, name(file, b"a/b")),
        ("blocks outside", 1, extent(file, 8, 4_000_000_000)),
        ("blocks of tables", 1, extent(file, 8, 3)),
        ("no blocks", 1, extent(file, 0, 40_000)),
        ("blocks of a directory", 2, words(&[2, 0, 1])),
    ];
    for (what, tag, value) in cases {
        let mut bytes = whole.clone();
        bytes[first..first + len].fill(0);
        bytes[first..first + 1024].copy_from_slice(&sealed(&tid, tag, &value));
        let e = described(&bytes).map(drop).expect_err(what);
        assert_eq!(e.kind(), ErrorKind::Corrupt, "{what}: {e}");
        assert!(e.places().next().is_some(), "{what}: {e}");
        let queue = RequestQueue::new(Arc::new(MemoryDevice::from_bytes(&bytes)), QueueLimits::default());
        let found = check(&Arc::new(queue), CheckOptions::default()).unwrap();
        assert!(!found.is_clean(), "{what}");
        let repaired = repair_bytes(&bytes);
        assert_eq!(repaired.report.unwrap().outcome, Outcome::Corrected, "{what}: {:?}", repaired.told);
        std::fs::write(&image, &repaired.bytes).unwrap();
        clean(what, &image);
    }
}
