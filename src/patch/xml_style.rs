//! The ways to write a patched XML document.
//!
//! The likeliest is every node as it was written, in the old version or in the patch. Next, new nodes are written in the old
//! version's style, and then as canonical XML.

use super::Trial;
use super::xml::{Id, Kind, Tree};
use super::xml_encoding::Encoding;
use super::xml_tag::{self, Attribute, Stretch, is_space, line_ends};
use std::borrow::Cow;

/// How an element with nothing in it is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Empty {
    /// `<a/>`
    Short,
    /// `<a />`
    Spaced,
    /// `<a></a>`
    Long,
}

/// How a writer writes what it does not keep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Writer {
    empty: Empty,
    /// `>` is a reference in text.
    text_greater: bool,
    /// `>` is a reference in attributes.
    value_greater: bool,
    /// Characters beyond ASCII are references.
    ascii: bool,
    /// CDATA sections are written as other text.
    no_cdata: bool,
    /// Namespace declarations come first, and both these and attributes in alphabetical order, as in canonical XML and, nearly, in
    /// Java's DOM.
    sorted: bool,
}

/// One way to write a document.
#[derive(Debug, Clone)]
struct Plan {
    /// Whether what is new or was changed is written as this writer does, and not as it is in the patch.
    restyled: bool,
    writer: Writer,
    /// Elements that have lost their content.
    emptied: Empty,
    /// New text has these line ends.
    crlf: bool,
}

/// How the old version is written, as far as the writing of the new one needs it.
#[derive(Debug)]
pub(super) struct Look {
    writer: Writer,
    crlf: bool,
    encoding: Encoding,
}

impl Look {
    pub(super) fn of(tree: &Tree<'_>, text: &str, encoding: Encoding) -> Self {
        let (mut short, mut spaced, mut long) = (0, 0, 0);
        let (mut raw_greater, mut value_greater) = (false, true);
        let (mut pairs, mut is_sorted) = (0, true);
        for id in 0..tree.len() {
            let node = tree.node(id);
            match &node.kind {
                Kind::Element { start, end } => {
                    let counter = match (end.is_empty(), start.ends_with(" />")) {
                        (true, true) => Some(&mut spaced),
                        (true, false) => Some(&mut short),
                        (false, _) if node.children.is_empty() => Some(&mut long),
                        (false, _) => None,
                    };
                    if let Some(counter) = counter {
                        *counter += 1;
                    }
                    let rank = |one: &Attribute<'_>| (one.declares().is_none(), one.name.to_owned());
                    is_sorted &= xml_tag::attributes(start).map(|one| rank(&one)).is_sorted();
                    pairs += xml_tag::attributes(start).count().saturating_sub(1);
                    value_greater &= !xml_tag::attributes(start).any(|one| one.raw.contains('>'));
                }
                Kind::Text(raw) => raw_greater |= raw.contains('>') && !raw.contains(xml_tag::CDATA),
                _ => {}
            }
        }
        let empty = match () {
            () if long > short.max(spaced) => Empty::Long,
            () if spaced > short => Empty::Spaced,
            () => Empty::Short,
        };
        let wide = |name: &str| xml_tag::resolve(name).is_some_and(|char| !char.is_ascii());
        let writer = Writer {
            empty,
            text_greater: !raw_greater,
            value_greater,
            ascii: text.is_ascii() && xml_tag::references(text).flatten().any(|(_, name)| wide(name)),
            no_cdata: false,
            // Few may be in order by chance.
            sorted: is_sorted && pairs > 5,
        };
        let crlf = text.contains("\r\n") && text.matches("\r\n").count() * 2 > text.matches('\n').count();
        Self { writer, crlf, encoding }
    }
}

/// Tries the ways to write a tree that was made of the old version, which looked so.
pub(super) fn find(tree: &Tree<'_>, look: &Look, trial: &mut Trial<'_>) -> Option<Vec<u8>> {
    for plan in plans(tree, look) {
        if trial.is_spent() {
            return None;
        }
        let mut written = Written { tree, plan: &plan, out: String::new(), most: trial.most() };
        written.document();
        if written.is_full() {
            trial.written = trial.written.saturating_add(written.out.len());
            continue;
        }
        if let Some(found) = trial.offer(look.encoding.write(&written.out)) {
            return Some(found);
        }
    }
    None
}

