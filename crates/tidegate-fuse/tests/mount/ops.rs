//! Scripts of system calls: one call a line; `as UID:GID` changes the calling user. The outcome of each line
//! is text, so that two file systems can be compared.

use rustix::fs::*;
use rustix::io::Errno;
use std::collections::HashMap;
use std::fmt::Write;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

const PART: &str = "TIDEGATE_TEST_PART";
const DIR: &str = "TIDEGATE_TEST_DIR";
const MARK: &str = ">> ";

/// Runs `script` in `dir`. Returns the outcome of each line.
pub fn run(dir: &Path, script: &str) -> Vec<String> {
    let mut out = Vec::new();
    let mut who = (0, 0);
    let mut part = String::new();
    let flush = |part: &mut String, who: (u32, u32), out: &mut Vec<String>| {
        if !part.is_empty() {
            out.extend(run_as(dir, part, who));
            part.clear();
        }
    };
    for line in script.lines().map(str::trim).filter(|l| !l.is_empty() && !l.starts_with('#')) {
        match line.strip_prefix("as ") {
            Some(ids) => {
                flush(&mut part, who, &mut out);
                let (u, g) = ids.split_once(':').unwrap();
                who = (u.parse().unwrap(), g.parse().unwrap());
            }
            None => writeln!(part, "{line}").unwrap(),
        }
    }
    flush(&mut part, who, &mut out);
    out
}

fn run_as(dir: &Path, part: &str, (uid, gid): (u32, u32)) -> Vec<String> {
    // The shell drops rights, including groups, before the program starts.
    let out = Command::new("/proc/self/exe")
        .args(["--exact", "script_process", "--nocapture"])
        .env(PART, part)
        .env(DIR, dir)
        .current_dir(dir)
        .uid(uid)
        .gid(gid)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    let lines: Vec<String> =
        text.lines().filter_map(|l| l.split_once(MARK)).map(|(_, l)| format!("{uid}: {l}")).collect();
    assert_eq!(lines.len(), part.lines().count(), "{text}\n{}", String::from_utf8_lossy(&out.stderr));
    lines
}

/// Runs the part of a script that is in the environment.
pub fn run_if_asked() {
    let Ok(part) = std::env::var(PART) else { return };
    std::env::set_current_dir(std::env::var(DIR).unwrap()).unwrap();
    rustix::process::umask(Mode::from_raw_mode(0o022));
    let mut state = State::default();
    println!();
    for line in part.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let outcome = match state.call(&words) {
            Ok(text) if text.is_empty() => "ok".to_string(),
            Ok(text) => text,
            Err(e) => format!("{e:?}"),
        };
        println!("{MARK}{line} -> {}", outcome.replace('\n', "|"));
    }
    std::process::exit(0);
}

#[derive(Default)]
struct State {
    fds: HashMap<String, OwnedFd>,
    marks: HashMap<String, [(i64, u64); 3]>,
}

type Outcome = Result<String, Errno>;

fn octal(s: &str) -> Mode {
    Mode::from_raw_mode(u32::from_str_radix(s, 8).unwrap())
}

/// A name; `N*255` is 255 times N.
fn name(s: &str) -> String {
    match s.rsplit_once('*') {
        Some((what, n)) => match n.parse() {
            Ok(n) => what.repeat(n),
            Err(_) => s.to_string(),
        },
        None => s.to_string(),
    }
}

fn flags(s: &str) -> OFlags {
    s.split('|').fold(OFlags::CLOEXEC, |f, w| {
        f | match w {
            "r" => OFlags::RDONLY,
            "w" => OFlags::WRONLY,
            "rw" => OFlags::RDWR,
            "creat" => OFlags::CREATE,
            "excl" => OFlags::EXCL,
            "trunc" => OFlags::TRUNC,
            "append" => OFlags::APPEND,
            "dir" => OFlags::DIRECTORY,
            "nofollow" => OFlags::NOFOLLOW,
            "nonblock" => OFlags::NONBLOCK,
            "sync" => OFlags::SYNC,
            "direct" => OFlags::DIRECT,
            "path" => OFlags::PATH,
            _ => panic!("{w}"),
        }
    })
}

fn show(s: &Stat) -> String {
    let kind = FileType::from_raw_mode(s.st_mode);
    let size = if kind.is_dir() { 0 } else { s.st_size };
    format!(
        "{kind:?} {:04o} {}:{} links {} size {size} rdev {:x}",
        s.st_mode & 0o7777,
        s.st_uid,
        s.st_gid,
        s.st_nlink,
        s.st_rdev
    )
}

fn times(path: &str) -> Result<[(i64, u64); 3], Errno> {
    let s = lstat(path)?;
    Ok([
        (s.st_atime as i64, s.st_atime_nsec as u64),
        (s.st_mtime as i64, s.st_mtime_nsec as u64),
        (s.st_ctime as i64, s.st_ctime_nsec as u64),
    ])
}

