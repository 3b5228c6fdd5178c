//! Checks the dependencies that are built in: whether their licences permit distribution under MIT OR
//! Apache-2.0, whether they come from permitted sources, and whether each is built in once. cargo-deny does
//! this where it is installed, else this code does it with the same `deny.toml`. Only cargo-deny checks
//! advisories.

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::process::{Command, Stdio};
use tidegate_testing::workspace;

/// The parts of `deny.toml` that are checked here.
#[derive(Deserialize)]
struct Deny {
    licenses: Licenses,
    bans: Bans,
}

#[derive(Deserialize)]
struct Licenses {
    allow: Vec<String>,
}

#[derive(Deserialize)]
struct Bans {
    skip: Vec<Skip>,
}

/// A version that is permitted beside another.
#[derive(Deserialize)]
struct Skip {
    #[serde(rename = "crate")]
    package: String,
}

const REGISTRY: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// Checks every dependency.
///
/// # Errors
/// Packages that `deny.toml` does not permit; cargo cannot list the dependencies.
pub fn check() -> Result<()> {
    let deny = |args: &[&str]| {
        let mut command = Command::new(workspace::cargo());
        command.arg("deny").args(args).current_dir(workspace::root());
        command
    };
    let asked = deny(&["--version"]).stdout(Stdio::null()).stderr(Stdio::null()).status();
    if asked.is_ok_and(|status| status.success()) {
        let status = deny(&["check"]).status().context("running cargo deny")?;
        ensure!(status.success(), "cargo deny check: {status}");
        return Ok(());
    }
    println!("cargo-deny is not installed: advisories are not looked at");
    check_here()
}

/// The part of the check that needs neither cargo-deny nor the network.
fn check_here() -> Result<()> {
    let out = Command::new(workspace::cargo())
        .args(["metadata", "--format-version", "1", "--locked"])
        .current_dir(workspace::root())
        .output()
        .context("running cargo metadata")?;
    if !out.status.success() {
        bail!("cargo metadata: {}", String::from_utf8_lossy(&out.stderr));
    }
    let metadata: Value = serde_json::from_slice(&out.stdout).context("what cargo metadata says")?;
    let rules = std::fs::read_to_string(workspace::root().join("deny.toml")).context("deny.toml")?;
    let wrong = wrong(&metadata, &toml::from_str(&rules).context("deny.toml")?)?;
    ensure!(wrong.is_empty(), "deny.toml does not let in: {}", wrong.join("; "));
    Ok(())
}

/// The packages that the rules do not permit, and the rules that no package needs.
fn wrong(metadata: &Value, deny: &Deny) -> Result<Vec<String>> {
    let packages = metadata["packages"].as_array().context("cargo metadata names no packages")?;
    let mut versions: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    let mut wrong = Vec::new();
    for p in packages {
        let text = |key: &str| p[key].as_str().unwrap_or_default();
        let package = format!("{}@{}", text("name"), text("version"));
        if !is_taken(text("license"), &deny.licenses.allow) {
            wrong.push(format!("{package}: licence \"{}\"", text("license")));
        }
        if !p["source"].is_null() && text("source") != REGISTRY {
            wrong.push(format!("{package}: from {}", text("source")));
        }
        versions.entry(text("name")).or_default().insert(package);
    }
    let is_skipped = |package: &&String| deny.bans.skip.iter().any(|s| s.package == **package);
    for several in versions.values() {
        let kept: Vec<_> = several.iter().filter(|p| !is_skipped(p)).collect();
        if kept.len() > 1 {
            wrong.push(format!("several versions: {kept:?}"));
        }
    }
    let several = |package: &str| versions.values().any(|v| v.len() > 1 && v.contains(package));
    let unneeded = deny.bans.skip.iter().filter(|s| !several(&s.package));
    wrong.extend(unneeded.map(|s| format!("skipped in vain: {}", s.package)));
    Ok(wrong)
}

/// Whether an SPDX expression leaves a choice that is permitted. A slash is an old form of OR.
fn is_taken(expression: &str, allow: &[String]) -> bool {
    let expression = expression.replace('/', " OR ");
    let expression = expression.trim();
    if let Some(parts) = apart(expression, " OR ") {
        return parts.into_iter().any(|p| is_taken(p, allow));
    }
    if let Some(parts) = apart(expression, " AND ") {
        return parts.into_iter().all(|p| is_taken(p, allow));
    }
    match expression.strip_prefix('(').and_then(|e| e.strip_suffix(')')) {
        Some(inner) => is_taken(inner, allow),
        None => allow.iter().any(|a| a == expression),
    }
}

/// The operands of a word outside of all parentheses, if the word occurs there.
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

    fn allow() -> Vec<String> {
        ["MIT", "Apache-2.0", "Apache-2.0 WITH LLVM-exception", "Unicode-3.0"].map(String::from).into()
    }

    #[test]
    fn a_licence_is_taken_where_one_choice_is() {
        for yes in [
            "MIT",
            "MIT/Apache-2.0",
            "GPL-2.0 OR MIT",
            "(MIT OR Apache-2.0) AND Unicode-3.0",
            "Apache-2.0 WITH LLVM-exception OR GPL-3.0",
        ] {
            assert!(is_taken(yes, &allow()), "{yes}");
        }
        for no in ["", "GPL-2.0", "MIT AND GPL-2.0", "(MIT OR GPL-2.0) AND LGPL-2.1", "MIT WITH something"] {
            assert!(!is_taken(no, &allow()), "{no}");
        }
    }

    #[test]
    fn each_rule_finds_what_is_against_it() {
        let package = |name: &str, version: &str, license: &str, source: &str| serde_json::json!({ "name": name, "version": version, "license": license, "source": source });
        let skip = |package: &str| Skip { package: package.into() };
        let rules = |skip| Deny { licenses: Licenses { allow: allow() }, bans: Bans { skip } };
        let twice = [package("a", "1.0.0", "MIT", REGISTRY), package("a", "2.0.0", "MIT", REGISTRY)];
        let found = |packages: &[Value], skip| {
            wrong(&serde_json::json!({ "packages": packages }), &rules(skip)).unwrap().join("; ")
        };
        assert_eq!(found(&twice, vec![skip("a@1.0.0")]), "");
        assert_eq!(found(&twice, vec![]), "several versions: [\"a@1.0.0\", \"a@2.0.0\"]");
        assert_eq!(found(&twice[..1], vec![skip("a@1.0.0")]), "skipped in vain: a@1.0.0");
        assert_eq!(
            found(&[package("b", "1.0.0", "GPL-2.0", REGISTRY)], vec![]),
            "b@1.0.0: licence \"GPL-2.0\""
        );
        assert_eq!(found(&[package("b", "1.0.0", "MIT", "git+x")], vec![]), "b@1.0.0: from git+x");
    }

    #[test]
    fn what_is_built_in_is_let_in() {
        check_here().unwrap();
    }
}
