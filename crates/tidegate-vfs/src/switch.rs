//! Switches: options with a value that can be changed while a volume is in use. Each is declared once.
//!
//! A kind of value is a [`SwitchValue`]: an enum made by [`positions!`](crate::positions), a flag (`bool`,
//! spelled `name` or `noname`), or a number. [`switches!`](crate::switches) declares a set of switches. This
//! one declaration yields the struct of options, its defaults, their parsing, the text of `-o help`
//! ([`SwitchInfo`]), and the set of atomics that an open volume reads.

use crate::error::{Error, ErrorKind, Result};
use std::fmt;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

/// A kind of value that a switch can have.
pub trait SwitchValue: Copy {
    /// Whether an option has no value, and is spelled `name` or `noname`.
    const IS_FLAG: bool = false;

    /// The value that is spelled `text`, if there is one.
    fn parse(text: &str) -> Option<Self>;

    /// The spelling of the value behind `name=`.
    fn spelled(self) -> String;

    /// Every value, where the values can be listed; else none.
    fn all() -> Vec<Self> {
        Vec::new()
    }

    /// The values that are allowed, as the end of a sentence.
    fn expected() -> String {
        let all: Vec<String> = Self::all().into_iter().map(Self::spelled).collect();
        format!("one of {}", all.join(", "))
    }

    /// The value as an atomic keeps it.
    fn to_bits(self) -> u64;

    /// The value kept as `bits`, which [`SwitchValue::to_bits`] made.
    fn from_bits(bits: u64) -> Self;
}

impl SwitchValue for bool {
    const IS_FLAG: bool = true;

    fn parse(text: &str) -> Option<Self> {
        match text {
            "on" => Some(true),
            "off" => Some(false),
            _ => None,
        }
    }

    fn spelled(self) -> String {
        if self { "on" } else { "off" }.into()
    }

    fn all() -> Vec<Self> {
        vec![true, false]
    }

    fn to_bits(self) -> u64 {
        u64::from(self)
    }

    fn from_bits(bits: u64) -> Self {
        bits != 0
    }
}

impl SwitchValue for u64 {
    fn parse(text: &str) -> Option<Self> {
        text.parse().ok()
    }

    fn spelled(self) -> String {
        self.to_string()
    }

    fn expected() -> String {
        "a number".into()
    }

    fn to_bits(self) -> u64 {
        self
    }

    fn from_bits(bits: u64) -> Self {
        bits
    }
}

/// A switch of an open volume. Any thread may change it at any time.
pub struct Switch<T> {
    bits: AtomicU64,
    of: PhantomData<T>,
}

impl<T: SwitchValue> Switch<T> {
    /// A switch with the value `value`.
    pub fn new(value: T) -> Self {
        Switch { bits: AtomicU64::new(value.to_bits()), of: PhantomData }
    }

    /// The value.
    pub fn get(&self) -> T {
        T::from_bits(self.bits.load(SeqCst))
    }

    /// Sets the value. A thread that reads the switch afterwards sees it. A thread that read it before goes
    /// on with the old value.
    pub fn set(&self, value: T) {
        self.bits.store(value.to_bits(), SeqCst);
    }
}

impl<T: SwitchValue + Default> Default for Switch<T> {
    fn default() -> Self {
        Switch::new(T::default())
    }
}

/// A switch as help shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SwitchInfo {
    /// The option's name.
    pub name: &'static str,
    /// Whether it is spelled `name` or `noname`, without a value.
    pub is_flag: bool,
    /// The spelling of its values, where they can be listed.
    pub values: Vec<String>,
    /// The spelling of its default value.
    pub default: String,
    /// The switch's effect.
    pub help: String,
}

impl SwitchInfo {
    /// The description of the switch `name` with the default value `default`.
    pub fn new<T: SwitchValue>(name: &'static str, default: T, help: &str) -> Self {
        SwitchInfo {
            name,
            is_flag: T::IS_FLAG,
            values: T::all().into_iter().map(T::spelled).collect(),
            default: default.spelled(),
            help: help.trim().to_string(),
        }
    }

    /// The option that sets the switch to the value spelled `value`.
    pub fn option(&self, value: &str) -> String {
        match (self.is_flag, value) {
            (true, "off") => format!("no{}", self.name),
            (true, _) => self.name.into(),
            _ => format!("{}={value}", self.name),
        }
    }
}

