//! Selectors: the subset of XPath 1.0 that RFC 5261 allows (section 4.1; as ABNF, RFC 7351, appendix B).

use super::xml::{Id, Kind, Tree};
use super::{Condition, PatchError, Steps, xml_tag};
use std::borrow::Cow;

/// What is wrong with a selector, or with what it finds.
pub(super) type Fault = (Condition, String);

/// A selector.
#[derive(Debug)]
pub(super) struct Selector {
    /// The argument of `id()`, if it begins so.
    id: Option<String>,
    steps: Vec<Step>,
}

#[derive(Debug)]
struct Step {
    test: Test,
    predicates: Vec<Predicate>,
}

/// A namespace, empty for none, and a local name.
type Name = (String, String);

#[derive(Debug)]
enum Test {
    /// `*`, or an element's name.
    Element(Option<Name>),
    Text,
    Comment,
    Instruction(Option<String>),
    Attribute(Name),
    Namespace(String),
}

#[derive(Debug)]
enum Predicate {
    Position(usize),
    Attribute(Name, String),
    Child(Name, String),
    /// `.`
    Itself(String),
}

/// The node that a selector finds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Target {
    /// An element, a comment or a processing instruction.
    Node(Id),
    /// The parts of a text node.
    Text(Vec<Id>),
    /// An attribute, by its name as it is written.
    Attribute(Id, String),
    /// A namespace, by its prefix.
    Namespace(Id, String),
}

impl Selector {
    /// Reads a selector; `namespace` tells the namespace of a prefix where the selector is.
    pub(super) fn read<'n>(text: &str, namespace: &dyn Fn(&str) -> Option<Cow<'n, str>>) -> Result<Self, Fault> {
        let mut cursor = Cursor { rest: text.trim_matches(xml_tag::is_space), namespace };
        cursor.eat("/");
        let mut id = None;
        if cursor.eat("id(") {
            id = Some(cursor.literal()?);
            cursor.need(")")?;
            if !cursor.rest.is_empty() {
                cursor.need("/")?;
            }
        }
        let mut steps: Vec<Step> = Vec::new();
        while id.is_none() && steps.is_empty() || !cursor.rest.is_empty() {
            if !steps.is_empty() {
                cursor.need("/")?;
            }
            if steps.last().is_some_and(|step| !matches!(step.test, Test::Element(_))) {
                return Err(cursor.fault("only elements have something in them"));
            }
            steps.push(cursor.step()?);
        }
        Ok(Self { id, steps })
    }

    /// Finds the one node that is meant.
    pub(super) fn locate(&self, tree: &Tree<'_>, steps: &mut Steps) -> Result<Result<Target, Fault>, PatchError> {
        let mut contexts = vec![Tree::ROOT];
        if let Some(id) = &self.id {
            match by_id(tree, id, steps)? {
                Ok(found) => contexts = found,
                Err(fault) => return Ok(Err(fault)),
            }
        }
        let mut found: Vec<Target> = contexts.iter().map(|&id| Target::Node(id)).collect();
        for step in &self.steps {
            let mut next = Vec::new();
            for target in found {
                let Target::Node(context) = target else { continue };
                match step.select(tree, context, steps)? {
                    Ok(more) => next.extend(more),
                    Err(fault) => return Ok(Err(fault)),
                }
            }
            found = next;
        }
        let count = found.len();
        Ok(match found.pop() {
            Some(target) if count == 1 => Ok(target),
            Some(_) => Err((Condition::UnlocatedNode, format!("{count} nodes are there, not one"))),
            None => Err((Condition::UnlocatedNode, "there is no such node".to_owned())),
        })
    }
}

