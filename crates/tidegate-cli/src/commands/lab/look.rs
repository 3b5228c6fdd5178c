//! The progress of an experiment, and recordings of its runs.

use crate::global::Global;
use crate::out;
use crate::watch::Watch;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal;
use std::path::Path;
use tidegate::observe::{Observed, Wanted};
use tidegate::{Error, Result};
use tidegate_lab::experiment::{Looked, Observer};

/// The progress of an experiment, and recordings of its runs.
pub struct Look<'a> {
    watch: &'a Watch,
    bar: ProgressBar,
    quiet: bool,
}

impl<'a> Look<'a> {
    /// Progress of so many runs.
    ///
    /// # Errors
    /// A file is to be made where there is no directory. That is checked before anything runs.
    pub fn new(runs: u64, global: &'a Global) -> Result<Self> {
        let watch = &global.watch;
        for file in [&watch.trace, &watch.profile].into_iter().flatten() {
            let dir = file.parent().filter(|d| !d.as_os_str().is_empty()).unwrap_or(Path::new("."));
            std::fs::read_dir(dir).map_err(|e| Error::Os(file.into(), e))?;
        }
        Ok(Look { watch, bar: bar(runs, global), quiet: global.quiet })
    }

    /// Ends the display after all runs.
    pub fn end(self) {
        self.bar.finish_and_clear();
    }

    fn keep(&self, run: &Looked<'_>, observed: &Observed) -> Result<()> {
        let of_position = self.watch.named(&run.file_name());
        if self.watch.lockstat {
            out::line(format_args!("{}: {}, {}", run.experiment, run.setting, run.position));
        }
        of_position.write(observed)?;
        let files = [&of_position.trace, &of_position.profile].into_iter().flatten();
        files.filter(|_| !self.quiet).for_each(|f| out::line(f.display()));
        Ok(())
    }
}

impl Observer for Look<'_> {
    fn ran(&self, what: &str) {
        self.bar.set_message(what.to_owned());
        self.bar.inc(1);
    }

    fn wants(&self) -> Wanted {
        self.watch.wanted()
    }

    fn saw(&self, run: &Looked<'_>, observed: &Observed) -> tidegate_lab::Result<()> {
        Ok(self.bar.suspend(|| self.keep(run, observed))?)
    }
}

fn bar(total: u64, global: &Global) -> ProgressBar {
    let shown = !global.quiet && std::io::stderr().is_terminal();
    let target = if shown { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
    let style = ProgressStyle::with_template("{msg} [{bar:30}] {pos}/{len} {elapsed}");
    ProgressBar::with_draw_target(Some(total), target)
        .with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()).progress_chars("=> "))
}
