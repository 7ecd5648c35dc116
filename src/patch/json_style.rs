//! How a JSON document is written, and the ways to write the patched one.
//!
//! Every token and white space of the old version is kept. What is new is written as the old version's writer would have; where
//! the old version does not show how, in each of the usual ways.

use super::json::{self, BOM, Items, Member, Span, Text, Tree, Value};
use super::json_number::Numbers;
use super::json_string::Strings;
use super::{Document, Trial};

/// How a document's white space is laid out.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Style {
    /// One level of indentation; `None` if all is on one line.
    indent: Option<String>,
    newline: &'static str,
    /// What is between a comma and the end of the line.
    lead: String,
    /// What follows a comma within a line.
    comma: String,
    colon: String,
    /// What is within brackets with nothing in them.
    empty_array: String,
    empty_object: String,
    strings: Strings,
}

/// How containers that came with the patch are laid out in an indented document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fresh {
    /// As the others.
    Style,
    /// On one line if they have scalars only.
    FlatOnOneLine,
    /// On one line.
    OnOneLine,
}

/// One way to write a document.
#[derive(Debug, Clone)]
struct Plan {
    style: Style,
    sorted: bool,
    numbers: Numbers,
    fresh: Fresh,
}

/// How the old version is written, as far as the writing of the new one needs it.
#[derive(Debug)]
pub(super) struct Look {
    bom: bool,
    lead: Span,
    trail: Span,
    style: Style,
    open: Open,
    order: Order,
}

impl Look {
    pub(super) fn of(text: &Text, tree: &Tree, bytes: &[u8]) -> Self {
        let (style, open) = Style::of(text, tree);
        let order = Order::of(text, &tree.root);
        Self { bom: bytes.starts_with(BOM), lead: tree.lead, trail: tree.trail, style, open, order }
    }
}

/// Tries the ways to write a value that was made of the old version, which looked so.
pub(super) fn find(text: &Text, look: &Look, after: &Value, trial: &mut Trial<'_>) -> Option<Vec<u8>> {
    let style = &look.style;
    let facts = Facts::of(text, after);
    // Few keys may be in order by chance; then what came with the patch has a say.
    let is_sorted = match look.order {
        Order::Sorted { pairs } => pairs > 5 || (pairs > 0 && facts.is_fresh_sorted),
        Order::Unsorted => false,
    };
    let orders: &[bool] = match (facts.is_sorted, is_sorted) {
        (true, _) => &[false],
        (false, true) => &[true, false],
        (false, false) => &[false, true],
    };
    for plan in plans(style, &look.open, &facts, orders) {
        if trial.is_spent() {
            return None;
        }
        let mut writer = Writer { text, plan: &plan, out: String::new(), most: trial.most() };
        writer.out.push_str(text.get(look.lead));
        writer.value(after, 0);
        writer.out.push_str(text.get(look.trail));
        if writer.is_full() {
            trial.written = trial.written.saturating_add(writer.out.len());
            continue;
        }
        let bytes = if look.bom { [BOM, writer.out.as_bytes()].concat() } else { writer.out.into_bytes() };
        if let Some(found) = trial.offer(bytes) {
            return Some(found);
        }
    }
    None
}

/// The ways to write a value, the likely ones first, with the members in one of these `orders`.
fn plans(style: &Style, open: &Open, facts: &Facts, orders: &[bool]) -> Vec<Plan> {
    let fresh: &[Fresh] = match facts.fresh && style.indent.is_some() {
        true => &[Fresh::Style, Fresh::FlatOnOneLine, Fresh::OnOneLine],
        false => &[Fresh::Style],
    };
    let mut ranked = Vec::new();
    for (a, style) in style.variants(open).into_iter().enumerate() {
        for (b, &sorted) in orders.iter().enumerate() {
            for (c, &numbers) in facts.numbers.iter().enumerate() {
                for (d, &fresh) in fresh.iter().enumerate() {
                    ranked.push((a + b + c + d, Plan { style: style.clone(), sorted, numbers, fresh }));
                }
            }
        }
    }
    ranked.sort_by_key(|(unlikely, _)| *unlikely);
    ranked.into_iter().map(|(_, plan)| plan).collect()
}

