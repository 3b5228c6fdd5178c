//! Which file of a crate calls which, and where such arrows form a cycle.
//!
//! A private module is part of the file that declares it, but for those of a crate's root.
//!
//! A call is followed where the text tells the receiver's type: `self`, parameters, and fields of either.
//! Arguments of closures, results of methods and the text of macros are not followed. Tests are left out.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use syn::visit::{self, Visit};
use syn::{Attribute, Expr, FnArg, ImplItemFn, ItemFn, ItemImpl, ItemMod, ItemStruct, Pat, Signature, Type};

/// Files called, each with the functions, by the file that calls; paths below the crate's `src`.
pub type Arrows = BTreeMap<String, BTreeMap<String, BTreeSet<String>>>;

/// The place of each definition.
#[derive(Default)]
struct Names {
    /// The files of a type's function, or of a module's.
    functions: HashMap<(String, String), BTreeSet<String>>,
    /// The type of a struct's field.
    fields: HashMap<(String, String), String>,
}

/// All arrows between the files below `src`.
///
/// # Errors
/// A file that cannot be read or is no Rust.
pub fn of(src: &Path) -> Result<Arrows> {
    let mut files = Vec::new();
    collect(src, src, &mut files)?;
    let mut names = Names::default();
    for (file, parsed) in &files {
        Definitions { file, names: &mut names, of: module(file) }.visit_file(parsed);
    }
    let parts = parts(&files);
    let whole = |file: &String| {
        let mut file = file;
        while let Some(of) = parts.get(file) {
            file = of;
        }
        file.clone()
    };
    let mut arrows = Arrows::new();
    for (file, parsed) in &files {
        let mut calls =
            Calls { file, names: &names, of: String::new(), types: HashMap::new(), to: BTreeMap::new() };
        calls.visit_file(parsed);
        let from = whole(file);
        let arrows = arrows.entry(from.clone()).or_default();
        for (to, functions) in
            calls.to.into_iter().map(|(to, f)| (whole(&to), f)).filter(|(to, _)| *to != from)
        {
            arrows.entry(to).or_default().extend(functions);
        }
    }
    Ok(arrows)
}

/// The file that declares it, by the file of a private module.
fn parts(files: &[(String, syn::File)]) -> HashMap<String, String> {
    let mut parts = HashMap::new();
    for (file, parsed) in files.iter().filter(|(file, _)| file != "lib.rs") {
        let folder = file.trim_end_matches("mod.rs").trim_end_matches(".rs").trim_end_matches('/');
        for item in &parsed.items {
            if let syn::Item::Mod(m) = item
                && matches!(m.vis, syn::Visibility::Inherited)
            {
                let path = format!("{folder}/{}", m.ident);
                parts.extend(["{}.rs", "{}/mod.rs"].map(|name| (name.replace("{}", &path), file.clone())));
            }
        }
    }
    parts
}

/// Groups of files in which each leads to each other one.
pub fn cycles(arrows: &Arrows) -> Vec<BTreeSet<String>> {
    let reach: BTreeMap<&String, BTreeSet<&String>> =
        arrows.keys().map(|f| (f, reached(arrows, f))).collect();
    let mut found = BTreeSet::new();
    for (file, to) in reach.iter().filter(|(file, to)| to.contains(*file)) {
        let back = |other: &&&String| reach.get(**other).is_some_and(|r| r.contains(*file));
        found.insert(to.iter().filter(back).map(|f| (*f).clone()).collect::<BTreeSet<_>>());
    }
    found.into_iter().collect()
}

fn reached<'a>(arrows: &'a Arrows, from: &String) -> BTreeSet<&'a String> {
    let mut all = BTreeSet::new();
    let mut next: Vec<&String> = arrows.get(from).into_iter().flat_map(|to| to.keys()).collect();
    while let Some(file) = next.pop() {
        if all.insert(file) {
            next.extend(arrows.get(file).into_iter().flat_map(|to| to.keys()));
        }
    }
    all
}

fn collect(root: &Path, dir: &Path, files: &mut Vec<(String, syn::File)>) -> Result<()> {
    let mut entries: Vec<_> = fs::read_dir(dir)?.collect::<std::io::Result<_>>()?;
    entries.sort_by_key(fs::DirEntry::file_name);
    for path in entries.iter().map(fs::DirEntry::path) {
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        if name == "tests" || name == "testing" {
            continue;
        }
        if path.is_dir() {
            collect(root, &path, files)?;
        } else if path.extension().is_some_and(|e| e == "rs") {
            let text = fs::read_to_string(&path)?;
            let parsed = syn::parse_file(&text).with_context(|| path.display().to_string())?;
            files.push((path.strip_prefix(root)?.display().to_string(), parsed));
        }
    }
    Ok(())
}

