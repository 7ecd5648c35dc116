//! URI to path and back.
//!
//! **Owns** the mapping between the URI of a resource and its path below the root of its set: the
//! rules of which characters show as themselves, and the names that stand for what a path cannot say.
//!
//! **Assumes** nothing of a URI: it is text from a stranger.
//!
//! **Promises** that a URI has the same plain path each time, and a second one ([`ResourcePath::apart`]) that no other URI has,
//! for where another resource has the plain one. No name is empty, `.` or `..`, holds `/`, NUL
//! or a control character, or is longer than 255 bytes. [`Mapper::uri`] gives the URI of a path
//! wherever the path alone determines it; [`ResourcePath::naming`] marks the paths that do not.
//!
//! How: a URI is *decoded* into names, and the names are *encoded* again. Encoding is a function, so of all URIs with these names
//! at most one comes back letter by letter; the path determines that one.
//! The others (an escape that need not have been one, a character that should have been one)
//! share the names with it. The long form of the last name, with part of the URI's SHA-256 in it, separates resources that share
//! their names; names that are too long, or look like a long form without being one, always take it.
//!
//! **Never knows** which URIs exist, which of them came first, what a file is, or that a file can become a directory: that is
//! the catalog's matter.

mod escape;
mod sets;

use std::borrow::Cow;

use data_encoding::HEXLOWER;
use sha2::{Digest as _, Sha256};
use thiserror::Error;

pub use sets::set_labels;

/// The longest name in bytes, as in most file systems.
pub const NAME_MAX: usize = 255;

/// The longest URI in bytes that is given a path.
pub const URI_MAX: usize = 8192;

/// The name of a resource whose URI ends in `/`, unless another one is chosen ([`Mapper::with_index`]).
pub const INDEX: &str = "@index";

/// The name, in its own directory, of a resource that is also a prefix of others.
pub const SELF: &str = "@self";

/// The names at the root that are not the Source's.
pub const RESERVED: [&str; 2] = [".versions", ".resourcesync"];

/// What an empty segment is shown as: no escape is spelled so, and no URI segment decodes to it.
const EMPTY: &str = "%";

/// Why a URI has no path.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum PathError {
    /// It is not `scheme:…`.
    #[error("{0:?} is not an absolute URI")]
    NotAbsolute(String),
    /// It is longer than [`URI_MAX`].
    #[error("a URI of {0} bytes is longer than the {URI_MAX} that are given a path")]
    TooLong(usize),
    /// What resources whose URI ends in `/` are to be called is not a name, or is one that stands for something else.
    #[error("{0:?} cannot be the name of resources whose URI ends in /: {1}")]
    NoIndex(String, &'static str),
}

/// The path of a resource: its names, from the root of its set.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ResourcePath {
    /// At least one.
    pub names: Vec<String>,
    /// How the names relate to the URI.
    pub naming: Naming,
}

/// How the names of a resource relate to its URI.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Naming {
    /// It is the one that the names encode to. Other URIs may be shown by the same names, if they were there before.
    Encoded,
    /// It is one of those that are shown by these names, but not the one that they encode to.
    Respelled,
    /// The last name has a digest of it: no other has these names.
    Digest,
}

impl ResourcePath {
    /// Whether the URI has to be kept, because the names do not determine it.
    #[must_use]
    pub fn needs_uri(&self) -> bool {
        self.naming != Naming::Encoded
    }

    /// The last name.
    #[must_use]
    pub fn leaf(&self) -> &str {
        self.names.last().map(String::as_str).unwrap_or_default()
    }

    /// The names of the directories above it, from the root of its set.
    #[must_use]
    pub fn above(&self) -> &[String] {
        self.names.split_last().map(|(_, above)| above).unwrap_or_default()
    }

    /// The last name where another resource has, or had, the plain one: it has a digest of the URI.
    #[must_use]
    pub fn apart(&self, uri: &str) -> Cow<'_, str> {
        match self.naming {
            Naming::Digest => Cow::Borrowed(self.leaf()),
            Naming::Encoded | Naming::Respelled => Cow::Owned(long_form(self.leaf(), uri)),
        }
    }
}

