//! JSON Patch (RFC 6902) and JSON Merge Patch (RFC 7396).
//!
//! The crate `json-patch` does both on `serde_json`'s values, but removes keys by swapping, which reorders them, and
//! compares numbers as they are written; so it is the model the tests compare with, and the operations are done here.

use super::json::{self, Items, Member, Span, Text, Tree, Value};
use super::json_style::{self, Look};
use super::{Document, MOST_DEPTH, MOST_NODES, MOST_OPERATIONS, PatchError, Steps, Trial, within};
use std::borrow::Cow;
use std::cmp::Ordering;
use std::collections::HashMap;

/// Applies a JSON Patch; see [`super::apply`].
pub(super) fn apply_patch(old: &[u8], patch: &[u8], trial: &mut Trial<'_>) -> Result<Option<Vec<u8>>, PatchError> {
    let mut text = Text::new(old, patch)?;
    let mut target = text.read(Document::Old)?;
    let look = Look::of(&text, &target, old);
    let operations = text.read(Document::Patch)?;
    let Value::Array(operations) = &operations.root else {
        return Err(not_a_patch("a JSON Patch is an array of operations"));
    };
    within("the number of operations", operations.members.len(), MOST_OPERATIONS)?;
    let mut run = Run { text: &mut text, steps: trial.steps(), values: target.values, bytes: target.root.bytes() };
    for (index, operation) in operations.members.iter().enumerate() {
        let mut place = Place::default();
        run.operate(&mut target.root, &operation.value, &mut place).map_err(|stop| match stop {
            Stop::Bound(error) => error,
            Stop::Why(why) => PatchError::Operation { number: index + 1, op: place.op, path: place.path, why },
        })?;
    }
    Ok(json_style::find(&text, &look, &target.root, trial))
}

/// Applies a JSON Merge Patch; see [`super::apply`].
pub(super) fn apply_merge(old: &[u8], patch: &[u8], trial: &mut Trial<'_>) -> Result<Option<Vec<u8>>, PatchError> {
    let text = Text::new(old, patch)?;
    let mut target = text.read(Document::Old)?;
    let look = Look::of(&text, &target, old);
    let Tree { root, .. } = text.read(Document::Patch)?;
    merge(&text, &mut target.root, root, &mut trial.steps())?;
    Ok(json_style::find(&text, &look, &target.root, trial))
}

fn not_a_patch(why: &str) -> PatchError {
    PatchError::Syntax { document: Document::Patch, line: 1, why: why.to_owned() }
}

/// The algorithm of RFC 7396, section 2.
fn merge(text: &Text, target: &mut Value, patch: Value, steps: &mut Steps) -> Result<(), PatchError> {
    let Value::Object(patch) = patch else {
        *target = patch;
        return Ok(());
    };
    if !matches!(target, Value::Object(_)) {
        *target =
            Value::Object(Box::new(Items { members: Vec::new(), open: Span::NONE, close: Span::NONE, depth: None }));
    }
    let Value::Object(items) = target else { return Ok(()) };
    // The keys are looked at, each with its escapes.
    steps.take(
        4 * items.members.len() + items.members.iter().map(|member| text.get(member.key).len() / 8).sum::<usize>(),
    )?;
    // Where each key is. Of members with the same key the last is meant, and all go when it goes.
    let mut places: HashMap<String, Vec<usize>> = HashMap::new();
    for (index, member) in items.members.iter().enumerate() {
        places.entry(json::decode(text.get(member.key)).into_owned()).or_default().push(index);
    }
    let mut gone = vec![false; items.members.len()];
    let was_empty = items.members.is_empty();
    for member in patch.members {
        steps.take(1 + text.get(member.key).len() / 8)?;
        let key = json::decode(text.get(member.key)).into_owned();
        let there = places.get(&key).and_then(|all| all.last()).copied().filter(|&at| gone.get(at) == Some(&false));
        if is_null(text, &member.value) {
            // Once: they do not come back under the same places.
            for at in places.remove(&key).into_iter().flatten() {
                gone[at] = true;
            }
        } else if let Some(old) = there.and_then(|at| items.members.get_mut(at)) {
            merge(text, &mut old.value, member.value, steps)?;
        } else {
            let mut value = Value::Scalar(member.key);
            merge(text, &mut value, member.value, steps)?;
            places.entry(key).or_default().push(items.members.len());
            items.members.push(Member::new(member.key, value));
            gone.push(false);
        }
    }
    let mut flags = gone.into_iter();
    items.members.retain(|_| !flags.next().unwrap_or(false));
    if was_empty || items.members.is_empty() {
        items.depth = None;
    }
    Ok(())
}

