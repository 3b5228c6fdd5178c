//! Types, as far as the text tells them.

use syn::visit::Visit;
use syn::{Pat, Type};

/// A type without references and smart pointers around it.
#[derive(Clone, Debug)]
pub enum Told {
    /// A type with this name.
    Named(String),
    /// A lock around a type.
    Locked(Box<Told>),
    /// An `Option` or a `Result` of a type.
    Maybe(Box<Told>),
}

impl Told {
    /// The type that `t` names; `of` is the type that `Self` stands for there.
    pub fn of(t: &Type, of: &str) -> Option<Told> {
        match t {
            Type::Reference(r) => Told::of(&r.elem, of),
            Type::Paren(p) => Told::of(&p.elem, of),
            Type::Path(p) => {
                let last = p.path.segments.last()?;
                let inner = || match &last.arguments {
                    syn::PathArguments::AngleBracketed(a) => a.args.iter().find_map(|a| match a {
                        syn::GenericArgument::Type(t) => Told::of(t, of),
                        _ => None,
                    }),
                    _ => None,
                };
                match last.ident.to_string().as_str() {
                    "Arc" | "Box" | "Rc" | "MutexGuard" | "RwLockReadGuard" | "RwLockWriteGuard" => inner(),
                    "Mutex" | "RwLock" => Some(Told::Locked(Box::new(inner()?))),
                    "Option" | "Result" => Some(Told::Maybe(Box::new(inner()?))),
                    "Self" => Some(Told::Named(of.to_owned())),
                    name => Some(Told::Named(name.to_owned())),
                }
            }
            _ => None,
        }
    }

    /// The name of the type, unless a lock, an `Option` or a `Result` is around it.
    pub fn named(self) -> Option<String> {
        if let Told::Named(name) = self { Some(name) } else { None }
    }

    /// The content that `?` or a pattern takes out of the type.
    pub fn content(self) -> Option<Told> {
        if let Told::Maybe(told) = self { Some(*told) } else { None }
    }

    /// The result type of a method of the standard library or of a lock.
    pub fn after(&self, method: &str) -> Option<Told> {
        match (self, method) {
            (Told::Locked(told), "lock" | "read" | "write" | "get_mut" | "into_inner") => {
                Some((**told).clone())
            }
            (Told::Maybe(_), "as_ref" | "as_deref" | "as_mut" | "cloned" | "ok" | "map_err" | "take") => {
                Some(self.clone())
            }
            (Told::Maybe(told), "unwrap_or_default" | "unwrap_or" | "unwrap_or_else") => {
                Some((**told).clone())
            }
            (Told::Named(_), "clone") => Some(self.clone()),
            _ => None,
        }
    }
}

/// The last name in a type's path.
pub fn name_of(t: &Type) -> Option<String> {
    Told::of(t, "")?.named()
}

/// The names that a pattern binds.
pub fn bound(pat: &Pat) -> Vec<String> {
    struct Bound(Vec<String>);
    impl<'ast> Visit<'ast> for Bound {
        fn visit_pat_ident(&mut self, p: &'ast syn::PatIdent) {
            self.0.push(p.ident.to_string());
        }
    }
    let mut names = Bound(Vec::new());
    names.visit_pat(pat);
    names.0
}