impl std::fmt::Display for ResourcePath {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.names.join("/"))
    }
}

/// The mapping for one Source.
#[derive(Clone, Debug)]
pub struct Mapper {
    scheme: String,
    authority: String,
    /// Begins and ends with `/`.
    prefix: String,
    /// The three in one: what every URI at the root begins with.
    root: String,
    /// What is in place of the empty name of a resource whose URI ends in `/`.
    index: String,
}

/// The parts of a URI that matter here.
struct Parts<'u> {
    scheme: &'u str,
    authority: Option<&'u str>,
    /// From after the authority to the end, query and fragment with it.
    rest: &'u str,
}

fn split(uri: &str) -> Option<Parts<'_>> {
    let (scheme, rest) = uri.split_once(':')?;
    let letters = scheme.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'-' | b'.'));
    if !letters || !scheme.starts_with(|c: char| c.is_ascii_alphabetic()) {
        return None;
    }
    match rest.strip_prefix("//") {
        None => Some(Parts { scheme, authority: None, rest }),
        Some(rest) => {
            let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
            Some(Parts { scheme, authority: Some(&rest[..end]), rest: &rest[end..] })
        }
    }
}

/// An authority in lower case, and without the default port of its scheme (RFC 3986, 6.2).
fn normal_authority(scheme: &str, authority: &str) -> String {
    let authority = authority.to_ascii_lowercase();
    let port = match scheme {
        "http" => ":80",
        "https" => ":443",
        _ => "",
    };
    let plain = authority.strip_suffix(port).filter(|_| !port.is_empty()).or_else(|| authority.strip_suffix(':'));
    plain.map_or_else(|| authority.clone(), str::to_owned)
}

impl Mapper {
    /// The mapping whose root is at `base`: the Source's own URL, or what `base=` says. What lies
    /// under the directory of `base` is at the root, everything else under `@authority`. Only scheme
    /// and authority of a Source's URL count; the path of `base=` counts with `whole_prefix`.
    ///
    /// # Errors
    /// If `base` is no URL with an authority.
    pub fn new(base: &str, whole_prefix: bool) -> Result<Self, PathError> {
        let not_absolute = || PathError::NotAbsolute(base.chars().take(80).collect());
        let parts = split(base).ok_or_else(not_absolute)?;
        let authority = parts.authority.ok_or_else(not_absolute)?;
        let path = parts.rest.split(['?', '#']).next().unwrap_or_default();
        let prefix = match path.rfind('/') {
            Some(end) if whole_prefix => path[..=end].to_owned(),
            _ => "/".to_owned(),
        };
        let scheme = parts.scheme.to_ascii_lowercase();
        let authority = normal_authority(&scheme, authority);
        let root = format!("{scheme}://{authority}{prefix}");
        Ok(Self { scheme, authority, prefix, root, index: INDEX.to_owned() })
    }

    /// The same mapping with another name for resources whose URI ends in `/`, such as `index.html`.
    ///
    /// # Errors
    /// If a resource could not be shown under that name.
    pub fn with_index(self, index: &str) -> Result<Self, PathError> {
        let wrong = |why| Err(PathError::NoIndex(index.to_owned(), why));
        match index {
            INDEX => return Ok(self),
            "" => return wrong("it is empty"),
            "." | ".." => return wrong("that is a directory"),
            _ if index.len() > NAME_MAX => return wrong("it is longer than 255 bytes"),
            _ if index.contains(|c: char| matches!(c, '/' | '%' | '?') || c.is_control()) => {
                return wrong("it holds /, %, ? or a control character");
            }
            _ if index.starts_with('@') || RESERVED.contains(&index) => return wrong("such names have a meaning"),
            _ if is_long_form(index) => return wrong("so are those called that share a name"),
            _ => {}
        }
        Ok(Self { index: index.to_owned(), ..self })
    }

    /// The path of the resource with this URI.
    ///
    /// # Errors
    /// If the text is no absolute URI, or is too long.
    pub fn path(&self, uri: &str) -> Result<ResourcePath, PathError> {
        if uri.len() > URI_MAX {
            return Err(PathError::TooLong(uri.len()));
        }
        match self.plain(uri) {
            Some(names) if names.last() != Some(&self.index) => Ok(finish(names, uri, true)),
            _ => self.by_rules(uri),
        }
    }

