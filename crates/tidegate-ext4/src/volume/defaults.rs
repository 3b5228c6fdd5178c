//! Options that a volume's superblock has defaults for, as tune2fs(8) sets them: `s_default_mount_opts`, and
//! the words in `s_mount_opts`. Options that are told go before.
//!
//! The others ask for things that are so in any case (lists of rights, attributes of users, blocks that are
//! checked), or in none: flushes are sent, blocks are taken late, and freed blocks are discarded by `tidegate
//! trim` alone.

use crate::format::gate::superblock::text;
use crate::format::gate::{Journal, Superblock};
use crate::format::raw::*;
use crate::volume::options::{DataMode, Ext4Options, name_of};

/// Switches that Linux has, too: words for others in the superblock are not for us.
const LINUX: [&str; 4] = ["data", "commit", "auto_da_alloc", "grpid"];

/// The default that the superblock has for `data=`; tune2fs's name of it, and mount's.
fn data_word(sb: &Superblock) -> Option<(&'static str, &'static str)> {
    match sb.raw.s_default_mount_opts.get() & DEFM_JMODE {
        DEFM_JMODE_DATA => Some(("journal_data", "data=journal")),
        DEFM_JMODE_ORDERED => Some(("journal_data_ordered", "data=ordered")),
        DEFM_JMODE_WBACK => Some(("journal_data_writeback", "data=writeback")),
        _ => None,
    }
}

/// The defaults of a superblock by tune2fs's names, and the words that it has beside.
pub(super) fn default_options(sb: &Superblock) -> Vec<String> {
    let bits = DefaultMount::from_bits_truncate(sb.raw.s_default_mount_opts.get());
    let data = data_word(sb).map(|(name, _)| name.to_string());
    // In the order in which tune2fs tells them.
    data.into_iter().chain(bits.iter_names().map(|(name, _)| name.to_lowercase())).chain(words(sb)).collect()
}

fn words(sb: &Superblock) -> Vec<String> {
    text(&sb.raw.s_mount_opts).split(',').filter(|w| !w.is_empty()).map(str::to_string).collect()
}

impl Ext4Options {
    /// With the superblock's defaults for what was not told. A volume that is filled for the first time has
    /// none of these.
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
            // A volume without a journal has no place for data beside its own.
            let has_place = word != "data=journal" || sb.journal != Journal::None;
            if LINUX.contains(&name) && !is_told && has_place {
                // A word that is wrong counts for nothing, as one that is not known.
                let _ = self.set_known(&word);
            }
        }
        self
    }
}
