//! The kinds of files that every maker of volumes supports.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use anyhow::Result;

use super::Rng;

/// Makes files of graded sizes, nested directories, links, and a name of full length.
pub fn simple(dir: &Path) -> Result<()> {
    let mut rng = Rng::new(8);
    let sizes = dir.join("sizes");
    fs::create_dir(&sizes)?;
    for size in (0..20_000).step_by(199) {
        fs::write(sizes.join(format!("s{size:05}")), rng.bytes(size))?;
    }
    fs::write(dir.join("one-mib"), rng.bytes(1 << 20))?;
    fs::write(dir.join("text"), "the same line again and again\n".repeat(20_000))?;
    fs::write(dir.join("n".repeat(255)), b"long name")?;
    fs::write(dir.join("mode"), b"read only")?;
    fs::set_permissions(dir.join("mode"), fs::Permissions::from_mode(0o440))?;
    fs::hard_link(dir.join("text"), dir.join("text-again"))?;
    symlink("sizes/s00199", dir.join("link"))?;
    let mut at = dir.to_path_buf();
    for level in 0..20 {
        at.push(format!("level-{level}"));
        fs::create_dir(&at)?;
    }
    fs::write(at.join("bottom"), b"here\n")?;
    let many = dir.join("many");
    fs::create_dir(&many)?;
    for n in 0..300 {
        fs::write(many.join(format!("entry-{n}")), n.to_string())?;
    }
    Ok(())
}
