//! The promises of the crate: every public item, as text. A change of `tests/surface.txt` is a change for
//! users.
//!
//! A re-exported name has its own lines, followed by the members of its type: fields, variants, public methods, a
//! trait's methods, the traits that it implements. `#[doc(hidden)]` items are not promised.
//!
//! `UPDATE_SURFACE=1 cargo test -p tidegate --test surface` writes the list anew.

mod crates;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crates::{Crates, Flags, Target, is_hidden, is_pub};
use syn::spanned::Spanned;
use syn::{Attribute, Fields, ImplItem, Item, TraitItem};

/// The facade, and the crates from which its names come.
const CRATES: [&str; 7] = [
    "tidegate",
    "tidegate-block",
    "tidegate-ext4",
    "tidegate-f2fs",
    "tidegate-rt",
    "tidegate-sys",
    "tidegate-vfs",
];

/// An item's text on one line, without comments above it.
fn text(of: &impl Spanned) -> String {
    let text = of.span().source_text().unwrap();
    let lines = text.lines().filter(|l| !l.trim_start().starts_with("//"));
    let line = lines.flat_map(str::split_whitespace).collect::<Vec<_>>().join(" ");
    // The form in which rustfmt writes it on one line.
    line.replace("( ", "(").replace(", )", ")")
}

fn derives(attrs: &[Attribute]) -> Option<String> {
    let derives: Vec<String> = attrs.iter().filter(|a| a.path().is_ident("derive")).map(text).collect();
    let names = derives.iter().map(|d| d.trim_start_matches("#[derive(").trim_end_matches(")]"));
    (!derives.is_empty()).then(|| format!("derive {}", names.collect::<Vec<_>>().join(", ")))
}

struct Surface<'a> {
    crates: &'a Crates,
    /// The lines of the `impl` blocks of a type, in any module.
    impls: BTreeMap<Target, Vec<String>>,
    out: Vec<String>,
    /// Items that are listed already: a type that is reachable in several ways is listed once.
    listed: BTreeSet<Target>,
}

