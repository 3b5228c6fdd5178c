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
        /// A commit waits for metadata alone. After a power cut, a file may show the earlier content of its blocks.
        Writeback = "writeback",
        /// Data is part of the transaction, and is copied from the log to its place later.
        Journal = "journal",
    }
}

positions! {
    /// The pages that a pass over a file sends while it holds a transaction's handle (`nomap_first=`).
    pub enum NomapFirst {
        /// All pages, also those that have a place, as in Linux before `ext4_writepages` sent these first.
        Off = "off",
        /// Pages that have a place are sent first, without a handle. The others, and the pages between them, are sent
        /// under one. This is Linux since then.
        On = "on",
        /// None. A handle is held while pages get places, and the pages are sent after it has ended.
        #[default]
        Pipelined = "pipelined",
    }
}

switches! {
    /// How to open a volume.
    pub struct Ext4Options {
        /// Nothing is changed.
        pub read_only: bool = false,
        /// The journal is not applied (`norecovery`, `noload`). For reading alone.
        pub norecovery: bool = false,
        /// The volume was just made, and no other program has seen it. No promise was made that a power cut could
        /// break, so changes go past the journal. They may take the blocks that are kept for the superuser.
        pub filling: bool = false,
        /// The time that is recorded for changes of the volume as a whole, in place of the clock's. Nothing depends on
        /// chance then.
        pub fixed_time: Option<Timespec> = None,
        /// The names of the switches that were given, which override the superblock's defaults.
        pub told: Vec<String> = Vec::new(),
        /// The bug that is planted, for tests.
        pub planted: Planted = Planted::default(),
    }
    /// The switches of an open volume.
    pub(crate) struct Switches {
        /// The order in which transactions reach the log: one after the other, as in Linux, or the body of the next one
        /// while the record of the last one is in flight. Chosen when a volume is opened.
        journal: JournalMode = JournalMode::Pipelined,
        /// The data that a commit waits for: the data that got places, or none. Blocks of a file with extents read as
        /// zeros until their data is written, so a commit never waits for that data. With `journal`, data is written
        /// to the log like metadata, and a power cut leaves writes in their order. `journal` is chosen when a volume
        /// is opened.
        data: DataMode = DataMode::Ordered,
        /// The pages of files with extents that are sent while a transaction is kept open: all pages, those that need a
        /// place with the pages between them, or none.
        nomap_first: NomapFirst = NomapFirst::Pipelined,
        /// The data of a file that replaces another by rename is written before the rename, and the data of a file that
        /// was truncated to nothing is written when the file is closed. So a power cut leaves no empty file in place
        /// of one that a program replaced without an fsync.
        auto_da_alloc: bool = true,
        /// The age in seconds at which a transaction is committed. 0 stands for 5.
        commit: u64 = 5,
        /// A new inode gets the group of its directory, whether the directory has a set-group-id bit or not, and a new
        /// directory does not inherit that bit. Also spelled `bsdgroups`; `nogrpid` is also spelled `sysvgroups`.
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
