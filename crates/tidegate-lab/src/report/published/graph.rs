//! The calls below one function, as `perf report` shows it; below the pass over a file's pages, its five parts.

use super::{Block, Case, NONE, SYMBOL};
use std::fmt::Write;
use tidegate::observe::graph::Graph;

/// The parts of a pass.
const PARTS: [&str; 5] = [
    "f2fs_allocate_data_block",
    "f2fs_get_dnode_of_data",
    "f2fs_update_data_blkaddr",
    "set_page_writeback",
    "f2fs_submit_page_write",
];

/// Linux's function for a pass.
const LINUX: &str = "f2fs_write_cache_pages";

/// Depth, hundredths of a percent of all samples, function.
type Nodes = [(usize, u64, &'static str)];

/// The unchanged kernel 5.19, by the notes on F2FS's performance; callees of the parts are cut.
const PUBLISHED: &Nodes = &[
    (0, 3197, LINUX),
    (1, 2907, "f2fs_write_single_data_page"),
    (2, 2708, "f2fs_do_write_data_page"),
    (3, 1429, "f2fs_outplace_write_data"),
    (4, 1111, "do_write_page"),
    (5, 402, "f2fs_allocate_data_block"),
    (5, 363, "f2fs_submit_page_write"),
    (5, 125, "f2fs_update_device_state"),
    (4, 189, "f2fs_update_data_blkaddr"),
    (4, 105, "f2fs_update_extent_cache"),
    (3, 591, "f2fs_get_dnode_of_data"),
    (3, 397, "set_page_writeback"),
    (3, 107, "f2fs_put_dnode"),
    (1, 182, "clear_page_dirty_for_io"),
];

/// A kernel with debugging on, by the notes on F2FS's performance.
const DEBUGGED: &Nodes = &[
    (0, 4323, LINUX),
    (1, 4209, "f2fs_write_single_data_page"),
    (2, 3998, "f2fs_do_write_data_page"),
    (3, 2712, "f2fs_outplace_write_data"),
    (4, 2298, "do_write_page"),
    (5, 1448, "f2fs_allocate_data_block"),
    (5, 435, "f2fs_submit_page_write"),
    (5, 374, "f2fs_update_device_state"),
    (4, 405, "f2fs_update_data_blkaddr"),
    (3, 610, "f2fs_get_dnode_of_data"),
    (3, 272, "f2fs_get_node_info"),
    (3, 268, "set_page_writeback"),
];

/// Empty if no call tree was recorded, or the function was not called.
pub(super) fn blocks(case: &Case, symbol: &str) -> Vec<Block> {
    let trees: Vec<(&str, Graph)> = (case.positions.iter())
        .filter(|p| !p.call_tree.is_empty())
        .map(|p| (&*p.name, Graph::of(&p.call_tree)))
        .collect();
    if !trees.iter().any(|(_, all)| all.below(symbol).is_some()) {
        return Vec::new();
    }
    let mut blocks = Vec::new();
    let mut b = Block::new(format!("{}: calls below {symbol}", case.name)).note(
        "Shares of the time that all threads spent in spans, once without waits, as perf has no samples of what \
         sleeps, and once with them. Time without a CPU, ready to run, is in both. Less than 0.5 % is left out, but for the parts of a pass.",
    );
    if symbol == SYMBOL {
        let mut table = Block::new(format!("{}: the parts of {symbol}, without waits", case.name));
        table.pane("shares of the whole pass", parts(&trees));
        blocks.push(table);
        b.pane("published, kernel 5.19", draw(&Graph::of_shares(PUBLISHED), LINUX, 10_000));
    }
    for (name, all) in &trees {
        let work = all.without_waits();
        for (all, how) in [(&work, "without waits"), (all, "with waits")] {
            if all.below(symbol).is_some() {
                b.pane(format!("{name}, {how}"), draw(all, symbol, all.total()));
            }
        }
    }
    blocks.push(b);
    blocks
}

fn draw(all: &Graph, symbol: &str, total: u64) -> String {
    all.below(symbol).map_or(NONE.into(), |g| g.draw(total, &PARTS))
}

/// The share of the pass that each part has, without waits.
fn parts(trees: &[(&str, Graph)]) -> String {
    let published = [("kernel 5.19, published", PUBLISHED), ("with debugging, published", DEBUGGED)];
    let passes = published.iter().map(|(name, nodes)| (*name, Graph::of_shares(nodes).below(LINUX)));
    let ours = trees.iter().map(|(name, all)| (*name, all.without_waits().below(SYMBOL)));
    let passes = passes.chain(ours);
    let mut out = format!("{:26}", "");
    for part in PARTS {
        let short = part.trim_start_matches("f2fs_").trim_end_matches("_of_data").replace("_data_", "_");
        let _ = write!(out, " {short:>18}");
    }
    out.push('\n');
    for (name, pass) in passes {
        let _ = write!(out, "{name:26}");
        for part in PARTS {
            let share = pass.as_ref().map(|p| 100.0 * p.time_in(part) as f64 / p.total() as f64);
            let _ = write!(out, " {:>18}", share.map_or(NONE.into(), |s| format!("{s:.1}%")));
        }
        out.push('\n');
    }
    out
}
