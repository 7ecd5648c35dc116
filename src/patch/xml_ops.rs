//! The patch operations of RFC 5261, section 4, in a document such as RFC 7351 describes.
//!
//! RFC 5261 leaves the root element and the namespace to others, so any root is taken; what is in it has to be `add`,
//! `replace` and `remove` elements. White space around the one node that replaces another is of no account, since
//! patches are often indented; the RFC's examples have none.

use super::xml::{Id, Kind, Tree};
use super::xml_encoding::Encoding;
use super::xml_mangle::{Mangle, Stop};
use super::xml_style::{self, Look};
use super::xml_tag::{self, CDATA, is_space, to_attribute};
use super::xpath::{Fault, Selector, Target};
use super::{
    Condition, Document, MOST_DEPTH, MOST_OPERATIONS, MOST_SELECTOR, PatchError, Steps, Trial, line_at, within,
};
use std::borrow::Cow;

/// Applies an XML patch; see [`super::apply`].
pub(super) fn apply(old: &[u8], patch: &[u8], trial: &mut Trial<'_>) -> Result<Option<Vec<u8>>, PatchError> {
    let (encoding, old) = Encoding::read(Document::Old, old)?;
    let (_, patch) = Encoding::read(Document::Patch, patch)?;
    // What comes from the patch comes as a reader of XML hands it on, with no line ends but one.
    let patch = xml_tag::line_ends(&patch);
    let mut target = Tree::read(Document::Old, &old)?;
    let look = Look::of(&target, &old, encoding);
    let operations = Tree::read(Document::Patch, &patch)?;
    let (mut steps, mut added) = (trial.steps(), 0);
    let root = operations.node(Tree::ROOT).children.iter().copied().find(|&id| operations.is_element(id));
    let mut number = 0;
    for &id in root.map_or(&[][..], |root| &operations.node(root).children) {
        let node = operations.node(id);
        let name = xml_tag::split(xml_tag::name(operations.start(id))).1;
        let place = |number: usize| {
            let line = line_at(&patch, node.at);
            let selector = xml_tag::attribute(operations.start(id), "sel").map(|sel| sel.value().into_owned());
            match selector {
                Some(selector) => format!("operation {number}, line {line}, {name} at \"{selector}\""),
                None => format!("operation {number}, line {line}, {name}"),
            }
        };
        let done = match &node.kind {
            Kind::Element { .. } => {
                number += 1;
                within("the number of operations", number, MOST_OPERATIONS)?;
                let mut run = Run { target: &mut target, patch: &operations, id, steps: &mut steps, added: &mut added };
                run.operate(name)
            }
            Kind::Text(raw) if !raw.chars().all(is_space) => {
                Err((Condition::InvalidDiffFormat, "there is text between the operations".to_owned()).into())
            }
            _ => Ok(()),
        };
        done.map_err(|stop| match stop {
            Stop::Bound(error) => error,
            Stop::Fault((condition, why)) => PatchError::Xml { condition, place: place(number), why },
        })?;
    }
    Ok(xml_style::find(&target, &look, trial))
}

type Done<T = ()> = Result<T, Stop>;

fn fault<T>(condition: Condition, why: impl Into<String>) -> Done<T> {
    Err(Fault::from((condition, why.into())).into())
}

/// An operation being applied.
struct Run<'a, 't> {
    target: &'a mut Tree<'t>,
    patch: &'a Tree<'t>,
    /// The operation element.
    id: Id,
    steps: &'a mut Steps,
    /// How many bytes were put in by all operations so far.
    added: &'a mut usize,
}

