//! The summary after a write.

use crate::global::Global;
use crate::out::Out;
use crate::units::bytes;
use serde::Serialize;
use tidegate::{Progress, Result, Summary, Volume};

/// Adds the moved files and bytes to the volume's own figures.
pub fn with_progress(mut s: Summary, p: &Progress) -> Summary {
    s.files = p.files();
    s.dirs = p.dirs();
    s.bytes = p.bytes();
    s
}

/// Prints a summary: as JSON with the additions of `extra`, or as text.
///
/// # Errors
/// Those of printing.
pub fn print(global: &Global, summary: &Summary, extra: &[(&'static str, String)]) -> Result<()> {
    #[derive(Serialize)]
    struct Json<'a> {
        #[serde(flatten)]
        extra: std::collections::BTreeMap<&'static str, &'a str>,
        #[serde(flatten)]
        summary: &'a Summary,
    }
    if global.quiet && !global.json {
        return Ok(());
    }
    let mut out = Out::new();
    if global.json {
        let extra = extra.iter().map(|(k, v)| (*k, v.as_str())).collect();
        out.json(&Json { extra, summary })?;
    } else {
        text(&mut out, summary, extra)?;
    }
    out.finish()
}

fn text(out: &mut Out, s: &Summary, extra: &[(&'static str, String)]) -> Result<()> {
    for (key, value) in extra {
        out.line(format_args!("{key}: {value}"))?;
    }
    if s.image_bytes > 0 {
        out.line(format_args!("size: {}", bytes(s.image_bytes)))?;
    }
    let rate = if s.seconds > 0.0 { s.bytes as f64 / s.seconds } else { 0.0 };
    out.line(format_args!(
        "{} files, {} directories, {} in {:.2} s ({}/s)",
        s.files,
        s.dirs,
        bytes(s.bytes),
        s.seconds,
        bytes(rate as u64)
    ))?;
    if s.bios > 0 {
        out.line(format_args!(
            "wrote {} in {} bios of {} (mean), {} requests; {} data, {} metadata, {} log blocks; {} commits",
            bytes(s.bio_bytes),
            s.bios,
            bytes(s.mean_bio_bytes),
            s.requests,
            s.data_blocks,
            s.metadata_blocks,
            s.log_blocks,
            s.commits
        ))?;
    }
    if s.read_bios > 0 && s.bios == 0 {
        out.line(format_args!("read {} in {} bios", bytes(s.read_bytes), s.read_bios))?;
    }
    let phases: Vec<String> = s.phases.iter().map(|p| format!("{} {:.2} s", p.name, p.seconds)).collect();
    if phases.is_empty() { Ok(()) } else { out.line(phases.join(", ")) }
}

/// Ends a command that changed a volume: its error comes first, then that of unmounting. Only --json prints a
/// summary; for people, silence means success.
///
/// # Errors
/// That of the change, or that of unmounting.
pub fn after_change(global: &Global, changed: Result<()>, volume: Volume) -> Result<()> {
    let summary = volume.unmount();
    changed?;
    let summary = summary?;
    if global.json { print(global, &summary, &[]) } else { Ok(()) }
}
