//! Percent-escapes: which are shown as what they mean, and which characters need them.

/// Decodes a path segment as far as a name may show it.
pub(super) fn decode_segment(segment: &str) -> String {
    decode(segment, false)
}

/// Decodes a query (with its `?`) or a fragment; a `/` in it becomes an escape.
pub(super) fn decode_query(query: &str) -> String {
    decode(query, true)
}

fn decode(text: &str, query: bool) -> String {
    let bytes = text.as_bytes();
    let mut out = String::with_capacity(text.len());
    let mut at = 0;
    while at < bytes.len() {
        let run = escapes(&bytes[at..]);
        if run.is_empty() {
            // `at` stands at a character boundary: escapes are ASCII, and characters are taken whole.
            let Some(character) = text[at..].chars().next() else { break };
            plain(&mut out, character, query);
            at += character.len_utf8();
        } else {
            decode_run(&mut out, &run, &text[at..at + 3 * run.len()]);
            at += 3 * run.len();
        }
    }
    out
}

/// A character that is no escape, as a name shows it.
fn plain(out: &mut String, character: char, query: bool) {
    match character {
        '%' => out.push_str("%25"),
        '/' if query => out.push_str("%2F"),
        '\0' | '/' => push_escapes(out, character),
        _ if character.is_control() => push_escapes(out, character),
        _ => out.push(character),
    }
}

/// The bytes of the escapes that follow one another from the start.
fn escapes(bytes: &[u8]) -> Vec<u8> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|value| u8::try_from(value).ok());
    bytes
        .chunks_exact(3)
        .map_while(|chunk| match chunk {
            [b'%', high, low] => Some(digit(*high)? << 4 | digit(*low)?),
            _ => None,
        })
        .collect()
}

/// Decodes a run of escapes: valid UTF-8 that a name may hold is shown, the rest stays as written.
fn decode_run(out: &mut String, run: &[u8], written: &str) {
    let mut at = 0;
    for chunk in run.utf8_chunks() {
        for character in chunk.valid().chars() {
            let len = character.len_utf8();
            if matches!(character, '/' | '%') || character.is_control() {
                out.push_str(&written[3 * at..3 * (at + len)]);
            } else {
                out.push(character);
            }
            at += len;
        }
        let len = chunk.invalid().len();
        out.push_str(&written[3 * at..3 * (at + len)]);
        at += len;
    }
}

/// Adds a name to a URI. In the last name, the first `?` begins the query.
pub(super) fn encode(uri: &mut String, name: &str, last: bool) {
    let mut query = false;
    let mut at = 0;
    while let Some(character) = name[at..].chars().next() {
        at += character.len_utf8();
        match character {
            '%' if query && name[at..].starts_with("2F") => {
                uri.push('/');
                at += 2;
            }
            '?' if last => {
                query = true;
                uri.push('?');
            }
            _ if u8::try_from(character).is_ok_and(never) => uri.push(character),
            // Every `%` in a name begins an escape that was left as written.
            '%' => uri.push('%'),
            _ => push_escapes(uri, character),
        }
    }
}

/// Whether a character is shown as itself wherever it stands: the unreserved ones, and those that a segment may hold.
pub(super) fn never(byte: u8) -> bool {
    const NEVER: [bool; 256] = {
        let mut table = [false; 256];
        let mut byte = 0;
        while byte < 128_u8 {
            table[byte as usize] = byte.is_ascii_alphanumeric()
                || matches!(byte, b'-' | b'.' | b'_' | b'~')
                || matches!(
                    byte,
                    b'!' | b'$' | b'&' | b'\'' | b'(' | b')' | b'*' | b'+' | b',' | b';' | b'=' | b':' | b'@'
                );
            byte += 1;
        }
        table
    };
    NEVER[usize::from(byte)]
}

fn push_escapes(out: &mut String, character: char) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    let mut buffer = [0; 4];
    for byte in character.encode_utf8(&mut buffer).bytes() {
        out.push('%');
        out.push(char::from(DIGITS[usize::from(byte >> 4)]));
        out.push(char::from(DIGITS[usize::from(byte & 15)]));
    }
}
