//! Finds which file of a crate calls which, and where such arrows form a cycle.
//!
//! A call is followed where the text tells the receiver's type: `self`, parameters, locals with a type or
//! from a function of the crate, fields of each, and the content of a lock, an `Option` or a `Result`. Calls
//! on a closure's parameter and through a trait are not followed. Tests are left out.

mod types;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use syn::punctuated::Punctuated;
use syn::visit::{self, Visit};
use syn::{
    Attribute, Expr, FnArg, ImplItemFn, ItemFn, ItemImpl, ItemMod, ItemStruct, Pat, ReturnType, Signature,
};
use types::Told;

/// For each calling file, the called files with the functions; paths are below the crate's `src`.
pub type Arrows = BTreeMap<String, BTreeMap<String, BTreeSet<String>>>;

/// Definitions and their files.
#[derive(Default)]
struct Names {
    /// The files that define a function of a type or module.
    functions: HashMap<(String, String), BTreeSet<String>>,
    /// The type of a struct's field.
    fields: HashMap<(String, String), Told>,
    /// The type that a function of a type or module returns.
    returned: HashMap<(String, String), Told>,
}

/// All arrows between the files below `src`.
///
/// # Errors
/// A file cannot be read or is not Rust.
pub fn of(src: &Path) -> Result<Arrows> {
    let mut files = Vec::new();
    collect(src, src, &mut files)?;
    let mut names = Names::default();
    for (file, parsed) in &files {
        Definitions { file, names: &mut names, of: module(file) }.visit_file(parsed);
    }
    let mut arrows = Arrows::new();
    for (file, parsed) in &files {
        let mut calls =
            Calls { file, names: &names, of: String::new(), types: HashMap::new(), to: BTreeMap::new() };
        calls.visit_file(parsed);
        arrows.insert(file.clone(), calls.to);
    }
    Ok(arrows)
}

/// Groups of files in which each file leads to every other.
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

/// The name of the module in a file.
fn module(file: &str) -> String {
    let path = file.trim_end_matches(".rs").trim_end_matches("/mod");
    path.rsplit('/').next().unwrap_or_default().to_owned()
}

fn is_test(attrs: &[Attribute]) -> bool {
    let cfg = |a: &&Attribute| a.path().is_ident("cfg");
    attrs.iter().filter(cfg).any(|a| a.parse_args::<syn::Path>().is_ok_and(|p| p.is_ident("test")))
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
        if let ReturnType::Type(_, t) = &sig.output
            && let Some(told) = Told::of(t, &self.of)
        {
            self.names.returned.insert(key.clone(), told);
        }
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
            if let (Some(field), Some(t)) = (&f.ident, Told::of(&f.ty, "")) {
                self.names.fields.insert((s.ident.to_string(), field.to_string()), t);
            }
        }
    }

    fn visit_item_impl(&mut self, i: &'ast ItemImpl) {
        let outer = std::mem::replace(&mut self.of, types::name_of(&i.self_ty).unwrap_or_default());
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
    /// The known types of parameters and locals.
    types: HashMap<String, Told>,
    to: BTreeMap<String, BTreeSet<String>>,
}

impl Calls<'_> {
    fn type_of(&self, e: &Expr) -> Option<Told> {
        match e {
            Expr::Path(p) => self.types.get(&p.path.get_ident()?.to_string()).cloned(),
            Expr::Field(f) => {
                let syn::Member::Named(field) = &f.member else { return None };
                let of = self.type_of(&f.base)?.named()?;
                self.names.fields.get(&(of, field.to_string())).cloned()
            }
            Expr::Reference(r) => self.type_of(&r.expr),
            Expr::Paren(p) => self.type_of(&p.expr),
            Expr::Unary(u) => self.type_of(&u.expr),
            Expr::Try(t) => self.type_of(&t.expr)?.content(),
            Expr::Struct(s) => self.function(&s.path).map(|(_, of)| Told::Named(of)),
            Expr::Call(c) => match &*c.func {
                Expr::Path(p) => self.names.returned.get(&self.function(&p.path)?).cloned(),
                _ => None,
            },
            Expr::MethodCall(m) => {
                let (of, method) = (self.type_of(&m.receiver)?, m.method.to_string());
                of.after(&method)
                    .or_else(|| of.named().and_then(|of| self.names.returned.get(&(of, method)).cloned()))
            }
            _ => None,
        }
    }

    /// The type or module in a path, and the function in it.
    fn function(&self, path: &syn::Path) -> Option<(String, String)> {
        let mut names = path.segments.iter().rev().map(|s| s.ident.to_string());
        let (function, of) = (names.next()?, names.next().unwrap_or_default());
        Some((if of == "Self" { self.of.clone() } else { of }, function))
    }

    /// Gives the names of a pattern the type `told`, or no type.
    fn bind(&mut self, pat: &Pat, told: Option<Told>) {
        match (pat, told) {
            (Pat::Ident(name), Some(told)) => drop(self.types.insert(name.ident.to_string(), told)),
            (Pat::Reference(r), told) => self.bind(&r.pat, told),
            (Pat::Type(p), _) => self.bind(&p.pat, Told::of(&p.ty, &self.of)),
            (Pat::TupleStruct(t), Some(told)) if t.elems.len() == 1 => self.bind(&t.elems[0], told.content()),
            _ => types::bound(pat).iter().for_each(|name| drop(self.types.remove(name))),
        }
    }

    /// Visits a scope; the names bound in it are unknown after it.
    fn scope(&mut self, inside: impl FnOnce(&mut Self)) {
        let outer = self.types.clone();
        inside(self);
        self.types = outer;
    }

    fn call(&mut self, of: String, function: String) {
        let shown = format!("{of}::{function}");
        let Some(files) = self.names.functions.get(&(of, function)) else { return };
        // Of several types with this name, the type in the nearest folder.
        let near =
            |file: &String| file.split('/').zip(self.file.split('/')).take_while(|(a, b)| a == b).count();
        let Some(file) = files.iter().max_by_key(|f| near(f)).filter(|f| *f != self.file) else { return };
        self.to.entry(file.clone()).or_default().insert(shown);
    }

    /// Visits a body in which the parameters of `sig` are known.
    fn inside(&mut self, sig: &Signature, body: impl FnOnce(&mut Self)) {
        self.scope(|calls| {
            for input in &sig.inputs {
                match input {
                    FnArg::Receiver(_) => {
                        drop(calls.types.insert("self".into(), Told::Named(calls.of.clone())));
                    }
                    FnArg::Typed(p) => calls.bind(&p.pat, Told::of(&p.ty, &calls.of)),
                }
            }
            body(calls);
        });
    }
}