    /// The path of any URI, plain or not.
    fn by_rules(&self, uri: &str) -> Result<ResourcePath, PathError> {
        let parts = split(uri).ok_or_else(|| PathError::NotAbsolute(uri.chars().take(80).collect()))?;
        let mut names = Vec::new();
        let rest = match parts.authority {
            Some(authority)
                if parts.scheme.eq_ignore_ascii_case(&self.scheme)
                    && normal_authority(&self.scheme, authority) == self.authority
                    && parts.rest.starts_with(&self.prefix) =>
            {
                &parts.rest[self.prefix.len()..]
            }
            Some(authority) => {
                let scheme = if parts.scheme == self.scheme { String::new() } else { format!("{}:", parts.scheme) };
                names.push(format!("@{scheme}{}", escape::decode_segment(authority)));
                parts.rest.strip_prefix('/').unwrap_or(parts.rest)
            }
            None => {
                names.push(format!("@{}:", parts.scheme));
                parts.rest
            }
        };
        self.append(rest, &mut names);
        let exact = self.encode(&names).as_deref() == Some(uri);
        Ok(finish(names, uri, exact))
    }

    /// The names of a URI at the root whose segments are names as they are: what is left to the rules is
    /// whatever they decode, encode, or keep for themselves. Most URIs are such, and to decode them and to encode
    /// that again costs seven times as much.
    fn plain(&self, uri: &str) -> Option<Vec<String>> {
        let rest = uri.strip_prefix(&self.root)?;
        let mut names = Vec::with_capacity(4);
        let (mut begin, mut query) = (0, false);
        for (at, byte) in rest.bytes().enumerate() {
            match byte {
                b'/' if !query => {
                    names.push(plain_name(&rest[begin..at])?);
                    begin = at + 1;
                }
                b'?' => query = true,
                _ if escape::never(byte) => {}
                _ => return None,
            }
        }
        names.push(plain_name(&rest[begin..])?);
        Some(names)
    }

    /// Adds the names of a path below its root.
    fn append(&self, rest: &str, names: &mut Vec<String>) {
        let end = rest.find(['?', '#']).unwrap_or(rest.len());
        let (path, query) = rest.split_at(end);
        let mut segments = path.split('/').peekable();
        while let Some(segment) = segments.next() {
            let last = segments.peek().is_none();
            let at_root = names.is_empty();
            names.push(match (segment, last) {
                ("", true) if query.is_empty() => self.index.clone(),
                ("", false) => EMPTY.to_owned(),
                (_, true) => own(escape::decode_segment(segment) + &escape::decode_query(query), at_root),
                (_, false) => own(escape::decode_segment(segment), at_root),
            });
        }
    }

    /// The URI that these names stand for by the rules alone, if they stand for one.
    fn encode(&self, names: &[String]) -> Option<String> {
        let first = names.first()?;
        let (mut uri, below) = match first.strip_prefix('@') {
            Some(foreign) if *first != self.index => (self.foreign(foreign)?, &names[1..]),
            _ => (self.root.clone(), names),
        };
        for (index, name) in below.iter().enumerate() {
            let last = index + 1 == below.len();
            match name.as_str() {
                name if last && name == self.index => {}
                EMPTY => {}
                _ => escape::encode(&mut uri, &disown(name, index == 0 && below.len() == names.len()), last),
            }
            if !last {
                uri.push('/');
            }
        }
        Some(uri)
    }

    /// What comes before the path of a resource under `@…`.
    fn foreign(&self, name: &str) -> Option<String> {
        let (scheme, authority) = match name.split_once(':') {
            Some((scheme, "")) => return Some(format!("{scheme}:")),
            Some((scheme, host))
                if scheme.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'-'))
                    && !host.bytes().all(|b| b.is_ascii_digit()) =>
            {
                (scheme, host)
            }
            _ => (self.scheme.as_str(), name),
        };
        let mut uri = format!("{scheme}://");
        escape::encode(&mut uri, authority, false);
        uri.push('/');
        Some(uri)
    }

    /// The URI of the resource at this path, where the path alone determines it.
    #[must_use]
    pub fn uri(&self, names: &[String]) -> Option<String> {
        let uri = self.encode(names)?;
        let path = self.path(&uri).ok()?;
        (path.names == names && !path.needs_uri()).then_some(uri)
    }
}

