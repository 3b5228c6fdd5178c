//! Streams that a program chooses for its file.

use crate::rig::{Rig, cannot_mount, is_ext4};
use crate::shutdown::ioctl;
use std::path::Path;
use std::process::Command;
use tidegate_fuse::ioctl::{TIDEGATE_IOC_GET_STREAMS, TIDEGATE_IOC_SET_STREAMS};

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
        // From open on: a file that is not open may go from memory.
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
