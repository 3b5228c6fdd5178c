//! Streams that a program chooses for its file.

use crate::rig::{Rig, cannot_mount, is_ext4};
use crate::shutdown::ioctl;
use std::path::Path;
use std::process::Command;
use tidegate_fuse::ioctl::{TIDEGATE_IOC_GET_STREAMS, TIDEGATE_IOC_SET_STREAMS};

const EACCES: i32 = 13;
const EINVAL: i32 = 22;
const EOPNOTSUPP: i32 = 95;

/// The streams that were chosen for a file.
fn chosen(path: &Path) -> String {
    let program = "open(F,'<',$ARGV[0]) or exit 1; $w = pack('L',0); \
                   ioctl(F,$ARGV[1],$w) or exit 1; print unpack('L',$w)";
    let mut perl = Command::new("perl");
    let out =
        perl.args(["-e", program]).arg(path).arg(TIDEGATE_IOC_GET_STREAMS.to_string()).output().unwrap();
    String::from_utf8(out.stdout).unwrap()
}

#[test]
fn a_program_chooses_streams() {
    if cannot_mount() {
        return;
    }
    for transport in ["", ",transport=dev"] {
        let rig = Rig::new(256, &format!("warm_streams=3,stream_policy=amfs{transport}"));
        let (file, set) = (rig.dir.join("f"), TIDEGATE_IOC_SET_STREAMS);
        std::fs::write(&file, "x").unwrap();
        // The file is kept open: an inode that is not open may leave memory.
        let open = std::fs::File::open(&file).unwrap();
        if is_ext4() {
            assert_eq!(ioctl(&file, set, 0b100), EOPNOTSUPP, "ext4 has no streams");
            drop(open);
            rig.finish();
            continue;
        }
        assert_eq!((ioctl(&file, set, 0b100), chosen(&file).as_str()), (0, "4"));
        assert_eq!((ioctl(&file, set, 0b1000), chosen(&file).as_str()), (EINVAL, "4"));
        assert_eq!(ioctl(&rig.dir, set, 1), EINVAL);
        assert_eq!((ioctl(&file, set, 0), chosen(&file).as_str()), (0, "0"));
        std::fs::write(&file, vec![7; 1 << 20]).unwrap();
        drop(open);
        rig.finish();
    }
}

/// The caller's groups are read from /proc: a member of the file's group may choose streams, another user may
/// not.
#[test]
fn a_program_chooses_streams_as_a_member_of_a_group() {
    if cannot_mount() || is_ext4() {
        return;
    }
    if Command::new("setpriv").arg("--version").output().is_err() {
        return eprintln!("skipped: setpriv is not installed");
    }
    let rig = Rig::new(256, "warm_streams=3,stream_policy=amfs,allow_other");
    let file = rig.dir.join("f");
    std::fs::write(&file, "x").unwrap();
    std::os::unix::fs::chown(&file, Some(0), Some(2000)).unwrap();
    std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o664)).unwrap();
    let open = std::fs::File::open(&file).unwrap();
    let choose = |groups: &str| {
        let program = "open(F,'<',$ARGV[0]) or exit 99; $w = pack('L',2); \
                       ioctl(F,$ARGV[1],$w) ? exit 0 : exit $!+0";
        let mut setpriv = Command::new("setpriv");
        setpriv.args(["--reuid", "1000", "--regid", "1000", "--groups", groups, "perl", "-e", program]);
        // Only the superuser may enter the path to the mount, so the program starts inside.
        setpriv
            .current_dir(&rig.dir)
            .arg("f")
            .arg(TIDEGATE_IOC_SET_STREAMS.to_string())
            .status()
            .unwrap()
            .code()
    };
    assert_eq!((choose("1000"), chosen(&file).as_str()), (Some(EACCES), "0"));
    assert_eq!((choose("1000,2000"), chosen(&file).as_str()), (Some(0), "2"));
    drop(open);
    rig.finish();
}
