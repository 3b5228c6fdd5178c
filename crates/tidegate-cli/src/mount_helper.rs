//! Being called by mount(8): as `mount.fuse.tidegate IMAGE DIR -o ...`, or, through libfuse's `mount.fuse3`, as
//! `tidegate IMAGE DIR -o ...`; and by umount(8), as `umount.fuse.tidegate DIR ...`.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// The arguments (without the program's name) of the `mount` or `umount` command that such a call means; `None`
/// when it is none.
pub fn arguments(args: impl Iterator<Item = OsString>) -> Option<Vec<OsString>> {
    let args: Vec<OsString> = args.collect();
    let program = Path::new(args.first()?).file_name().unwrap_or_default();
    let by_name = program.as_bytes().starts_with(b"mount.");
    if program.as_bytes().starts_with(b"umount.") {
        return Some(unmount(args.into_iter().skip(1)));
    }
    // Commands have no slash in them, images given by mount(8) have.
    let by_path = args.get(1).is_some_and(|a| a.as_bytes().contains(&b'/')) && args.len() > 2;
    if !by_name && !by_path {
        return None;
    }
    let mut out = vec![OsString::from("mount")];
    let mut rest = args.into_iter().skip(1);
    while let Some(a) = rest.next() {
        match a.as_bytes() {
            b"-o" => {
                out.push(a);
                out.extend(rest.next());
            }
            // The type, and a namespace: of no use here.
            b"-t" | b"-N" => drop(rest.next()),
            // A dry run. By hand it would be --foreground.
            b"-f" if by_name => out.push("--fake".into()),
            // No mtab, sloppy, verbose: mount(8) passes its own on.
            b"-n" | b"-s" | b"-v" | b"-sv" | b"-r" | b"-w" => {}
            _ => out.push(a),
        }
    }
    Some(out)
}

fn unmount(mut rest: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut out = vec![OsString::from("umount")];
    while let Some(a) = rest.next() {
        match a.as_bytes() {
            b"-t" | b"-N" => drop(rest.next()),
            // No mtab, force, verbose, read-only if it is busy.
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
        let want = Some(["mount", "/a.img", "/mnt", "-o", "rw,uid=7"].map(String::from).to_vec());
        let helper = ["/sbin/mount.fuse.tidegate", "/a.img", "/mnt", "-n", "-o", "rw,uid=7", "-t", "x"];
        assert_eq!(parsed(&helper), want);
        assert_eq!(parsed(&["tidegate", "/a.img", "/mnt", "-o", "rw,uid=7"]), want);
        let fake = ["/sbin/mount.fuse.tidegate", "/a.img", "/mnt", "-f", "-v", "-o", "rw,uid=7"];
        let want = ["mount", "/a.img", "/mnt", "--fake", "-o", "rw,uid=7"].map(String::from);
        assert_eq!(parsed(&fake), Some(want.to_vec()));
        let helper = ["/sbin/umount.fuse.tidegate", "/mnt", "-n", "-l", "-t", "fuse.tidegate"];
        assert_eq!(parsed(&helper), Some(["umount", "/mnt", "-l"].map(String::from).to_vec()));
        assert_eq!(parsed(&["tidegate", "ls", "/a.img:/"]), None);
        assert_eq!(parsed(&["tidegate"]), None);
    }
}