impl Surface<'_> {
    fn of(crates: &Crates) -> Vec<String> {
        let mut surface =
            Surface { crates, impls: BTreeMap::new(), out: Vec::new(), listed: BTreeSet::new() };
        for (path, module) in &crates.0 {
            module.items.iter().for_each(|item| surface.implemented(path, item));
        }
        surface.module("tidegate", "tidegate", true);
        surface.module("tidegate", "tidegate", false);
        surface.out
    }

    /// Notes what an `impl` block adds to its type.
    fn implemented(&mut self, module: &str, item: &Item) {
        let Item::Impl(i) = item else { return };
        let syn::Type::Path(p) = &*i.self_ty else { return };
        let path: Vec<String> = p.path.segments.iter().map(|s| s.ident.to_string()).collect();
        let Some(target) = self.crates.follow(module, &path, false) else { return };
        let name = path.last().unwrap();
        let lines = self.impls.entry(target).or_default();
        if let Some((_, of, _)) = &i.trait_ {
            return lines.push(format!("impl {} for {name}", text(of)));
        }
        lines.extend(i.items.iter().filter_map(|item| match item {
            ImplItem::Fn(f) if is_pub(&f.vis) && !is_hidden(&f.attrs) => {
                Some(format!("impl {name}: pub {}", text(&f.sig)))
            }
            ImplItem::Const(c) if is_pub(&c.vis) && !is_hidden(&c.attrs) => {
                Some(format!("impl {name}: pub const {}: {}", c.ident, text(&c.ty)))
            }
            _ => None,
        }));
    }

    /// Lists a module that users see as `shown`: its own items in the `first` pass, and re-exports in a second pass. So
    /// an item is listed where it is defined, if users see that place.
    fn module(&mut self, module: &str, shown: &str, first: bool) {
        let here = &self.crates.0[module];
        if first {
            for item in &here.items {
                self.item(module, shown, item);
            }
        } else {
            for u in here.uses.iter().filter(|u| u.public) {
                let renamed = u.path.last().is_some_and(|l| *l != u.name && u.name != "*");
                let renamed = if renamed { format!(" as {}", u.name) } else { String::new() };
                let path = u.path.join("::");
                self.out.push(format!("{shown}: pub use {path}{renamed}"));
                let targets = [false, true].map(|modules| self.crates.follow(module, &u.path, modules));
                let targets: Vec<Target> = targets.into_iter().flatten().collect();
                let ours = u.path[0].starts_with("tidegate_");
                let found = !targets.is_empty() || self.crates.has_macro(&u.path);
                assert!(!ours || found, "{shown}: {path} leads nowhere");
                for target in targets {
                    self.given(&target, shown, &u.name);
                }
            }
        }
        let below = format!("{module}::");
        let children = self.crates.0.iter().filter(|(path, child)| {
            child.public && path.strip_prefix(&below).is_some_and(|name| !name.contains("::"))
        });
        for (path, _) in children {
            let shown = format!("{shown}::{}", &path[below.len()..]);
            if first {
                self.out.push(format!("{shown}: pub mod"));
            }
            self.module(path, &shown, first);
        }
    }

    /// Lists the target of a re-export, unless that is listed already.
    fn given(&mut self, target: &Target, shown: &str, name: &str) {
        match target {
            Target::Module(of) => {
                if self.listed.insert(target.clone()) && !of.starts_with("tidegate::") {
                    let shown = format!("{shown}::{name}");
                    self.module(of, &shown, true);
                    self.module(of, &shown, false);
                }
            }
            Target::Item(of, name) => {
                for item in &self.crates.0[of].items {
                    if crates::names(item).contains(name) {
                        self.item(of, shown, item);
                    }
                }
            }
        }
    }

    fn line(&mut self, shown: &str, line: impl AsRef<str>) {
        self.out.push(format!("{shown}: {}", line.as_ref()));
    }

    fn item(&mut self, module: &str, shown: &str, item: &Item) {
        match item {
            Item::Const(c) if is_pub(&c.vis) => {
                self.line(shown, format!("pub const {}: {}", c.ident, text(&c.ty)));
            }
            Item::Fn(f) if is_pub(&f.vis) && !is_hidden(&f.attrs) => {
                self.line(shown, format!("pub {}", text(&f.sig)));
            }
            Item::Type(t) if is_pub(&t.vis) => self.line(shown, text(t).trim_end_matches(';')),
            Item::Struct(s) if is_pub(&s.vis) => {
                let name = s.ident.to_string();
                if self.type_of(
                    module,
                    shown,
                    &name,
                    format!("pub struct {name}{}", text_of(&s.generics)),
                    &s.attrs,
                ) {
                    self.fields(shown, &format!("struct {name}"), &s.fields);
                }
            }
            Item::Enum(e) if is_pub(&e.vis) => {
                let name = e.ident.to_string();
                if self.type_of(
                    module,
                    shown,
                    &name,
                    format!("pub enum {name}{}", text_of(&e.generics)),
                    &e.attrs,
                ) {
                    for v in &e.variants {
                        self.line(shown, format!("enum {name}: {}", variant(v)));
                    }
                }
            }
            Item::Trait(t) if is_pub(&t.vis) => {
                let target = Target::Item(module.into(), t.ident.to_string());
                if self.listed.insert(target) {
                    self.trait_of(shown, t);
                }
            }
            Item::Macro(m) => {
                for set in Flags::of(m).into_iter().filter(|f| f.public) {
                    let kind = format!("pub struct {}", set.name);
                    if self.type_of(module, shown, &set.name, kind, &[]) {
                        set.flags.iter().for_each(|f| self.line(shown, format!("flags {}: {f}", set.name)));
                    }
                }
            }
            _ => {}
        }
    }

    /// Lists a type and its `impl` blocks. `false` if it is listed already.
    fn type_of(&mut self, module: &str, shown: &str, name: &str, line: String, attrs: &[Attribute]) -> bool {
        let target = Target::Item(module.into(), name.into());
        if is_hidden(attrs) || !self.listed.insert(target.clone()) {
            return false;
        }
        self.line(shown, &line);
        let kind = line.trim_start_matches("pub ");
        if let Some(derives) = derives(attrs) {
            self.line(shown, format!("{kind}: {derives}"));
        }
        for said in self.impls.get(&target).cloned().unwrap_or_default() {
            self.line(shown, said);
        }
        true
    }

    fn fields(&mut self, shown: &str, kind: &str, fields: &Fields) {
        for (n, f) in fields.iter().enumerate().filter(|(_, f)| is_pub(&f.vis) && !is_hidden(&f.attrs)) {
            let name = f.ident.as_ref().map_or(n.to_string(), ToString::to_string);
            self.line(shown, format!("{kind}: pub {name}: {}", text(&f.ty)));
        }
    }

    fn trait_of(&mut self, shown: &str, t: &syn::ItemTrait) {
        let name = &t.ident;
        let supers: Vec<String> = t.supertraits.iter().map(text).collect();
        let supers = if supers.is_empty() { String::new() } else { format!(": {}", supers.join(" + ")) };
        self.line(shown, format!("pub trait {name}{supers}"));
        for item in &t.items {
            match item {
                TraitItem::Fn(f) => {
                    let given = if f.default.is_some() { " { .. }" } else { "" };
                    self.line(shown, format!("trait {name}: {}{given}", text(&f.sig)));
                }
                TraitItem::Type(a) => self.line(shown, format!("trait {name}: {}", text(a))),
                TraitItem::Const(c) => self.line(shown, format!("trait {name}: {}", text(c))),
                _ => {}
            }
        }
    }
}

