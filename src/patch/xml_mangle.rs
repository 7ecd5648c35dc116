//! The patch's content, as it goes into the old version: its names' prefixes are made to fit there (RFC 5261, section
//! 4.2.3).

use super::xml::{Id, Kind, Tree};
use super::xml_tag::{self, to_attribute};
use super::xpath::Fault;
use super::{Condition, PatchError, Steps, within};
use std::borrow::Cow;
use std::collections::{BTreeMap, HashSet};

/// Content being put in, all in the same place.
pub(super) struct Mangle<'a, 't> {
    target: &'a mut Tree<'t>,
    patch: &'a Tree<'t>,
    /// The operation element, whose declarations the content is in the scope of.
    operation: Id,
    /// The prefixes at the evaluation context node, which is the parent of what is put in.
    scope: BTreeMap<String, String>,
    /// The prefix and the namespace of the evaluation context node itself.
    context: (String, String),
    /// The quotes of the document there.
    quote: char,
    /// What the content itself declares, and what is to be declared in it, the innermost last.
    local: Vec<(String, String)>,
    /// What is to be declared at the outermost element that is being put in.
    outermost: Vec<(String, String)>,
    /// The prefixes of the target that names in this outermost element use.
    used: HashSet<String>,
    added: &'a mut usize,
    steps: &'a mut Steps,
}

/// What stops the putting in: a bound, or a fault.
pub(super) enum Stop {
    Bound(PatchError),
    Fault(Fault),
}

impl From<PatchError> for Stop {
    fn from(error: PatchError) -> Self {
        Self::Bound(error)
    }
}

impl From<Fault> for Stop {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

impl<'a, 't> Mangle<'a, 't> {
    pub(super) fn new(
        target: &'a mut Tree<'t>,
        patch: &'a Tree<'t>,
        (operation, context): (Id, Id),
        added: &'a mut usize,
        steps: &'a mut Steps,
    ) -> Self {
        let (scope, quote) = (target.scope(context), target.quote(context));
        let (prefix, _) = xml_tag::split(xml_tag::name(target.start(context)));
        let context = (prefix.to_owned(), target.expanded(context).0.into_owned());
        let (local, outermost, used) = (Vec::new(), Vec::new(), HashSet::new());
        Self { target, patch, operation, scope, context, quote, local, outermost, used, added, steps }
    }

    /// Puts a node of the patch, and all that is in it, at a place among the parent's children.
    pub(super) fn put(&mut self, parent: Id, index: usize, from: Id) -> Result<(), Stop> {
        self.used.clear();
        let id = self.copy(parent, index, from)?;
        let outermost = std::mem::take(&mut self.outermost);
        self.local.clear();
        if let Kind::Element { start, .. } = &mut self.target.node_mut(id).kind {
            self.steps.take(outermost.len().saturating_mul(1 + start.len() / 16))?;
            for (prefix, uri) in outermost.iter().rev() {
                *start = Cow::Owned(declared(start, prefix, uri, self.quote));
            }
        }
        Ok(())
    }

    /// The prefix that an attribute has at the element it is added to, and what is to be declared there for it.
    pub(super) fn attribute(&mut self, prefix: &str) -> Result<(String, Option<String>), Stop> {
        let prefix = self.prefix(prefix, true, None)?;
        let missing = self.outermost.pop().map(|(_, uri)| uri);
        Ok((prefix, missing))
    }

    fn copy(&mut self, parent: Id, index: usize, from: Id) -> Result<Id, Stop> {
        let patch = self.patch;
        let node = patch.node(from);
        let depth = self.local.len();
        let mut own = Vec::new();
        let kind = match &node.kind {
            Kind::Element { start, end } => {
                for one in xml_tag::attributes(start) {
                    if let Some(prefix) = one.declares() {
                        self.local.push((prefix.to_owned(), one.value().into_owned()));
                    }
                }
                self.element(start, end, &mut own)?
            }
            other => other.clone(),
        };
        let size = match &kind {
            Kind::Element { start, end } => start.len() + end.len(),
            Kind::Text(raw) | Kind::Comment(raw) | Kind::Instruction(raw) => raw.len(),
            Kind::Root | Kind::Declaration(_) | Kind::Doctype(_) => 0,
        };
        *self.added += size;
        within("the size of the result", *self.added, self.steps.size)?;
        self.steps.take(1 + size / 64)?;
        let id = self.target.insert(parent, index, kind, true)?;
        for &child in &node.children {
            self.copy(id, usize::MAX, child)?;
        }
        self.local.truncate(depth);
        Ok(id)
    }

