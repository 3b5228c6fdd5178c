//! What fails while a command goes on.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use tidegate::Error;
use tidegate::error::{path_bytes, printable, show};

/// Whether something failed so far. Every copy knows what the others do.
#[derive(Clone, Default)]
pub struct Failures(Arc<Said>);

#[derive(Default)]
struct Said {
    failed: AtomicBool,
    /// It was said how to mend a volume.
    advised: AtomicBool,
}

impl Failures {
    /// Tells of an error, now. The first that finds `image` damaged says what can be done about it.
    pub fn add(&self, e: &Error, image: Option<&Path>) {
        self.0.failed.store(true, Relaxed);
        let mut text = printable(&e.to_string());
        if let (true, Some(image)) = (e.is_damaged(), image)
            && !self.0.advised.swap(true, Relaxed)
        {
            text.push_str(&format!("; run `tidegate check --repair {}`", show(path_bytes(image))));
        }
        eprintln!("tidegate: {text}");
    }

    /// Whether there was any.
    pub fn any(&self) -> bool {
        self.0.failed.load(Relaxed)
    }
}
