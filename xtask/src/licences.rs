//! Whether everything that is built in may be given on under MIT OR Apache-2.0, and the crates that are built
//! in twice.

use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;
use tidegate_testing::workspace;

/// Licences that ask for no more than their text to be kept.
const TAKEN: &[&str] = &[
    "0BSD",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "ISC",
    "MIT",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
];

/// Checks every dependency's licence, and prints which packages there are in several versions.
///
/// # Errors
/// A licence that is not taken, with its package; cargo cannot say what the dependencies are.
pub fn check() -> Result<()> {
    let out = Command::new(workspace::cargo())
        .args(["metadata", "--format-version", "1", "--locked"])
        .current_dir(workspace::root())
        .output()
        .context("running cargo metadata")?;
    if !out.status.success() {
        bail!("cargo metadata: {}", String::from_utf8_lossy(&out.stderr));
    }
    let metadata: Value = serde_json::from_slice(&out.stdout).context("what cargo metadata says")?;
    let packages = metadata["packages"].as_array().context("cargo metadata names no packages")?;
    let mut versions: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    let mut refused = Vec::new();
    for p in packages {
        let text = |key: &str| p[key].as_str().unwrap_or_default();
        versions.entry(text("name")).or_default().insert(text("version"));
        if !is_taken(text("license")) {
            refused.push(format!("{} {}: \"{}\"", text("name"), text("version"), text("license")));
        }
    }
    for (name, versions) in versions.iter().filter(|(_, v)| v.len() > 1) {
        println!("{name} is built in {} versions: {versions:?}", versions.len());
    }
    match refused.is_empty() {
        true => Ok(()),
        false => bail!("licences that are not in {TAKEN:?}: {}", refused.join("; ")),
    }
}

/// Whether an SPDX expression leaves a choice that is taken. A slash is an old way to write OR.
fn is_taken(expression: &str) -> bool {
    let expression = expression.replace('/', " OR ");
    let expression = expression.trim();
    if let Some(parts) = apart(expression, " OR ") {
        return parts.into_iter().any(is_taken);
    }
    if let Some(parts) = apart(expression, " AND ") {
        return parts.into_iter().all(is_taken);
    }
    match expression.strip_prefix('(').and_then(|e| e.strip_suffix(')')) {
        Some(inner) => is_taken(inner),
        None => TAKEN.contains(&expression),
    }
}

/// The operands of a word outside of all parentheses, if it is there.
fn apart<'a>(expression: &'a str, word: &str) -> Option<Vec<&'a str>> {
    let (mut parts, mut depth, mut from) = (Vec::new(), 0, 0);
    for (at, c) in expression.char_indices() {
        depth += i32::from(c == '(') - i32::from(c == ')');
        if depth == 0 && at >= from && expression[at..].starts_with(word) {
            parts.push(&expression[from..at]);
            from = at + word.len();
        }
    }
    parts.push(&expression[from..]);
    (parts.len() > 1).then_some(parts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_licence_is_taken_where_one_choice_is() {
        for yes in [
            "MIT",
            "MIT/Apache-2.0",
            "GPL-2.0 OR MIT",
            "(MIT OR Apache-2.0) AND Unicode-3.0",
            "Apache-2.0 WITH LLVM-exception OR GPL-3.0",
        ] {
            assert!(is_taken(yes), "{yes}");
        }
        for no in ["", "GPL-2.0", "MIT AND GPL-2.0", "(MIT OR GPL-2.0) AND LGPL-2.1", "MIT WITH something"] {
            assert!(!is_taken(no), "{no}");
        }
    }
}