/// What the old version says nothing about.
#[derive(Debug, Default)]
struct Open {
    ascii: bool,
    slash: bool,
    comma: bool,
    lead: bool,
    colon: bool,
    layout: bool,
}

impl Style {
    fn of(text: &Text, tree: &Tree) -> (Self, Open) {
        let mut seen = Seen::default();
        seen.value(text, &tree.root, 0);
        let (mut strings, ascii, slash) = Strings::of(text.get_document(Document::Old));
        if ascii {
            // The patch most likely has the same writer. If it says nothing either: spaces within a line are the mark
            // of Python, which escapes unless told not to.
            let (of_patch, is_open, _) = Strings::of(text.get_document(Document::Patch));
            let is_like_python = seen.indent.is_none() && seen.comma.as_deref() == Some(" ");
            strings.ascii = if is_open { is_like_python } else { of_patch.ascii };
            strings.upper |= of_patch.upper;
        }
        let open = Open {
            ascii,
            slash,
            comma: seen.indent.is_none() && seen.comma.is_none(),
            lead: seen.indent.is_some() && seen.lead.is_none(),
            colon: seen.colon.is_none(),
            layout: seen.indent.is_none() && seen.comma.is_none() && seen.colon.is_none(),
        };
        let pretty = seen.indent.is_some();
        let comma = seen.comma.unwrap_or_else(|| match &seen.colon {
            Some(colon) if !pretty && colon == ":" => String::new(),
            _ => " ".to_owned(),
        });
        let colon = seen.colon.unwrap_or_else(|| if comma.is_empty() { ":".to_owned() } else { ": ".to_owned() });
        let style = Self {
            indent: seen.indent,
            newline: if seen.crlf { "\r\n" } else { "\n" },
            lead: seen.lead.unwrap_or_default(),
            comma,
            colon,
            empty_array: seen.empty_array.clone().or(seen.empty_object.clone()).unwrap_or_default(),
            empty_object: seen.empty_object.or(seen.empty_array).unwrap_or_default(),
            strings,
        };
        (style, open)
    }

    /// This style, and those that differ from it in what the old version says nothing about.
    fn variants(&self, open: &Open) -> Vec<Self> {
        let mut all = vec![self.clone()];
        let mut vary = |changes: &[fn(&mut Self)]| {
            let more: Vec<Self> = changes
                .iter()
                .flat_map(|change| {
                    all.iter().map(move |style| {
                        let mut style = style.clone();
                        change(&mut style);
                        style
                    })
                })
                .collect();
            for style in more {
                if !all.contains(&style) {
                    all.push(style);
                }
            }
        };
        if open.ascii {
            vary(&[|style| style.strings.ascii = !style.strings.ascii]);
        }
        if open.comma || open.colon {
            vary(&[
                |style| (style.comma, style.colon) = (String::new(), ":".to_owned()),
                |style| (style.comma, style.colon) = (" ".to_owned(), ": ".to_owned()),
            ]);
        }
        if open.layout {
            vary(&[|style| style.indent = Some("  ".to_owned()), |style| style.indent = Some("    ".to_owned())]);
        }
        if open.lead {
            vary(&[|style| style.lead = " ".to_owned()]);
        }
        if open.slash {
            vary(&[|style| style.strings.slash = true]);
        }
        all
    }
}

/// What is found of a style, from the first place that tells.
#[derive(Debug, Default)]
struct Seen {
    indent: Option<String>,
    crlf: bool,
    lead: Option<String>,
    comma: Option<String>,
    colon: Option<String>,
    empty_array: Option<String>,
    empty_object: Option<String>,
}