/// A segment of characters that are never escaped, as a name, unless [`own`] could have a say in it.
fn plain_name(segment: &str) -> Option<String> {
    (!segment.is_empty() && !segment.starts_with(['@', '.'])).then(|| segment.to_owned())
}

/// Percent-encodes a name that would be one of ours.
fn own(name: String, at_root: bool) -> String {
    if let Some(rest) = name.strip_prefix('@') {
        return format!("%40{rest}");
    }
    if at_root && RESERVED.contains(&name.as_str()) {
        return format!("%2E{}", &name[1..]);
    }
    match name.as_str() {
        "." => "%2E".to_owned(),
        ".." => "%2E%2E".to_owned(),
        _ => name,
    }
}

/// Undoes [`own`], but for `.` and `..`, which stay encoded in URIs that mean them as names.
fn disown(name: &str, at_root: bool) -> String {
    if let Some(rest) = name.strip_prefix("%40") {
        return format!("@{rest}");
    }
    if at_root
        && let Some(rest) = name.strip_prefix("%2E")
        && RESERVED.contains(&format!(".{rest}").as_str())
    {
        return format!(".{rest}");
    }
    name.to_owned()
}

/// Brings names to their final form: the long one where no other will do. `exact` if they encode to the URI.
fn finish(mut names: Vec<String>, uri: &str, exact: bool) -> ResourcePath {
    let mut naming = if exact { Naming::Encoded } else { Naming::Respelled };
    let last = names.len() - 1;
    for index in 0..last {
        if names[index].len() > NAME_MAX || is_long_form(&names[index]) {
            // All resources below this directory share its name: the hash is of the names so far.
            let key = names[..=index].join("/");
            names[index] = long_form(&names[index], &key);
            naming = Naming::Respelled;
        }
    }
    if names[last].len() > NAME_MAX || is_long_form(&names[last]) {
        names[last] = long_form(&names[last], uri);
        naming = Naming::Digest;
    }
    ResourcePath { names, naming }
}

/// The extension of a file name with its dot, if it has a short and plain one.
#[must_use]
pub fn extension(name: &str) -> &str {
    let plain = |extension: &str| {
        (2..=11).contains(&extension.len()) && extension[1..].bytes().all(|b| b.is_ascii_alphanumeric())
    };
    match name.rfind('.') {
        Some(dot) if dot > 0 && plain(&name[dot..]) => &name[dot..],
        _ => "",
    }
}

/// A name that a directory can hold: one that is too long keeps its beginning and its extension, and has a digest of the rest
/// between them.
#[must_use]
pub fn shortened(name: &str) -> Cow<'_, str> {
    if name.len() <= NAME_MAX { Cow::Borrowed(name) } else { Cow::Owned(long_form(name, name)) }
}

fn long_form(name: &str, key: &str) -> String {
    let extension = extension(name);
    let mut stem_end = (name.len() - extension.len()).min(NAME_MAX - 17 - extension.len());
    while !name.is_char_boundary(stem_end) {
        stem_end -= 1;
    }
    let mut long = String::with_capacity(NAME_MAX);
    long.push_str(&name[..stem_end]);
    long.push('~');
    HEXLOWER.encode_append(&Sha256::digest(key.as_bytes())[..8], &mut long);
    long.push_str(extension);
    long
}

/// Whether a name could be taken for a long form.
fn is_long_form(name: &str) -> bool {
    if name.len() < 17 {
        return false;
    }
    let stem = &name[..name.len() - extension(name).len()];
    match stem.len().checked_sub(17) {
        Some(tilde) => {
            stem.as_bytes()[tilde] == b'~'
                && stem.as_bytes()[tilde + 1..].iter().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
        }
        None => false,
    }
}

#[cfg(test)]
mod tests;
