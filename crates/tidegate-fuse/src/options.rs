//! The words of `-o`, in the spelling of mount(8) and fstab.

use crate::server::View;
use crate::transport::{KeepAwake, TransportKind};
use rustix::mount::MountFlags;
use tidegate::vfs::{MemoryLimits, SwitchValue};

/// Memory for the process without `cache=`. The kernel caches, too.
const DEFAULT_CACHE: u64 = 352 << 20;
/// The least value of `cache=`: a few of the largest requests.
const MIN_CACHE: u64 = 8 << 20;
/// Below this the process takes more memory than it is given.
pub const HELD_CACHE: u64 = 128 << 20;
/// Pages are written at the latest when so many bytes are dirty: the kernel has gathered them already, and memory that
/// is reused is faster than new memory.
const EARLY: u64 = 16 << 20;
/// The bytes that the process needs beside pages and inodes: buffers in flight and kept for reuse, code, and
/// the counts of a million known inodes.
const FIXED: u64 = 96 << 20;
/// The most memory that is taken before it is needed, in bytes.
const MAX_RESERVE: u64 = 16 << 20;

/// A word of `-o`. Its parsing and its line of help follow from this.
struct Word {
    name: &'static str,
    /// A value that it may have, in the form of the help.
    example: &'static str,
    /// Its effect. Empty for a word that only negates another.
    help: &'static str,
    takes: Takes,
}

enum Takes {
    /// No value.
    Nothing(fn(&mut MountOptions)),
    /// A value. An error says what the value must be.
    Value(fn(&mut MountOptions, &str) -> Result<(), String>),
    /// One of these positions.
    Position(fn(&mut MountOptions, &str) -> Result<(), String>, fn() -> Vec<String>),
}

const fn flag(name: &'static str, help: &'static str, set: fn(&mut MountOptions)) -> Word {
    Word { name, example: "", help, takes: Takes::Nothing(set) }
}

const fn value(
    (name, example): (&'static str, &'static str),
    help: &'static str,
    set: fn(&mut MountOptions, &str) -> Result<(), String>,
) -> Word {
    Word { name, example, help, takes: Takes::Value(set) }
}

const fn position(
    name: &'static str,
    help: &'static str,
    set: fn(&mut MountOptions, &str) -> Result<(), String>,
    values: fn() -> Vec<String>,
) -> Word {
    Word { name, example: "", help, takes: Takes::Position(set, values) }
}

/// Every word of a mount. Words that only mount(8) uses are in [`FOREIGN`]. Words and switches of the volume are
/// declared with the volume, and [`help`] has them, too.
const WORDS: &[Word] = &[
    flag("ro", "change nothing", |o| o.read_only = true),
    flag("rw", "allow changes (the default)", |o| o.read_only = false),
    flag("remount", "", |o| o.remount = true),
    flag("allow_other", "other users than the one who mounts have access", |o| o.allow_other = true),
    flag("auto_unmount", "have fusermount3 unmount when the serving process dies", |o| o.auto_unmount = true),
    flag("noatime", "reads do not change access times", |o| o.noatime = true),
    flag("relatime", "a read changes an access time once a day, and after a change (the default)", |o| {
        o.noatime = false
    }),
    flag("atime", "", |o| o.noatime = false),
    flag("suid", "set-id bits take effect (for the superuser alone; by default they do not)", |o| {
        o.flags -= MountFlags::NOSUID;
    }),
    flag("nosuid", "", |o| o.flags |= MountFlags::NOSUID),
    flag("dev", "device files are devices (for the superuser alone; by default they are not)", |o| {
        o.flags -= MountFlags::NODEV;
    }),
    flag("nodev", "", |o| o.flags |= MountFlags::NODEV),
    flag("noexec", "programs on the volume cannot be started", |o| o.flags |= MountFlags::NOEXEC),
    flag("exec", "", |o| o.flags -= MountFlags::NOEXEC),
    flag("sync", "each write is durable when it returns", |o| o.flags |= MountFlags::SYNCHRONOUS),
    flag("async", "", |o| o.flags -= MountFlags::SYNCHRONOUS),
    flag("dirsync", "each change of names is durable when it returns", |o| o.flags |= MountFlags::DIRSYNC),
    flag("nosymfollow", "symbolic links are not followed", |o| o.flags |= NOSYMFOLLOW),
    flag("symfollow", "", |o| o.flags -= NOSYMFOLLOW),
    value(("uid", "1000"), "everything seems to belong to this user", |o, v| {
        o.view.uid = Some(number(v)?);
        Ok(())
    }),
    value(("gid", "1000"), "everything seems to belong to this group", |o, v| {
        o.view.gid = Some(number(v)?);
        Ok(())
    }),
    value(("cache", "256M"), "memory for the serving process", |o, v| {
        let bytes = tidegate::options::bytes_of(v).ok_or("not a size such as 256M")?;
        o.cache = Some(bytes);
        check_cache(bytes)
    }),
    value(("threads", "8"), "threads that serve requests", |o, v| {
        o.threads = number(v)?.clamp(2, 64) as usize;
        Ok(())
    }),
    position(
        "transport",
        "the carrier of requests: io_uring, /dev/fuse, or the better one that the kernel has",
        |o, v| match v {
            "fuser" => Err("there is no such transport; dev does all it did".into()),
            _ => set(v, &mut o.transport),
        },
        words_of::<TransportKind>,
    ),
    position(
        "keep_awake",
        "keep CPUs awake between requests: always, never, or where they wake up slowly",
        |o, v| set(v, &mut o.keep_awake),
        words_of::<KeepAwake>,
    ),
    position(
        "walk_ahead",
        "read inodes ahead of a program that walks a tree",
        |o, v| set(v, &mut o.walk_ahead),
        words_of::<bool>,
    ),
];

