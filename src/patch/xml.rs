//! An XML document as a tree whose nodes keep how they were written.
//!
//! Tokens are found by `quick-xml`; each node has the very text it was read from, and a tag is looked into only when
//! something in it is asked for. So a document to which nothing is done is written as it was read.

use super::xml_tag::{self, XML_NAMESPACE, is_space};
use super::{Condition, Document, MOST_ATTRIBUTES, MOST_DEPTH, MOST_NODES, MOST_TAG, PatchError, line_at, within};
use quick_xml::Reader;
use quick_xml::events::Event;
use std::borrow::Cow;
use std::collections::{BTreeMap, HashSet};

/// A node's place in its tree. Only the tree makes these, and it never lets go of a node, so each is always good.
pub(super) type Id = usize;

/// What a node is, with the text it was read from.
#[derive(Debug, Clone)]
pub(super) enum Kind<'t> {
    Root,
    Element {
        start: Cow<'t, str>,
        /// Empty if the start tag is an empty-element tag.
        end: Cow<'t, str>,
    },
    /// A part of a text node. All parts next to one another are the text node of XPath's data model, so that text is
    /// merged by being put side by side. Within the root there is white space only, and that is no text node.
    Text(Cow<'t, str>),
    Comment(Cow<'t, str>),
    Instruction(Cow<'t, str>),
    /// The XML declaration.
    Declaration(Cow<'t, str>),
    Doctype(Cow<'t, str>),
}

/// A node.
#[derive(Debug, Clone)]
pub(super) struct Node<'t> {
    pub(super) kind: Kind<'t>,
    pub(super) parent: Id,
    pub(super) children: Vec<Id>,
    /// Whether it came with the patch, or its start tag was changed.
    pub(super) fresh: bool,
    /// Whether the last of its children was taken away.
    pub(super) emptied: bool,
    /// The offset in the document it was read from, for the line in errors.
    pub(super) at: usize,
}

/// A document.
#[derive(Debug, Clone)]
pub(super) struct Tree<'t> {
    nodes: Vec<Node<'t>>,
}

impl<'t> Tree<'t> {
    /// The root node: the document, not its root element.
    pub(super) const ROOT: Id = 0;

    /// Reads a document.
    pub(super) fn read(document: Document, text: &'t str) -> Result<Self, PatchError> {
        let at = Self::ROOT;
        let root = Node { kind: Kind::Root, parent: at, children: Vec::new(), fresh: false, emptied: false, at };
        let mut build =
            Build { text, document, tree: Self { nodes: vec![root] }, stack: vec![at], text_from: None, from: 0 };
        let mut reader = Reader::from_str(text);
        reader.config_mut().check_comments = true;
        loop {
            build.from = usize::try_from(reader.buffer_position()).unwrap_or(text.len());
            let event = reader.read_event().map_err(|error| {
                let at = usize::try_from(reader.error_position()).unwrap_or(0);
                build.error(at, Condition::InvalidDiffFormat, &error.to_string())
            })?;
            let to = usize::try_from(reader.buffer_position()).unwrap_or(text.len());
            let is_end = matches!(event, Event::Eof);
            build.event(&event, to)?;
            if is_end {
                return build.finish();
            }
        }
    }

    pub(super) fn node(&self, id: Id) -> &Node<'t> {
        &self.nodes[id]
    }

    pub(super) fn node_mut(&mut self, id: Id) -> &mut Node<'t> {
        &mut self.nodes[id]
    }

    pub(super) fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Makes a node at a place among the parent's children.
    pub(super) fn insert(&mut self, parent: Id, index: usize, kind: Kind<'t>, fresh: bool) -> Result<Id, PatchError> {
        let id = self.nodes.len();
        within("the number of nodes in a document", id, MOST_NODES)?;
        self.nodes.push(Node { kind, parent, children: Vec::new(), fresh, emptied: false, at: 0 });
        let parent = self.node_mut(parent);
        parent.emptied = false;
        parent.children.insert(index.min(parent.children.len()), id);
        Ok(id)
    }

    /// The start tag of an element; empty for others.
    pub(super) fn start(&self, id: Id) -> &str {
        match &self.node(id).kind {
            Kind::Element { start, .. } => start,
            _ => "",
        }
    }

    pub(super) fn is_element(&self, id: Id) -> bool {
        matches!(self.node(id).kind, Kind::Element { .. })
    }

    pub(super) fn text(&self, id: Id) -> Option<&str> {
        match &self.node(id).kind {
            Kind::Text(raw) => Some(raw),
            _ => None,
        }
    }

    /// A node and those it is in, without the root.
    pub(super) fn upward(&self, id: Id) -> impl Iterator<Item = Id> {
        let mut next = id;
        std::iter::from_fn(move || {
            let id = next;
            next = self.node(id).parent;
            (id != Self::ROOT).then_some(id)
        })
    }

    /// The namespace that a prefix has at an element; empty, or `None` for the empty prefix, if it has none.
    pub(super) fn namespace(&self, id: Id, prefix: &str) -> Option<Cow<'_, str>> {
        if prefix == "xml" {
            return Some(Cow::Borrowed(XML_NAMESPACE));
        }
        self.upward(id).find_map(|id| self.declaration(id, prefix))
    }

    /// The namespace that an element itself declares for a prefix.
    pub(super) fn declaration(&self, id: Id, prefix: &str) -> Option<Cow<'_, str>> {
        let tag = self.start(id);
        if !tag.contains("xmlns") {
            return None;
        }
        xml_tag::attributes(tag).find(|one| one.declares() == Some(prefix)).map(|one| one.value())
    }

    /// The prefixes that have a namespace at a node.
    pub(super) fn scope(&self, id: Id) -> BTreeMap<String, String> {
        let mut scope = BTreeMap::new();
        for id in self.upward(id) {
            for one in xml_tag::attributes(self.start(id)) {
                if let Some(prefix) = one.declares() {
                    scope.entry(prefix.to_owned()).or_insert_with(|| one.value().into_owned());
                }
            }
        }
        scope.retain(|_, uri| !uri.is_empty());
        scope
    }

    /// The quotes that the document has around values of attributes, at this element or the next one above it that has some.
    pub(super) fn quote(&self, id: Id) -> char {
        let mut above = self.upward(id);
        above.find_map(|id| xml_tag::attributes(self.start(id)).last().map(|last| last.quote)).unwrap_or('"')
    }

    /// The namespace, empty for none, and the local name of an element.
    pub(super) fn expanded(&self, id: Id) -> (Cow<'_, str>, &str) {
        let (prefix, local) = xml_tag::split(xml_tag::name(self.start(id)));
        (self.namespace(id, prefix).unwrap_or_default(), local)
    }

    /// The depth of what is in a node.
    pub(super) fn height(&self, id: Id) -> usize {
        self.node(id).children.iter().map(|&child| self.height(child) + 1).max().unwrap_or(0)
    }
}

