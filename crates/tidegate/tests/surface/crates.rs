//! The modules of the crates as they are written, and the targets of paths in them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use syn::{Attribute, Item, UseTree};

/// A leaf of a `use`.
pub struct Use {
    /// The name in the using module; `*` for all names of a module.
    pub name: String,
    /// The path that it leads to.
    pub path: Vec<String>,
    pub public: bool,
}

#[derive(Default)]
pub struct Module {
    /// Declared with `pub`.
    pub public: bool,
    pub items: Vec<Item>,
    pub uses: Vec<Use>,
}

/// The target of a path.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Target {
    Module(String),
    /// An item by its module and its name there.
    Item(String, String),
}

/// Modules by their paths; a crate's root by the crate's name.
pub struct Crates(pub BTreeMap<String, Module>);

impl Crates {
    /// Reads `crates` below `dir`; `edit` may change a file's text.
    pub fn read(dir: &Path, crates: &[&str], edit: &dyn Fn(&Path, String) -> String) -> Self {
        let mut all = Crates(BTreeMap::new());
        for name in crates {
            all.file(&dir.join(name).join("src/lib.rs"), name.replace('-', "_"), true, edit);
        }
        all
    }

    fn file(&mut self, file: &Path, path: String, public: bool, edit: &dyn Fn(&Path, String) -> String) {
        let text = edit(file, std::fs::read_to_string(file).unwrap());
        let parsed = syn::parse_file(&text).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
        let below = match file.file_name().unwrap().to_str().unwrap() {
            "lib.rs" | "mod.rs" => file.parent().unwrap().to_path_buf(),
            _ => file.with_extension(""),
        };
        self.module(parsed.items, path, public, &below, edit);
    }

    fn module(
        &mut self,
        items: Vec<Item>,
        path: String,
        public: bool,
        below: &Path,
        edit: &dyn Fn(&Path, String) -> String,
    ) {
        let mut module = Module { public, ..Module::default() };
        for item in items {
            match item {
                Item::Mod(m) if !is_test(&m.attrs) => {
                    let (name, path) = (m.ident.to_string(), format!("{path}::{}", m.ident));
                    let public = is_pub(&m.vis) && !is_hidden(&m.attrs);
                    match m.content {
                        Some((_, items)) => self.module(items, path, public, &below.join(name), edit),
                        None => self.file(&source(below, &name), path, public, edit),
                    }
                }
                Item::Use(u) => {
                    let public = is_pub(&u.vis) && !is_hidden(&u.attrs);
                    leaves(&u.tree, &mut Vec::new(), public, &mut module.uses);
                }
                // The macro is treated as an enum whose variants are words.
                Item::Macro(m) if is_named(&m, "positions") => {
                    module.items.push(Item::Enum(m.mac.parse_body().unwrap()));
                }
                item => module.items.push(item),
            }
        }
        self.0.insert(path, module);
    }

    /// The target of `name` in a module: a module if `modules`, otherwise an item, as one name may be both.
    pub fn find(&self, module: &str, name: &str, modules: bool) -> Option<Target> {
        let here = self.0.get(module)?;
        let child = format!("{module}::{name}");
        if modules && self.0.contains_key(&child) {
            return Some(Target::Module(child));
        }
        if !modules && here.items.iter().any(|item| names(item).iter().any(|n| n == name)) {
            return Some(Target::Item(module.into(), name.into()));
        }
        let named = here.uses.iter().filter(|u| u.name == name && u.path.last().is_some_and(|l| l != "self"));
        named.into_iter().find_map(|u| self.follow(module, &u.path, modules)).or_else(|| {
            // A module that takes all names of its parent must not be searched by the parent in turn.
            let globs = here.uses.iter().filter(|u| u.name == "*" && u.path[0] != "super");
            globs.into_iter().find_map(|u| match self.follow(module, &u.path, true)? {
                Target::Module(from) if from != module => self.find(&from, name, modules),
                _ => None,
            })
        })
    }

    /// Whether a path is that of a macro that its crate exports: such a macro is at the crate's root, whichever module
    /// defines it.
    pub fn has_macro(&self, path: &[String]) -> bool {
        let [of, name] = path else { return false };
        let of_crate = |module: &str| module == of || module.starts_with(&format!("{of}::"));
        let modules = self.0.iter().filter(|(module, _)| of_crate(module));
        modules.flat_map(|(_, m)| &m.items).any(|item| match item {
            Item::Macro(m) => {
                m.ident.as_ref().is_some_and(|i| i == name)
                    && m.attrs.iter().any(|a| a.path().is_ident("macro_export"))
            }
            _ => false,
        })
    }