/// Words for mount(8), the init system and the mount table. Those with `=` may have a value. `default_permissions` is
/// always on, since POSIX ACLs are kept.
#[rustfmt::skip]
const FOREIGN: &[&str] = &[
    "_netdev", "auto", "comment=", "default_permissions", "defaults", "diratime", "fsname=", "group", "group_id=",
    "helper=", "iversion", "lazytime", "loud", "mand", "noauto", "nodiratime", "nofail", "nogroup", "noiversion",
    "nolazytime", "nomand", "noowner", "norelatime", "nostrictatime", "nouser", "nousers", "owner", "silent",
    "strictatime", "subtype=", "uhelper=", "user=", "user_id=", "users",
];

/// All options of `-o`, with their meaning.
pub fn help() -> Vec<(String, String)> {
    let shown = |w: &Word| match (&w.takes, w.example) {
        (Takes::Position(_, values), _) => format!("{}={}", w.name, values().join("|")),
        (_, "") => w.name.into(),
        (_, example) => format!("{}={example}", w.name),
    };
    let words = WORDS.iter().filter(|w| !w.help.is_empty()).map(|w| (shown(w), w.help.to_string()));
    let switches = tidegate::OpenOptions::switches().into_iter();
    let of_volume = tidegate::OpenOptions::words().into_iter().map(|(w, help)| (w.into(), help.to_string()));
    let switches = switches.map(|s| (s.to_string(), format!("{} ({})", s.help, s.option(&s.default))));
    words.chain(of_volume).chain(switches).collect()
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
    /// Change an existing mount; see [`remount`](crate::mount::remount).
    pub remount: bool,
    /// Admit other users than the one who mounts.
    pub allow_other: bool,
    /// Have `fusermount3` unmount when the process dies.
    pub auto_unmount: bool,
    /// Reads do not change access times.
    pub noatime: bool,
    /// Flags of mount(2).
    pub flags: MountFlags,
    /// The owners with which all files are shown.
    pub view: View,
    /// Bytes of memory for the whole process, where given; see [`MountOptions::cache`].
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
    /// Those of the words that a remount does not change, as far as they differ from the defaults.
    pub fn words_that_stay(&self) -> Vec<&'static str> {
        let usual = MountOptions::default();
        let all = [
            ("noatime", self.noatime),
            ("dirsync", self.flags.contains(MountFlags::DIRSYNC)),
            ("uid", self.view.uid.is_some()),
            ("gid", self.view.gid.is_some()),
            ("cache", self.cache.is_some()),
            ("threads", self.threads != usual.threads),
            ("transport", self.transport != usual.transport),
            ("keep_awake", self.keep_awake != usual.keep_awake),
            ("walk_ahead", self.walk_ahead != usual.walk_ahead),
        ];
        all.into_iter().filter(|(_, given)| *given).map(|(word, _)| word).collect()
    }

    /// Reads a list such as `ro,allow_other,uid=1000,fsync_mode=strict`.
    ///
    /// # Errors
    /// A sentence that names the word with a bad value. Unknown words are taken for words of the file system.
    pub fn parse(list: &str) -> Result<Self, String> {
        let mut o = MountOptions::default();
        for word in list.split(',').filter(|w| !w.is_empty()) {
            o.set(word)?;
        }
        Ok(o)
    }

    fn set(&mut self, word: &str) -> Result<(), String> {
        let (name, given) = match word.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (word, None),
        };
        let wrong = |why: String| Err(format!("option \"{word}\": {why}"));
        let ours = WORDS.iter().find(|w| w.name == name).map(|w| &w.takes);
        match (ours, given) {
            (Some(Takes::Nothing(set)), None) => set(self),
            (Some(Takes::Value(set) | Takes::Position(set, _)), Some(v)) => {
                return set(self, v).or_else(wrong);
            }
            (Some(Takes::Value(_) | Takes::Position(..)), None) => {
                return wrong(format!("it needs a value, as in {name}=..."));
            }
            (Some(Takes::Nothing(_)), Some(_)) => return wrong(format!("{name} takes no value")),
            (None, _) => match is_foreign(name) {
                None => self.switch(word),
                Some(false) if given.is_some() => return wrong(format!("{name} takes no value")),
                Some(_) => {}
            },
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
    /// quarter of the cgroup's memory limit, if there is one, to the kernel.
    pub fn cache(&self) -> u64 {
        self.cache.unwrap_or_else(|| {
            let limit = tidegate::cgroup::memory_limit().unwrap_or(u64::MAX);
            (limit / 4 * 3).clamp(MIN_CACHE, DEFAULT_CACHE)
        })
    }

    /// The engine's memory limits, in the proportions of the defaults: half of the memory that is left after
    /// buffers, code and the counts of the kernel's inodes. So 256 MiB are enough with a million known
    /// inodes. Below 128 MiB the process takes more than its budget.
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

    /// Bytes of memory to keep ready for pages, out of the memory for buffers.
    pub(crate) fn reserve(&self) -> usize {
        (self.memory().cache / 8).min(MAX_RESERVE) as usize
    }
}

