//! The files of `src` import each other in one direction: there is no circle of files, and a room that writes down its layout
//! keeps to it.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that panics has failed")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use syn::visit::{self, Visit};
use syn::{Attribute, Item, UseTree, Visibility};

/// A module, by the segments of its path below the crate.
type Module = Vec<String>;

/// The source texts of a crate, by module.
type Sources = BTreeMap<Module, String>;

/// What one file imports, in full paths, and what it re-exports under which name.
#[derive(Default)]
struct Imports {
    paths: Vec<Vec<String>>,
    exports: BTreeMap<String, Vec<String>>,
}

fn is_test(attributes: &[Attribute]) -> bool {
    let is_test = |attribute: &Attribute| {
        attribute.path().is_ident("cfg")
            && attribute.parse_args::<syn::Ident>().is_ok_and(|condition| condition == "test")
    };
    attributes.iter().any(is_test)
}

/// The paths of a `use` item, each with the name that it brings into scope.
fn flatten(tree: &UseTree, prefix: &[String], all: &mut Vec<(String, Vec<String>)>) {
    let with = |name: &syn::Ident| [prefix, &[name.to_string()]].concat();
    match tree {
        UseTree::Path(path) => flatten(&path.tree, &with(&path.ident), all),
        UseTree::Name(name) if name.ident == "self" => {
            all.push((prefix.last().cloned().unwrap_or_default(), prefix.to_vec()));
        }
        UseTree::Name(name) => all.push((name.ident.to_string(), with(&name.ident))),
        UseTree::Rename(rename) => all.push((rename.rename.to_string(), with(&rename.ident))),
        UseTree::Glob(_) => all.push((String::new(), prefix.to_vec())),
        UseTree::Group(group) => group.items.iter().for_each(|tree| flatten(tree, prefix, all)),
    }
}