/// The elements with an ID: `xml:id`, or an attribute that the internal subset of the DTD declares to be one.
fn by_id(tree: &Tree<'_>, id: &str, steps: &mut Steps) -> Result<Result<Vec<Id>, Fault>, PatchError> {
    steps.take(tree.len())?;
    let mut declared = Vec::new();
    let mut is_known = false;
    let mut found = Vec::new();
    // In document order, and without what was taken out of the tree.
    let mut stack = vec![Tree::ROOT];
    while let Some(node) = stack.pop() {
        let node_ref = tree.node(node);
        stack.extend(node_ref.children.iter().rev());
        match &node_ref.kind {
            Kind::Doctype(raw) => {
                steps.take(raw.len())?;
                declared = declared_ids(raw);
            }
            Kind::Element { start, .. } => {
                steps.take(start.len() / 8 * (1 + declared.len()))?;
                let name = xml_tag::name(start);
                for attribute in xml_tag::attributes(start) {
                    let is_id = attribute.name == "xml:id"
                        || declared.iter().any(|(of, id)| *of == name && *id == attribute.name);
                    is_known |= is_id;
                    if is_id && attribute.value().trim_matches(xml_tag::is_space) == id {
                        found.push(node);
                    }
                }
            }
            _ => {}
        }
    }
    if is_known || !declared.is_empty() {
        return Ok(Ok(found));
    }
    let why = "no attribute is known to be an ID: there is neither xml:id nor a declaration".to_owned();
    Ok(Err((Condition::UnsupportedIdFunction, why)))
}

/// The attributes that a DTD declares to be IDs, each with the element it is of.
fn declared_ids(doctype: &str) -> Vec<(&str, &str)> {
    let lists = doctype.split("<!ATTLIST").skip(1).filter_map(|rest| rest.split('>').next());
    lists
        .flat_map(|list| {
            let words: Vec<&str> = list.split_whitespace().collect();
            let element = words.first().copied().unwrap_or_default();
            let ids: Vec<_> = words
                .windows(3)
                .filter(|window| window[1] == "ID" && window[2].starts_with('#'))
                .map(|window| (element, window[0]))
                .collect();
            ids
        })
        .collect()
}

impl Step {
    /// The nodes this step leads to from a context.
    fn select(
        &self,
        tree: &Tree<'_>,
        context: Id,
        steps: &mut Steps,
    ) -> Result<Result<Vec<Target>, Fault>, PatchError> {
        let children = &tree.node(context).children;
        steps.take(children.len() + 1)?;
        let nodes = |wanted: &dyn Fn(&Kind<'_>) -> bool| {
            children.iter().copied().filter(|&child| wanted(&tree.node(child).kind)).map(Target::Node).collect()
        };
        let mut found: Vec<Target> = match &self.test {
            Test::Element(None) => nodes(&|kind| matches!(kind, Kind::Element { .. })),
            Test::Element(Some(name)) => {
                let mut found = Vec::new();
                for &child in children {
                    if is_named(tree, child, name, steps)? {
                        found.push(Target::Node(child));
                    }
                }
                found
            }
            Test::Comment => nodes(&|kind| matches!(kind, Kind::Comment(_))),
            Test::Instruction(target) => nodes(&|kind| match kind {
                Kind::Instruction(raw) => target.as_deref().is_none_or(|target| target == instruction_target(raw)),
                _ => false,
            }),
            // White space outside of the root element is no text node.
            Test::Text if context == Tree::ROOT => Vec::new(),
            Test::Text => children
                .chunk_by(|&one, &other| tree.text(one).is_some() == tree.text(other).is_some())
                .filter(|run| run.iter().all(|&id| tree.text(id).is_some()))
                .map(|run| Target::Text(run.to_vec()))
                .collect(),
            Test::Attribute(name) => {
                steps.take(tree.start(context).len() / 8)?;
                let found = find_attribute(tree, context, name, steps)?;
                found.map(|attribute| Target::Attribute(context, attribute.name.to_owned())).into_iter().collect()
            }
            Test::Namespace(prefix) => {
                steps.take(tree.start(context).len() / 8)?;
                if tree.declaration(context, prefix).is_none() {
                    let fault = match tree.namespace(context, prefix) {
                        None => (Condition::InvalidNamespacePrefix, format!("the prefix \"{prefix}\" is not declared")),
                        Some(_) => (
                            Condition::InvalidNamespaceUri,
                            format!("the prefix \"{prefix}\" is declared elsewhere than at the element"),
                        ),
                    };
                    return Ok(Err(fault));
                }
                vec![Target::Namespace(context, prefix.clone())]
            }
        };
        for predicate in &self.predicates {
            found = predicate.filter(tree, found, steps)?;
        }
        Ok(Ok(found))
    }
}

/// The target of a processing instruction.
pub(super) fn instruction_target(raw: &str) -> &str {
    let inner = raw.strip_prefix("<?").unwrap_or(raw);
    inner.split(|char: char| xml_tag::is_space(char) || char == '?').next().unwrap_or_default()
}

