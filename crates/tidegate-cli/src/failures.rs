//! Failures after which a command goes on.

use crate::out;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tidegate::Error;
use tidegate::error::{path_bytes, printable, show};
use tidegate_rt::{LockClass, Mutex};

static SAID: LockClass = LockClass::new("cli->failures", 995);

/// The failures so far. All copies share one state.
#[derive(Clone)]
pub struct Failures(Arc<Mutex<Said>>);

#[derive(Default)]
struct Said {
    failed: bool,
    /// Images for which the advice on a repair was printed.
    advised: BTreeSet<PathBuf>,
}

impl Default for Failures {
    fn default() -> Self {
        Failures(Arc::new(Mutex::new(&SAID, Said::default())))
    }
}

impl Failures {
    /// Prints an error at once. The first error of a damaged `image` adds advice on the repair.
    pub fn add(&self, e: &Error, image: Option<&Path>) {
        let mut said = self.0.lock();
        said.failed = true;
        let mut text = printable(&e.to_string());
        if let (Some(format), Some(image)) = (e.damaged(), image)
            && said.advised.insert(image.to_path_buf())
        {
            text.push_str(&format!("; run `{} {}`", format.repaired_by(), show(path_bytes(image))));
        }
        // The reader of standard error may be slow: other threads need not wait for it.
        drop(said);
        out::say(text);
    }

    /// Whether there was any failure.
    pub fn any(&self) -> bool {
        self.0.lock().failed
    }
}
