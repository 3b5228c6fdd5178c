//! A change of a file removes its set-id bits, as on ext4: at once, and for good.

use crate::ops;
use crate::posix::{Ext4, no_ext4};
use crate::rig::{Rig, cannot_mount};

/// Each way to change a file, which is also the name of the file. The file has 20,000 bytes.
const WAYS: [&str; 8] = [
    "write printf x | dd of=write bs=1 conv=notrunc status=none",
    "append printf x >> append",
    "allocate fallocate -o 50000 -l 8192 allocate",
    "keep fallocate -n -o 50000 -l 8192 keep",
    "punch fallocate -p -o 0 -l 8192 punch",
    "zero fallocate -z -o 0 -l 8192 zero",
    "shrink truncate -s 5 shrink",
    "empty : > empty",
];

/// Makes the files with `mode`, has `who` change each, and checks the mode right after, with and without
/// opening.
fn script(mode: &str, who: &str, by: &str) -> String {
    let mut s = "umask 0\nas 0:0\n".to_string();
    for (name, _) in WAYS.iter().map(|w| w.split_once(' ').unwrap()) {
        s += &format!(
            "create {name} 666\nsh head -c 20000 /dev/urandom > {name}\nchmod {name} {mode}\nstat {name}\n"
        );
    }
    s += &format!("as {who}\n");
    for (name, how) in WAYS.iter().map(|w| w.split_once(' ').unwrap()) {
        s += &format!("sh {by} sh -c '{how}'\nstat {name}\n");
    }
    s
}

/// Runs the scripts on ext4 and on a mounted volume, and checks again after another mount.
fn compare(modes: &[&str], who: &str, by: &str) {
    if cannot_mount() || no_ext4() || tidegate_testing::oracle::skip_or_fail("setpriv") {
        return;
    }
    let scratch = tempfile::tempdir().unwrap();
    std::fs::set_permissions(scratch.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let ext4 = Ext4::mount_of(scratch.path(), 64);
    let look: String = WAYS.iter().map(|w| format!("stat {}\n", w.split_once(' ').unwrap().0)).collect();
    let mut wrong = Vec::new();
    for mode in modes {
        let dirs = |top: &std::path::Path| {
            let dir = top.join(mode);
            std::fs::create_dir(&dir).unwrap();
            dir
        };
        let mut rig = Rig::new(256, "allow_other,suid");
        let script = script(mode, who, by);
        let expected = ops::run(&dirs(&ext4.0), &script);
        let ours = ops::run(&dirs(&rig.dir), &script);
        let then = ops::run(&ext4.0.join(mode), &look);
        assert!(rig.unmount());
        rig.mount("allow_other,suid").unwrap();
        let later = ops::run(&rig.dir.join(mode), &look);
        let all = expected.iter().zip(&ours).chain(then.iter().zip(&later));
        wrong.extend(all.filter(|(e, o)| e != o).map(|(e, o)| format!("{mode}\next4 {e}\nours {o}")));
        rig.finish();
    }
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn a_stranger_s_change_takes_set_id_bits() {
    compare(&["4757", "6757", "2757"], "1001:1001", "");
}

/// Set-group-id without group execution is also removed, where a user outside the group writes.
#[test]
fn a_stranger_s_change_takes_the_mark_of_mandatory_locks() {
    compare(&["2747", "6747"], "1001:1001", "");
}

/// The superuser keeps the bits by a capability (CAP_FSETID), not by the user id.
#[test]
fn a_superuser_without_the_capability_is_a_stranger() {
    compare(&["4757", "6757"], "0:0", "setpriv --bounding-set=-fsetid");
}

#[test]
fn the_superuser_keeps_set_id_bits() {
    compare(&["4757", "6757"], "0:0", "");
}

/// The kernel starts a program with the mode that it cached, and no program asks for the mode in between.
#[test]
fn a_changed_program_runs_as_who_starts_it() {
    if cannot_mount() {
        return;
    }
    let ways = [
        "printf x | dd of=P bs=1 seek=1M conv=notrunc status=none",
        "fallocate -o 1M -l 8192 P",
        "fallocate -n -o 1M -l 8192 P",
        "fallocate -p -o 1M -l 8192 P",
        "fallocate -z -o 1M -l 8192 P",
        "truncate -s 1M P",
    ];
    let rig = Rig::new(256, "allow_other,suid");
    let mut wrong = Vec::new();
    for (i, way) in ways.iter().enumerate() {
        let (p, way) = (format!("id{i}"), way.replace('P', &format!("id{i}")));
        let script = format!(
            "sh cp /usr/bin/id {p}\nsh chmod 6777 {p}\nas 1001:1001\nsh ./{p} -u\nsh {way}\nsh ./{p} -u; ./{p} -g\nstat {p}"
        );
        let got = ops::run(&rig.dir, &script);
        let said = |n: usize| got[n].split_once(" -> ").unwrap().1;
        assert_eq!(said(2), "0 0", "it is the owner's until then");
        if (said(3), said(4)) != ("0 ", "0 1001|1001") || !said(5).contains(" 0777 ") {
            wrong.push(format!("{way}:\n{}", got[3..].join("\n")));
        }
    }
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), ways.len(), wrong.join("\n"));
    rig.finish();
}