fn is_null(text: &Text, value: &Value) -> bool {
    matches!(value, Value::Scalar(token) if text.get(*token) == "null")
}

/// Why an operation stops.
enum Stop {
    /// A bound is passed, which is no fault of this one operation.
    Bound(PatchError),
    /// The operation cannot be done.
    Why(String),
}

impl From<PatchError> for Stop {
    fn from(error: PatchError) -> Self {
        Self::Bound(error)
    }
}

fn why<T>(why: impl Into<String>) -> Result<T, Stop> {
    Err(Stop::Why(why.into()))
}

/// What an error says about the operation.
#[derive(Default)]
struct Place {
    op: String,
    path: String,
}

/// A patch being applied.
struct Run<'t> {
    text: &'t mut Text,
    steps: Steps,
    /// How many values the target has.
    values: usize,
    /// How many bytes its tokens have.
    bytes: usize,
}

impl Run<'_> {
    fn operate(&mut self, target: &mut Value, operation: &Value, place: &mut Place) -> Result<(), Stop> {
        let Value::Object(fields) = operation else { return why("an operation is an object") };
        self.steps.take(fields.members.len() + 1)?;
        place.op = self.field(fields, "op")?.unwrap_or_default();
        place.path = self.field(fields, "path")?.unwrap_or_default();
        if place.op.is_empty() {
            return why("\"op\" is missing");
        }
        let Some(path) = self.field(fields, "path")? else { return why("\"path\" is missing") };
        let path = pointer(&path)?;
        match place.op.as_str() {
            "add" => {
                let value = self.value(fields)?.clone();
                self.add(target, &path, value)
            }
            "remove" => self.remove(target, &path).map(drop),
            "replace" => {
                let value = self.value(fields)?.clone();
                self.replace(target, &path, value)
            }
            "move" => {
                let from = self.from(fields)?;
                if path.len() > from.len() && path.starts_with(&from) {
                    return why("a value cannot be moved into itself");
                }
                if path == from {
                    return self.find(target, &from).map(drop);
                }
                let value = self.remove(target, &from)?;
                self.add(target, &path, value)
            }
            "copy" => {
                let from = self.from(fields)?;
                let value = self.find(target, &from)?;
                // Counted before it is made, since each copy may be twice the last.
                let (count, bytes) = (value.extent().0, value.bytes());
                self.steps.take(count.saturating_mul(4))?;
                self.hold(count, bytes)?;
                let value = self.find(target, &from)?.clone();
                self.add(target, &path, value)
            }
            "test" => {
                let expected = self.value(fields)?;
                let found = self.find(target, &path)?;
                let all = [&*found, expected].map(|value| value.extent().0 + value.bytes() / 8);
                self.steps.take(all[0].saturating_add(all[1]))?;
                if !same(self.text, found, expected) {
                    return why("the value there is not the one expected");
                }
                Ok(())
            }
            _ => why("there is no such operation"),
        }
    }

    /// A field that is a string, and is there at most once.
    fn field(&self, fields: &Items, name: &str) -> Result<Option<String>, Stop> {
        match self.only(fields, name)? {
            None => Ok(None),
            Some(Value::Scalar(token)) if self.text.get(*token).starts_with('"') => {
                Ok(Some(json::decode(self.text.get(*token)).into_owned()))
            }
            Some(_) => why(format!("\"{name}\" is not a string")),
        }
    }

    fn only<'v>(&self, fields: &'v Items, name: &str) -> Result<Option<&'v Value>, Stop> {
        let mut all = fields.members.iter().filter(|member| json::decode(self.text.get(member.key)) == name);
        let first = all.next();
        if all.next().is_some() { why(format!("\"{name}\" is there twice")) } else { Ok(first.map(|one| &one.value)) }
    }

    fn value<'v>(&self, fields: &'v Items) -> Result<&'v Value, Stop> {
        self.only(fields, "value")?.ok_or_else(|| Stop::Why("\"value\" is missing".to_owned()))
    }

    fn from(&self, fields: &Items) -> Result<Vec<String>, Stop> {
        match self.field(fields, "from")? {
            Some(from) => pointer(&from),
            None => why("\"from\" is missing"),
        }
    }

    /// Holds the target to its bounds if so much more is put in.
    fn hold(&self, values: usize, bytes: usize) -> Result<(), PatchError> {
        within("the number of values in the result", self.values.saturating_add(values), MOST_NODES)?;
        within("the size of the result", self.bytes.saturating_add(bytes), 2 * self.steps.size)
    }

    fn grow(&mut self, path: &[String], value: &Value) -> Result<(), PatchError> {
        let (count, height) = value.extent();
        self.steps.take(count)?;
        within("the depth of nesting", path.len() + height, MOST_DEPTH)?;
        let bytes = value.bytes();
        self.hold(count, bytes)?;
        self.values += count;
        self.bytes += bytes;
        Ok(())
    }

    fn shrink(&mut self, value: &Value) -> Result<(), PatchError> {
        let count = value.extent().0;
        self.steps.take(count)?;
        self.values = self.values.saturating_sub(count);
        self.bytes = self.bytes.saturating_sub(value.bytes());
        Ok(())
    }

    fn find<'v>(&mut self, target: &'v mut Value, path: &[String]) -> Result<&'v mut Value, Stop> {
        let mut found = target;
        for (depth, step) in path.iter().enumerate() {
            let missing = || {
                let so_far: String = path.iter().take(depth + 1).flat_map(|step| ["/", step]).collect();
                Stop::Why(format!("there is nothing at \"{so_far}\""))
            };
            let at = match &*found {
                Value::Scalar(_) => None,
                Value::Array(items) => index(step).filter(|&at| at < items.members.len()),
                Value::Object(items) => self.key(items, step)?,
            };
            let (Some(at), Some(items)) = (at, found.items_mut()) else { return Err(missing()) };
            found = &mut items.members.get_mut(at).ok_or_else(missing)?.value;
        }
        Ok(found)
    }

    /// Where a key is; the last place if the document has it more than once, as parsers take it.
    fn key(&mut self, items: &Items, wanted: &str) -> Result<Option<usize>, PatchError> {
        let bytes: usize = items.members.iter().map(|member| 1 + self.text.get(member.key).len() / 8).sum();
        self.steps.take(bytes)?;
        Ok(items.members.iter().rposition(|member| {
            let token = self.text.get(member.key);
            let plain = token.get(1..token.len().saturating_sub(1)).unwrap_or_default();
            plain == wanted || (plain.contains('\\') && json::decode(token) == wanted)
        }))
    }

    /// RFC 6902, section 4.1.
    fn add(&mut self, target: &mut Value, path: &[String], value: Value) -> Result<(), Stop> {
        let Some((last, parents)) = path.split_last() else { return self.replace(target, path, value) };
        match self.find(target, parents)? {
            Value::Scalar(_) => why("the parent is neither an array nor an object"),
            Value::Array(items) => {
                let length = items.members.len();
                let at = if last == "-" { Some(length) } else { index(last) };
                let Some(at) = at.filter(|&at| at <= length) else {
                    return why(format!("\"{last}\" is no place in an array of {length}"));
                };
                self.grow(path, &value)?;
                self.steps.take((length - at) / 2)?;
                items.members.insert(at, Member::new(Span::NONE, value));
                if length == 0 {
                    items.depth = None;
                }
                Ok(())
            }
            Value::Object(items) => {
                let there = self.key(items, last)?;
                self.grow(path, &value)?;
                if let Some(member) = there.and_then(|at| items.members.get_mut(at)) {
                    let old = std::mem::replace(&mut member.value, value);
                    self.shrink(&old)?;
                    return Ok(());
                }
                if items.members.is_empty() {
                    items.depth = None;
                }
                items.members.push(Member::new(self.text.add_key(last), value));
                Ok(())
            }
        }
    }

    /// RFC 6902, section 4.2.
    fn remove(&mut self, target: &mut Value, path: &[String]) -> Result<Value, Stop> {
        let Some((last, parents)) = path.split_last() else { return why("the whole document cannot be removed") };
        let parent = self.find(target, parents)?;
        let at = match &*parent {
            Value::Scalar(_) => None,
            Value::Array(items) => index(last).filter(|&at| at < items.members.len()),
            Value::Object(items) => self.key(items, last)?,
        };
        let (Some(at), Some(items)) = (at, parent.items_mut()) else { return why("there is nothing to remove") };
        self.steps.take((items.members.len() - at) / 2)?;
        let gone = items.members.remove(at);
        if matches!(parent, Value::Object(_)) {
            self.remove_twins(parent, last)?;
        }
        if let Some(items) = parent.items_mut().filter(|items| items.members.is_empty()) {
            items.depth = None;
        }
        self.shrink(&gone.value)?;
        Ok(gone.value)
    }

    /// Removes the earlier members with the key of one that was removed, which otherwise would come to light.
    fn remove_twins(&mut self, object: &mut Value, key: &str) -> Result<(), Stop> {
        let Some(items) = object.items_mut() else { return Ok(()) };
        while let Some(at) = self.key(items, key)? {
            let twin = items.members.remove(at);
            self.shrink(&twin.value)?;
        }
        Ok(())
    }

    /// RFC 6902, section 4.3.
    fn replace(&mut self, target: &mut Value, path: &[String], value: Value) -> Result<(), Stop> {
        let found = self.find(target, path)?;
        self.grow(path, &value)?;
        let old = std::mem::replace(found, value);
        self.shrink(&old)?;
        Ok(())
    }
}

