//! Makes the table of functions that take locks. Call points get their names from it: at run time the compiler only
//! tells a place in the source, and with the table no binary has to keep its symbols.

#[path = "build/functions.rs"]
mod functions;

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

/// Crates whose locks are of interest. A crate that is not beside this one, as in a package from a registry,
/// adds no functions.
const CRATES: [&str; 6] =
    ["tidegate", "tidegate-block", "tidegate-f2fs", "tidegate-fuse", "tidegate-rt", "tidegate-vfs"];
/// A line that takes a lock, or sleeps on a condition, has one of these texts.
const TAKES: [&str; 5] = [".lock", ".read", ".write", ".try_", ".wait"];

fn sources(dir: &Path, found: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        if path.is_dir() {
            sources(&path, found)?;
        } else if path.extension().is_some_and(|e| e == "rs") {
            found.push(path);
        }
    }
    Ok(())
}

fn main() -> io::Result<()> {
    let beside = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default()).join("..");
    let mut files = Vec::new();
    for name in CRATES {
        let dir = beside.join(name).join("src");
        println!("cargo::rerun-if-changed={}", dir.display());
        if dir.is_dir() {
            sources(&dir, &mut files)?;
        }
    }
    println!("cargo::rerun-if-changed=build");
    let mut tables = Vec::new();
    for path in files {
        let text = fs::read_to_string(&path)?;
        let found = functions::functions(&text, |line| TAKES.iter().any(|t| line.contains(t)));
        let name = path.strip_prefix(&beside).unwrap_or(&path).to_string_lossy().into_owned();
        if !found.is_empty() {
            tables.push((name, found));
        }
    }
    tables.sort_by(|a, b| a.0.cmp(&b.0));
    let mut out = String::from("&[\n");
    for (file, functions) in tables {
        let _ = writeln!(out, "    ({file:?}, &[");
        for f in functions {
            let _ = writeln!(out, "        ({}, {}, {:?}),", f.lines.0, f.lines.1, f.name);
        }
        out.push_str("    ]),\n");
    }
    out.push(']');
    fs::write(PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default()).join("functions.in"), out)
}
