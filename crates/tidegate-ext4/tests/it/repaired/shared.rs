//! Maps of two inodes that lead to the same blocks, and maps with a wrong depth.

use super::cases::{EXT4, damaged, first_number, mended};
use super::*;
use std::os::unix::fs::FileExt;
use tidegate_testing::temp::TempDir;

/// The files between which one block of a map is moved.
const TWO: [&str; 2] = ["one", "other"];

/// A volume with two files that have blocks of a map, and a large directory.
fn volume(args: &[&str]) -> Option<(TempDir, Vec<u8>)> {
    if skip() {
        return None;
    }
    let dir = scratch();
    let tree = dir.path().join("tree");
    std::fs::create_dir_all(tree.join("many")).unwrap();
    small_tree(&tree);
    for (n, name) in TWO.iter().enumerate() {
        let file = std::fs::File::create_new(tree.join(name)).unwrap();
        for piece in 0..40_u8 {
            file.write_all_at(&[(1 + n as u8) * 50 + piece; 900], u64::from(piece) * 7_000).unwrap();
        }
    }
    let linked = tree.join("many/the-first");
    std::fs::write(&linked, "linked").unwrap();
    for n in 0..900 {
        std::fs::hard_link(&linked, tree.join(format!("many/a-name-of-some-length-{n}"))).unwrap();
    }
    let bytes = base(dir.path(), args, "8M");
    Some((dir, bytes))
}

/// A file of one block.
fn small() -> String {
    format!("directory/name-99-{}", "y".repeat(29))
}

/// Damages `bytes` with debugfs.
fn hurt(dir: &TempDir, bytes: &[u8], command: &str) -> Vec<u8> {
    let image = dir.path().join("x.img");
    std::fs::write(&image, bytes).unwrap();
    must("debugfs", &["-w", "-R", command, image.to_str().unwrap()]);
    std::fs::read(&image).unwrap()
}

/// The block of a map that debugfs calls `label`.
fn map_block(dir: &TempDir, bytes: &[u8], name: &str, label: &str) -> usize {
    let image = dir.path().join("x.img");
    std::fs::write(&image, bytes).unwrap();
    let said = must("debugfs", &["-R", &format!("stat {name}"), image.to_str().unwrap()]);
    let block = said.split(label).nth(1).unwrap_or_else(|| panic!("{name} has no {label}: {said}"));
    first_number(&block.replace([',', '-'], " "))
}

/// The contents of a volume after e2fsck.
fn theirs(dir: &TempDir, bytes: &[u8]) -> Contents {
    let image = dir.path().join("x.img");
    std::fs::write(&image, bytes).unwrap();
    run("e2fsck", &["-fy", image.to_str().unwrap()]);
    contents(&std::fs::read(image).unwrap()).unwrap()
}

/// It must not matter which of the two comes first: one is damaged, the other is intact.
#[test]
fn a_map_that_another_inode_leads_to_stays_whole() {
    const EXT3: &[&str] = &["-t", "ext3", "-b", "1024"];
    const NO_SUMS: &[&str] = &["-t", "ext4", "-b", "1024", "-O", "^metadata_csum"];
    for (args, field, label) in [(EXT3, "block[IND]", "(IND):"), (NO_SUMS, "block[4]", "(ETB0):")] {
        let Some((dir, whole)) = volume(args) else { return };
        let before = contents(&whole).unwrap();
        for (from, to) in [(TWO[0], TWO[1]), (TWO[1], TWO[0])] {
            let block = map_block(&dir, &whole, to, label);
            let bytes = hurt(&dir, &whole, &format!("sif {from} {field} {block}"));
            let (r, now) = mended(&dir, &bytes);
            let lost = before.files.iter().filter(|(c, n)| now.files.get(*c) < Some(n)).count();
            assert_eq!(lost, 1, "{args:?}, {from}: {:?}", r.told);
            assert_eq!(now.paths, before.paths);
            assert!(
                now.files == theirs(&dir, &bytes).files,
                "{args:?}, {from}: not as by e2fsck: {:?}",
                r.told
            );
        }
    }
}

#[test]
fn a_directory_whose_map_a_file_leads_to_keeps_its_names() {
    let Some((dir, whole)) = volume(&["-t", "ext3", "-b", "1024"]) else { return };
    let before = contents(&whole).unwrap();
    let block = map_block(&dir, &whole, "many", "(IND):");
    for name in [&small(), "pieces", TWO[0], TWO[1]] {
        let bytes = hurt(&dir, &whole, &format!("sif {name} block[IND] {block}"));
        let (r, now) = mended(&dir, &bytes);
        assert_eq!(now.paths, before.paths, "{name}: {:?}", r.told);
        assert_eq!(theirs(&dir, &bytes).paths, before.paths);
    }
}

/// The first word behind magic number and count holds the room, and the depth above it.
#[test]
fn a_tree_of_extents_of_another_depth_than_it_says_is_read() {
    for (name, depths) in [("pieces", [0, 2, 9]), (&small(), [1, 2, 9])] {
        for depth in depths {
            let set = format!("sif {name} block[1] {}", 4 | depth << 16);
            let Some((dir, bytes, before)) = damaged(EXT4, "12M", &[&set]) else { return };
            let (r, now) = mended(&dir, &bytes);
            assert!(now.files == before.files && now.paths == before.paths, "{name}, {depth}: {:?}", r.told);
        }
    }
}