/// A tree being read.
struct Build<'t> {
    text: &'t str,
    document: Document,
    tree: Tree<'t>,
    /// The nodes that are open, the root first.
    stack: Vec<Id>,
    /// Where the text that is being gathered began.
    text_from: Option<usize>,
    /// Where the event began.
    from: usize,
}

impl<'t> Build<'t> {
    fn error(&self, at: usize, condition: Condition, why: &str) -> PatchError {
        let line = line_at(self.text, at);
        if self.document == Document::Old && condition == Condition::InvalidDiffFormat {
            return PatchError::Syntax { document: self.document, line, why: why.to_owned() };
        }
        PatchError::Xml { condition, place: format!("{}, line {line}", self.document), why: why.to_owned() }
    }

    fn ill<T>(&self, why: &str) -> Result<T, PatchError> {
        Err(self.error(self.from, Condition::InvalidDiffFormat, why))
    }

    fn open(&self) -> Id {
        self.stack.last().copied().unwrap_or(Tree::ROOT)
    }

    fn push(&mut self, from: usize, kind: Kind<'t>) -> Result<Id, PatchError> {
        let parent = self.open();
        let id = self.tree.insert(parent, usize::MAX, kind, false)?;
        self.tree.node_mut(id).at = from;
        Ok(id)
    }