fn text_of(generics: &syn::Generics) -> String {
    if generics.params.is_empty() { String::new() } else { text(generics) }
}

fn variant(of: &syn::Variant) -> String {
    let one = |f: &syn::Field| match &f.ident {
        Some(name) => format!("{name}: {}", text(&f.ty)),
        None => text(&f.ty),
    };
    let (name, word) = (&of.ident, of.discriminant.as_ref().map(|(_, e)| format!(" = {}", text(e))));
    let all = of.fields.iter().map(one).collect::<Vec<_>>().join(", ");
    match &of.fields {
        Fields::Named(_) => format!("{name} {{ {all} }}"),
        Fields::Unnamed(_) => format!("{name}({all})"),
        Fields::Unit => format!("{name}{}", word.unwrap_or_default()),
    }
}

/// The list, with the sources as `edit` changes them.
fn surface(edit: &dyn Fn(&Path, String) -> String) -> Vec<String> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut lines = Surface::of(&Crates::read(here, &CRATES, edit));
    lines.sort();
    lines
}

#[test]
fn what_is_public_is_promised() {
    let out = surface(&|_, text| text);
    for there in [
        "pub fn unmount(self)",
        "enum Refusal: InUse",
        "trait VolumeOps: fn trim",
        "impl File: pub fn read_at",
    ] {
        assert!(out.iter().any(|l| l.contains(there)), "{there}: {out:#?}");
    }
    let list = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/surface.txt");
    if std::env::var_os("UPDATE_SURFACE").is_some() {
        std::fs::write(&list, out.join("\n") + "\n").unwrap();
    }
    let promised = std::fs::read_to_string(&list).unwrap_or_default();
    let gone: Vec<&str> = promised.lines().filter(|l| !out.iter().any(|o| o == l)).collect();
    let new: Vec<&String> = out.iter().filter(|o| !promised.lines().any(|l| l == *o)).collect();
    assert!(gone.is_empty() && new.is_empty(), "tests/surface.txt: gone {gone:#?}, new {new:#?}");
}

/// For each kind of promise, the list changes when the sources drop it.
#[test]
fn what_is_dropped_changes_the_list() {
    let whole = surface(&|_, text| text);
    for (file, there, instead, gone) in [
        ("tidegate/src/lib.rs", "FallocateFlags,", "", "tidegate::vfs: pub use tidegate_vfs::FallocateFlags"),
        (
            "tidegate/src/offline.rs",
            "OnChange,",
            "",
            "tidegate::offline: pub use tidegate_vfs::offline::OnChange",
        ),
        ("tidegate/src/error/mod.rs", "    InUse,", "", "tidegate::error: enum Refusal: InUse"),
        (
            "tidegate-vfs/src/volume_ops.rs",
            "fn trim(",
            "fn trimmed(",
            "tidegate::vfs: trait VolumeOps: fn trim(",
        ),
        ("tidegate-vfs/src/file.rs", "pub fn seek(", "fn seek(", "tidegate::vfs: impl File: pub fn seek("),
    ] {
        let less = surface(&|path, text| {
            if !path.ends_with(file) {
                return text;
            }
            assert!(text.contains(there), "{file} has no {there}");
            text.replacen(there, instead, 1)
        });
        let dropped: Vec<&String> = whole.iter().filter(|l| !less.contains(l)).collect();
        assert!(dropped.iter().any(|l| l.starts_with(gone)), "{file}: {dropped:#?}");
    }
}
