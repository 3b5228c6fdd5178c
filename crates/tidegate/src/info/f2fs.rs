//! F2FS: superblock, checkpoint, segments.

use crate::error::show;
use crate::units::{bytes, uuid_text};
use serde_json::{Value, json};
use tidegate_f2fs::VolumeInfo;

/// Bytes of a block.
const BLOCK: u64 = 4096;

pub(super) fn json(i: &VolumeInfo, backend: &str) -> Value {
    let logs = i.logs.iter().map(|(name, segment, next, ssr)| {
        json!({ "log": name, "segment": segment, "next_block": next, "fills_holes": ssr })
    });
    let by_log = i
        .by_log
        .iter()
        .map(|(name, segs, blocks)| json!({ "log": name, "segments": segs, "blocks": blocks }));
    let streams = i.streams.iter().map(|(log, stream, segment, next)| {
        json!({ "log": log, "stream": stream, "segment": segment, "next_block": next })
    });
    json!({
        "format": "f2fs",
        "io": backend,
        "superblock": {
            "uuid": uuid_text(&i.uuid),
            "label": i.label,
            "version": format!("{}.{}", i.version.0, i.version.1),
            "features": i.features,
            "blocks": i.block_count,
            "made_by": i.made_by,
            "areas": i.areas.iter().map(|(n, b)| (n.to_string(), json!(b))).collect::<serde_json::Map<_, _>>(),
            "devices": i.devices.iter().map(|(path, n)| json!({ "path": path, "bytes": n })).collect::<Vec<_>>(),
            "main_segments": i.main_segments,
            "segments_per_section": i.segs_per_sec,
            "zones": i.zones.as_ref().map(|z| json!({
                "sections": z.sections,
                "sequential": z.sequential,
                "capacity_blocks": z.capacity,
                "ready": z.ready,
                "dead": z.dead,
                "max_active": z.max_active,
            })),
        },
        "checkpoint": {
            "version": i.checkpoint_version,
            "pack": i.checkpoint_pack,
            "flags": i.checkpoint_flags,
            "user_blocks": i.user_blocks,
            "valid_blocks": i.valid_blocks,
            "valid_nodes": i.valid_nodes,
            "valid_inodes": i.valid_inodes,
            "orphans": i.orphans,
            "nat_journal": i.nat_journal,
            "sit_journal": i.sit_journal,
            "logs": logs.collect::<Vec<_>>(),
        },
        "segments": {
            "overprovision": i.overprovision_segments,
            "reserved": i.reserved_segments,
            "free": i.free_segments,
            "prefree": i.prefree_segments,
            "dirty": i.dirty_segments,
            "full": i.full_segments,
            "by_log": by_log.collect::<Vec<_>>(),
            "streams": streams.collect::<Vec<_>>(),
            "streams_to_spare": i.streams_to_spare,
        },
    })
}

pub(super) fn lines(i: &VolumeInfo, image: &str, backend: &str) -> Vec<String> {
    let mut out = Vec::new();
    let label = if i.label.is_empty() { "none".into() } else { show(i.label.as_bytes()) };
    out.push(format!("{image}: f2fs {}.{}, read by {backend}", i.version.0, i.version.1));
    out.push("\nSuperblock".into());
    out.push(format!("  uuid           {}", uuid_text(&i.uuid)));
    out.push(format!("  label          {label}"));
    out.push(format!("  features       {}", if i.features.is_empty() { "none" } else { &i.features }));
    out.push(format!("  size           {} blocks ({})", i.block_count, bytes(i.block_count * BLOCK)));
    out.push(format!("  made by        {}", show(i.made_by.trim().as_bytes())));
    let areas: Vec<String> = i.areas.iter().map(|(n, b)| format!("{n} {b}")).collect();
    out.push(format!("  areas at block {}", areas.join(", ")));
    out.push(format!("  main area      {} segments, {} in a section", i.main_segments, i.segs_per_sec));
    if !i.devices.is_empty() {
        let each: Vec<String> =
            i.devices.iter().map(|(path, n)| format!("{} ({})", show(path.as_bytes()), bytes(*n))).collect();
        out.push(format!("  devices        {}", each.join(", ")));
    }
    if let Some(z) = &i.zones {
        let capacity = bytes(u64::from(z.capacity) * BLOCK);
        let dead = if z.dead > 0 { format!(", {} given up by the device", z.dead) } else { String::new() };
        out.push(format!(
            "  zones          {} sections of {capacity}, {} on zones written in order, {} ready{dead}",
            z.sections, z.sequential, z.ready
        ));
    }
    out.push("\nCheckpoint".into());
    out.push(format!("  version        {} in pack {}", i.checkpoint_version, i.checkpoint_pack));
    out.push(format!("  flags          {}", i.checkpoint_flags.join(", ")));
    let percent = i.valid_blocks * 100 / i.user_blocks.max(1);
    out.push(format!("  blocks         {} of {} in use ({percent} %)", i.valid_blocks, i.user_blocks));
    out.push(format!("  nodes          {}, {} of them inodes", i.valid_nodes, i.valid_inodes));
    out.push(format!("  orphans        {}", i.orphans));
    out.push(format!("  journals       {} NAT, {} SIT entries", i.nat_journal, i.sit_journal));
    out.push("\nSegments".into());
    out.push(format!(
        "  {} free, {} prefree, {} dirty, {} full; {} kept back, {} of them reserved",
        i.free_segments,
        i.prefree_segments,
        i.dirty_segments,
        i.full_segments,
        i.overprovision_segments,
        i.reserved_segments
    ));
    out.push(format!("\n  {:<10} {:>8} {:>10}  writes at", "Log", "Segments", "Blocks"));
    for ((name, segments, blocks), (_, segment, next, ssr)) in i.by_log.iter().zip(&i.logs) {
        let how = if *ssr { ", filling holes" } else { "" };
        out.push(format!("  {name:<10} {segments:>8} {blocks:>10}  segment {segment}, block {next}{how}"));
    }
    for (name, stream, segment, next) in &i.streams {
        let name = format!("{name} {stream}");
        out.push(format!("  {name:<10} {:>8} {:>10}  segment {segment}, block {next}", "", ""));
    }
    if i.streams.is_empty() {
        out.push(format!(
            "  {} more streams can be opened with the segments that are free",
            i.streams_to_spare
        ));
    }
    out
}
