//! The words of `-o`, as mount(8) and fstab spell them.

use crate::server::View;
use crate::transport::{KeepAwake, TransportKind};
use rustix::mount::MountFlags;
use tidegate::vfs::MemoryLimits;

/// Memory for the process when `cache=` does not say. The kernel caches, too.
const DEFAULT_CACHE: u64 = 352 << 20;
/// The least that can be asked for: a few of the largest requests.
const MIN_CACHE: u64 = 8 << 20;
/// Below this the process takes more than it is given.
pub const HELD_CACHE: u64 = 128 << 20;
/// Dirty bytes from which on pages are written at the latest: the kernel has gathered them already, and memory that
/// is used again is faster than more of it.
const EARLY: u64 = 16 << 20;
/// The bytes that the process needs beside pages and inodes: buffers in flight and kept, code, and the counts
/// of a million known inodes.
const FIXED: u64 = 96 << 20;
/// The most memory that is got before it is wanted, in bytes.
const MAX_RESERVE: u64 = 16 << 20;

/// Every word of a mount, as they may be written, and the effect of each. Words that mean something to
/// mount(8) alone are left out, and so are the switches of the volume: [`help`] has both.
pub const WORDS: &[(&str, &str)] = &[
    ("ro", "change nothing"),
    ("rw", "allow changes (the default)"),
    ("allow_other", "let in other users than the one who mounts"),
    ("auto_unmount", "have fusermount3 unmount when the serving process dies"),
    ("noatime", "reading leaves access times alone"),
    ("relatime", "they follow once a day, or once after a change (the default)"),
    ("suid", "set-id bits count (the superuser's to say; by default they do not)"),
    ("dev", "device files are devices (the superuser's to say; by default they are not)"),
    ("noexec", "start no programs"),
    ("sync", "each write is durable when it returns"),
    ("dirsync", "each change of names is durable when it returns"),
    ("uid=1000", "everything seems to belong to this user"),
    ("gid=1000", "everything seems to belong to this group"),
    ("offset=1M", "where in the image the volume begins: a partition of a disk"),
    (
        "device=/dev/sdc",
        "another device of the volume, in order, where it is not at the path that the volume lists",
    ),
    ("cache=256M", "memory for the serving process"),
    ("threads=8", "threads that serve requests"),
    ("transport=best", "how requests come: best, uring, dev"),
    ("keep_awake=auto", "keep CPUs from halting between requests: auto, on, off"),
    ("walk_ahead=on", "read inodes ahead of a program that walks a tree: on, off"),
    ("roll_forward", "recover what was fsynced (or disable_roll_forward: give it up)"),
    ("norecovery", "change nothing to recover, and open read-only"),
];

/// All options behind `-o`, with their meaning.
pub fn help() -> Vec<(String, String)> {
    let words = WORDS.iter().map(|(word, what)| (word.to_string(), what.to_string()));
    let switches = tidegate::OpenOptions::switches().into_iter();
    words.chain(switches.map(|s| (s.to_string(), format!("{} ({})", s.help, s.option(&s.default))))).collect()
}

/// Whether an option is about mounting, rather than about the volume.
pub fn is_word(option: &str) -> bool {
    let mut o = MountOptions::default();
    o.set(option).is_err() || o.switches.is_empty()
}

/// How to mount.
#[derive(Clone, Debug)]
pub struct MountOptions {
    /// Change nothing.
    pub read_only: bool,
    /// Change how it is mounted; see [`remount`](crate::mount::remount).
    pub remount: bool,
    /// Let in other users than the one who mounts.
    pub allow_other: bool,
    /// Have `fusermount3` unmount when the process dies.
    pub auto_unmount: bool,
    /// Reading leaves access times alone.
    pub noatime: bool,
    /// Flags of mount(2).
    pub flags: MountFlags,
    /// The owners that all files are shown with.
    pub view: View,
    /// Bytes of memory for the whole process, where somebody said so; see [`MountOptions::cache`].
    pub cache: Option<u64>,
    /// Threads that serve requests.
    pub threads: usize,
    /// The carrier of requests.
    pub transport: TransportKind,
    /// When CPUs are kept from halting between requests.
    pub keep_awake: KeepAwake,
    /// Read inodes ahead of a program that walks a tree.
    pub walk_ahead: bool,
    /// The other words: switches of the file system.
    pub switches: String,
}

impl Default for MountOptions {
    fn default() -> Self {
        MountOptions {
            read_only: false,
            remount: false,
            allow_other: false,
            auto_unmount: false,
            noatime: false,
            flags: MountFlags::NOSUID | MountFlags::NODEV,
            view: View::default(),
            cache: None,
            threads: (2 * tidegate_rt::thread::parallelism()).clamp(4, 16),
            transport: TransportKind::default(),
            keep_awake: KeepAwake::default(),
            walk_ahead: true,
            switches: String::new(),
        }
    }
}

