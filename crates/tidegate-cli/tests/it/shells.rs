//! Completions and manual pages: a shell and man(1) take them, and every command is in them.

use crate::common::{Bench, has};
use std::fs;
use std::process::{Command, Stdio};

/// The commands that `--help` lists.
pub fn commands(b: &Bench) -> Vec<String> {
    let help = b.ok(&["--help"]);
    let list = help.split("Commands:\n").nth(1).unwrap().split("\n\n").next().unwrap();
    let named = list.lines().filter(|l| l.starts_with("  ") && !l.starts_with("   "));
    named.filter_map(|l| l.split_whitespace().next()).map(str::to_string).collect()
}

#[test]
fn a_shell_completes_commands_and_options() {
    let b = Bench::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let text = b.ok(&["completions", shell]);
        fs::write(b.path(shell), &text).unwrap();
        for command in commands(&b) {
            assert!(text.contains(&command), "{shell}: {command}");
        }
        assert!(!text.contains("guest"), "{shell}");
    }
    if !has("bash") {
        println!("SKIPPED: bash is missing");
        return;
    }
    let completed = |words: &str, at: usize| {
        let script = format!(
            ". ./bash; COMP_WORDS=({words}); COMP_CWORD={at}; \
             _tidegate tidegate \"${{COMP_WORDS[{at}]}}\" \"\"; echo \"${{COMPREPLY[@]}}\""
        );
        let mut bash = Command::new("bash");
        let out = bash.args(["-c", &script]).current_dir(b.dir.path()).stdin(Stdio::null()).output().unwrap();
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        String::from_utf8(out.stdout).unwrap().trim().to_string()
    };
    assert_eq!(completed("tidegate mkf", 1), "mkfs");
    assert_eq!(completed("tidegate mkfs --all", 2), "--all-root");
    assert_eq!(completed("tidegate lab comp", 2), "compare");
}

#[test]
fn each_command_has_a_page() {
    let b = Bench::new();
    b.ok(&["man", "man1"]);
    for command in commands(&b).into_iter().filter(|c| c != "help") {
        let page = fs::read_to_string(b.path(&format!("man1/tidegate-{command}.1"))).unwrap();
        assert!(page.contains(".SH SYNOPSIS") && page.contains(".SH OPTIONS"), "{page}");
    }
    let names: Vec<String> = fs::read_dir(b.path("man1"))
        .unwrap()
        .map(|e| e.unwrap().file_name().into_string().unwrap())
        .collect();
    assert!(
        names.contains(&"tidegate.1".into()) && names.contains(&"tidegate-lab-run.1".into()),
        "{names:?}"
    );
    assert!(!names.iter().any(|n| n.contains("guest")), "{names:?}");
    if !has("groff") {
        println!("SKIPPED: groff is missing");
        return;
    }
    for name in names {
        let page = b.path(&format!("man1/{name}"));
        let out = Command::new("groff")
            .args(["-man", "-ww", "-z"])
            .arg(page)
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        assert!(out.status.success() && said.is_empty(), "{name}: {said}");
    }
}
