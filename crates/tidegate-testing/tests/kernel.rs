//! The guest kernel works, reports correctly, and loses power on request.

use std::fs::File;
use std::path::Path;
use std::process::Command;

use tidegate_testing::manifest::{Manifest, Options, compare, walk};
use tidegate_testing::temp::TempDir;
use tidegate_testing::uml;
use tidegate_testing::{golden, oracle};

fn formatted(dir: &TempDir) -> std::path::PathBuf {
    let image = dir.path().join("volume.img");
    File::create_new(&image).unwrap().set_len(64 << 20).unwrap();
    let mkfs = oracle::require("mkfs.f2fs").unwrap();
    assert!(Command::new(mkfs).arg("-q").arg(&image).status().unwrap().success());
    image
}

fn lacking() -> bool {
    oracle::skip_or_fail("linux.uml")
        || oracle::skip_or_fail("mkfs.f2fs")
        || oracle::skip_or_fail("fsck.f2fs")
}

#[test]
fn writes_and_reports() {
    if lacking() {
        return;
    }
    let dir = TempDir::new("kernel").unwrap();
    let image = formatted(&dir);
    let body = "mount -t f2fs $DEV $MNT\n\
                $HELPER guest-fill simple $MNT\n\
                $HELPER manifest $MNT -o $OUT\n\
                umount $MNT\n\
                echo \"said $WORD\"\n\
                exit 7\n";
    let out = dir.path().join("guest.jsonl");
    let guest = uml::guest(&image).env("OUT", &out).env("WORD", "it's \"so\"");
    let output = guest.run(body).unwrap();
    assert_eq!((output.status, output.stdout.as_str()), (7, "said it's \"so\"\n"));
    golden::fsck_f2fs(&image).unwrap();

    let host = TempDir::new("kernel").unwrap();
    tidegate_testing::fill::fill(tidegate_testing::fill::Kind::Simple, host.path()).unwrap();
    let options = Options { ignore_mtime: true, ignore_root: true, ..Options::default() };
    let (host, guest) = (walk(host.path()).unwrap(), Manifest::load(&out).unwrap());
    assert_eq!(compare(&host, &guest, &options), Vec::<String>::new());
}

#[test]
fn power_cut() {
    if lacking() {
        return;
    }
    let dir = TempDir::new("kernel").unwrap();
    let image = formatted(&dir);
    let body = "mount -t f2fs $DEV $MNT; echo kept > $MNT/kept; sync -f $MNT\n\
                echo lost > $MNT/lost; echo ready; sleep 1000\n";
    let mut guest = uml::guest(&image).spawn(body).unwrap();
    guest.wait_for_line("ready").unwrap();
    guest.kill().unwrap();
    assert_eq!(processes_of(&image), 0, "nobody writes to the image any more");
    let output = uml::guest(&image).run("mount -t f2fs $DEV $MNT; ls $MNT; umount $MNT").unwrap();
    assert_eq!(output.check().unwrap().stdout, "kept\n");
}

/// The number of processes that have the image among their arguments.
fn processes_of(image: &Path) -> usize {
    let image = image.to_string_lossy().into_owned();
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let lines = processes.filter_map(|p| std::fs::read(p.path().join("cmdline")).ok());
    lines.filter(|l| String::from_utf8_lossy(l).contains(&image)).count()
}

#[test]
fn out_of_time() {
    if lacking() {
        return;
    }
    let dir = TempDir::new("kernel").unwrap();
    let image = formatted(&dir);
    let guest = uml::guest(&image).timeout(std::time::Duration::from_secs(4));
    assert!(guest.run("sleep 1000").unwrap_err().to_string().contains("out of time"));
}
