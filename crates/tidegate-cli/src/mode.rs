//! Changes of permission bits as chmod(1) reads them: `755`, `u=rw,go-w`, `a+X`.

const ALL: u32 = 0o7777;
/// The set-user-id and set-group-id bits.
const SET_ID: u32 = 0o6000;

/// A change of permission bits.
#[derive(Clone, Debug)]
pub struct ModeChange(Vec<Step>);

#[derive(Clone, Debug)]
struct Step {
    /// The bits that it may change. `None` where no class of users is named: all, and those of the umask are not given.
    who: Option<u32>,
    op: u8,
    bits: Bits,
    /// The set-id bits that are named. A directory keeps others.
    named: u32,
}

#[derive(Clone, Debug)]
enum Bits {
    /// These, and with true those to execute if the file is a directory or somebody may execute it.
    Given(u32, bool),
    /// Those of a class of users, for all classes: how far its bits lie from the right.
    Of(u32),
}

impl ModeChange {
    /// Reads a change.
    ///
    /// # Errors
    /// A description of the expected value.
    pub fn parse(text: &str) -> Result<ModeChange, String> {
        let bad = || format!("{text}: not permission bits such as 755, u+x or g=rX,o=");
        if text.starts_with(|c: char| c.is_ascii_digit()) {
            let step = octal(text.as_bytes(), None).ok_or_else(bad)?;
            return Ok(ModeChange(vec![step]));
        }
        let mut steps = Vec::new();
        for clause in text.split(',') {
            let at = clause.find(['+', '-', '=']).ok_or_else(bad)?;
            let (classes, mut rest) = (&clause[..at], &clause.as_bytes()[at..]);
            let who = classes.bytes().try_fold(0, |who, c| Some(who | class(c)?)).ok_or_else(bad)?;
            let who = (!classes.is_empty()).then_some(who);
            while let [op, more @ ..] = rest {
                let end = more.iter().position(|c| b"+-=".contains(c)).unwrap_or(more.len());
                steps.push(step(who, *op, &more[..end]).ok_or_else(bad)?);
                rest = &more[end..];
            }
        }
        Ok(ModeChange(steps))
    }

    /// The permission bits that a file gets in place of `mode`.
    pub fn of(&self, mode: u32, is_dir: bool, umask: u32) -> u32 {
        self.0.iter().fold(mode & ALL, |mode, step| step.of(mode, is_dir, umask))
    }
}

impl Step {
    fn of(&self, mode: u32, is_dir: bool, umask: u32) -> u32 {
        let value = match self.bits {
            Bits::Given(bits, if_any) if if_any && (is_dir || mode & 0o111 != 0) => bits | 0o111,
            Bits::Given(bits, _) => bits,
            Bits::Of(shift) => (mode >> shift & 7) * 0o111,
        };
        let kept = if is_dir { SET_ID & !self.named } else { 0 };
        let value = value & self.who.unwrap_or(ALL & !umask) & !kept;
        match self.op {
            b'+' => mode | value,
            b'-' => mode & !value,
            _ => mode & (!self.who.unwrap_or(ALL) | kept) | value,
        }
    }
}

/// The bits that belong to a class of users.
fn class(c: u8) -> Option<u32> {
    Some(match c {
        b'u' => 0o4700,
        b'g' => 0o2070,
        b'o' => 0o1007,
        b'a' => ALL,
        _ => return None,
    })
}

/// Reads what is behind `+`, `-` or `=`.
fn step(who: Option<u32>, op: u8, text: &[u8]) -> Option<Step> {
    let copy = |shift| Some(Step { who, op, bits: Bits::Of(shift), named: 0 });
    match text {
        [c, ..] if c.is_ascii_digit() => return if who.is_none() { octal(text, Some(op)) } else { None },
        b"u" => return copy(6),
        b"g" => return copy(3),
        b"o" => return copy(0),
        _ => {}
    }
    let (mut bits, mut if_any) = (0, false);
    for c in text {
        bits |= match c {
            b'r' => 0o444,
            b'w' => 0o222,
            b'x' => 0o111,
            b's' => SET_ID,
            b't' => 0o1000,
            b'X' => {
                if_any = true;
                0
            }
            _ => return None,
        };
    }
    Some(Step { who, op, bits: Bits::Given(bits, if_any), named: bits & who.unwrap_or(ALL) & SET_ID })
}

/// Reads octal digits. Five or more, or digits behind an operator, name the set-id bits also where they are 0.
fn octal(digits: &[u8], op: Option<u8>) -> Option<Step> {
    let bits = u32::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok().filter(|m| *m <= ALL)?;
    let named = if op.is_some() || digits.len() > 4 { SET_ID } else { bits & SET_ID };
    Some(Step { who: Some(ALL), op: op.unwrap_or(b'='), bits: Bits::Given(bits, false), named })
}

/// The umask of the process; one that leaves all to the owner, where it is not known.
pub fn umask() -> u32 {
    tidegate::export::umask().unwrap_or(0o077)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;
    use std::process::Command;

    /// Each change is done by chmod(1), too, to a file and to a directory.
    #[test]
    fn changes_are_those_of_chmod() {
        let dir = tempfile::tempdir().unwrap();
        let (file, sub) = (dir.path().join("f"), dir.path().join("d"));
        std::fs::write(&file, "").unwrap();
        std::fs::create_dir(&sub).unwrap();
        let changes = [
            "755",
            "0644",
            "7777",
            "0",
            "00755",
            "2750",
            "000",
            "u+x",
            "+x",
            "-w",
            "=r",
            "a=rwx",
            "u=rw,go=r",
            "go-rwx",
            "u+s",
            "g+s",
            "+s",
            "-s",
            "u=s",
            "ug=rws",
            "+t",
            "o+t",
            "u+t",
            "a-t",
            "a+X",
            "u=X",
            "-x+X",
            "g=u",
            "o=g,g=",
            "u=o",
            "a=u",
            "o+u-g",
            "u+rwx-x,g-w+s",
            "=",
            "u=",
            "+",
            "=755",
            "+111",
            "-022",
            "u=rwX,go=rX",
            "ugo+rst",
        ];
        for change in changes {
            let ours = ModeChange::parse(change).unwrap();
            for (path, is_dir) in [(&file, false), (&sub, true)] {
                for (mode, umask) in
                    [(0o644, 0o022), (0o7777, 0o077), (0, 0), (0o6711, 0o027), (0o1752, 0o002)]
                {
                    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
                    // A warning about bits of the umask is an error of the command, and the change is done.
                    let script = format!("umask {umask:o}; chmod -- {change} {}", path.display());
                    let _ = Command::new("sh").args(["-c", &script]).output().unwrap();
                    let theirs = path.metadata().unwrap().permissions().mode() & ALL;
                    let our = ours.of(mode, is_dir, umask);
                    assert!(
                        our == theirs,
                        "{change} of {mode:o}, umask {umask:o}, directory {is_dir}: {our:o}, not {theirs:o}"
                    );
                }
            }
        }
    }

    #[test]
    fn other_texts_are_refused() {
        for text in [
            "", "8", "10000", "rwx", "u", "u+y", "x+r", "u+755", "u+ug", "755,u+x", "u+r,,g+r", "-rwz", "0x7",
        ] {
            assert!(ModeChange::parse(text).is_err(), "{text}");
        }
    }
}