    /// The target of a path in a module.
    pub fn follow(&self, module: &str, path: &[String], modules: bool) -> Option<Target> {
        let (last, before) = path.split_last()?;
        let mut at = module.to_string();
        for (n, name) in before.iter().enumerate() {
            at = match name.as_str() {
                "self" => at,
                "crate" => at.split("::").next()?.to_string(),
                "super" => at.rsplit_once("::")?.0.to_string(),
                root if n == 0 && self.0.contains_key(root) => root.to_string(),
                name if n == 0 || self.0.contains_key(&at) => match self.find(&at, name, true)? {
                    Target::Module(found) => found,
                    Target::Item(..) => return None,
                },
                _ => return None,
            };
        }
        // `use types::Name` in the module that holds `types` must not find itself.
        if before.is_empty() && self.0[&at].uses.iter().any(|u| u.path == path && u.name == *last) {
            return None;
        }
        self.find(&at, last, modules)
    }
}

fn source(below: &Path, name: &str) -> PathBuf {
    let flat = below.join(format!("{name}.rs"));
    if flat.exists() { flat } else { below.join(name).join("mod.rs") }
}

fn leaves(tree: &UseTree, before: &mut Vec<String>, public: bool, out: &mut Vec<Use>) {
    let mut leaf = |name: String, last: Option<String>| {
        let path = before.iter().cloned().chain(last).collect();
        out.push(Use { name, path, public });
    };
    match tree {
        UseTree::Path(p) => {
            before.push(p.ident.to_string());
            leaves(&p.tree, before, public, out);
            before.pop();
        }
        UseTree::Group(g) => g.items.iter().for_each(|t| leaves(t, before, public, out)),
        UseTree::Name(n) if n.ident == "self" => leaf(before.last().unwrap().clone(), None),
        UseTree::Name(n) => leaf(n.ident.to_string(), Some(n.ident.to_string())),
        UseTree::Rename(r) => leaf(r.rename.to_string(), Some(r.ident.to_string())),
        UseTree::Glob(_) => leaf("*".into(), None),
    }
}

/// The names that an item adds to its module.
pub fn names(item: &Item) -> Vec<String> {
    let ident = match item {
        Item::Const(i) => &i.ident,
        Item::Enum(i) => &i.ident,
        Item::Fn(i) => &i.sig.ident,
        Item::Static(i) => &i.ident,
        Item::Struct(i) => &i.ident,
        Item::Trait(i) => &i.ident,
        Item::Type(i) => &i.ident,
        Item::Union(i) => &i.ident,
        Item::Macro(m) => return Flags::of(m).into_iter().map(|f| f.name).collect(),
        _ => return Vec::new(),
    };
    vec![ident.to_string()]
}

/// A set of flags that `bitflags!` makes.
pub struct Flags {
    pub name: String,
    pub public: bool,
    pub flags: Vec<String>,
}

impl Flags {
    /// The sets in a macro's text.
    pub fn of(m: &syn::ItemMacro) -> Vec<Flags> {
        if !is_named(m, "bitflags") {
            return Vec::new();
        }
        let text = m.mac.tokens.to_string();
        let mut sets = Vec::new();
        let mut before = "";
        for (n, part) in text.split("struct ").enumerate() {
            let word = |text: &str| text.split_whitespace().next().unwrap_or_default().to_string();
            if n > 0 {
                let flags = part.split("const ").skip(1).map(word).collect();
                sets.push(Flags { name: word(part), public: before.trim_end().ends_with("pub"), flags });
            }
            before = part;
        }
        sets
    }
}

fn is_named(m: &syn::ItemMacro, name: &str) -> bool {
    m.mac.path.segments.last().is_some_and(|s| s.ident == name)
}

pub fn is_pub(vis: &syn::Visibility) -> bool {
    matches!(vis, syn::Visibility::Public(_))
}

fn is_test(attrs: &[Attribute]) -> bool {
    let cfg = |a: &&Attribute| a.path().is_ident("cfg");
    attrs.iter().filter(cfg).any(|a| a.parse_args::<syn::Path>().is_ok_and(|p| p.is_ident("test")))
}

pub fn is_hidden(attrs: &[Attribute]) -> bool {
    let doc = |a: &&Attribute| a.path().is_ident("doc");
    attrs.iter().filter(doc).any(|a| a.parse_args::<syn::Path>().is_ok_and(|p| p.is_ident("hidden")))
}
