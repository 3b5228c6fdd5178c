//! The command line: `-o` in any place, `-o help`, and the command of wrong arguments.

use crate::Cli;
use clap::{Arg, ArgAction, ArgMatches, Command, CommandFactory, FromArgMatches};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

/// The name of `-o` among the arguments.
const OPTIONS: &str = "options";
/// All ways to ask for the options of a mount, except those with `help` as a separate argument.
const ASKS: [&str; 3] = ["-ohelp", "-o=help", "--options=help"];

/// The program's commands, with `-o` for each.
pub fn command() -> Command {
    with_options(Cli::command())
}

/// Adds `-o` to a command and to its subcommands. A global option of clap would keep the values of only one of them:
/// `tidegate -o ro mount … -o noatime` would be writable.
fn with_options(command: Command) -> Command {
    let options =
        Arg::new(OPTIONS).short('o').long("options").value_name("OPTIONS").action(ArgAction::Append);
    let help =
        "Mount options, such as fsync_mode=strict,nocheckpoint_merge; may be repeated; `-o help` lists all";
    command.arg(options.help(help)).mut_subcommands(with_options)
}

/// Reads the command line.
///
/// # Errors
/// Those of clap, including the request for help.
pub fn parse(args: impl Iterator<Item = OsString>) -> Result<Cli, clap::Error> {
    let matches = command().try_get_matches_from(args)?;
    let mut cli = Cli::from_arg_matches(&matches)?;
    cli.global.options = given(&matches);
    Ok(cli)
}

/// The values of `-o`, from front to back.
fn given(matches: &ArgMatches) -> Vec<String> {
    let here = matches.get_many::<String>(OPTIONS).into_iter().flatten().cloned();
    let below = matches.subcommand().map(|(_, below)| given(below));
    here.chain(below.into_iter().flatten()).collect()
}

/// Whether `-o help` asks for the options of a mount. Then no other argument matters.
pub fn ask_for_options(args: &[OsString]) -> bool {
    args.iter().any(|a| ASKS.iter().any(|ask| a == ask))
        || args.windows(2).any(|w| (w[0] == "-o" || w[0] == "--options") && w[1] == "help")
}

/// Whether arguments that clap refuses are those of `command`. The first argument that names a command decides,
/// whatever options come before it.
pub fn are_of(command: &str, args: &[OsString]) -> bool {
    let known = Cli::command();
    let is_command = |a: &&OsString| known.get_subcommands().any(|c| c.get_name().as_bytes() == a.as_bytes());
    args.iter().skip(1).find(is_command).is_some_and(|a| a.as_os_str() == OsStr::new(command))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(line: &str) -> String {
        parse(line.split_whitespace().map(OsString::from)).unwrap_or_else(|e| panic!("{e}")).global.options()
    }

    #[test]
    fn options_are_gathered_from_everywhere() {
        assert_eq!(options("tidegate -o ro mount a.img mnt -o noatime"), "ro,noatime");
        assert_eq!(options("tidegate -qo a,b -o=c ls --options d x.img -oe"), "a,b,c,d,e");
        assert_eq!(options("tidegate -o a lab -o b list -o c"), "a,b,c");
        assert_eq!(options("tidegate ls x.img"), "");
    }

    #[test]
    fn the_command_of_wrong_arguments_is_known() {
        let of =
            |line: &str| are_of("check", &line.split_whitespace().map(OsString::from).collect::<Vec<_>>());
        assert!(of("tidegate check") && of("tidegate -q --bogus check x") && of("tidegate -o ro check --x"));
        assert!(!of("tidegate ls check") && !of("tidegate --bogus") && !of("tidegate"));
    }
}
