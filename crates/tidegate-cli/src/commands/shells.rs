//! `tidegate completions` and `tidegate man`: the files that a package installs beside the program.

use crate::global::Global;
use crate::out::Out;
use clap::Command;
use std::path::{Path, PathBuf};
use tidegate::error::path_bytes;
use tidegate::{Error, Result};

/// Arguments of `completions`.
#[derive(clap::Args)]
pub struct Completions {
    /// The shell: bash, elvish, fish, powershell, zsh
    shell: clap_complete::Shell,
}

/// Arguments of `man`.
#[derive(clap::Args)]
pub struct Man {
    /// Where to write them
    #[arg(value_name = "DIR")]
    directory: PathBuf,
}

/// Prints a shell's completions.
///
/// # Errors
/// JSON was asked for; those of printing.
pub fn completions(args: &Completions, global: &Global) -> Result<()> {
    global.refuse_json("completions are a script for a shell")?;
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut shown(), "tidegate", &mut text);
    let mut out = Out::new();
    out.bytes(&text)?;
    out.finish()
}

/// Writes a page for the program and one for each of its commands.
///
/// # Errors
/// JSON was asked for; those of writing the pages.
pub fn man(args: &Man, global: &Global) -> Result<()> {
    global.refuse_json("it writes pages for man(1), and prints nothing")?;
    let about = |e| Error::os(path_bytes(&args.directory), e);
    std::fs::create_dir_all(&args.directory).map_err(about)?;
    pages(shown(), &args.directory).map_err(about)
}

fn pages(mut command: Command, directory: &Path) -> std::io::Result<()> {
    // Names and usages of subcommands are known once the command is built.
    command.build();
    clap_mangen::generate_to(command, directory)
}

/// The command line without the commands that only guests of the lab use.
fn shown() -> Command {
    let whole = crate::arguments::command();
    let subcommands: Vec<Command> = whole.get_subcommands().filter(|c| !c.is_hide_set()).cloned().collect();
    let mut shown = Command::new("tidegate").version(env!("CARGO_PKG_VERSION"));
    if let Some(about) = whole.get_about() {
        shown = shown.about(about.clone());
    }
    shown.args(whole.get_arguments().cloned()).subcommands(subcommands)
}