impl<'a, 't> Run<'a, 't> {
    fn operate(&mut self, name: &str) -> Done {
        if !matches!(name, "add" | "replace" | "remove") {
            return fault(Condition::InvalidPatchDirective, format!("there is no operation \"{name}\""));
        }
        let Some(selector) = self.argument("sel") else {
            return fault(Condition::InvalidAttributeValue, "the attribute \"sel\" is missing");
        };
        within("the length of a selector", selector.len(), MOST_SELECTOR)?;
        let patch = self.patch;
        let around: usize = patch.upward(self.id).map(|id| 1 + patch.start(id).len() / 16).sum();
        self.steps.take(around.saturating_mul(1 + selector.len() / 2))?;
        let selector = Selector::read(&selector, &|prefix| patch.namespace(self.id, prefix))?;
        let target = selector.locate(self.target, self.steps)??;
        match name {
            "add" => self.add(target),
            "replace" => self.replace(target),
            _ => self.remove(target),
        }
    }

    fn argument(&self, name: &str) -> Option<String> {
        xml_tag::attribute(self.patch.start(self.id), name).map(|attribute| attribute.value().into_owned())
    }

    fn content(&self) -> &'a [Id] {
        &self.patch.node(self.id).children
    }

    /// The content as it is written, if it is text; for attributes and namespaces, that may not be CDATA.
    fn text_content(&self, otherwise: Condition) -> Done<String> {
        let mut all = String::new();
        for &child in self.content() {
            match self.patch.text(child) {
                Some(raw) if raw.contains(CDATA) => {
                    return fault(Condition::InvalidAttributeValue, "the value is in a CDATA section");
                }
                Some(raw) => all.push_str(raw),
                None => return fault(otherwise, "the value is not text"),
            }
        }
        Ok(all)
    }

    fn uri_content(&self, otherwise: Condition) -> Done<String> {
        let uri = self.text_content(otherwise)?;
        if uri.is_empty() { fault(Condition::InvalidNamespaceUri, "the namespace URI is empty") } else { Ok(uri) }
    }

    /// RFC 5261, section 4.3.
    fn add(&mut self, target: Target) -> Done {
        if let Some(what) = self.argument("type") {
            let Target::Node(element) = target else {
                return fault(Condition::InvalidPatchDirective, "attributes and namespaces are added to elements");
            };
            if !self.target.is_element(element) {
                return fault(Condition::InvalidPatchDirective, "attributes and namespaces are added to elements");
            }
            if let Some(name) = what.strip_prefix('@').filter(|name| is_qualified(name)) {
                return self.add_attribute(element, name);
            }
            return match what.strip_prefix("namespace::").filter(|prefix| is_name(prefix)) {
                Some(prefix) => self.add_namespace(element, prefix),
                None => fault(Condition::InvalidAttributeValue, format!("\"{what}\" is no type of node to add")),
            };
        }
        let position = self.argument("pos");
        let (first, last) = match &target {
            Target::Node(id) => (*id, *id),
            Target::Text(parts) => match (parts.first(), parts.last()) {
                (Some(&first), Some(&last)) => (first, last),
                _ => return Ok(()),
            },
            Target::Attribute(..) | Target::Namespace(..) => {
                return fault(Condition::InvalidPatchDirective, "nothing is added to attributes and namespaces");
            }
        };
        let parent = self.target.node(first).parent;
        let (parent, index) = match position.as_deref() {
            None | Some("prepend") if !self.target.is_element(first) => {
                return fault(Condition::InvalidPatchDirective, "children are added to elements");
            }
            None => (first, self.target.node(first).children.len()),
            Some("prepend") => (first, 0),
            Some("before") => (parent, self.index(first)?),
            Some("after") => (parent, self.index(last)? + 1),
            Some(other) => {
                return fault(Condition::InvalidAttributeValue, format!("\"{other}\" is no position"));
            }
        };
        let content = self.content();
        if parent == Tree::ROOT {
            for &child in content {
                if self.patch.is_element(child) {
                    let why = "there can be no second root element";
                    return fault(Condition::InvalidRootElementOperation, why);
                }
                if self.patch.text(child).is_some_and(|raw| !raw.chars().all(is_space)) {
                    let why = "there can be no text outside of the root element";
                    return fault(Condition::InvalidXmlPrologOperation, why);
                }
            }
        }
        self.put(parent, index, content)
    }

    /// Puts nodes of the patch among the parent's children.
    fn put(&mut self, parent: Id, index: usize, nodes: &[Id]) -> Done {
        let height = nodes.iter().map(|&node| self.patch.height(node) + 1).max().unwrap_or(0);
        within("the depth of nesting", self.target.upward(parent).count() + height, MOST_DEPTH)?;
        self.steps.take(nodes.len() * (self.target.node(parent).children.len() / 16 + 1))?;
        self.charge_scope(parent)?;
        if !nodes.is_empty() {
            self.open_up(parent);
        }
        let mut mangle = Mangle::new(self.target, self.patch, (self.id, parent), self.added, self.steps);
        for (offset, &node) in nodes.iter().enumerate() {
            mangle.put(parent, index + offset, node)?;
        }
        Ok(())
    }

    /// Takes the steps that it costs to gather the declarations in scope at a node.
    fn charge_scope(&mut self, id: Id) -> Done {
        let bytes: usize = self.target.upward(id).map(|id| self.target.start(id).len()).sum();
        Ok(self.steps.take(bytes / 8)?)
    }

    /// Makes an empty-element tag a start tag, with an end tag.
    fn open_up(&mut self, element: Id) {
        if let Kind::Element { start, end } = &mut self.target.node_mut(element).kind
            && end.is_empty()
        {
            let inner = start.strip_suffix("/>").unwrap_or(start).trim_end_matches(is_space);
            *end = Cow::Owned(format!("</{}>", xml_tag::name(start)));
            *start = Cow::Owned(format!("{inner}>"));
        }
    }

    /// Where a node is among its parent's children.
    fn index(&mut self, id: Id) -> Done<usize> {
        let siblings = &self.target.node(self.target.node(id).parent).children;
        self.steps.take(siblings.len())?;
        Ok(siblings.iter().position(|&sibling| sibling == id).unwrap_or(siblings.len()))
    }

    /// RFC 5261, section 4.3.2.
    fn add_attribute(&mut self, element: Id, name: &str) -> Done {
        let raw = self.text_content(Condition::InvalidAttributeValue)?;
        let (prefix, local) = xml_tag::split(name);
        if name == "xmlns" || prefix == "xmlns" {
            return fault(Condition::InvalidAttributeValue, "a namespace declaration is no attribute");
        }
        self.charge_scope(element)?;
        let mut mangle = Mangle::new(self.target, self.patch, (self.id, element), self.added, self.steps);
        let (prefix, missing) = mangle.attribute(prefix)?;
        if let Some(uri) = missing {
            if self.target.declaration(element, &prefix).is_some() {
                let why = format!("the prefix \"{prefix}\" is another namespace's at the element");
                return fault(Condition::InvalidNamespacePrefix, why);
            }
            let raw = uri.replace('&', "&amp;").replace('<', "&lt;");
            self.insert_attribute(element, &format!("xmlns:{prefix}"), &raw)?;
        }
        let name = if prefix.is_empty() { local.to_owned() } else { format!("{prefix}:{local}") };
        if xml_tag::attribute(self.target.start(element), &name).is_some() {
            return fault(Condition::InvalidAttributeValue, format!("the element has an attribute \"{name}\" already"));
        }
        self.insert_attribute(element, &name, &raw)
    }

    /// RFC 5261, section 4.3.3.
    fn add_namespace(&mut self, element: Id, prefix: &str) -> Done {
        let uri = self.uri_content(Condition::InvalidNamespaceUri)?;
        if matches!(prefix, "xml" | "xmlns") || self.target.declaration(element, prefix).is_some() {
            let why = format!("the prefix \"{prefix}\" cannot be declared, or is already, at the element");
            return fault(Condition::InvalidNamespacePrefix, why);
        }
        self.insert_attribute(element, &format!("xmlns:{prefix}"), &uri)
    }

    fn insert_attribute(&mut self, element: Id, name: &str, raw: &str) -> Done {
        let quote = self.target.quote(element);
        let tag = self.target.start(element);
        let tag = xml_tag::with_attribute(tag, name, &to_attribute(raw, quote), quote);
        self.set_tag(element, tag)
    }

    fn set_tag(&mut self, element: Id, tag: String) -> Done {
        self.steps.take(tag.len() / 8 + 1)?;
        let before = self.target.start(element).len();
        *self.added += tag.len().saturating_sub(before);
        within("the size of the result", *self.added, self.steps.size)?;
        let node = self.target.node_mut(element);
        node.fresh = true;
        if let Kind::Element { start, .. } = &mut node.kind {
            *start = Cow::Owned(tag);
        }
        Ok(())
    }

    fn set_value(&mut self, element: Id, name: &str, raw: &str) -> Done {
        let tag = self.target.start(element);
        let Some(attribute) = xml_tag::attribute(tag, name) else { return Ok(()) };
        let tag = xml_tag::spliced(tag, attribute.value, &to_attribute(raw, attribute.quote));
        self.set_tag(element, tag)
    }

    fn remove_attribute(&mut self, element: Id, name: &str) -> Done {
        let tag = self.target.start(element);
        let Some(attribute) = xml_tag::attribute(tag, name) else { return Ok(()) };
        // White space between the last attribute and the end of a start tag goes with it, as in the RFC's A.14.
        let mut range = attribute.whole;
        let rest = tag.get(range.end..).unwrap_or_default();
        if rest.trim_start_matches(is_space) == ">" {
            range.end = tag.len() - 1;
        }
        let tag = xml_tag::spliced(tag, range, "");
        self.set_tag(element, tag)
    }

    /// RFC 5261, section 4.4.
    fn replace(&mut self, target: Target) -> Done {
        match target {
            Target::Node(id) => {
                let wanted = std::mem::discriminant(&self.target.node(id).kind);
                let content: Vec<Id> = self
                    .content()
                    .iter()
                    .copied()
                    .filter(|&child| !self.patch.text(child).is_some_and(|raw| raw.chars().all(is_space)))
                    .collect();
                let is_alike =
                    content.iter().all(|&child| std::mem::discriminant(&self.patch.node(child).kind) == wanted);
                if content.len() != 1 || !is_alike {
                    let why = "the content is not one node of the kind it replaces";
                    return fault(Condition::InvalidNodeTypes, why);
                }
                let (parent, index) = (self.target.node(id).parent, self.index(id)?);
                self.target.node_mut(parent).children.remove(index);
                self.put(parent, index, &content)
            }
            Target::Text(parts) => {
                let content = self.content();
                if content.iter().any(|&child| self.patch.text(child).is_none()) {
                    return fault(Condition::InvalidNodeTypes, "the content that replaces text is not text");
                }
                let (parent, index) = self.take_out(&parts)?;
                if !content.is_empty() {
                    self.target.node_mut(parent).emptied = false;
                }
                self.put(parent, index, content)
            }
            Target::Attribute(element, name) => {
                let raw = self.text_content(Condition::InvalidNodeTypes)?;
                self.set_value(element, &name, &raw)
            }
            // What is within the element and has the prefix from this declaration has the new namespace, too, as
            // erratum 3478 says: it is the declaration that is replaced.
            Target::Namespace(element, prefix) => {
                let uri = self.uri_content(Condition::InvalidNodeTypes)?;
                self.set_value(element, &format!("xmlns:{prefix}"), &uri)
            }
        }
    }

    /// Takes nodes that are next to one another out of the tree, and tells where they were.
    fn take_out(&mut self, parts: &[Id]) -> Done<(Id, usize)> {
        let Some(&first) = parts.first() else { return Ok((Tree::ROOT, usize::MAX)) };
        let (parent, index) = (self.target.node(first).parent, self.index(first)?);
        let node = self.target.node_mut(parent);
        let end = (index + parts.len()).min(node.children.len());
        node.children.drain(index..end);
        node.emptied = node.children.is_empty();
        Ok((parent, index))
    }

    /// RFC 5261, section 4.5.
    fn remove(&mut self, target: Target) -> Done {
        let ws = self.argument("ws");
        if let Some(other) = ws.as_deref().filter(|ws| !matches!(*ws, "before" | "after" | "both")) {
            return fault(Condition::InvalidAttributeValue, format!("\"{other}\" is no place of white space"));
        }
        if ws.is_some() && !matches!(target, Target::Node(_)) {
            let why = "white space is not removed with text, attributes and namespaces";
            return fault(Condition::InvalidAttributeValue, why);
        }
        if !self.content().iter().all(|&child| self.patch.text(child).is_some_and(|raw| raw.chars().all(is_space))) {
            return fault(Condition::InvalidDiffFormat, "a removal has no content");
        }
        match target {
            Target::Node(id) => self.remove_node(id, ws.as_deref()),
            Target::Text(parts) => self.take_out(&parts).map(drop),
            Target::Attribute(element, name) => self.remove_attribute(element, &name),
            Target::Namespace(element, prefix) => self.remove_namespace(element, &prefix),
        }
    }

    fn remove_node(&mut self, id: Id, ws: Option<&str>) -> Done {
        let (parent, index) = (self.target.node(id).parent, self.index(id)?);
        if parent == Tree::ROOT && self.target.is_element(id) {
            return fault(Condition::InvalidRootElementOperation, "the root element cannot be removed");
        }
        let (before, after) = self.target.node(parent).children.split_at_checked(index).unwrap_or_default();
        let text = |id: &&Id| self.target.text(**id).is_some();
        let before: Vec<Id> = before.iter().rev().take_while(text).copied().collect();
        let after: Vec<Id> = after.iter().skip(1).take_while(text).copied().collect();
        let mut all = Vec::new();
        for (side, parts) in [("before", before.into_iter().rev().collect()), ("after", after)] {
            let parts: Vec<Id> = parts;
            if ws == Some(side) || ws == Some("both") {
                let is_white = |&id: &Id| {
                    let raw = self.target.text(id).unwrap_or_default();
                    xml_tag::string_value(raw).chars().all(is_space)
                };
                if parts.is_empty() || !parts.iter().all(is_white) {
                    let why = format!("there is no white space, or not only white space, {side} the node");
                    return fault(Condition::InvalidWhitespaceDirective, why);
                }
                all.extend(parts);
            }
            if side == "before" {
                all.push(id);
            }
        }
        self.take_out(&all).map(drop)
    }

    /// RFC 5261, section 4.5.3: no name may have the prefix from this declaration.
    fn remove_namespace(&mut self, element: Id, prefix: &str) -> Done {
        let mut stack = vec![element];
        while let Some(id) = stack.pop() {
            self.steps.take(1 + self.target.start(id).len() / 8)?;
            if id != element && self.target.declaration(id, prefix).is_some() {
                continue;
            }
            let tag = self.target.start(id);
            let names = xml_tag::attributes(tag).filter(|one| one.declares().is_none()).map(|one| one.name);
            if self.target.is_element(id)
                && names.chain([xml_tag::name(tag)]).any(|name| name.contains(':') && xml_tag::split(name).0 == prefix)
            {
                return fault(Condition::InvalidNamespacePrefix, format!("the prefix \"{prefix}\" is in use"));
            }
            stack.extend(&self.target.node(id).children);
        }
        self.remove_attribute(element, &format!("xmlns:{prefix}"))
    }
}

/// Whether this can be a name without a prefix.
fn is_name(name: &str) -> bool {
    !name.is_empty() && !name.contains(|char: char| is_space(char) || "/[]()@='\":*<>&".contains(char))
}

fn is_qualified(name: &str) -> bool {
    name.split(':').count() <= 2 && name.split(':').all(is_name)
}
