//! Device models on the page: the sources of their figures.

use super::Case;
use super::text::esc;
use std::fmt::Write;
use tidegate_block::Preset;

/// The models that a case ran on, behind a click.
pub fn sources(out: &mut String, case: &Case) {
    let names = [&case.target].into_iter().chain(case.positions.iter().map(|p| &p.name));
    let mut presets: Vec<Preset> = names.filter_map(|n| model(n)).collect();
    presets.sort_unstable();
    presets.dedup();
    for p in presets {
        let _ = write!(out, "<details><summary>Where the figures of {p} are from</summary>");
        out.push_str("<div class=\"wide\"><table><thead><tr><th scope=\"col\">parameter</th>");
        out.push_str("<th scope=\"col\">value</th><th scope=\"col\">source</th></tr></thead><tbody>");
        for f in p.figures() {
            let (what, value, source) = (esc(f.what), esc(f.value), esc(f.source));
            let _ = write!(out, "<tr><th scope=\"row\">{what}</th><td>{value}</td><td>{source}</td></tr>");
        }
        out.push_str("</tbody></table></div></details>");
    }
}

/// The model in the name of a device or a target: `ufs`, `ramdisk, real time`, `sim:hdd`.
fn model(name: &str) -> Option<Preset> {
    let name = name.strip_prefix("sim:").or_else(|| name.strip_prefix("preset:")).unwrap_or(name);
    name.split(',').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_are_known_by_the_names_that_results_have() {
        let names = ["ufs", "ramdisk, real time", "sim:hdd", "preset:raid-bbwc", "file.img", "dir:nvme"];
        let found = names.map(model);
        let want =
            [Some(Preset::Ufs), Some(Preset::Ramdisk), Some(Preset::Hdd), Some(Preset::RaidBbwc), None, None];
        assert_eq!(found, want);
        let mut out = String::new();
        sources(&mut out, &Case { target: "ufs".into(), ..Case::default() });
        assert!(out.contains("eUFS 3.0") && out.contains("&quot;fstab:"), "{out}");
    }
}
