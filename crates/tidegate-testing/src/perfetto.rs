//! Perfetto's own trace processor: it returns what Perfetto's page would show of a trace.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::oracle;
use crate::temp::TempDir;

const SCRIPT: &str = include_str!("perfetto.mjs");

/// The rows that each of the SQL queries finds in a trace.
///
/// # Errors
/// The oracles `node` or `perfetto` are missing, the trace can't be loaded, or a query is wrong.
pub fn query(trace: &Path, queries: &[&str]) -> Result<Vec<Vec<Vec<Value>>>> {
    let bundle = oracle::require("perfetto")?;
    let scratch = TempDir::new("perfetto")?;
    let script = scratch.path().join("perfetto.mjs");
    std::fs::write(&script, SCRIPT)?;
    let mut node = Command::new(oracle::require("node")?);
    node.arg(&script).arg(bundle.parent().unwrap_or(Path::new("/"))).arg(trace).args(queries);
    let out = node.output().context("running node")?;
    ensure!(out.status.success(), "{}: {}", trace.display(), String::from_utf8_lossy(&out.stderr));
    let text = String::from_utf8(out.stdout)?;
    let rows = text.lines().map(|line| Ok(serde_json::from_str(line)?)).collect::<Result<Vec<_>>>()?;
    ensure!(rows.len() == queries.len(), "{} answers to {} queries: {text}", rows.len(), queries.len());
    Ok(rows)
}