impl Seen {
    fn value(&mut self, text: &Text, value: &Value, depth: usize) {
        let Some(items) = value.items() else { return };
        let open = text.get(items.open);
        if items.members.is_empty() {
            let slot = if matches!(value, Value::Array(_)) { &mut self.empty_array } else { &mut self.empty_object };
            slot.get_or_insert_with(|| usual(open).to_owned());
            return;
        }
        if self.indent.is_none()
            && let Some((_, indent)) = open.rsplit_once('\n')
        {
            // The indentation of so many levels; what is no multiple of it was set by hand.
            let unit = indent.get(..indent.len() / (depth + 1)).unwrap_or_default();
            self.indent = Some(usual(unit).to_owned());
            self.crlf = open.contains("\r\n");
        }
        for member in &items.members {
            if member.before.is_known() {
                let before = text.get(member.before);
                match before.split_once('\n') {
                    Some((lead, _)) => {
                        self.lead.get_or_insert_with(|| usual(lead.trim_end_matches('\r')).to_owned());
                    }
                    None => {
                        self.comma.get_or_insert_with(|| usual(before).to_owned());
                    }
                }
            }
            if member.colon.is_known() {
                self.colon.get_or_insert_with(|| usual(text.get(member.colon)).to_owned());
            }
            self.value(text, &member.value, depth + 1);
        }
    }
}

/// White space of a length that a writer would make of its own accord; of more than that, the beginning.
fn usual(space: &str) -> &str {
    space.get(..space.len().min(16)).unwrap_or_default()
}

/// Whether the keys of a document are in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Order {
    /// They are, in so many pairs of neighbours.
    Sorted {
        pairs: usize,
    },
    Unsorted,
}

impl Order {
    fn of(text: &Text, value: &Value) -> Self {
        let Some(items) = value.items() else { return Self::Sorted { pairs: 0 } };
        let mut pairs = 0;
        if matches!(value, Value::Object(_)) {
            if !has_sorted_keys(text, items) {
                return Self::Unsorted;
            }
            pairs = items.members.len().saturating_sub(1);
        }
        for member in &items.members {
            match Self::of(text, &member.value) {
                Self::Unsorted => return Self::Unsorted,
                Self::Sorted { pairs: more } => pairs += more,
            }
        }
        Self::Sorted { pairs }
    }
}

fn has_sorted_keys(text: &Text, items: &Items) -> bool {
    items.members.iter().map(|member| json::decode(text.get(member.key))).is_sorted()
}

/// What in the patched document leaves room for more than one way.
#[derive(Debug)]
struct Facts {
    is_sorted: bool,
    /// The keys that came with the patch are in order within their own objects; if not, so are its writer's hardly.
    is_fresh_sorted: bool,
    /// There is a container that came with the patch.
    fresh: bool,
    /// The ways to write numbers that differ for the patch's.
    numbers: Vec<Numbers>,
}

impl Facts {
    fn of(text: &Text, root: &Value) -> Self {
        let mut facts = Self {
            is_sorted: Order::of(text, root) != Order::Unsorted,
            is_fresh_sorted: true,
            fresh: false,
            numbers: vec![Numbers::AsWritten],
        };
        facts.value(text, root);
        facts
    }

    fn value(&mut self, text: &Text, value: &Value) {
        match value {
            Value::Scalar(token) => {
                let written = text.get(*token);
                for numbers in [Numbers::Python, Numbers::JavaScript] {
                    if text.is_new(*token) && !self.numbers.contains(&numbers) && numbers.write(written) != written {
                        self.numbers.push(numbers);
                    }
                }
            }
            Value::Array(items) | Value::Object(items) => {
                let is_fresh = items.depth.is_none() && !items.members.is_empty();
                self.fresh |= is_fresh;
                if is_fresh && matches!(value, Value::Object(_)) {
                    self.is_fresh_sorted &= has_sorted_keys(text, items);
                }
                for member in &items.members {
                    self.value(text, &member.value);
                }
            }
        }
    }
}

/// Writes a document by a plan.
struct Writer<'t> {
    text: &'t Text,
    plan: &'t Plan,
    out: String,
    /// Where it is given up.
    most: usize,
}