/// The name of the module that a file holds.
fn module(file: &str) -> String {
    let path = file.trim_end_matches(".rs").trim_end_matches("/mod");
    path.rsplit('/').next().unwrap_or_default().to_owned()
}

fn is_test(attrs: &[Attribute]) -> bool {
    let cfg = |a: &&Attribute| a.path().is_ident("cfg");
    attrs.iter().filter(cfg).any(|a| a.parse_args::<syn::Path>().is_ok_and(|p| p.is_ident("test")))
}

/// The last name of a type, without what only holds it.
fn name_of(t: &Type) -> Option<String> {
    match t {
        Type::Reference(r) => name_of(&r.elem),
        Type::Paren(p) => name_of(&p.elem),
        Type::Path(p) => {
            let last = p.path.segments.last()?;
            let holds = ["Arc", "Box", "Rc"].iter().any(|h| last.ident == h);
            match &last.arguments {
                syn::PathArguments::AngleBracketed(a) if holds => match a.args.first()? {
                    syn::GenericArgument::Type(t) => name_of(t),
                    _ => None,
                },
                _ => Some(last.ident.to_string()),
            }
        }
        _ => None,
    }
}

struct Definitions<'a> {
    file: &'a str,
    names: &'a mut Names,
    /// The type or module whose functions these are.
    of: String,
}

impl Definitions<'_> {
    fn define(&mut self, sig: &Signature) {
        let key = (self.of.clone(), sig.ident.to_string());
        self.names.functions.entry(key).or_default().insert(self.file.to_owned());
    }
}

impl<'ast> Visit<'ast> for Definitions<'_> {
    fn visit_item_mod(&mut self, m: &'ast ItemMod) {
        if !is_test(&m.attrs) {
            visit::visit_item_mod(self, m);
        }
    }

    fn visit_item_struct(&mut self, s: &'ast ItemStruct) {
        for f in &s.fields {
            if let (Some(field), Some(t)) = (&f.ident, name_of(&f.ty)) {
                self.names.fields.insert((s.ident.to_string(), field.to_string()), t);
            }
        }
    }

    fn visit_item_impl(&mut self, i: &'ast ItemImpl) {
        let outer = std::mem::replace(&mut self.of, name_of(&i.self_ty).unwrap_or_default());
        visit::visit_item_impl(self, i);
        self.of = outer;
    }

    fn visit_impl_item_fn(&mut self, f: &'ast ImplItemFn) {
        self.define(&f.sig);
    }

    fn visit_item_fn(&mut self, f: &'ast ItemFn) {
        self.define(&f.sig);
    }
}

struct Calls<'a> {
    file: &'a str,
    names: &'a Names,
    /// The type of `self`.
    of: String,
    /// Types of the parameters that are known here.
    types: HashMap<String, String>,
    to: BTreeMap<String, BTreeSet<String>>,
}

impl Calls<'_> {
    fn type_of(&self, e: &Expr) -> Option<String> {
        match e {
            Expr::Path(p) => self.types.get(&p.path.get_ident()?.to_string()).cloned(),
            Expr::Field(f) => {
                let syn::Member::Named(field) = &f.member else { return None };
                self.names.fields.get(&(self.type_of(&f.base)?, field.to_string())).cloned()
            }
            Expr::Reference(r) => self.type_of(&r.expr),
            Expr::Paren(p) => self.type_of(&p.expr),
            Expr::Unary(u) => self.type_of(&u.expr),
            _ => None,
        }
    }

    fn call(&mut self, of: String, function: String) {
        let shown = format!("{of}::{function}");
        let Some(files) = self.names.functions.get(&(of, function)) else { return };
        // Of types with one name, the one in the nearest folder.
        let near =
            |file: &String| file.split('/').zip(self.file.split('/')).take_while(|(a, b)| a == b).count();
        let Some(file) = files.iter().max_by_key(|f| near(f)).filter(|f| *f != self.file) else { return };
        self.to.entry(file.clone()).or_default().insert(shown);
    }

    /// Visits a body in which the parameters of `sig` are known.
    fn inside(&mut self, sig: &Signature, body: impl FnOnce(&mut Self)) {
        let outer = self.types.clone();
        for input in &sig.inputs {
            match input {
                FnArg::Receiver(_) => drop(self.types.insert("self".into(), self.of.clone())),
                FnArg::Typed(p) => {
                    if let (Pat::Ident(name), Some(t)) = (&*p.pat, name_of(&p.ty)) {
                        self.types.insert(name.ident.to_string(), t);
                    }
                }
            }
        }
        body(self);
        self.types = outer;
    }
}

