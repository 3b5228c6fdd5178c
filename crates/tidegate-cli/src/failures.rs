//! Failures while a command goes on.

use crate::out;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tidegate::Error;
use tidegate::error::{path_bytes, printable, show};
use tidegate_rt::{LockClass, Mutex};

static SAID: LockClass = LockClass::new("cli->failures", 995);

/// Whether something failed so far. Every copy knows what the others do.
#[derive(Clone)]
pub struct Failures(Arc<Mutex<Said>>);

#[derive(Default)]
struct Said {
    failed: bool,
    /// Images of which it was said how to mend them.
    advised: BTreeSet<PathBuf>,
}

impl Default for Failures {
    fn default() -> Self {
        Failures(Arc::new(Mutex::new(&SAID, Said::default())))
    }
}

impl Failures {
    /// Tells of an error, now. The first that finds `image` damaged says what can be done about it.
    pub fn add(&self, e: &Error, image: Option<&Path>) {
        let mut said = self.0.lock();
        said.failed = true;
        let mut text = printable(&e.to_string());
        if let (Some(format), Some(image)) = (e.damaged(), image)
            && said.advised.insert(image.to_path_buf())
        {
            text.push_str(&format!("; run `{} {}`", format.repaired_by(), show(path_bytes(image))));
        }
        // The reader of what is said may be slow: the others need not wait for that.
        drop(said);
        out::say(text);
    }

    /// Whether there was any.
    pub fn any(&self) -> bool {
        self.0.lock().failed
    }
}