    fn event(&mut self, event: &Event<'_>, to: usize) -> Result<(), PatchError> {
        let raw = self.text.get(self.from..to).unwrap_or_default();
        match event {
            Event::Text(_) | Event::CData(_) => {
                self.text_from.get_or_insert(self.from);
                return Ok(());
            }
            Event::GeneralRef(_) => {
                self.references(raw)?;
                self.text_from.get_or_insert(self.from);
                return Ok(());
            }
            _ => {}
        }
        if let Some(from) = self.text_from.take() {
            let text = self.text.get(from..self.from).unwrap_or_default();
            if self.open() == Tree::ROOT && !text.chars().all(is_space) {
                return self.ill("there is text outside of the root element");
            }
            self.push(from, Kind::Text(Cow::Borrowed(text)))?;
        }
        let raw = Cow::Borrowed(raw);
        match event {
            Event::Start(_) => {
                self.tag(&raw)?;
                let id = self.push(self.from, Kind::Element { start: raw, end: Cow::Borrowed("") })?;
                self.stack.push(id);
                within("the depth of nesting", self.stack.len() - 1, MOST_DEPTH)?;
            }
            Event::Empty(_) => {
                self.tag(&raw)?;
                self.push(self.from, Kind::Element { start: raw, end: Cow::Borrowed("") })?;
            }
            Event::End(_) => {
                let id = self.stack.pop().unwrap_or(Tree::ROOT);
                if let Kind::Element { end, .. } = &mut self.tree.node_mut(id).kind {
                    *end = raw;
                }
            }
            Event::Comment(_) => drop(self.push(self.from, Kind::Comment(raw))?),
            Event::PI(_) => drop(self.push(self.from, Kind::Instruction(raw))?),
            Event::Decl(_) if self.from == 0 => drop(self.push(0, Kind::Declaration(raw))?),
            Event::Decl(_) => return self.ill("the XML declaration is not at the beginning"),
            Event::DocType(_) => {
                let is_late = self.tree.node(Tree::ROOT).children.iter().any(|&id| self.tree.is_element(id));
                if is_late || self.open() != Tree::ROOT {
                    return self.ill("the document type declaration is not before the root element");
                }
                if self.document == Document::Patch && raw.contains("<!ENTITY") {
                    let why = "a patch that declares entities is not taken";
                    return Err(self.error(self.from, Condition::InvalidEntityDeclaration, why));
                }
                self.push(self.from, Kind::Doctype(raw))?;
            }
            Event::Text(_) | Event::CData(_) | Event::GeneralRef(_) | Event::Eof => {}
        }
        Ok(())
    }

    /// Checks a start tag, since all who look into it later take it to be well-formed.
    fn tag(&self, tag: &str) -> Result<(), PatchError> {
        within("the length of a tag", tag.len(), MOST_TAG)?;
        let mut names = HashSet::new();
        for attribute in xml_tag::attributes_or_error(tag) {
            match attribute {
                Ok(attribute) if !names.insert(attribute.name) => {
                    return self.ill(&format!("the attribute \"{}\" is there twice", attribute.name));
                }
                Ok(attribute) => self.references(attribute.raw)?,
                Err(why) => return self.ill(why),
            }
        }
        within("the number of attributes of an element", names.len(), MOST_ATTRIBUTES)?;
        let name = xml_tag::name(tag);
        if name.is_empty() || name.contains(['<', '&', '"', '\'', '=']) {
            return self.ill("an element has no proper name");
        }
        Ok(())
    }

    /// Checks references: in the patch, all have to be resolved; in the old version, entities are left alone.
    fn references(&self, raw: &str) -> Result<(), PatchError> {
        for reference in xml_tag::references(raw) {
            match reference {
                Err(why) => return self.ill(why),
                Ok((_, name)) if xml_tag::resolve(name).is_some() => {}
                Ok((_, name)) if name.starts_with('#') => {
                    return self.ill(&format!("the reference \"&{name};\" is to no character"));
                }
                Ok((_, name)) if self.document == Document::Patch => {
                    let why = format!("the entity \"{name}\" is not declared");
                    return Err(self.error(self.from, Condition::InvalidEntityDeclaration, &why));
                }
                Ok(_) => {}
            }
        }
        Ok(())
    }

    fn finish(self) -> Result<Tree<'t>, PatchError> {
        if self.stack.len() > 1 {
            return self.ill(&format!("the element \"{}\" has no end", xml_tag::name(self.tree.start(self.open()))));
        }
        let elements = self.tree.node(Tree::ROOT).children.iter().filter(|&&id| self.tree.is_element(id)).count();
        if elements == 1 { Ok(self.tree) } else { self.ill(&format!("there are {elements} root elements, not one")) }
    }
}