/// `MS_NOSYMFOLLOW`: no symbolic link is followed.
pub(crate) const NOSYMFOLLOW: MountFlags = MountFlags::from_bits_retain(256);

/// Whether a word is for other programs, such as the init system, and if so, whether it may have a value.
fn is_foreign(name: &str) -> Option<bool> {
    // mount(8) reserves such words for other programs.
    if name.starts_with("x-") || name.starts_with("X-") {
        return Some(true);
    }
    let word = FOREIGN.iter().find(|f| f.trim_end_matches('=') == name)?;
    Some(word.ends_with('='))
}

/// Checks that so many bytes are enough for a mount.
///
/// # Errors
/// A sentence that they are not enough.
pub fn check_cache(bytes: u64) -> Result<(), String> {
    if bytes >= MIN_CACHE { Ok(()) } else { Err(format!("a mount needs {}M at least", MIN_CACHE >> 20)) }
}

fn number(value: &str) -> Result<u32, String> {
    value.parse().map_err(|_| "not a number".into())
}

fn set<T: SwitchValue>(value: &str, to: &mut T) -> Result<(), String> {
    *to = T::parse(value).ok_or_else(|| format!("it must be {}", T::expected()))?;
    Ok(())
}

/// The spellings of the positions of `T`.
fn words_of<T: SwitchValue>() -> Vec<String> {
    T::all().into_iter().map(T::spelled).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All words that mount(8) passes on from a line in fstab, and from the mount table when a mount is
    /// changed.
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
