//! Several streams of data: what they leave, after unmount and after a power cut.

use crate::common::mounted::Mounted;
use crate::common::volume::fsck;

const PAGE: usize = 4096;

fn bytes(file: usize, round: usize) -> Vec<u8> {
    (0..24 * PAGE).map(|i| (i / 7 + file * 31 + round * 101) as u8).collect()
}

/// Segments that logs of warm data wrote.
fn warm_segments(v: &Mounted) -> u32 {
    v.fs.info().unwrap().by_log[1].1
}

fn write(v: &Mounted, files: std::ops::Range<usize>, round: usize) {
    for n in files {
        let f = v.file(&format!("/f{n}"));
        f.write_at(0, &bytes(n, round)).unwrap();
        f.fsync(false).unwrap();
    }
}

fn holds(v: &Mounted, files: std::ops::Range<usize>, round: usize) {
    for n in files {
        assert!(v.read(&format!("/f{n}")) == bytes(n, round), "file {n}");
    }
}

/// Whether checkpoints were made before the power cut or not, each stream's segment is one like others.
#[test]
fn streams_leave_ordinary_segments() {
    for policy in ["srr", "spf"] {
        for streams in [1, 2, 4, 11] {
            let v = Mounted::new(128, "", &format!("warm_streams={streams},stream_policy={policy}"));
            write(&v, 0..12, 0);
            let used = warm_segments(&v);
            // On so small a volume not all are opened.
            assert!(streams == 1 && used == 1 || (2..=streams).contains(&used), "{streams} {policy}: {used}");
            v.vfs.sync().unwrap();
            write(&v, 6..12, 1);
            let again = v.after_crash();
            holds(&again, 0..6, 0);
            holds(&again, 6..12, 1);
            again.finish();
            holds(&v, 6..12, 1);
            write(&v, 0..3, 2);
            let device = v.device.clone();
            v.finish();
            fsck(&device).unwrap();
        }
    }
}