fn is_named(tree: &Tree<'_>, id: Id, (uri, local): &Name, steps: &mut Steps) -> Result<bool, PatchError> {
    if !tree.is_element(id) || xml_tag::split(xml_tag::name(tree.start(id))).1 != local {
        return Ok(false);
    }
    let looked_into = |id: Id| 1 + tree.start(id).len() / 64;
    steps.take(tree.upward(id).map(looked_into).sum())?;
    Ok(tree.expanded(id).0 == uri.as_str())
}

fn find_attribute<'a>(
    tree: &'a Tree<'_>,
    id: Id,
    (uri, local): &Name,
    steps: &mut Steps,
) -> Result<Option<xml_tag::Attribute<'a>>, PatchError> {
    let start = tree.start(id);
    let prefixed =
        || xml_tag::attributes(start).filter(|attribute| xml_tag::split(attribute.name) == ("", local)).count();
    let named = xml_tag::attributes(start).filter(|attribute| xml_tag::split(attribute.name).1 == local).count();
    if named > prefixed() {
        // Each prefix is looked for in all elements around.
        let around: usize = tree.upward(id).map(|id| 1 + tree.start(id).len() / 16).sum();
        steps.take(named.saturating_mul(around))?;
    }
    Ok(xml_tag::attributes(start).find(|attribute| {
        let (prefix, name) = xml_tag::split(attribute.name);
        name == local
            && attribute.declares().is_none()
            && if prefix.is_empty() {
                uri.is_empty()
            } else {
                tree.namespace(id, prefix).is_some_and(|namespace| namespace == uri.as_str())
            }
    }))
}

impl Predicate {
    fn filter(&self, tree: &Tree<'_>, found: Vec<Target>, steps: &mut Steps) -> Result<Vec<Target>, PatchError> {
        if let Self::Position(position) = self {
            return Ok(found.into_iter().skip(position.saturating_sub(1)).take(1).collect());
        }
        let mut kept = Vec::new();
        for target in found {
            let Target::Node(id) = target else { continue };
            steps.take(tree.start(id).len() / 8 + 1)?;
            let holds = match self {
                Self::Position(_) => false,
                Self::Attribute(name, value) => {
                    find_attribute(tree, id, name, steps)?.is_some_and(|attribute| attribute.value() == value.as_str())
                }
                Self::Itself(value) => has_value(tree, id, value, steps)?,
                Self::Child(name, value) => {
                    let mut any = false;
                    for &child in &tree.node(id).children {
                        steps.take(1)?;
                        any = is_named(tree, child, name, steps)? && has_value(tree, child, value, steps)?;
                        if any {
                            break;
                        }
                    }
                    any
                }
            };
            if holds {
                kept.push(target);
            }
        }
        Ok(kept)
    }
}

/// Whether the text within an element is this.
fn has_value(tree: &Tree<'_>, id: Id, value: &str, steps: &mut Steps) -> Result<bool, PatchError> {
    let mut rest = value;
    let mut stack = vec![id];
    while let Some(id) = stack.pop() {
        steps.take(1 + tree.text(id).map_or(0, |text| text.len() / 4))?;
        if let Some(raw) = tree.text(id) {
            match rest.strip_prefix(&*xml_tag::string_value(raw)) {
                Some(after) => rest = after,
                None => return Ok(false),
            }
        }
        stack.extend(tree.node(id).children.iter().rev());
    }
    Ok(rest.is_empty())
}

/// A selector being read.
struct Cursor<'s, 'n> {
    rest: &'s str,
    namespace: &'s dyn Fn(&str) -> Option<Cow<'n, str>>,
}