/// The steps of a JSON Pointer (RFC 6901, sections 3 and 4).
fn pointer(pointer: &str) -> Result<Vec<String>, Stop> {
    if pointer.is_empty() {
        return Ok(Vec::new());
    }
    let Some(steps) = pointer.strip_prefix('/') else { return why("a JSON Pointer begins with a slash") };
    steps
        .split('/')
        .map(|step| {
            let tildes = step.matches('~').count();
            if tildes > step.matches("~0").count() + step.matches("~1").count() {
                return why("a \"~\" in a JSON Pointer is followed by neither 0 nor 1");
            }
            Ok(step.replace("~1", "/").replace("~0", "~"))
        })
        .collect()
}

/// The index that a step of a pointer is: digits, with no zero before others.
fn index(step: &str) -> Option<usize> {
    let digits = !step.is_empty() && step.bytes().all(|byte| byte.is_ascii_digit());
    if !digits || (step.len() > 1 && step.starts_with('0')) { None } else { step.parse().ok() }
}

/// Whether two values are equal as RFC 6902, section 4.6, has it: numbers by their worth, objects without order.
fn same(text: &Text, one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Scalar(one), Value::Scalar(other)) => {
            let (one, other) = (text.get(*one), text.get(*other));
            one == other
                || match (one.starts_with('"'), other.starts_with('"')) {
                    (true, true) => json::decode(one) == json::decode(other),
                    (false, false) => same_number(one, other),
                    _ => false,
                }
        }
        (Value::Array(one), Value::Array(other)) => {
            one.members.len() == other.members.len()
                && one.members.iter().zip(&other.members).all(|(one, other)| same(text, &one.value, &other.value))
        }
        (Value::Object(one), Value::Object(other)) => {
            let [one, other] = [one, other].map(|items| by_key(text, items));
            one.len() == other.len()
                && one.iter().all(|(key, value)| other.get(key).is_some_and(|other| same(text, value, other)))
        }
        _ => false,
    }
}

