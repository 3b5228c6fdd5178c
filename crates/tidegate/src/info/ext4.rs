//! ext2, ext3 and ext4: superblock, journal, groups.

use crate::error::show;
use crate::units::{bytes, uuid_text};
use serde_json::{Value, json};
use tidegate_ext4::VolumeInfo;
use tidegate_ext4::info::{GroupInfo, JournalInfo};

/// The most groups that are listed one by one. A large volume has thousands.
const GROUPS_SHOWN: usize = 32;

pub(super) fn json(i: &VolumeInfo, backend: &str) -> Value {
    let group = |g: &GroupInfo| {
        json!({
            "start": g.start,
            "block_bitmap": g.tables[0],
            "inode_bitmap": g.tables[1],
            "inode_table": g.tables[2],
            "free_blocks": g.free_blocks,
            "free_inodes": g.free_inodes,
            "directories": g.directories,
            "has_super": g.has_super,
            "flags": g.flags,
        })
    };
    json!({
        "format": "ext4",
        "io": backend,
        "superblock": {
            "kind": i.kind,
            "uuid": uuid_text(&i.uuid),
            "label": i.label,
            "features": i.features,
            "read_only_features": i.read_only_features,
            "default_options": i.default_options,
            "block_size": i.block_size,
            "cluster_size": i.cluster_size,
            "inode_size": i.inode_size,
            "blocks": i.blocks,
            "free_blocks": i.free_blocks,
            "reserved_blocks": i.reserved_blocks,
            "inodes": i.inodes,
            "free_inodes": i.free_inodes,
            "directories": i.directories,
            "blocks_per_group": i.blocks_per_group,
            "inodes_per_group": i.inodes_per_group,
            "last_mounted": i.last_mounted,
            "state": i.state,
            "errors": i.errors,
            "hash": i.hash,
        },
        "journal": journal_json(&i.journal),
        "groups": i.groups.iter().map(group).collect::<Vec<_>>(),
    })
}

fn journal_json(j: &JournalInfo) -> Value {
    match j {
        JournalInfo::None => Value::Null,
        JournalInfo::Device => json!({ "on": "device" }),
        JournalInfo::Inode { ino, bytes, needs_recovery } => {
            json!({ "on": "inode", "inode": ino, "bytes": bytes, "needs_recovery": needs_recovery })
        }
    }
}

fn journal_text(j: &JournalInfo) -> String {
    match j {
        JournalInfo::None => "none".into(),
        JournalInfo::Device => "on a device of its own".into(),
        JournalInfo::Inode { ino, bytes: size, needs_recovery } => {
            let state = if *needs_recovery { "holds what the volume does not" } else { "empty" };
            format!("{} in inode {ino}, {state}", bytes(*size))
        }
    }
}

pub(super) fn lines(i: &VolumeInfo, image: &str, backend: &str) -> Vec<String> {
    let shown = |s: &str, none: &str| if s.is_empty() { none.to_string() } else { show(s.as_bytes()) };
    let block = u64::from(i.block_size);
    let percent = |used: u64, all: u64| used * 100 / all.max(1);
    let used = i.blocks.saturating_sub(i.free_blocks);
    let inodes = u64::from(i.inodes).saturating_sub(i.free_inodes);
    let mut out = vec![format!("{image}: {}, read by {backend}", i.kind), "\nSuperblock".into()];
    let mut line = |name: &str, value: String| out.push(format!("  {name:<14} {value}"));
    line("uuid", uuid_text(&i.uuid));
    line("label", shown(&i.label, "none"));
    line("features", shown(&i.features.join(" "), "none"));
    line("opened with", shown(&i.default_options.join(" "), "no options of its own"));
    if !i.read_only_features.is_empty() {
        line("read only for", i.read_only_features.clone());
    }
    line("size", format!("{} blocks of {} ({})", i.blocks, bytes(block), bytes(i.blocks * block)));
    if i.cluster_size != block {
        line("clusters of", bytes(i.cluster_size));
    }
    line("blocks", format!("{used} in use ({} %), {} reserved", percent(used, i.blocks), i.reserved_blocks));
    line(
        "inodes",
        format!(
            "{inodes} of {} in use ({} %), {} bytes each",
            i.inodes,
            percent(inodes, i.inodes.into()),
            i.inode_size
        ),
    );
    line("directories", format!("{}, names hashed by {}", i.directories, i.hash));
    line("state", if i.errors > 0 { format!("{}, {} of them", i.state, i.errors) } else { i.state.clone() });
    line("last mounted", shown(&i.last_mounted, "nowhere known"));
    line("journal", journal_text(&i.journal));
    out.push(format!(
        "\nGroups: {} of {} blocks and {} inodes",
        i.groups.len(),
        i.blocks_per_group,
        i.inodes_per_group
    ));
    out.push(format!(
        "  {:>6} {:>10} {:>10} {:>10} {:>10} {:>9} {:>9} {:>6}",
        "Group", "Begins at", "Bitmaps", "", "Inodes at", "Free", "Inodes", "Dirs"
    ));
    out.extend(i.groups.iter().take(GROUPS_SHOWN).enumerate().map(group_line));
    if i.groups.len() > GROUPS_SHOWN {
        out.push(format!("  and {} more; --json has all", i.groups.len() - GROUPS_SHOWN));
    }
    out
}

fn group_line((n, g): (usize, &GroupInfo)) -> String {
    let [blocks, inodes, table] = g.tables;
    let mut words = g.flags.clone();
    words.extend(g.has_super.then(|| "superblock".into()));
    let line = format!(
        "  {n:>6} {:>10} {blocks:>10} {inodes:>10} {table:>10} {:>9} {:>9} {:>6}  {}",
        g.start,
        g.free_blocks,
        g.free_inodes,
        g.directories,
        words.join(" ")
    );
    line.trim_end().into()
}