/// The form in `-o help`: `[no]discard`, `mode=adaptive|lfs`, `min_seq_blocks=512`.
impl fmt::Display for SwitchInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.name;
        match () {
            () if self.is_flag => write!(f, "[no]{name}"),
            () if self.values.is_empty() => write!(f, "{name}={}", self.default),
            () => write!(f, "{name}={}", self.values.join("|")),
        }
    }
}

/// The value that `option` gives the switch `name`. `None` if `option` is about something else.
///
/// # Errors
/// `InvalidArgument`: a missing value, a value where none is allowed, or a wrong value. The sentence names
/// the values that are allowed.
pub fn read<T: SwitchValue>(name: &str, option: &str) -> Result<Option<T>> {
    let (said, value) = match option.split_once('=') {
        Some((said, value)) => (said, Some(value)),
        None => (option, None),
    };
    let off = T::IS_FLAG && said.strip_prefix("no") == Some(name);
    if said != name && !off {
        return Ok(None);
    }
    match (T::IS_FLAG, value) {
        (true, Some(_)) => Err(invalid(format!("option \"{option}\": {said} takes no value"))),
        (true, None) => Ok(T::parse(if off { "off" } else { "on" })),
        (false, None) => Err(invalid(format!("option \"{option}\": it needs a value, as in {name}=..."))),
        (false, Some(value)) => match T::parse(value) {
            Some(value) => Ok(Some(value)),
            None => Err(invalid(format!("option \"{option}\": it must be {}", T::expected()))),
        },
    }
}

fn invalid(what: String) -> Error {
    Error::new(ErrorKind::InvalidArgument, what)
}

/// Declares the positions of a switch: an enum, and the spelling of each position in options.
#[macro_export]
macro_rules! positions {
    ($(#[$m:meta])* $vis:vis enum $name:ident { $($(#[$v:meta])* $pos:ident = $word:literal,)+ }) => {
        $(#[$m])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        $vis enum $name { $($(#[$v])* $pos,)+ }

        impl $name {
            /// Every position.
            pub const ALL: &[$name] = &[$($name::$pos,)+];

            /// The spelling in options.
            pub fn word(self) -> &'static str {
                match self { $($name::$pos => $word,)+ }
            }
        }

        impl $crate::switch::SwitchValue for $name {
            fn parse(text: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|p| p.word() == text)
            }
            fn spelled(self) -> String {
                self.word().into()
            }
            fn all() -> Vec<Self> {
                Self::ALL.to_vec()
            }
            fn to_bits(self) -> u64 {
                Self::ALL.iter().position(|p| *p == self).map_or(0, |n| n as u64)
            }
            fn from_bits(bits: u64) -> Self {
                Self::ALL.get(bits as usize).copied().unwrap_or_default()
            }
        }
    };
}

