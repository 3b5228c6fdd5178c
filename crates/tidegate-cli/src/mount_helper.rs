//! Calls by mount(8), as `mount.fuse.tidegate IMAGE DIR -o ...`, or, through libfuse's `mount.fuse3`, as `tidegate
//! IMAGE DIR -o ...`; and by umount(8), as `umount.fuse.tidegate DIR ...`.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// The default rights of a mount by the superuser.
const SUPERUSER: &str = "suid,dev";

/// The arguments (without the program's name) of the `mount` or `umount` command for such a call. `None` when it is no
/// such call.
pub fn arguments(args: impl Iterator<Item = OsString>) -> Option<Vec<OsString>> {
    let args: Vec<OsString> = args.collect();
    let program = Path::new(args.first()?).file_name().unwrap_or_default();
    let by_name = program.as_bytes().starts_with(b"mount.");
    if program.as_bytes().starts_with(b"umount.") {
        return Some(unmount(args.into_iter().skip(1)));
    }
    // Commands contain no slash, but images given by mount(8) do.
    let by_path = args.get(1).is_some_and(|a| a.as_bytes().contains(&b'/')) && args.len() > 2;
    if !by_name && !by_path {
        return None;
    }
    let mut out = vec![OsString::from("mount")];
    let mut words = Vec::new();
    // mount(8) passes nosuid and nodev where they are meant, but not suid and dev.
    if by_name && rustix::process::getuid().is_root() {
        words.push(OsString::from(SUPERUSER));
    }
    let mut rest = args.into_iter().skip(1);
    while let Some(a) = rest.next() {
        match a.as_bytes() {
            b"-o" => words.extend(rest.next()),
            b"-r" => words.push("ro".into()),
            // The type and a namespace are not needed here.
            b"-t" | b"-N" => drop(rest.next()),
            // A dry run. In a direct call, -f is --foreground.
            b"-f" if by_name => out.push("--fake".into()),
            // No mtab, sloppy, verbose: mount(8) passes on its own options.
            b"-n" | b"-s" | b"-v" | b"-sv" | b"-w" => {}
            _ => out.push(a),
        }
    }
    if !words.is_empty() {
        out.extend(["-o".into(), words.join(OsStr::new(","))]);
    }
    Some(out)
}

fn unmount(mut rest: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut out = vec![OsString::from("umount")];
    while let Some(a) = rest.next() {
        match a.as_bytes() {
            b"-t" | b"-N" => drop(rest.next()),
            // No mtab, force, verbose, read-only if busy: not needed here.
            b"-n" | b"-f" | b"-v" | b"-r" => {}
            _ => out.push(a),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::arguments;
    use std::ffi::OsString;

    fn parsed(words: &[&str]) -> Option<Vec<String>> {
        let out = arguments(words.iter().map(OsString::from))?;
        Some(out.into_iter().map(|a| a.into_string().unwrap()).collect())
    }

    #[test]
    fn mount_calls_are_mounts() {
        let allowed = if rustix::process::getuid().is_root() { "suid,dev," } else { "" };
        let want = |words: &str| {
            let words = ["/a.img", "/mnt", "-o", words].map(String::from);
            Some([vec!["mount".to_string()], words.to_vec()].concat())
        };
        let helper = ["/sbin/mount.fuse.tidegate", "/a.img", "/mnt", "-n", "-o", "rw,uid=7", "-t", "x"];
        assert_eq!(parsed(&helper), want(&format!("{allowed}rw,uid=7")));
        assert_eq!(parsed(&["tidegate", "/a.img", "/mnt", "-o", "rw,uid=7"]), want("rw,uid=7"));
        let read_only = ["/sbin/mount.fuse.tidegate", "/a.img", "/mnt", "-o", "rw", "-r"];
        assert_eq!(parsed(&read_only), want(&format!("{allowed}rw,ro")));
        let fake = parsed(&["/sbin/mount.fuse.tidegate", "/a.img", "/mnt", "-f", "-v", "-o", "rw"]);
        assert!(fake.unwrap().contains(&"--fake".to_string()));
        let helper = ["/sbin/umount.fuse.tidegate", "/mnt", "-n", "-l", "-t", "fuse.tidegate"];
        assert_eq!(parsed(&helper), Some(["umount", "/mnt", "-l"].map(String::from).to_vec()));
        assert_eq!(parsed(&["tidegate", "ls", "/a.img:/"]), None);
        assert_eq!(parsed(&["tidegate"]), None);
    }
}
