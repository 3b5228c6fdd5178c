//! The screen as it is drawn.

use super::history::History;
use super::theme::Theme;
use super::view::View;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::style::Color;
use std::collections::BTreeSet;
use tidegate::Sample;
use tidegate::sample::{FileSample, LockSample, SizeClass};
use tidegate::vfs::StepStats;

const MIB: u64 = 1 << 20;

fn sample(second: u64) -> Sample {
    let mut s = Sample {
        at_ns: second * 1_000_000_000,
        up_seconds: 93_784.0 + second as f64,
        image: "/srv/images/demo.img".into(),
        mountpoint: Some("/mnt".into()),
        format: "f2fs".into(),
        ..Sample::default()
    };
    (s.space.total_bytes, s.space.available_bytes) = (1024 * MIB, 600 * MIB);
    (s.memory.dirty_bytes, s.memory.dirty_limit) = (60 * MIB, 64 * MIB);
    (s.memory.background_limit, s.memory.writeback_bytes) = (48 * MIB, 3 * MIB);
    (s.memory.cached_bytes, s.memory.cache_limit) = (100 * MIB, 128 * MIB);
    s.flusher.state = "writing".into();
    s.flusher.why = Some("background".into());
    s.flusher.ino = Some(42);
    s.io.write_bytes = second * (second + 1) / 2 * 10 * MIB;
    s.io.write_bios = second * 40;
    s.io.sizes = vec![
        SizeClass { bytes: 4096, reads: 0, writes: second * 10 },
        SizeClass { bytes: 1 << 20, reads: 0, writes: second * 30 },
    ];
    s.fsync.count = second * 5;
    s.fsync.max_ns = 40_000_000;
    s.fsync.buckets = vec![(1_200_000, second * 4), (40_000_000, second)];
    let step = |name: &'static str, frozen, ns| StepStats {
        name: name.into(),
        frozen,
        count: second,
        max_ns: ns,
        sum_ns: second * ns,
        buckets: vec![(ns, second)],
        ..StepStats::default()
    };
    s.commits.steps = vec![
        step("request delay", false, 1_000),
        step("locked", true, 31_000_000),
        step("flushing", false, 2_000),
        step("logging", false, 5_000_000),
    ];
    let file = |ino, path: Option<&str>| FileSample {
        ino,
        path: path.map(Into::into),
        dirty_bytes: 20 * MIB,
        ..FileSample::default()
    };
    s.files = vec![file(42, Some("/var/lib/database/tables/orders.ibd")), file(43, None)];
    s.locks = vec![LockSample {
        class: "sbi->cp_rwsem".into(),
        contentions: second * 2,
        wait_total_ns: second * 300_000_000,
        acquisitions: second * 1000,
        hold_total_ns: second * 500_000_000,
        ..LockSample::default()
    }];
    s
}

fn drawn(width: u16, height: u16, colors: bool) -> Terminal<TestBackend> {
    let mut history = History::default();
    (0..8).for_each(|i| history.push(sample(i)));
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    let view = View { history: &history, theme: Theme::with_colors(colors), paused: false };
    terminal.draw(|f| view.draw(f)).unwrap();
    terminal
}

fn text(terminal: &Terminal<TestBackend>) -> Vec<String> {
    let buffer = terminal.backend().buffer();
    let cells: Vec<&str> = buffer.content.iter().map(|c| c.symbol()).collect();
    cells.chunks(usize::from(buffer.area.width)).map(|row| row.concat()).collect()
}