impl Writer<'_> {
    fn is_full(&self) -> bool {
        self.out.len() > self.most
    }

    fn token(&mut self, token: Span) {
        let (written, is_new) = (self.text.get(token), self.text.is_new(token));
        if !is_new {
            self.out.push_str(written);
        } else if written.starts_with('"') {
            self.plan.style.strings.write(written, &mut self.out);
        } else {
            self.out.push_str(&self.plan.numbers.write(written));
        }
    }

    fn value(&mut self, value: &Value, depth: usize) {
        if self.is_full() {
            return;
        }
        match value {
            Value::Scalar(token) => self.token(*token),
            Value::Array(items) => self.items(items, ['[', ']'], &self.plan.style.empty_array, depth),
            Value::Object(items) => self.items(items, ['{', '}'], &self.plan.style.empty_object, depth),
        }
    }

    fn items(&mut self, items: &Items, [begin, end]: [char; 2], empty: &str, depth: usize) {
        let text = self.text;
        let open = text.get(items.open);
        let is_kept = items.depth.is_some_and(|at| usize::from(at) == depth || !open.contains('\n'));
        self.out.push(begin);
        if items.members.is_empty() {
            self.out.push_str(if is_kept { open } else { empty });
        } else if is_kept {
            self.kept(items, open, depth);
        } else {
            self.laid_out(items, depth);
        }
        self.out.push(end);
    }

    /// Writes what is in a container with its own white space; what a new member lacks is taken from the others.
    fn kept(&mut self, items: &Items, open: &str, depth: usize) {
        let (text, style) = (self.text, &self.plan.style);
        let usual = |of: fn(&Member) -> Span, otherwise| {
            let known = items.members.iter().map(of).find(|span| span.is_known());
            known.map_or(otherwise, |span| text.get(span))
        };
        let before = usual(|member| member.before, if open.contains('\n') { open } else { &style.comma });
        let after = usual(|member| member.after, "");
        let colon = usual(|member| member.colon, &style.colon);
        let or = |span: Span, usual| if span.is_known() { text.get(span) } else { usual };
        for (slot, (member, place)) in in_order(text, items, self.plan.sorted).zip(&items.members).enumerate() {
            if slot == 0 {
                self.out.push_str(open);
            } else {
                self.out.push(',');
                self.out.push_str(or(place.before, before));
            }
            if member.key.is_known() {
                self.token(member.key);
                self.out.push_str(or(member.colon, colon));
            }
            self.value(&member.value, depth + 1);
            if slot + 1 < items.members.len() {
                self.out.push_str(or(place.after, after));
            }
        }
        self.out.push_str(text.get(items.close));
    }

    /// Writes what is in a container with the style's white space.
    fn laid_out(&mut self, items: &Items, depth: usize) {
        let style = &self.plan.style;
        let on_one_line = match self.plan.fresh {
            Fresh::Style => false,
            Fresh::FlatOnOneLine => items.members.iter().all(|member| member.value.items().is_none()),
            Fresh::OnOneLine => true,
        };
        let indent = style.indent.as_deref().filter(|_| !on_one_line);
        let line = |out: &mut String, depth: usize| {
            if let Some(indent) = indent {
                out.push_str(style.newline);
                out.extend(std::iter::repeat_n(indent, depth));
            }
        };
        for (slot, member) in in_order(self.text, items, self.plan.sorted).enumerate() {
            if slot > 0 {
                self.out.push(',');
                self.out.push_str(if indent.is_some() { &style.lead } else { &style.comma });
            }
            line(&mut self.out, depth + 1);
            if member.key.is_known() {
                self.token(member.key);
                self.out.push_str(&style.colon);
            }
            self.value(&member.value, depth + 1);
        }
        line(&mut self.out, depth);
    }
}

/// The members in the order in which to write them.
fn in_order<'v>(text: &Text, items: &'v Items, sorted: bool) -> impl Iterator<Item = &'v Member> {
    let has_keys = items.members.first().is_some_and(|member| member.key.is_known());
    let mut places: Vec<usize> = (0..items.members.len()).collect();
    if sorted && has_keys {
        places.sort_by_cached_key(|&at| items.members.get(at).map(|member| json::decode(text.get(member.key))));
    }
    places.into_iter().filter_map(|at| items.members.get(at))
}