fn number(s: &str) -> u64 {
    s.parse().unwrap()
}

fn done(r: Result<(), Errno>) -> Outcome {
    r.map(|()| String::new())
}

impl State {
    fn fd(&self, name: &str) -> Result<&OwnedFd, Errno> {
        self.fds.get(name).ok_or(Errno::BADF)
    }

    fn call(&mut self, w: &[&str]) -> Outcome {
        let path = w.get(1).map(|p| name(p)).unwrap_or_default();
        let other = w.get(2).map(|p| name(p)).unwrap_or_default();
        match w[0] {
            "umask" => Ok({
                rustix::process::umask(octal(w[1]));
                String::new()
            }),
            "mkdir" => done(mkdir(path, octal(w[2]))),
            "create" => {
                done(open(path, OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY, octal(w[2])).map(drop))
            }
            "mknod" => {
                let (kind, dev) = match w[3] {
                    "fifo" => (FileType::Fifo, 0),
                    "sock" => (FileType::Socket, 0),
                    "char" => (FileType::CharacterDevice, makedev(1, 3)),
                    "block" => (FileType::BlockDevice, makedev(259, 70000)),
                    _ => (FileType::RegularFile, 0),
                };
                done(mknodat(CWD, path, kind, octal(w[2]), dev))
            }
            "unlink" => done(unlink(path)),
            "rmdir" => done(rmdir(path)),
            "link" => done(link(path, other)),
            "symlink" => done(symlink(path, other)),
            "readlink" => readlink(path, Vec::new()).map(|t| t.into_string().unwrap()),
            "rename" => done(rename(path, other)),
            "rename2" => done(renameat_with(
                CWD,
                path,
                CWD,
                other,
                match w[3] {
                    "noreplace" => RenameFlags::NOREPLACE,
                    "exchange" => RenameFlags::EXCHANGE,
                    "whiteout" => RenameFlags::WHITEOUT,
                    "whiteout|noreplace" => RenameFlags::WHITEOUT | RenameFlags::NOREPLACE,
                    "whiteout|exchange" => RenameFlags::WHITEOUT | RenameFlags::EXCHANGE,
                    _ => RenameFlags::NOREPLACE | RenameFlags::EXCHANGE,
                },
            )),
            "stat" => stat(path).map(|s| show(&s)),
            "lstat" => lstat(path).map(|s| show(&s)),
            "ls" => self.ls(&path),
            "chmod" => done(chmod(path, octal(w[2]))),
            "chown" => self.chown(&path, w, AtFlags::empty()),
            "lchown" => self.chown(&path, w, AtFlags::SYMLINK_NOFOLLOW),
            "truncate" => {
                done(open(path, OFlags::WRONLY, Mode::empty()).and_then(|f| ftruncate(f, number(w[2]))))
            }
            "access" => done(access(path, Access::from_bits_retain(number(w[2]) as _))),
            "utimens" => self.utimens(&path, w[2], w[3]),
            "settimes" => times(&path).map(|t| format!("{} {:?}", t[0].0, t[1])),
            "mark" => {
                self.marks.insert(path.clone(), times(&path)?);
                std::thread::sleep(Duration::from_millis(20));
                Ok(String::new())
            }
            "changed" => self.changed(&path),
            "put" => done(
                open(path, OFlags::WRONLY | OFlags::CREATE, Mode::from_raw_mode(0o644))
                    .and_then(|f| rustix::io::pwrite(f, other.as_bytes(), w.get(3).map_or(0, |o| number(o))))
                    .map(drop),
            ),
            "cat" => std::fs::read(path)
                .map(|b| String::from_utf8_lossy(&b).replace('\0', "."))
                .map_err(|e| Errno::from_io_error(&e).unwrap()),
            "setxattr" => done(setxattr(path, w[2], w[3].as_bytes(), xattr_flags(w.get(4)))),
            "getxattr" => {
                let mut v = vec![0; 256];
                let n = getxattr(path, w[2], &mut v[..])?;
                Ok(String::from_utf8_lossy(&v[..n]).into_owned())
            }
            "removexattr" => done(removexattr(path, w[2])),
            "listxattr" => self.listxattr(&path),
            "sh" => Ok(shell(&w[1..].join(" "))),
            _ => self.call_fd(w),
        }
    }