#[test]
fn everything_has_its_place_on_a_small_screen() {
    let rows = text(&drawn(80, 24, true));
    let all = rows.join("\n");
    println!("{all}");
    for wanted in [
        "tidegate top  /mnt  · f2fs rw · 424 MiB of 1 GiB · up 1d 02:03:11",
        "write 70 MiB/s   read 0 B/s",
        "dirty     █",
        "60 MiB",
        "flusher   background: …bles/orders.ibd",
        "fsync      5.0 1.20 ms 40.0 ms 40.0 ms",
        "commit     0.0       –",
        "*locked    1.0 31.0 ms",
        " flushi…   1.0 2.00 µs",
        " logging   1.0 5.00 ms",
        "write 40/s of 1.8 MiB",
        "sbi->cp_rwsem   30.0 %  150 ms  50.0 %",
        "inode 43",
        "4K  8K  16K",
        "q quit",
    ] {
        assert!(all.contains(wanted), "{wanted} in\n{all}");
    }
    // The last bandwidth is at the right of its chart, and it is the highest.
    assert!(rows[3].contains('█') && rows.iter().all(|r| r.chars().count() == 80));
}

#[test]
fn it_grows_and_shrinks() {
    let wide = text(&drawn(200, 60, true)).join("\n");
    for wanted in ["/srv/images/demo.img", "/var/lib/database/tables/orders.ibd"] {
        assert!(wide.contains(wanted), "{wanted} in\n{wide}");
    }
    for (width, height) in [(1, 1), (20, 5), (40, 10), (79, 13), (80, 19), (500, 200)] {
        drawn(width, height, true);
    }
}

/// A number is shown on a small screen as on a large one, or not at all.
#[test]
fn no_number_is_cut() {
    let numbers = |width, height| -> BTreeSet<String> {
        let rows = text(&drawn(width, height, true));
        // Words are separated by blanks and frames. Words of the image's path may be left out, but not cut.
        let words = rows.iter().flat_map(|r| r.split([' ', '│', '─', '╭', '╮', '╰', '╯']));
        words.filter(|w| w.contains(|c: char| c.is_ascii_digit())).map(str::to_string).collect()
    };
    let whole = numbers(200, 60);
    assert!(whole.len() > 20, "{whole:?}");
    for width in 16..=200 {
        let cut: Vec<_> = numbers(width, 30).difference(&whole).cloned().collect();
        assert!(cut.is_empty(), "{width} columns: {cut:?} in\n{}", text(&drawn(width, 30, true)).join("\n"));
    }
}

#[test]
fn a_picture_holds_what_the_screen_does() {
    let terminal = drawn(110, 26, true);
    let svg = super::picture::svg(terminal.backend().buffer(), "tidegate top /a&b");
    assert!(
        svg.starts_with("<svg ")
            && svg.ends_with("</svg>\n")
            && svg.contains("<title>tidegate top /a&amp;b<")
    );
    let texts = svg.split("<text ").skip(1).filter_map(|t| t.split_once('>')?.1.split_once("</"));
    let shown: String = texts.map(|(words, _)| words.replace("&gt;", ">").replace(' ', "")).collect();
    for row in text(&terminal) {
        let row: String = row.chars().filter(|c| *c != ' ' && !shaped(*c)).collect();
        assert!(shown.contains(&row), "{row:?} in {shown}");
    }
    // There are as many shapes as cells with a shape.
    let cells = terminal.backend().buffer().content.iter();
    let shapes = cells.filter(|c| c.symbol().chars().all(shaped)).count();
    assert_eq!(svg.matches("<rect x=").count() + svg.matches("<path ").count(), shapes);
}

/// Characters of bars, columns and frames.
fn shaped(c: char) -> bool {
    matches!(c, '▁'..='▏' | '─' | '│' | '╭' | '╮' | '╰' | '╯')
}

#[test]
fn without_colours_nothing_is_coloured() {
    let colored = |t: &Terminal<TestBackend>| {
        let cells = &t.backend().buffer().content;
        cells.iter().filter(|c| c.fg != Color::Reset || c.bg != Color::Reset).count()
    };
    assert_eq!(colored(&drawn(80, 24, false)), 0);
    assert!(colored(&drawn(80, 24, true)) > 100);
}

#[test]
fn a_column_that_does_not_fit_is_left_out() {
    let fit = |room| super::tables::columns_that_fit(&[8, 5, 7, 7, 7], room);
    assert_eq!([38, 37, 30, 29, 8, 1].map(fit), [5, 4, 4, 3, 1, 1]);
}