    /// An element's tags with prefixes that fit. `own` is what is declared for it in its own start tag.
    fn element(
        &mut self,
        start: &Cow<'t, str>,
        end: &Cow<'t, str>,
        own: &mut Vec<(String, String)>,
    ) -> Result<Kind<'t>, Stop> {
        let name = xml_tag::name(start);
        // What is replaced in the start tag, in order: where, and with what name.
        let mut changes = Vec::new();
        let new_name = self.name(name, false, own)?;
        if new_name != name {
            changes.push((1..1 + name.len(), new_name.clone()));
        }
        for one in xml_tag::attributes(start) {
            if one.declares().is_none() && one.name.contains(':') {
                let new = self.name(one.name, true, own)?;
                if new != one.name {
                    let lead = start.get(one.whole.clone()).map_or(0, |raw| raw.len() - raw.trim_start().len());
                    let at = one.whole.start + lead;
                    changes.push((at..at + one.name.len(), new));
                }
            }
        }
        if changes.is_empty() && own.is_empty() {
            return Ok(Kind::Element { start: start.clone(), end: end.clone() });
        }
        self.steps.take((changes.len() + own.len()).saturating_mul(1 + start.len() / 16))?;
        let mut tag = start.to_string();
        for (range, new) in changes.into_iter().rev() {
            tag = xml_tag::spliced(&tag, range, &new);
        }
        for (prefix, uri) in own.iter().rev() {
            tag = declared(&tag, prefix, uri, self.quote);
        }
        let end = if end.is_empty() { Cow::Borrowed("") } else { Cow::Owned(end.replacen(name, &new_name, 1)) };
        Ok(Kind::Element { start: Cow::Owned(tag), end })
    }

    fn name(&mut self, name: &str, is_attribute: bool, own: &mut Vec<(String, String)>) -> Result<String, Stop> {
        let (prefix, local) = xml_tag::split(name);
        let prefix = self.prefix(prefix, is_attribute, Some(own))?;
        Ok(if prefix.is_empty() { local.to_owned() } else { format!("{prefix}:{local}") })
    }

    /// The prefix that takes the place of one in the content.
    fn prefix(
        &mut self,
        prefix: &str,
        is_attribute: bool,
        own: Option<&mut Vec<(String, String)>>,
    ) -> Result<String, Stop> {
        let same = prefix.to_owned();
        if prefix == "xml" || (is_attribute && prefix.is_empty()) {
            return Ok(same);
        }
        self.steps.take(1 + self.local.len() / 4)?;
        // Declared in the content, and so left as it is.
        if self.local.iter().any(|(local, _)| local == prefix) {
            return Ok(same);
        }
        self.steps.take(1 + self.scope.len())?;
        // What is declared around the operation is looked through for it.
        let around: usize = self.patch.upward(self.operation).map(|id| 1 + self.patch.start(id).len() / 16).sum();
        self.steps.take(around + self.local.len() + self.outermost.len() * 2)?;
        let uri = self.patch.namespace(self.operation, prefix).unwrap_or_default().into_owned();
        if uri.is_empty() && !prefix.is_empty() {
            let why = format!("the prefix \"{prefix}\" is not declared in the patch");
            return Err((Condition::InvalidNamespacePrefix, why).into());
        }
        let is_hidden = |candidate: &str| {
            self.local.iter().chain(&self.outermost).any(|(hiding, _)| hiding == candidate)
                || (is_attribute && candidate.is_empty())
        };
        if self.outermost.iter().any(|(declared, its)| declared == prefix && *its == uri) {
            return Ok(same);
        }
        if uri.is_empty() && !self.scope.contains_key("") && !is_hidden("") {
            return Ok(same);
        }
        let chosen = if uri.is_empty() { None } else { self.declared_prefix(prefix, &uri, is_hidden) };
        if let Some(chosen) = chosen {
            self.used.insert(chosen.clone());
            return Ok(chosen);
        }
        let is_taken = self.used.contains(prefix) || self.outermost.iter().any(|(declared, _)| declared == prefix);
        match own {
            Some(own) if is_taken => {
                self.local.push((same.clone(), uri.clone()));
                own.push((same.clone(), uri));
            }
            _ => self.outermost.push((same.clone(), uri)),
        }
        Ok(same)
    }

    /// The prefix that a namespace has where it is put, the same one if that is possible.
    fn declared_prefix(&self, prefix: &str, uri: &str, is_hidden: impl Fn(&str) -> bool) -> Option<String> {
        // In alphabetical order, the default namespace first.
        let candidates: Vec<&String> = self
            .scope
            .iter()
            .filter(|(candidate, its)| **its == uri && !is_hidden(candidate))
            .map(|(candidate, _)| candidate)
            .collect();
        if candidates.iter().any(|candidate| *candidate == prefix) {
            return Some(prefix.to_owned());
        }
        if self.context.1 == uri && candidates.contains(&&self.context.0) {
            return Some(self.context.0.clone());
        }
        let before = candidates.iter().rev().find(|candidate| candidate.as_str() < prefix);
        before.or(candidates.first()).map(|chosen| (*chosen).clone())
    }
}

/// A start tag with a namespace declared in it.
fn declared(tag: &str, prefix: &str, uri: &str, quote: char) -> String {
    let name = if prefix.is_empty() { "xmlns".to_owned() } else { format!("xmlns:{prefix}") };
    let raw = uri.replace('&', "&amp;").replace('<', "&lt;");
    xml_tag::with_attribute(tag, &name, &to_attribute(&raw, quote), quote)
}