impl<'ast> Visit<'ast> for Calls<'_> {
    fn visit_item_mod(&mut self, m: &'ast ItemMod) {
        if !is_test(&m.attrs) {
            visit::visit_item_mod(self, m);
        }
    }

    fn visit_item_impl(&mut self, i: &'ast ItemImpl) {
        self.of = types::name_of(&i.self_ty).unwrap_or_default();
        visit::visit_item_impl(self, i);
    }

    fn visit_impl_item_fn(&mut self, f: &'ast ImplItemFn) {
        self.inside(&f.sig, |calls| visit::visit_impl_item_fn(calls, f));
    }

    fn visit_item_fn(&mut self, f: &'ast ItemFn) {
        self.inside(&f.sig, |calls| visit::visit_item_fn(calls, f));
    }

    fn visit_block(&mut self, b: &'ast syn::Block) {
        self.scope(|calls| visit::visit_block(calls, b));
    }

    fn visit_local(&mut self, l: &'ast syn::Local) {
        visit::visit_local(self, l);
        let told = l.init.as_ref().and_then(|init| self.type_of(&init.expr));
        self.bind(&l.pat, told);
    }

    fn visit_expr_let(&mut self, l: &'ast syn::ExprLet) {
        visit::visit_expr_let(self, l);
        let told = self.type_of(&l.expr);
        self.bind(&l.pat, told);
    }

    fn visit_expr_if(&mut self, i: &'ast syn::ExprIf) {
        self.scope(|calls| {
            calls.visit_expr(&i.cond);
            calls.visit_block(&i.then_branch);
        });
        if let Some((_, other)) = &i.else_branch {
            self.visit_expr(other);
        }
    }

    fn visit_expr_while(&mut self, w: &'ast syn::ExprWhile) {
        self.scope(|calls| visit::visit_expr_while(calls, w));
    }

    fn visit_expr_for_loop(&mut self, f: &'ast syn::ExprForLoop) {
        self.visit_expr(&f.expr);
        self.scope(|calls| {
            calls.bind(&f.pat, None);
            calls.visit_block(&f.body);
        });
    }

    fn visit_expr_match(&mut self, m: &'ast syn::ExprMatch) {
        self.visit_expr(&m.expr);
        let told = self.type_of(&m.expr);
        for arm in &m.arms {
            self.scope(|calls| {
                calls.bind(&arm.pat, told.clone());
                visit::visit_arm(calls, arm);
            });
        }
    }

    fn visit_expr_closure(&mut self, c: &'ast syn::ExprClosure) {
        self.scope(|calls| {
            c.inputs.iter().for_each(|input| calls.bind(input, None));
            calls.visit_expr(&c.body);
        });
    }

    fn visit_macro(&mut self, m: &'ast syn::Macro) {
        if let Ok(args) = m.parse_body_with(Punctuated::<Expr, syn::Token![,]>::parse_terminated) {
            // The parsed arguments do not live as long as the visited text, so they have their own visitor.
            let mut calls = Calls {
                to: std::mem::take(&mut self.to),
                types: self.types.clone(),
                of: self.of.clone(),
                ..*self
            };
            args.iter().for_each(|arg| calls.visit_expr(arg));
            self.to = calls.to;
        }
    }

    fn visit_expr_method_call(&mut self, m: &'ast syn::ExprMethodCall) {
        if let Some(of) = self.type_of(&m.receiver).and_then(|of| of.named()) {
            self.call(of, m.method.to_string());
        }
        visit::visit_expr_method_call(self, m);
    }

    fn visit_expr_path(&mut self, p: &'ast syn::ExprPath) {
        if let Some((of, function)) = self.function(&p.path) {
            self.call(of, function);
        }
    }
}

#[cfg(test)]
mod tests;