/// Declares switches: a struct of options, which may include fixed options that are read only when a volume is opened,
/// and the set of [`Switch`]es of an open volume. The text above a switch is its help. Where the set is kept elsewhere,
/// `switches` stands in place of the second struct.
///
/// ```
/// tidegate_vfs::switches! {
///     /// How to open.
///     pub struct Options {
///         /// Change nothing.
///         pub read_only: bool = false,
///     }
///     /// What can be turned.
///     pub struct Switches {
///         /// Free space is discarded.
///         discard: bool = true,
///     }
/// }
/// let mut options = Options::default();
/// assert!(options.set_switch("nodiscard")? && !options.discard);
/// assert!(!options.set_switch("ro")?);
/// let open = Switches::new(&options);
/// assert!(!open.discard());
/// assert_eq!(Options::switches()[0].to_string(), "[no]discard");
/// # Ok::<(), tidegate_vfs::Error>(())
/// ```
#[macro_export]
macro_rules! switches {
    (
        $(#[$om:meta])* $ov:vis struct $Options:ident {
            $($(#[$fm:meta])* $fv:vis $fixed:ident: $fty:ty = $fdef:expr,)*
        }
        switches {
            $($(#[doc = $help:literal])+ $name:ident: $ty:ty = $default:expr,)+
        }
    ) => {
        $(#[$om])*
        #[derive(Clone, Debug)]
        $ov struct $Options {
            $($(#[$fm])* $fv $fixed: $fty,)*
            $($(#[doc = $help])+ pub $name: $ty,)+
        }

        impl Default for $Options {
            fn default() -> Self {
                $Options { $($fixed: $fdef,)* $($name: $default,)+ }
            }
        }

        impl $Options {
            /// The description of each switch.
            pub fn switches() -> Vec<$crate::switch::SwitchInfo> {
                vec![$($crate::switch::SwitchInfo::new::<$ty>(stringify!($name), $default, concat!($($help),+)),)+]
            }

            /// Applies an option such as `name=value`, `name` or `noname` if it is about a switch. Returns whether it
            /// is.
            ///
            /// # Errors
            /// `InvalidArgument` when the value is wrong. Nothing is changed then.
            pub fn set_switch(&mut self, option: &str) -> $crate::Result<bool> {
                $(if let Some(value) = $crate::switch::read::<$ty>(stringify!($name), option)? {
                    self.$name = value;
                    return Ok(true);
                })+
                Ok(false)
            }
        }
    };
    (
        $(#[$om:meta])* $ov:vis struct $Options:ident {
            $($(#[$fm:meta])* $fv:vis $fixed:ident: $fty:ty = $fdef:expr,)*
        }
        $(#[$sm:meta])* $sv:vis struct $Switches:ident {
            $($(#[doc = $help:literal])+ $name:ident: $ty:ty = $default:expr,)+
        }
    ) => {
        $crate::switches! {
            $(#[$om])* $ov struct $Options {
                $($(#[$fm])* $fv $fixed: $fty = $fdef,)*
            }
            switches {
                $($(#[doc = $help])+ $name: $ty = $default,)+
            }
        }

        $(#[$sm])*
        $sv struct $Switches { $($name: $crate::switch::Switch<$ty>,)+ }

        impl $Switches {
            /// Switches with the values in `options`.
            $sv fn new(options: &$Options) -> Self {
                $Switches { $($name: $crate::switch::Switch::new(options.$name),)+ }
            }

            /// Sets all switches to the values in `options`.
            #[allow(dead_code)]
            $sv fn turn(&self, options: &$Options) {
                $(self.$name.set(options.$name);)+
            }

            /// Puts the values of the switches into `options`.
            #[allow(dead_code)]
            $sv fn read_into(&self, options: &mut $Options) {
                $(options.$name = self.$name.get();)+
            }

            $($(#[doc = $help])+ $sv fn $name(&self) -> $ty {
                self.$name.get()
            })+
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SyncWait;

    #[test]
    fn an_option_is_read_as_its_value_is_spelled() {
        assert_eq!(read("a", "a=7").unwrap(), Some(7_u64));
        assert_eq!(read::<u64>("a", "ab=7").unwrap(), None);
        assert_eq!(read("a", "noa").unwrap(), Some(false));
        assert_eq!(read::<u64>("a", "noa").unwrap(), None);
        for value in SyncWait::ALL {
            assert_eq!(read("w", &format!("w={}", value.word())).unwrap(), Some(*value));
            assert_eq!(SyncWait::from_bits(value.to_bits()), *value);
        }
        let e = |r: Result<Option<u64>>| r.unwrap_err().to_string();
        assert!(e(read("a", "a=x")).contains("\"a=x\": it must be a number"));
        assert!(e(read("a", "a")).contains("\"a\": it needs a value, as in a=..."));
        let e = read::<bool>("a", "noa=1").unwrap_err().to_string();
        assert!(e.contains("\"noa=1\": noa takes no value"), "{e}");
    }

    #[test]
    fn each_value_has_an_option() {
        let info = SwitchInfo::new("sync_wait", SyncWait::Caller, " Waits. ");
        assert_eq!(
            (info.to_string().as_str(), info.help.as_str()),
            ("sync_wait=flusher|caller|epoch", "Waits.")
        );
        for value in &info.values {
            assert!(read::<SyncWait>("sync_wait", &info.option(value)).unwrap().is_some());
        }
        let flag = SwitchInfo::new("discard", true, "");
        assert_eq!((flag.option("off"), flag.option("on")), ("nodiscard".into(), "discard".into()));
    }
}