    fn call_fd(&mut self, w: &[&str]) -> Outcome {
        match w[0] {
            "open" => {
                let mode = w.get(4).map_or(Mode::empty(), |m| octal(m));
                let fd = open(name(w[2]), flags(w[3]), mode)?;
                self.fds.insert(w[1].to_string(), fd);
                Ok(String::new())
            }
            "close" => Ok({
                self.fds.remove(w[1]);
                String::new()
            }),
            "write" => rustix::io::write(self.fd(w[1])?, name(w[2]).as_bytes()).map(|n| n.to_string()),
            "pwrite" => {
                let (data, at) = (name(w[2]), number(w[3]));
                rustix::io::pwrite(self.fd(w[1])?, data.as_bytes(), at).map(|n| n.to_string())
            }
            "pread" => {
                let mut buf = vec![0; number(w[2]) as usize];
                let n = rustix::io::pread(self.fd(w[1])?, &mut buf, number(w[3]))?;
                Ok(String::from_utf8_lossy(&buf[..n]).replace('\0', "."))
            }
            "fstat" => fstat(self.fd(w[1])?).map(|s| show(&s)),
            "fsync" => done(fsync(self.fd(w[1])?)),
            "ftruncate" => done(ftruncate(self.fd(w[1])?, number(w[2]))),
            "fchmod" => done(fchmod(self.fd(w[1])?, octal(w[2]))),
            "fallocate" => {
                let mode = FallocateFlags::from_bits_retain(number(w[2]) as u32);
                done(fallocate(self.fd(w[1])?, mode, number(w[3]), number(w[4])))
            }
            "seek" => {
                let at = number(w[3]);
                let to = if w[2] == "data" { SeekFrom::Data(at) } else { SeekFrom::Hole(at) };
                seek(self.fd(w[1])?, to).map(|n| n.to_string())
            }
            "copy" => {
                let (mut from, mut to) = (number(w[3]), number(w[4]));
                let (a, b) = (self.fd(w[1])?, self.fd(w[2])?);
                copy_file_range(a, Some(&mut from), b, Some(&mut to), number(w[5]) as usize)
                    .map(|n| n.to_string())
            }
            "flock" => {
                let how = match w[2] {
                    "ex" => FlockOperation::NonBlockingLockExclusive,
                    "sh" => FlockOperation::NonBlockingLockShared,
                    _ => FlockOperation::Unlock,
                };
                done(flock(self.fd(w[1])?, how))
            }
            what => panic!("no such call: {what}"),
        }
    }

    fn ls(&self, path: &str) -> Outcome {
        let fd = open(path, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty())?;
        let mut names = Vec::new();
        for e in Dir::read_from(fd)? {
            let e = e?;
            names.push(format!("{}({:?})", e.file_name().to_string_lossy(), e.file_type()));
        }
        names.sort();
        Ok(names.join(" "))
    }

    fn chown(&self, path: &str, w: &[&str], at: AtFlags) -> Outcome {
        let id = |s: &str| s.parse::<u32>().ok();
        let (u, g) = (id(w[2]).map(rustix::fs::Uid::from_raw), id(w[3]).map(rustix::fs::Gid::from_raw));
        done(chownat(CWD, path, u, g, at))
    }

    fn utimens(&self, path: &str, atime: &str, mtime: &str) -> Outcome {
        let time = |s: &str| match s {
            "now" => Timespec { tv_sec: 0, tv_nsec: UTIME_NOW },
            "omit" => Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
            s => {
                let (s, n) = s.split_once('.').unwrap();
                Timespec { tv_sec: s.parse().unwrap(), tv_nsec: n.parse().unwrap() }
            }
        };
        let t = Timestamps { last_access: time(atime), last_modification: time(mtime) };
        done(utimensat(CWD, path, &t, AtFlags::SYMLINK_NOFOLLOW))
    }

    /// Which times differ from those when the file was marked; also whether none went back.
    fn changed(&self, path: &str) -> Outcome {
        let (old, new) = (self.marks[path], times(path)?);
        let letters = ["a", "m", "c"];
        let changed: String = (0..3).filter(|i| old[*i] != new[*i]).map(|i| letters[i]).collect();
        let back: String = (0..3).filter(|i| new[*i] < old[*i]).map(|i| letters[i]).collect();
        Ok(format!("changed \"{changed}\" back \"{back}\""))
    }

    fn listxattr(&self, path: &str) -> Outcome {
        let mut v = vec![0; 4096];
        let n = listxattr(path, &mut v[..])?;
        let text = String::from_utf8_lossy(&v[..n]).into_owned();
        let mut names: Vec<&str> = text.split_terminator('\0').collect();
        names.sort_unstable();
        Ok(names.join(" "))
    }
}

fn xattr_flags(w: Option<&&str>) -> XattrFlags {
    match w {
        Some(&"create") => XattrFlags::CREATE,
        Some(&"replace") => XattrFlags::REPLACE,
        _ => XattrFlags::empty(),
    }
}

fn shell(command: &str) -> String {
    let out = Command::new("sh").args(["-c", command]).output().unwrap();
    let text = String::from_utf8_lossy(&out.stdout).trim().to_string();
    format!("{} {text}", out.status.code().unwrap_or(-1))
}
