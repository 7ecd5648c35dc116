//! Text from outside, made safe to show.
//!
//! **Owns** how text that a server, a document or a local user chose is written to a terminal, a log, `status.json` and error
//! messages: control characters and characters that reorder text are escaped, long text is cut, and secrets are replaced.
//!
//! **Assumes** that every secret is registered ([`register_secret`]) before anything is sent with it.
//!
//! **Promises** that [`line()`] is one line that shows what it contains, and that no registered secret is in any of the results.
//!
//! **Never knows** where text comes from or goes to; every room may use it.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::io;

use parking_lot::RwLock;

/// What stands in place of a secret.
const REDACTED: &str = "[redacted]";
/// Shorter words are not redacted: they would make messages unreadable and are no secrets.
const SHORTEST_SECRET: usize = 4;

/// The secrets of this process: tokens, passwords, signing keys, callback paths. The lock is held for a comparison of strings.
static SECRETS: RwLock<Vec<String>> = RwLock::new(Vec::new());

/// A number with its thousands apart: `1,234`.
#[must_use]
pub fn count(number: u64) -> String {
    indicatif::HumanCount(number).to_string()
}

/// From now on, `secret` is replaced wherever text is shown, also in its percent-encoded form.
pub fn register_secret(secret: &str) {
    let mut secrets = SECRETS.write();
    for form in forms(secret) {
        if form.len() >= SHORTEST_SECRET && !secrets.contains(&form) {
            secrets.push(form);
        }
    }
    // A secret that contains another one is replaced whole.
    secrets.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
}

/// `secret` is no secret any more: a subscription has ended, for example.
pub fn forget_secret(secret: &str) {
    let mut secrets = SECRETS.write();
    let forms = forms(secret);
    secrets.retain(|known| !forms.contains(known));
}

/// How a secret may be spelled.
fn forms(secret: &str) -> [String; 2] {
    let encoded = percent_encoding::utf8_percent_encode(secret, percent_encoding::NON_ALPHANUMERIC);
    [secret.to_owned(), encoded.to_string()]
}

/// Text without secrets.
#[must_use]
pub fn redacted(text: &str) -> Cow<'_, str> {
    let secrets = SECRETS.read();
    let mut result = Cow::Borrowed(text);
    for secret in secrets.iter() {
        if result.contains(secret.as_str()) {
            result = Cow::Owned(result.replace(secret.as_str(), REDACTED));
        }
    }
    result
}

/// Whether a character acts on a terminal or changes how the text around it is read: C0 and C1 controls, DEL, line and
/// paragraph separators, bidirectional formatting (UAX #9), zero-width characters, tags and interlinear annotations.
fn is_unsafe(c: char) -> bool {
    c.is_control()
        || matches!(
            c,
            '\u{61c}'
                | '\u{200b}'..='\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}'
                | '\u{feff}'
                | '\u{fff9}'..='\u{fffb}'
                | '\u{e0000}'..='\u{e007f}'
        )
}

fn escaped<'t>(text: Cow<'t, str>, keep: &[char], escape: impl Fn(&mut String, char)) -> Cow<'t, str> {
    let is_kept = |c: char| !is_unsafe(c) || keep.contains(&c);
    if text.chars().all(is_kept) {
        return text;
    }
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if is_kept(c) { out.push(c) } else { escape(&mut out, c) }
    }
    Cow::Owned(out)
}

fn escape(out: &mut String, c: char) {
    // Writing to a String cannot fail.
    let _ = match c {
        '\n' => out.write_str("\\n"),
        '\r' => out.write_str("\\r"),
        '\t' => out.write_str("\\t"),
        c => write!(out, "\\u{{{:x}}}", u32::from(c)),
    };
}

/// Text as one line, with escapes as Rust writes them (`\n`, `\u{9b}`).
#[must_use]
pub fn line(text: &str) -> Cow<'_, str> {
    escaped(redacted(text), &[], escape)
}

/// Text of several lines: line feeds and tabs stay.
#[must_use]
pub fn lines(text: &str) -> Cow<'_, str> {
    escaped(redacted(text), &['\n', '\t'], escape)
}

/// A line of at most `most` characters; what is cut is marked with `…`.
#[must_use]
pub fn short_line(text: &str, most: usize) -> String {
    let line = line(text);
    match line.char_indices().nth(most) {
        None => line.into_owned(),
        Some((end, _)) => format!("{}…", &line[..end]),
    }
}

/// A JSON text with the same meaning that is safe on a terminal: these characters occur in its strings only, where JSON
/// writes them as `\u009b`. Secrets are to be replaced before: in the text, one that looks like a number or a name would be
/// found where it is none.
#[must_use]
pub fn json(text: &str) -> Cow<'_, str> {
    escaped(Cow::Borrowed(text), &['\n', '\r', '\t'], |out, c| {
        for unit in c.encode_utf16(&mut [0; 2]) {
            // Writing to a String cannot fail.
            let _ = write!(out, "\\u{unit:04x}");
        }
    })
}

/// A writer of records, each written by one call and ended by a line feed: each becomes one safe line.
#[derive(Debug)]
pub struct Lines<W>(pub W);

impl<W: io::Write> io::Write for Lines<W> {
    fn write(&mut self, record: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(record);
        let text = text.strip_suffix('\n').unwrap_or(&text);
        let mut safe = line(text).into_owned();
        safe.push('\n');
        self.0.write_all(safe.as_bytes())?;
        Ok(record.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_acts_on_a_terminal_is_escaped() {
        let hostile = "a\u{1b}[31mb\u{9b}2Jc\rd\u{202e}e\u{2066}f\u{7f}g\nh\ti\u{200b}j";
        let safe = line(hostile);
        assert_eq!(safe, "a\\u{1b}[31mb\\u{9b}2Jc\\rd\\u{202e}e\\u{2066}f\\u{7f}g\\nh\\ti\\u{200b}j");
        assert_eq!(lines("a\nb\tc\r"), "a\nb\tc\\r");
        assert!(matches!(line("Größe 漢字 🙂"), Cow::Borrowed("Größe 漢字 🙂")));
        assert_eq!(short_line("abcdef", 3), "abc…");
        assert_eq!(short_line("abc", 3), "abc");
    }

    #[test]
    fn json_keeps_its_meaning() {
        let value = serde_json::json!({"a\u{9b}": "b\u{202e}\u{e0041}\u{1b}\n"});
        let text = serde_json::to_string_pretty(&value).unwrap();
        let safe = json(&text);
        assert!(!safe.chars().any(|c| is_unsafe(c) && c != '\n'), "{safe}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&safe).unwrap(), value);
    }

    #[test]
    fn secrets_are_nowhere() {
        register_secret("tok/en+1234");
        register_secret("tok/en+1234-longer");
        let text = "redirect to http://x/?t=tok%2Fen%2B1234&u=tok/en+1234-longer";
        let shown = line(text);
        assert!(!shown.contains("1234"), "{shown}");
        assert_eq!(shown, "redirect to http://x/?t=[redacted]&u=[redacted]");
        forget_secret("tok/en+1234-longer");
        register_secret("ab");
        assert_eq!(line("abc"), "abc");
    }

    #[test]
    fn a_record_is_one_line() {
        use io::Write as _;
        let mut out = Lines(Vec::new());
        out.write_all(b"forged\nINFO line\x1b[2J\n").unwrap();
        assert_eq!(String::from_utf8(out.0).unwrap(), "forged\\nINFO line\\u{1b}[2J\n");
    }
}