impl<'s> Cursor<'s, '_> {
    fn fault(&self, why: &str) -> Fault {
        let why = if self.rest.is_empty() {
            format!("the selector is not allowed: at its end, {why}")
        } else {
            format!("the selector is not allowed: at \"{}\", {why}", self.rest)
        };
        (Condition::InvalidAttributeValue, why)
    }

    fn eat(&mut self, token: &str) -> bool {
        match self.rest.strip_prefix(token) {
            Some(rest) => {
                self.rest = rest.trim_start_matches(xml_tag::is_space);
                true
            }
            None => false,
        }
    }

    fn need(&mut self, token: &str) -> Result<(), Fault> {
        if self.eat(token) { Ok(()) } else { Err(self.fault(&format!("a \"{token}\" is expected"))) }
    }

    fn literal(&mut self) -> Result<String, Fault> {
        let quote = self.rest.chars().next().filter(|quote| matches!(quote, '"' | '\''));
        let inner = quote.and_then(|quote| self.rest.get(1..)?.split_once(quote));
        let Some((literal, rest)) = inner else { return Err(self.fault("a quoted string is expected")) };
        self.rest = rest.trim_start_matches(xml_tag::is_space);
        Ok(literal.to_owned())
    }

    fn part(&mut self) -> Result<&'s str, Fault> {
        let end = |char: char| xml_tag::is_space(char) || "/[]()@='\":*|,<>!+$&".contains(char);
        let (name, rest) = self.rest.split_at(self.rest.find(end).unwrap_or(self.rest.len()));
        if name.is_empty() || name.starts_with(|first: char| first.is_ascii_digit() || matches!(first, '.' | '-')) {
            return Err(self.fault("a name is expected"));
        }
        self.rest = rest;
        Ok(name)
    }

    /// A qualified name. Without a prefix, an element's is in the default namespace, an attribute's in none.
    fn name(&mut self, is_element: bool) -> Result<Name, Fault> {
        let first = self.part()?;
        let (prefix, local) = if self.rest.starts_with(':') && !self.rest.starts_with("::") {
            self.rest = self.rest.get(1..).unwrap_or_default();
            (first, self.part()?)
        } else {
            ("", first)
        };
        self.eat("");
        if prefix.is_empty() && !is_element {
            return Ok((String::new(), local.to_owned()));
        }
        match (self.namespace)(prefix) {
            Some(uri) if prefix.is_empty() || !uri.is_empty() => Ok((uri.into_owned(), local.to_owned())),
            None if prefix.is_empty() => Ok((String::new(), local.to_owned())),
            _ => {
                let why = format!("the prefix \"{prefix}\" in the selector is not declared in the patch");
                Err((Condition::InvalidNamespacePrefix, why))
            }
        }
    }

    fn step(&mut self) -> Result<Step, Fault> {
        let test = if self.eat("*") {
            Test::Element(None)
        } else if self.eat("@") {
            Test::Attribute(self.name(false)?)
        } else if self.eat("namespace::") {
            let prefix = self.part()?.to_owned();
            self.eat("");
            Test::Namespace(prefix)
        } else if self.eat("text()") {
            Test::Text
        } else if self.eat("comment()") {
            Test::Comment
        } else if self.eat("processing-instruction(") {
            let target = if self.rest.starts_with(')') { None } else { Some(self.literal()?) };
            self.need(")")?;
            Test::Instruction(target)
        } else {
            Test::Element(Some(self.name(true)?))
        };
        let mut predicates = Vec::new();
        while self.rest.starts_with('[') {
            let predicate = self.predicate()?;
            match (&test, &predicate) {
                (Test::Element(_), _) => {}
                (Test::Text | Test::Comment | Test::Instruction(_), Predicate::Position(_)) => {}
                _ => return Err(self.fault("this predicate is not for such a node")),
            }
            predicates.push(predicate);
        }
        Ok(Step { test, predicates })
    }

    fn predicate(&mut self) -> Result<Predicate, Fault> {
        self.need("[")?;
        let digits = self.rest.len() - self.rest.trim_start_matches(|char: char| char.is_ascii_digit()).len();
        let predicate = if digits > 0 {
            let (number, rest) = self.rest.split_at(digits);
            let number = number.parse().ok().filter(|&number| number > 0);
            let number = number.ok_or_else(|| self.fault("a position counts from 1"))?;
            self.rest = rest.trim_start_matches(xml_tag::is_space);
            Predicate::Position(number)
        } else if self.eat(".") {
            self.need("=")?;
            Predicate::Itself(self.literal()?)
        } else if self.eat("@") {
            let name = self.name(false)?;
            self.need("=")?;
            Predicate::Attribute(name, self.literal()?)
        } else {
            let name = self.name(true)?;
            self.need("=")?;
            Predicate::Child(name, self.literal()?)
        };
        self.need("]")?;
        Ok(predicate)
    }
}