/// The ways to write a tree, the likely ones first.
fn plans(tree: &Tree<'_>, look: &Look) -> Vec<Plan> {
    let base = Plan { restyled: false, writer: look.writer, emptied: look.writer.empty, crlf: look.crlf };
    let mut plans = near(tree, look, &base);
    // Canonical XML differs from what is likely in more than one way.
    let canonical = Writer {
        empty: Empty::Long,
        text_greater: true,
        value_greater: false,
        ascii: false,
        no_cdata: true,
        sorted: true,
    };
    plans.push(Plan { restyled: true, writer: canonical, emptied: Empty::Long, ..base });
    plans
}

/// What is near to how the old version is written.
fn near(tree: &Tree<'_>, look: &Look, base: &Plan) -> Vec<Plan> {
    let empties = [look.writer.empty, Empty::Short, Empty::Spaced, Empty::Long];
    let is_emptied = (0..tree.len()).any(|id| tree.node(id).emptied);
    // What is new as it came, then as the old version's writer would have it.
    let mut near = Vec::new();
    let is_fresh = (0..tree.len()).any(|id| tree.node(id).fresh);
    for &restyled in if is_fresh { &[false, true][..] } else { &[false] } {
        for &empty in if is_emptied || restyled { &empties[..] } else { &empties[..1] } {
            let writer = Writer { empty, ..base.writer };
            near.push(Plan { restyled, writer, emptied: empty, ..base.clone() });
        }
    }
    let mut plans = near.clone();
    if look.crlf {
        plans.extend(near.iter().map(|plan| Plan { crlf: false, ..plan.clone() }));
    }
    let flips: [fn(&mut Writer); 5] = [
        |writer| writer.text_greater = !writer.text_greater,
        |writer| writer.value_greater = !writer.value_greater,
        |writer| writer.ascii = !writer.ascii,
        |writer| writer.no_cdata = !writer.no_cdata,
        |writer| writer.sorted = !writer.sorted,
    ];
    for plan in near.iter().filter(|plan| plan.restyled) {
        for flip in flips {
            let mut plan = plan.clone();
            flip(&mut plan.writer);
            plans.push(plan);
        }
    }
    plans
}

/// A document being written.
struct Written<'a, 't> {
    tree: &'a Tree<'t>,
    plan: &'a Plan,
    out: String,
    /// Where it is given up.
    most: usize,
}

impl Written<'_, '_> {
    fn is_full(&self) -> bool {
        self.out.len() > self.most
    }

    fn document(&mut self) {
        for &id in &self.tree.node(Tree::ROOT).children {
            self.node(id);
        }
    }

    fn node(&mut self, id: Id) {
        if self.is_full() {
            return;
        }
        let node = self.tree.node(id);
        let is_anew = self.plan.restyled && node.fresh;
        match &node.kind {
            Kind::Root => {}
            Kind::Text(raw) if is_anew => {
                let text = text_anew(raw, self.plan.writer);
                self.push(&text, node.fresh);
            }
            Kind::Text(raw)
            | Kind::Comment(raw)
            | Kind::Instruction(raw)
            | Kind::Declaration(raw)
            | Kind::Doctype(raw) => self.push(raw, node.fresh),
            Kind::Element { start, end } => {
                let is_empty = node.children.is_empty();
                let anew = if is_anew { Some(tag_anew(start, self.plan.writer)) } else { None };
                let start = anew.as_deref().unwrap_or(start);
                if is_empty && (is_anew || node.emptied) {
                    let empty = if node.emptied { self.plan.emptied } else { self.plan.writer.empty };
                    self.empty(start, empty);
                    return;
                }
                self.push(start, node.fresh);
                for &child in &node.children {
                    self.node(child);
                }
                if is_anew && !end.is_empty() {
                    self.out.extend(["</", xml_tag::name(start), ">"]);
                } else {
                    self.push(end, node.fresh);
                }
            }
        }
    }

    fn push(&mut self, text: &str, fresh: bool) {
        if fresh && self.plan.crlf && text.contains('\n') {
            self.out.push_str(&line_ends(text).replace('\n', "\r\n"));
        } else {
            self.out.push_str(text);
        }
    }