impl MountOptions {
    /// Reads a list such as `ro,allow_other,uid=1000,fsync_mode=strict`.
    ///
    /// # Errors
    /// A sentence that names the word with a bad value. Unknown words are taken for the file system's.
    pub fn parse(list: &str) -> Result<Self, String> {
        let mut o = MountOptions::default();
        for word in list.split(',').filter(|w| !w.is_empty()) {
            o.set(word)?;
        }
        Ok(o)
    }

    fn set(&mut self, word: &str) -> Result<(), String> {
        match word.split_once('=') {
            Some((name, value)) => self.set_value(word, name, value),
            None => self.set_flag(word),
        }
    }

    fn set_flag(&mut self, word: &str) -> Result<(), String> {
        match word {
            "ro" => self.read_only = true,
            "remount" => self.remount = true,
            "rw" => self.read_only = false,
            "allow_other" => self.allow_other = true,
            "auto_unmount" => self.auto_unmount = true,
            "noatime" => self.noatime = true,
            "atime" | "relatime" => self.noatime = false,
            "suid" => self.flags -= MountFlags::NOSUID,
            "nosuid" => self.flags |= MountFlags::NOSUID,
            "dev" => self.flags -= MountFlags::NODEV,
            "nodev" => self.flags |= MountFlags::NODEV,
            "exec" => self.flags -= MountFlags::NOEXEC,
            "noexec" => self.flags |= MountFlags::NOEXEC,
            "sync" => self.flags |= MountFlags::SYNCHRONOUS,
            "dirsync" => self.flags |= MountFlags::DIRSYNC,
            "async" => self.flags -= MountFlags::SYNCHRONOUS,
            "nosymfollow" => self.flags |= NOSYMFOLLOW,
            "symfollow" => self.flags -= NOSYMFOLLOW,
            // Always so, since POSIX ACLs are kept.
            "default_permissions" => {}
            // Meant for mount(8) and the init system.
            "defaults" | "auto" | "noauto" | "user" | "nouser" | "users" | "owner" | "group" | "_netdev"
            | "nofail" | "diratime" | "nodiratime" | "strictatime" | "nostrictatime" | "norelatime"
            | "lazytime" | "nolazytime" | "loud" | "silent" | "iversion" | "noiversion" | "mand"
            | "nomand" | "nousers" | "noowner" | "nogroup" => {}
            n if is_foreign(n) => {}
            "uid" | "gid" | "threads" | "transport" | "keep_awake" | "walk_ahead" | "cache" => {
                return Err(format!("option \"{word}\": it needs a value, as in {word}=..."));
            }
            _ => self.switch(word),
        }
        Ok(())
    }

    fn set_value(&mut self, word: &str, name: &str, value: &str) -> Result<(), String> {
        match name {
            "uid" => self.view.uid = Some(number(word, value)?),
            "gid" => self.view.gid = Some(number(word, value)?),
            "threads" => self.threads = number(word, value)?.clamp(2, 64) as usize,
            "transport" => {
                self.transport = match value {
                    "best" => TransportKind::Best,
                    "uring" => TransportKind::Uring,
                    "dev" => TransportKind::Dev,
                    "fuser" => {
                        return Err(format!(
                            "option \"{word}\": there is no such transport; dev does all it did"
                        ));
                    }
                    _ => return Err(format!("option \"{word}\": it must be dev, uring or best")),
                }
            }
            "keep_awake" => {
                self.keep_awake = match value {
                    "auto" => KeepAwake::Auto,
                    "on" => KeepAwake::On,
                    "off" => KeepAwake::Off,
                    _ => return Err(format!("option \"{word}\": it must be auto, on or off")),
                }
            }
            "walk_ahead" => {
                self.walk_ahead = match value {
                    "on" => true,
                    "off" => false,
                    _ => return Err(format!("option \"{word}\": it must be on or off")),
                }
            }
            "cache" => {
                let bytes = size(word, value)?;
                self.cache = Some(bytes);
                check_cache(bytes).map_err(|e| format!("option \"{word}\": {e}"))?;
            }
            // The last two say what the mount table has of a mount that is changed.
            "subtype" | "fsname" | "comment" | "helper" | "uhelper" | "user" | "user_id" | "group_id" => {}
            n if is_foreign(n) => {}
            // The file system says of its own whether they take values.
            _ if !is_switch(name) => {
                return Err(format!("option \"{word}\": {name} takes no value"));
            }
            _ => self.switch(word),
        }
        Ok(())
    }

    fn switch(&mut self, word: &str) {
        if !self.switches.is_empty() {
            self.switches.push(',');
        }
        self.switches.push_str(word);
    }

