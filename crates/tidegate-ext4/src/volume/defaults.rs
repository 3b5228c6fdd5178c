//! Options for which a volume's superblock has defaults, set by tune2fs(8): `s_default_mount_opts`, and the
//! words in `s_mount_opts`. Options that the user gives have priority.
//!
//! Other defaults ask for behaviour that Tidegate has in any case (ACLs, user attributes, checks of blocks),
//! or never: flushes are always sent, blocks are allocated late, and only `tidegate trim` discards freed
//! blocks.

use crate::format::gate::superblock::text;
use crate::format::gate::{Journal, Superblock};
use crate::format::raw::*;
use crate::volume::options::{DataMode, Ext4Options, name_of};

/// Switches that Linux has, too: other words in the superblock are not for Tidegate.
const LINUX: [&str; 4] = ["data", "commit", "auto_da_alloc", "grpid"];

/// The superblock's default for `data=`: tune2fs's name and mount's name.
fn data_word(sb: &Superblock) -> Option<(&'static str, &'static str)> {
    match sb.raw.s_default_mount_opts.get() & DEFM_JMODE {
        DEFM_JMODE_DATA => Some(("journal_data", "data=journal")),
        DEFM_JMODE_ORDERED => Some(("journal_data_ordered", "data=ordered")),
        DEFM_JMODE_WBACK => Some(("journal_data_writeback", "data=writeback")),
        _ => None,
    }
}

/// The defaults of a superblock by tune2fs's names, and its other words.
pub(super) fn default_options(sb: &Superblock) -> Vec<String> {
    let bits = DefaultMount::from_bits_truncate(sb.raw.s_default_mount_opts.get());
    let data = data_word(sb).map(|(name, _)| name.to_string());
    // In the order in which tune2fs prints them.
    data.into_iter().chain(bits.iter_names().map(|(name, _)| name.to_lowercase())).chain(words(sb)).collect()
}

fn words(sb: &Superblock) -> Vec<String> {
    text(&sb.raw.s_mount_opts).split(',').filter(|w| !w.is_empty()).map(str::to_string).collect()
}

impl Ext4Options {
    /// Adds the superblock's defaults for options that were not given. A volume that is filled for the first
    /// time gets none of them.
    pub(super) fn with_defaults(mut self, sb: &Superblock) -> Self {
        if self.filling {
            return self;
        }
        let told = self.told.clone();
        let is_told = |name: &str| told.iter().any(|t| t == name);
        let data_is_told = is_told("data") || self.data != DataMode::default();
        let bits = DefaultMount::from_bits_truncate(sb.raw.s_default_mount_opts.get());
        let grpid = bits.contains(DefaultMount::BSDGROUPS).then(|| "grpid".to_string());
        let data = data_word(sb).map(|(_, word)| word.to_string());
        for word in data.into_iter().chain(grpid).chain(words(sb)) {
            let name = name_of(&word);
            let is_told = if name == "data" { data_is_told } else { is_told(name) };
            // A volume without a journal cannot log data.
            let has_place = word != "data=journal" || sb.journal != Journal::None;
            if LINUX.contains(&name) && !is_told && has_place {
                // A wrong word is ignored, as an unknown one is.
                let _ = self.set_known(&word);
            }
        }
        self
    }
}