impl<'ast> Visit<'ast> for Calls<'_> {
    fn visit_item_mod(&mut self, m: &'ast ItemMod) {
        if !is_test(&m.attrs) {
            visit::visit_item_mod(self, m);
        }
    }

    fn visit_item_impl(&mut self, i: &'ast ItemImpl) {
        self.of = name_of(&i.self_ty).unwrap_or_default();
        visit::visit_item_impl(self, i);
    }

    fn visit_impl_item_fn(&mut self, f: &'ast ImplItemFn) {
        self.inside(&f.sig, |calls| visit::visit_impl_item_fn(calls, f));
    }

    fn visit_item_fn(&mut self, f: &'ast ItemFn) {
        self.inside(&f.sig, |calls| visit::visit_item_fn(calls, f));
    }

    fn visit_expr_method_call(&mut self, m: &'ast syn::ExprMethodCall) {
        if let Some(of) = self.type_of(&m.receiver) {
            self.call(of, m.method.to_string());
        }
        visit::visit_expr_method_call(self, m);
    }

    fn visit_expr_path(&mut self, p: &'ast syn::ExprPath) {
        let mut names = p.path.segments.iter().rev().map(|s| s.ident.to_string());
        if let (Some(function), Some(of)) = (names.next(), names.next()) {
            let of = if of == "Self" { self.of.clone() } else { of };
            self.call(of, function);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_testing::temp::TempDir;
    use tidegate_testing::workspace;

    fn arrows(files: &[(&str, &str)]) -> Arrows {
        let dir = TempDir::new("arrows").unwrap();
        for (name, text) in files {
            let path = dir.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        of(dir.path()).unwrap()
    }

    #[test]
    fn calls_are_followed_by_type() {
        let found = arrows(&[
            ("volume.rs", "pub struct Volume { table: Arc<Table> } impl Volume { fn low(&self) {} }"),
            ("table.rs", "pub struct Table; impl Table { fn get(&self) {} } pub fn free() {}"),
            (
                "high/mod.rs",
                "impl Volume { fn high(&self) { self.low(); self.table.get(); self.lock().get(); } }",
            ),
            (
                "top.rs",
                "fn top(v: &Volume) { v.high(); table::free(); } #[cfg(test)] mod tests { fn t(v: &Volume) { v.low(); } }",
            ),
        ]);
        let of = |file: &str| found[file].keys().map(String::as_str).collect::<Vec<_>>();
        assert_eq!(of("high/mod.rs"), ["table.rs", "volume.rs"]);
        assert_eq!(of("top.rs"), ["high/mod.rs", "table.rs"]);
        assert!(cycles(&found).is_empty());
    }

    #[test]
    fn a_cycle_is_found_with_all_of_its_files() {
        let found = arrows(&[
            ("a.rs", "struct V; impl V { fn a(&self) { self.b() } }"),
            ("b.rs", "impl V { fn b(&self) { Self::c(self); self.d() } }"),
            ("c.rs", "impl V { fn c(&self) { [1].map(|_| self.a()); } }"),
            ("d.rs", "impl V { fn d(&self) {} }"),
        ]);
        assert_eq!(cycles(&found), [BTreeSet::from(["a.rs", "b.rs", "c.rs"].map(str::to_owned))]);
    }

    #[test]
    fn a_private_module_is_part_of_who_declares_it() {
        let private = [
            (
                "table/mod.rs",
                "mod free; struct T; impl T { fn low(&self) {} fn top(&self) { self.empty() } }",
            ),
            ("table/free.rs", "impl T { fn empty(&self) { self.low() } }"),
        ];
        assert_eq!(arrows(&private), Arrows::from([("table/mod.rs".into(), BTreeMap::new())]));
        let public = private.map(|(file, text)| (file, text.replace("mod free", "pub(crate) mod free")));
        assert_eq!(cycles(&arrows(&public.each_ref().map(|(f, t)| (*f, t.as_str())))).len(), 1);
    }

    #[test]
    fn files_of_the_engine_call_downwards() {
        let found = of(&workspace::root().join("crates/tidegate-f2fs/src")).unwrap();
        let calls: usize = found.values().flat_map(BTreeMap::values).map(BTreeSet::len).sum();
        assert!(calls > 400, "only {calls} calls were followed");
        assert_eq!(cycles(&found), Vec::<BTreeSet<String>>::new());
    }
}