    /// Bytes of memory for the whole process: the number that was asked for, or a default that leaves a
    /// quarter of the cgroup's memory limit, if there is one, to the kernel's share.
    pub fn cache(&self) -> u64 {
        self.cache.unwrap_or_else(|| {
            let limit = tidegate::cgroup::memory_limit().unwrap_or(u64::MAX);
            (limit / 4 * 3).clamp(MIN_CACHE, DEFAULT_CACHE)
        })
    }

    /// The engine's memory, in the proportions of its defaults: half of the rest beside buffers, code and the
    /// counts of the kernel's inodes. So 256 MiB are enough with a million inodes known. Below 128 MiB the
    /// process takes more than its budget.
    pub fn memory(&self) -> MemoryLimits {
        let d = MemoryLimits::default();
        let cache = self.cache();
        let pages = (cache.saturating_sub(FIXED) / 2).max(cache / 4);
        let part = |of: u64| (pages as u128 * of as u128 / d.cache as u128) as u64;
        MemoryLimits {
            cache: pages,
            dirty: part(d.dirty),
            background: part(d.background).min(EARLY),
            inodes: (part(d.inodes as u64) as usize).clamp(1024, 1 << 20),
        }
    }

    /// Bytes of memory to have ready for pages, from what is left for buffers.
    pub(crate) fn reserve(&self) -> usize {
        (self.memory().cache / 8).min(MAX_RESERVE) as usize
    }
}

/// `MS_NOSYMFOLLOW`: no symbolic link is followed.
const NOSYMFOLLOW: MountFlags = MountFlags::from_bits_retain(256);

/// Words for others, such as the init system.
fn is_foreign(name: &str) -> bool {
    name.starts_with("x-") || name.starts_with("X-")
}

/// Whether a word is none of ours, but the file system's.
fn is_switch(name: &str) -> bool {
    let mut o = MountOptions::default();
    o.set_flag(name).is_ok() && !o.switches.is_empty()
}

/// Whether a mount can do with so many bytes.
///
/// # Errors
/// In words, that it cannot.
pub fn check_cache(bytes: u64) -> Result<(), String> {
    if bytes >= MIN_CACHE { Ok(()) } else { Err(format!("a mount needs {}M at least", MIN_CACHE >> 20)) }
}

fn number(word: &str, value: &str) -> Result<u32, String> {
    value.parse().map_err(|_| format!("option \"{word}\": not a number"))
}

/// A number of bytes with an optional K, M or G.
fn size(word: &str, value: &str) -> Result<u64, String> {
    let bad = || format!("option \"{word}\": not a size such as 256M");
    tidegate::options::bytes_of(value).ok_or_else(bad)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All that mount(8) passes on of a line in fstab, and of the mount table when a mount is changed.
    #[test]
    fn words_of_fstab_are_taken() {
        let fstab = "rw,nosymfollow,,_netdev,nofail,user,users,noauto,defaults,x-systemd.automount,X-mount.mkdir,helper=x,\
                     iversion,mand,nodiratime,strictatime,lazytime,silent,comment=5,user=me";
        let o = MountOptions::parse(fstab).unwrap();
        assert_eq!((o.switches.as_str(), o.remount), ("", false));
        assert!(o.flags.contains(NOSYMFOLLOW));
        let o = "ro,nosuid,nodev,relatime,remount,user_id=0,group_id=0,default_permissions,allow_other";
        let o = MountOptions::parse(o).unwrap();
        assert_eq!((o.switches.as_str(), o.remount, o.read_only), ("", true, true));
    }

    #[test]
    fn words_find_their_places() {
        let o =
            MountOptions::parse("rw,suid,uid=7,cache=224M,fsync_mode=strict,x-systemd.automount,nodiscard");
        let o = o.unwrap();
        assert_eq!((o.view.uid, o.view.gid), (Some(7), None));
        assert_eq!(o.switches, "fsync_mode=strict,nodiscard");
        assert!(!o.flags.contains(MountFlags::NOSUID) && o.flags.contains(MountFlags::NODEV));
        assert_eq!(o.memory().dirty, MemoryLimits::default().dirty);
        for bad in [
            "uid=me",
            "uid",
            "cache=lots",
            "cache=M",
            "cache=1",
            "cache=7M",
            "keep_awake=maybe",
            "walk_ahead=5",
            "transport=fast",
            "transport=fuser",
            "ro=1",
            "allow_other=no",
            "sync=3",
            "nofail=0",
        ] {
            let e = MountOptions::parse(bad).unwrap_err();
            assert!(e.contains(&format!("\"{bad}\"")), "{e}");
        }
        assert_eq!(MountOptions::parse("discard=5,x-y=1").unwrap().switches, "discard=5");
    }
}
