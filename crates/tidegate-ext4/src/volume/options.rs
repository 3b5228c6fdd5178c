//! Mount options: how a volume is opened, and the switches that can be turned while it is in use.

use tidegate_jbd2::JournalMode;
use tidegate_rt::Timespec;
use tidegate_vfs::planted::Planted;
use tidegate_vfs::word::{NORECOVERY, NORECOVERY_HELP, Word, set_word, shown};
use tidegate_vfs::{Error, ErrorKind, Result, positions, switches};

positions! {
    /// The data that a commit waits for (`data=`).
    pub enum DataMode {
        /// Data is on the device before the transaction commits that gives it a place.
        #[default]
        Ordered = "ordered",
        /// For nothing but metadata: after a power cut a file may show what others left in its blocks.
        Writeback = "writeback",
        /// Data is in the transaction itself, and goes where it belongs from the log.
        Journal = "journal",
    }
}

positions! {
    /// The pages that a pass over a file sends while it holds a transaction's handle (`nomap_first=`).
    pub enum NomapFirst {
        /// All of them, also those that have a place: Linux before `ext4_writepages` sent them first.
        Off = "off",
        /// Pages that have a place go first, without a handle; the rest, and the pages between, under one:
        /// Linux since then.
        On = "on",
        /// None: a handle is held while pages get places, and pages are sent when it has ended.
        #[default]
        Pipelined = "pipelined",
    }
}

switches! {
    /// How to open a volume.
    pub struct Ext4Options {
        /// Change nothing.
        pub read_only: bool = false,
        /// Look at the volume as it is, without what its journal holds (`norecovery`, `noload`); for reading alone.
        pub norecovery: bool = false,
        /// The volume was just made, and nobody else has seen it: changes go past its journal, as a power cut leaves
        /// nothing that anybody was promised, and may take what is kept for the superuser.
        pub filling: bool = false,
        /// The time that changes of the volume as a whole bear instead of the clock's; nothing depends on
        /// chance then.
        pub fixed_time: Option<Timespec> = None,
        /// Switches that were given, by name: the superblock's defaults for them do not count.
        pub told: Vec<String> = Vec::new(),
        /// The bug that is planted, for tests.
        pub planted: Planted = Planted::default(),
    }
    /// The switches of an open volume.
    pub(crate) struct Switches {
        /// How transactions reach the log: one after the other as Linux does, or the body of the next while
        /// the record of the last is on its way. Chosen when a volume is opened.
        journal: JournalMode = JournalMode::Pipelined,
        /// The data that a commit waits for: all that it gives places, or nothing but metadata. Of a file
        /// with extents it waits for no data, as they read as zeros until that is there. With journal, data
        /// is written to the log as metadata is, and a power cut leaves writes in their order; chosen when a
        /// volume is opened.
        data: DataMode = DataMode::Ordered,
        /// Which pages of files with extents are sent while a transaction is kept open: all, those that need
        /// a place and the pages between them, or none.
        nomap_first: NomapFirst = NomapFirst::Pipelined,
        /// New data of a file that takes another's name is written before the change of names, and that of a
        /// file which was cut to nothing when it is closed: a power cut leaves no empty file where a program
        /// replaced one without an fsync.
        auto_da_alloc: bool = true,
        /// Seconds after which a transaction is committed by itself; 0 stands for 5.
        commit: u64 = 5,
        /// A new inode has the group of its directory whatever that one's set-group-id bit, which a new
        /// directory does not get then. Also `bsdgroups`, and `sysvgroups` for `nogrpid`.
        grpid: bool = false,
    }
}

/// Seconds of `commit=` that make sense, at most.
const MOST_SECONDS: u64 = 3600;
/// Those of `commit=0`.
const USUAL_SECONDS: u64 = 5;

const WORDS: &[Word<Ext4Options>] = &[
    Word { name: "ro", help: "", set: |o| o.read_only = true },
    Word { name: NORECOVERY, help: NORECOVERY_HELP, set: |o| o.norecovery = true },
    Word { name: "noload", help: "", set: |o| o.norecovery = true },
];

impl Ext4Options {
    /// Applies an option, spelled as for mount(8); false if there is none of this name.
    ///
    /// # Errors
    /// `InvalidArgument` when its value is wrong.
    pub fn set(&mut self, option: &str) -> Result<bool> {
        Ok(set_word(WORDS, self, option)? || self.set_known(option)?)
    }

    /// The words that are no switches, with their effects.
    pub fn words() -> impl Iterator<Item = (&'static str, &'static str)> {
        shown(WORDS)
    }

    /// Applies a switch; false if there is none of this name.
    ///
    /// # Errors
    /// `InvalidArgument` when its value is wrong; nothing is changed then.
    pub(crate) fn set_known(&mut self, option: &str) -> Result<bool> {
        let option = match option {
            "bsdgroups" => "grpid",
            "sysvgroups" => "nogrpid",
            other => other,
        };
        let mut new = self.clone();
        let is_switch = new.set_switch(option)?;
        if is_switch {
            new.told.push(name_of(option).to_string());
        }
        if new.commit > MOST_SECONDS {
            return Err(invalid(format!("option \"{option}\": it must be {MOST_SECONDS} seconds at most")));
        }
        *self = new;
        Ok(is_switch)
    }

    /// How old a transaction gets.
    pub(crate) fn interval(&self) -> std::time::Duration {
        std::time::Duration::from_secs(if self.commit == 0 { USUAL_SECONDS } else { self.commit })
    }
}

/// The switch that an option is about.
pub(super) fn name_of(option: &str) -> &str {
    let name = option.split('=').next().unwrap_or(option);
    match name {
        "bsdgroups" | "sysvgroups" => "grpid",
        _ if option.contains('=') => name,
        _ => name.strip_prefix("no").unwrap_or(name),
    }
}

fn invalid(what: String) -> Error {
    Error::new(ErrorKind::InvalidArgument, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_spelled_as_for_mount() {
        let mut o = Ext4Options::default();
        for option in ["journal=jbd2", "data=journal", "data=writeback", "commit=60", "noload"] {
            assert!(o.set(option).unwrap(), "{option}");
        }
        assert_eq!((o.journal, o.data, o.norecovery), (JournalMode::Jbd2, DataMode::Writeback, true));
        assert_eq!(o.interval().as_secs(), 60);
        assert!(o.set("commit=0").unwrap() && o.interval().as_secs() == 5);
        assert!(!o.set("fsync_mode=strict").unwrap());
        for (wrong, why) in [
            ("ro=1", "ro takes no value"),
            ("data=none", "it must be one of ordered, writeback, journal"),
            ("journal=none", "it must be one of jbd2, pipelined"),
            ("commit=4000", "it must be 3600 seconds at most"),
            ("commit", "it needs a value"),
        ] {
            let e = o.set(wrong).unwrap_err().to_string();
            assert!(e.contains(why), "{e}");
        }
        assert_eq!(o.commit, 0);
    }
}