impl<'ast> Visit<'ast> for Imports {
    fn visit_item(&mut self, item: &'ast Item) {
        let attributes = match item {
            Item::Mod(module) => &module.attrs,
            Item::Fn(function) => &function.attrs,
            Item::Use(import) => &import.attrs,
            Item::Impl(block) => &block.attrs,
            _ => return visit::visit_item(self, item),
        };
        if !is_test(attributes) {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_use(&mut self, import: &'ast syn::ItemUse) {
        let mut all = Vec::new();
        flatten(&import.tree, &[], &mut all);
        for (name, path) in all {
            if !matches!(import.vis, Visibility::Inherited) {
                self.exports.insert(name, path.clone());
            }
            self.paths.push(path);
        }
    }

    // `pub(in crate::room)` imports nothing.
    fn visit_visibility(&mut self, _: &'ast Visibility) {}

    fn visit_path(&mut self, path: &'ast syn::Path) {
        self.paths.push(path.segments.iter().map(|segment| segment.ident.to_string()).collect());
        visit::visit_path(self, path);
    }
}

/// Which files import which. A file and the module that it is a part of count as one: they may import each other.
fn graph(sources: &Sources) -> BTreeMap<Module, BTreeSet<Module>> {
    let parsed: BTreeMap<&Module, Imports> = sources
        .iter()
        .map(|(module, text)| {
            let mut imports = Imports::default();
            imports.visit_file(&syn::parse_file(text).unwrap_or_else(|error| panic!("{module:?}: {error}")));
            (module, imports)
        })
        .collect();
    let edges = |module: &Module| {
        let imported = parsed[module].paths.iter().filter_map(|path| resolve(&parsed, module, path, 0));
        let is_relative = |other: &Module| {
            let is_parent = |above: &Module, below: &Module| below.split_last().is_some_and(|(_, rest)| rest == above);
            other == module || is_parent(other, module) || is_parent(module, other)
        };
        imported.filter(|other| !is_relative(other)).collect()
    };
    sources.keys().map(|module| (module.clone(), edges(module))).collect()
}

/// The file in which a path of a module ends, through re-exports.
fn resolve(parsed: &BTreeMap<&Module, Imports>, module: &Module, path: &[String], hops: usize) -> Option<Module> {
    let supers = path.iter().take_while(|segment| *segment == "super").count();
    let absolute: Vec<String> = match path.first()?.as_str() {
        "crate" => path[1..].to_vec(),
        "self" => [module, &path[1..]].concat(),
        "super" => [&module[..module.len().checked_sub(supers)?], &path[supers..]].concat(),
        child => {
            let child = [module.as_slice(), &[child.to_owned()]].concat();
            parsed.contains_key(&child).then(|| [module, path].concat())?
        }
    };
    let length = (0..=absolute.len()).rev().find(|length| parsed.contains_key(&absolute[..*length].to_vec()))?;
    let (found, rest) = (absolute[..length].to_vec(), &absolute[length..]);
    let exported = rest.first().and_then(|name| parsed[&found].exports.get(name)).filter(|_| hops < 8);
    match exported {
        Some(exported) => {
            let further = [exported.as_slice(), &rest[1..]].concat();
            resolve(parsed, &found, &further, hops + 1).or(Some(found))
        }
        None => Some(found),
    }
}

/// The files that import themselves through others.
fn on_circles(graph: &BTreeMap<Module, BTreeSet<Module>>) -> BTreeSet<String> {
    let comes_back = |start: &&Module| {
        let (mut seen, mut next) = (BTreeSet::new(), vec![*start]);
        while let Some(module) = next.pop() {
            for other in &graph[module] {
                if other == *start {
                    return true;
                }
                if seen.insert(other) {
                    next.push(other);
                }
            }
        }
        false
    };
    graph.keys().filter(comes_back).map(|module| module.join("::")).collect()
}

/// The lines of a layout that a module writes down: the names of its parts, from those that import nothing upwards.
fn layout(text: &str) -> Vec<Vec<String>> {
    let docs: Vec<&str> = text.lines().map_while(|line| line.strip_prefix("//!")).collect();
    let Some(begin) = docs.iter().position(|line| line.trim_start().starts_with("Layout")) else { return Vec::new() };
    let mut lines: Vec<Vec<String>> = Vec::new();
    for line in &docs[begin + 1..] {
        let names = line.split('`').skip(1).step_by(2).map(str::to_owned);
        match lines.last_mut() {
            _ if line.starts_with(" - ") => lines.push(names.collect()),
            Some(last) if line.starts_with("   ") => last.extend(names),
            _ => break,
        }
    }
    lines
}

/// What breaks the layouts: parts that no line names, and imports of a part on the same line or a later one.
fn broken_layouts(sources: &Sources, graph: &BTreeMap<Module, BTreeSet<Module>>) -> Vec<String> {
    let mut broken = Vec::new();
    for (room, text) in sources {
        let lines = layout(text);
        let line = |module: &Module| {
            let part = module.strip_prefix(room.as_slice())?.first()?;
            Some(lines.iter().position(|line| line.contains(part)))
        };
        for (module, imported) in graph.iter().filter(|(module, _)| !lines.is_empty() && line(module).is_some()) {
            let name = module.join("::");
            let Some(Some(own)) = line(module) else {
                broken.push(format!("{name} is in no line of the layout"));
                continue;
            };
            for other in imported.iter().filter(|other| other.get(..=room.len()) != module.get(..=room.len())) {
                if line(other).flatten().is_some_and(|other| other >= own) {
                    broken.push(format!("{name} imports {}, which is not above it", other.join("::")));
                }
            }
        }
    }
    broken
}

fn read(folder: &Path, module: &[String], sources: &mut Sources) {
    for entry in fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path()) {
        let name = entry.file_stem().expect("a name").to_string_lossy().into_owned();
        let below = match (name.as_str(), module) {
            ("lib", []) => Vec::new(),
            _ => [module, std::slice::from_ref(&name)].concat(),
        };
        if entry.is_dir() {
            read(&entry, &below, sources);
        } else if entry.extension().is_some_and(|extension| extension == "rs") && (name != "main" || !module.is_empty())
        {
            sources.insert(below, fs::read_to_string(&entry).expect("a text"));
        }
    }
}

#[test]
fn no_files_import_each_other_in_a_circle() {
    let mut sources = Sources::new();
    read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &[], &mut sources);
    assert!(sources.len() > 200, "{} files", sources.len());
    let graph = graph(&sources);
    assert_eq!(on_circles(&graph), BTreeSet::new());
    assert_eq!(broken_layouts(&sources, &graph), Vec::<String>::new());
}

fn of(files: &[(&str, &str)]) -> Sources {
    let module = |path: &str| path.split("::").filter(|part| !part.is_empty()).map(str::to_owned).collect();
    files.iter().map(|(path, text)| (module(path), (*text).to_owned())).collect()
}

#[test]
fn a_circle_through_a_re_export_is_found() {
    let sources = of(&[
        ("", "mod a; mod b;"),
        ("a", "mod inner; pub use inner::Thing;"),
        ("a::inner", "use crate::b::Other; pub struct Thing(Other);"),
        ("b", "use crate::a::Thing; pub struct Other(Box<Thing>); #[cfg(test)] mod tests { use crate::c::None; }"),
    ]);
    assert_eq!(on_circles(&graph(&sources)), BTreeSet::from(["a::inner".to_owned(), "b".to_owned()]));
    let sources = of(&[
        ("", "mod a; mod b;"),
        ("a", "pub(in crate::b) struct Thing;"),
        ("b", "fn f() -> crate::a::Thing { crate::a::Thing }"),
    ]);
    assert_eq!(on_circles(&graph(&sources)), BTreeSet::new());
}

#[test]
fn an_import_from_a_line_to_a_later_one_is_found() {
    let room = "//! A room.\n//!\n//! Layout:\n//! - `low`\n//! - `high`,\n//!   `higher`\n\nmod low; mod high; mod higher; mod other;";
    let files = |low: &'static str| {
        let text = [("room", room), ("room::low", low), ("room::high", "use super::low::A;"), ("room::higher", "")];
        of(&[[("", "mod room;")].as_slice(), &text].concat())
    };
    let sources = files("pub struct A;");
    assert_eq!(broken_layouts(&sources, &graph(&sources)), Vec::<String>::new());
    let sources = files("use super::higher::B; pub struct A;");
    assert_eq!(broken_layouts(&sources, &graph(&sources)), ["room::low imports room::higher, which is not above it"]);
    let mut sources = files("pub struct A;");
    sources.extend(of(&[("room::other", "")]));
    assert_eq!(broken_layouts(&sources, &graph(&sources)), ["room::other is in no line of the layout"]);
}
