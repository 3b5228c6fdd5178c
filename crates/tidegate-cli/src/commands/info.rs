//! `tidegate info`.

use super::checkpoints;
use crate::global::Global;
use crate::out::Out;
use crate::place::Place;
use crate::units::{bytes, uuid_text};
use serde_json::json;
use std::ffi::OsString;
use tidegate::Result;
use tidegate::f2fs::VolumeInfo;

/// Bytes of a block.
const BLOCK: u64 = 4096;

/// Arguments.
#[derive(clap::Args)]
pub struct Args {
    /// Ask for 32 checkpoints from 4 threads, write them, and show what each step took. Nothing in the volume changes
    /// but the version of its checkpoint; opening it for writing first recovers what a power cut left
    #[arg(long)]
    checkpoints: bool,
    /// The volume
    image: OsString,
}

/// Shows superblock, checkpoint and segments.
///
/// # Errors
/// What is in the way.
pub fn run(args: &Args, global: &Global) -> Result<()> {
    let place = Place::image(&args.image);
    if args.checkpoints {
        return checkpoints::run(&place, global);
    }
    let volume = global.read(&place)?;
    let info = volume.info()?;
    let mut out = Out::new();
    if global.json {
        out.json(&as_json(&info, volume.queue().device().backend()))?;
    } else {
        text(&mut out, &info, volume.image(), volume.queue().device().backend())?;
    }
    volume.unmount()?;
    out.finish()
}

fn as_json(i: &VolumeInfo, backend: &str) -> serde_json::Value {
    let logs = i.logs.iter().map(|(name, segment, next, ssr)| {
        json!({ "log": name, "segment": segment, "next_block": next, "fills_holes": ssr })
    });
    let by_log = i
        .by_log
        .iter()
        .map(|(name, segs, blocks)| json!({ "log": name, "segments": segs, "blocks": blocks }));
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
            "main_segments": i.main_segments,
            "segments_per_section": i.segs_per_sec,
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
        },
    })
}

fn text(out: &mut Out, i: &VolumeInfo, image: &str, backend: &str) -> Result<()> {
    let label = if i.label.is_empty() { "none".into() } else { tidegate::error::show(i.label.as_bytes()) };
    out.line(format_args!("{image}: f2fs {}.{}, read by {backend}", i.version.0, i.version.1))?;
    out.line("\nSuperblock")?;
    out.line(format_args!("  uuid           {}", uuid_text(&i.uuid)))?;
    out.line(format_args!("  label          {label}"))?;
    out.line(format_args!("  features       {}", if i.features.is_empty() { "none" } else { &i.features }))?;
    out.line(format_args!("  size           {} blocks ({})", i.block_count, bytes(i.block_count * BLOCK)))?;
    out.line(format_args!("  made by        {}", tidegate::error::show(i.made_by.trim().as_bytes())))?;
    let areas: Vec<String> = i.areas.iter().map(|(n, b)| format!("{n} {b}")).collect();
    out.line(format_args!("  areas at block {}", areas.join(", ")))?;
    out.line(format_args!("  main area      {} segments, {} in a section", i.main_segments, i.segs_per_sec))?;
    out.line("\nCheckpoint")?;
    out.line(format_args!("  version        {} in pack {}", i.checkpoint_version, i.checkpoint_pack))?;
    out.line(format_args!("  flags          {}", i.checkpoint_flags.join(", ")))?;
    let percent = i.valid_blocks * 100 / i.user_blocks.max(1);
    out.line(format_args!("  blocks         {} of {} in use ({percent} %)", i.valid_blocks, i.user_blocks))?;
    out.line(format_args!("  nodes          {}, {} of them inodes", i.valid_nodes, i.valid_inodes))?;
    out.line(format_args!("  orphans        {}", i.orphans))?;
    out.line(format_args!("  journals       {} NAT, {} SIT entries", i.nat_journal, i.sit_journal))?;
    out.line("\nSegments")?;
    out.line(format_args!(
        "  {} free, {} prefree, {} dirty, {} full; {} kept back, {} of them reserved",
        i.free_segments,
        i.prefree_segments,
        i.dirty_segments,
        i.full_segments,
        i.overprovision_segments,
        i.reserved_segments
    ))?;
    out.line(format_args!("\n  {:<10} {:>8} {:>10}  writes at", "Log", "Segments", "Blocks"))?;
    for ((name, segments, blocks), (_, segment, next, ssr)) in i.by_log.iter().zip(&i.logs) {
        let how = if *ssr { ", filling holes" } else { "" };
        out.line(format_args!(
            "  {name:<10} {segments:>8} {blocks:>10}  segment {segment}, block {next}{how}"
        ))?;
    }
    Ok(())
}