    fn empty(&mut self, start: &str, empty: Empty) {
        let inner = start.strip_suffix('>').unwrap_or(start);
        let inner = inner.strip_suffix('/').unwrap_or(inner).trim_end_matches(is_space);
        self.out.push_str(inner);
        match empty {
            Empty::Short => self.out.push_str("/>"),
            Empty::Spaced => self.out.push_str(" />"),
            Empty::Long => self.out.extend(["></", xml_tag::name(start), ">"]),
        }
    }
}

/// A start tag with single spaces, double quotes and this writer's escapes.
fn tag_anew(tag: &str, writer: Writer) -> String {
    let mut out = format!("<{}", xml_tag::name(tag));
    let mut all: Vec<_> = xml_tag::attributes(tag).collect();
    if writer.sorted {
        all.sort_by_key(|one| (one.declares().is_none(), one.name));
    }
    for one in all {
        out.extend([" ", one.name, "=\""]);
        let raw = one.raw.replace("\r\n", " ").replace(['\t', '\n', '\r'], " ");
        escape(&raw, &mut out, |char| match char {
            '"' => Some(Cow::Borrowed("&quot;")),
            '>' if writer.value_greater => Some(Cow::Borrowed("&gt;")),
            '\t' => Some(Cow::Borrowed("&#9;")),
            '\n' => Some(Cow::Borrowed("&#10;")),
            _ => common(char, writer),
        });
        out.push('"');
    }
    out.push('>');
    out
}

/// Text with this writer's escapes.
fn text_anew(raw: &str, writer: Writer) -> String {
    let mut out = String::with_capacity(raw.len());
    for stretch in xml_tag::stretches(raw) {
        let escaped = |char| match char {
            '>' if writer.text_greater => Some(Cow::Borrowed("&gt;")),
            _ => common(char, writer),
        };
        match stretch {
            Stretch::Plain(text) => escape(&line_ends(text), &mut out, escaped),
            Stretch::Cdata(inner) if writer.no_cdata => plain(&line_ends(inner), &mut out, escaped),
            Stretch::Cdata(inner) => out.extend([xml_tag::CDATA, &line_ends(inner), "]]>"]),
        }
    }
    out
}

/// What is a reference both in text and in attributes.
fn common(char: char, writer: Writer) -> Option<Cow<'static, str>> {
    match char {
        '&' => Some(Cow::Borrowed("&amp;")),
        '<' => Some(Cow::Borrowed("&lt;")),
        '\r' => Some(Cow::Borrowed("&#13;")),
        _ if writer.ascii && !char.is_ascii() => Some(Cow::Owned(format!("&#{};", u32::from(char)))),
        _ => None,
    }
}

/// Writes text anew: its references as what they stand for, and that as `escaped` has it; entities stay.
fn escape(raw: &str, out: &mut String, escaped: impl Fn(char) -> Option<Cow<'static, str>>) {
    let mut done = 0;
    for (range, name) in xml_tag::references(raw).map_while(Result::ok) {
        plain(raw.get(done..range.start).unwrap_or_default(), out, &escaped);
        match xml_tag::resolve(name) {
            Some(char) => plain(char.encode_utf8(&mut [0; 4]), out, &escaped),
            None => out.push_str(raw.get(range.clone()).unwrap_or_default()),
        }
        done = range.end;
    }
    plain(raw.get(done..).unwrap_or_default(), out, &escaped);
}

/// Writes characters as `escaped` has them.
fn plain(text: &str, out: &mut String, escaped: impl Fn(char) -> Option<Cow<'static, str>>) {
    let mut done = 0;
    // No writer has a reference for a letter, a digit or a space, and these are nearly all.
    let candidates = text.char_indices().filter(|(_, char)| !char.is_ascii_alphanumeric() && *char != ' ');
    for (at, char) in candidates {
        if let Some(reference) = escaped(char) {
            out.push_str(text.get(done..at).unwrap_or_default());
            out.push_str(&reference);
            done = at + char.len_utf8();
        }
    }
    out.push_str(text.get(done..).unwrap_or_default());
}
