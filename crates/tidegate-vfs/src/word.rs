//! Words: options without a value that are read once, when a volume is opened. Each is declared once.
//!
//! Options that can be changed while a volume is in use are [`switch`](crate::switch)es.

use crate::error::{Error, ErrorKind, Result};

/// The word with which a volume of any format opens as it is.
pub const NORECOVERY: &str = "norecovery";
/// Its effect.
pub const NORECOVERY_HELP: &str = "recover nothing, and open read-only";

/// A word of options of type `T`.
pub struct Word<T: 'static> {
    /// Its spelling.
    pub name: &'static str,
    /// Its effect, for `-o help`. Empty for a second spelling, and for a word that the mount declares itself.
    pub help: &'static str,
    /// Sets the option.
    pub set: fn(&mut T),
}

/// Applies the word `option`. False if it is none of `words`.
///
/// # Errors
/// `InvalidArgument` when `option` has a value.
pub fn set_word<T>(words: &[Word<T>], to: &mut T, option: &str) -> Result<bool> {
    let name = option.split('=').next().unwrap_or(option);
    let Some(word) = words.iter().find(|w| w.name == name) else { return Ok(false) };
    if option.contains('=') {
        let what = format!("option \"{option}\": {name} takes no value");
        return Err(Error::new(ErrorKind::InvalidArgument, what));
    }
    (word.set)(to);
    Ok(true)
}

/// The words that help shows, with their effects.
pub fn shown<T>(words: &[Word<T>]) -> impl Iterator<Item = (&'static str, &'static str)> {
    words.iter().filter(|w| !w.help.is_empty()).map(|w| (w.name, w.help))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_has_no_value() {
        let words: &[Word<u32>] = &[Word { name: "one", help: "", set: |n| *n = 1 }];
        let mut n = 0;
        assert!(!set_word(words, &mut n, "two").unwrap());
        assert_eq!(set_word(words, &mut n, "one=1").unwrap_err().kind(), ErrorKind::InvalidArgument);
        assert_eq!(n, 0);
        assert!(set_word(words, &mut n, "one").unwrap());
        assert_eq!(n, 1);
    }
}
