//! Keeps a stream that can be read only once.

use crate::error::{About, Result};
use std::fs::File;
use std::io::{Read, Seek};
use std::path::Path;

/// Copies `from`, called `name`, into a file without a name in `dir`. Returns the file, positioned at its
/// beginning.
///
/// # Errors
/// Those of reading and writing.
pub fn spool(from: &mut dyn Read, name: &str, dir: &Path) -> Result<File> {
    let mut file = tempfile::tempfile_in(dir).about(crate::error::path_bytes(dir))?;
    std::io::copy(from, &mut file).about(format!("{name} (kept in {})", dir.display()).as_bytes())?;
    file.rewind().about(name.as_bytes())?;
    Ok(file)
}
