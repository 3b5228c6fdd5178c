//! Hashes of names, compared with debugfs, which takes them by number: legacy, half_md4, tea, and their
//! versions with unsigned bytes.

use crate::rig::*;
use tidegate_ext4::format::hash::DirHash;
use tidegate_testing::fill::Rng;

/// A name that debugfs takes as one word: letters, and bytes whose sign matters.
fn name(rng: &mut Rng) -> Vec<u8> {
    // debugfs reads lines of at most 255 bytes.
    let len = 1 + rng.below(160) as usize;
    let byte = |b: u8| if b < 0x60 { b'a' + b % 26 } else { b | 0x80 };
    rng.bytes(len).into_iter().map(byte).collect()
}

/// The two words in `Hash of ... is 0x... (minor 0x...)`.
fn told(line: &[u8]) -> (u32, u32) {
    let text = String::from_utf8_lossy(line);
    let (_, numbers) = text.rsplit_once(" is 0x").unwrap();
    let (major, minor) = numbers.trim_end().trim_end_matches(')').split_once(" (minor 0x").unwrap();
    (u32::from_str_radix(major, 16).unwrap(), u32::from_str_radix(minor, 16).unwrap())
}

#[test]
fn names_hash_as_debugfs_hashes_them() {
    if skip() {
        return;
    }
    let dir = scratch();
    let (script, mut rng) = (dir.path().join("commands"), Rng::new(7));
    let seeds = ["", "01234567-89ab-cdef-8123-456789abcdef"];
    let (mut commands, mut cases) = (Vec::new(), Vec::new());
    for number in 0..6 {
        for seed in seeds {
            for _ in 0..20 {
                let name = name(&mut rng);
                let option = if seed.is_empty() { String::new() } else { format!("-s {seed} ") };
                commands.extend(format!("dx_hash -h {number} {option}").bytes());
                commands.extend(&name);
                commands.push(b'\n');
                cases.push((number, seed, name));
            }
        }
    }
    std::fs::write(&script, commands).unwrap();
    let out = bytes_of("debugfs", &["-f", script.to_str().unwrap()]);
    let lines: Vec<&[u8]> = out.split(|b| *b == b'\n').filter(|l| l.starts_with(b"Hash of ")).collect();
    assert_eq!(lines.len(), cases.len());
    for (line, (number, seed, name)) in lines.into_iter().zip(cases) {
        let bytes: Vec<u8> = (0..seed.len())
            .filter_map(|i| u8::from_str_radix(seed.replace('-', "").get(2 * i..2 * i + 2)?, 16).ok())
            .collect();
        let word =
            |i: usize| bytes.get(4 * i..4 * i + 4).map_or(0, |w| u32::from_le_bytes(w.try_into().unwrap()));
        let ours = DirHash::new(number, false, std::array::from_fn(word)).unwrap().of(&name);
        assert_eq!(ours, told(line), "hash {number} of {:?}", String::from_utf8_lossy(&name));
    }
    assert!(DirHash::new(6, false, [0; 4]).is_none());
}