fn by_key<'v>(text: &'v Text, items: &'v Items) -> HashMap<Cow<'v, str>, &'v Value> {
    items.members.iter().map(|member| (json::decode(text.get(member.key)), &member.value)).collect()
}

/// Whether two number tokens are the same number, however they are written and however large.
fn same_number(one: &str, other: &str) -> bool {
    match (digits_and_power(one), digits_and_power(other)) {
        (Some(one), Some(other)) => one.cmp(&other) == Ordering::Equal,
        _ => false,
    }
}

/// A number as its sign, its digits without zeros around them, and the power of ten of the last; `None` if it is no
/// number, or if the exponent is beyond all reason.
fn digits_and_power(token: &str) -> Option<(bool, String, i64)> {
    let (sign, rest) = token.strip_prefix('-').map_or((false, token), |rest| (true, rest));
    if !rest.starts_with(|first: char| first.is_ascii_digit()) {
        return None;
    }
    let (mantissa, exponent) = rest.split_once(['e', 'E']).unwrap_or((rest, "0"));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = format!("{whole}{fraction}");
    let trimmed = digits.trim_end_matches('0');
    let power = exponent
        .parse::<i64>()
        .ok()?
        .checked_sub(i64::try_from(fraction.len()).ok()?)?
        .checked_add(i64::try_from(digits.len() - trimmed.len()).ok()?)?;
    let significant = trimmed.trim_start_matches('0');
    if significant.is_empty() { Some((false, String::new(), 0)) } else { Some((sign, significant.to_owned(), power)) }
}
