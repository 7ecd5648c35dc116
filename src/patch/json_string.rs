//! The ways in which writers escape strings.

use super::json;

/// How strings are escaped, where JSON leaves it open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Strings {
    /// Characters beyond ASCII, and DEL, are escaped.
    pub(super) ascii: bool,
    /// Hexadecimal digits are upper case.
    pub(super) upper: bool,
    /// A slash is escaped, as PHP does.
    pub(super) slash: bool,
    /// Control characters that have a short escape have a long one all the same.
    pub(super) long: bool,
    /// `<`, `>` and `&` are escaped, as Go does.
    pub(super) html: bool,
}

impl Strings {
    /// How the strings of a text are escaped, and whether it says nothing about characters beyond ASCII, and slashes.
    pub(super) fn of(text: &str) -> (Self, bool, bool) {
        let mut strings = Self { ascii: false, upper: false, slash: false, long: false, html: false };
        let mut rest = text;
        let mut is_lower = false;
        while let Some((_, escape)) = rest.split_once('\\') {
            let mut length = 1;
            if escape.starts_with('/') {
                strings.slash = true;
            } else if let Some(digits) = escape.strip_prefix('u').and_then(|digits| digits.get(..4)) {
                length = 5;
                strings.upper |= digits.contains(|digit: char| digit.is_ascii_uppercase());
                is_lower |= digits.contains(|digit: char| digit.is_ascii_lowercase());
                match u32::from_str_radix(digits, 16) {
                    Ok(0x26 | 0x3C | 0x3E) => strings.html = true,
                    Ok(0x8..=0xA | 0xC | 0xD) => strings.long = true,
                    // These two are escaped for JavaScript's sake by writers that escape nothing else.
                    Ok(0x2028 | 0x2029) => {}
                    Ok(0x7F..) => strings.ascii = true,
                    _ => {}
                }
            }
            rest = escape.get(length..).unwrap_or_default();
        }
        strings.upper &= !is_lower;
        let is_wide = !text.is_ascii();
        let open = (!is_wide && !strings.ascii, !strings.slash && !text.contains('/'));
        strings.ascii &= !is_wide;
        (strings, open.0, open.1)
    }

    /// Writes a string token anew.
    pub(super) fn write(self, token: &str, out: &mut String) {
        let decoded = json::decode(token);
        if decoded.contains(char::REPLACEMENT_CHARACTER) && token.contains("\\u") {
            // It may be a lone surrogate's, which the string cannot hold.
            out.push_str(token);
            return;
        }
        out.push('"');
        for char in decoded.chars() {
            let short = match char {
                '"' | '\\' => Some(char),
                '/' if self.slash => Some(char),
                '\u{8}' if !self.long => Some('b'),
                '\t' if !self.long => Some('t'),
                '\n' if !self.long => Some('n'),
                '\u{c}' if !self.long => Some('f'),
                '\r' if !self.long => Some('r'),
                _ => None,
            };
            let long = match char {
                '\0'..='\u{1F}' => true,
                '<' | '>' | '&' | '\u{2028}' | '\u{2029}' if self.html => true,
                '\u{7F}'.. => self.ascii,
                _ => false,
            };
            match short {
                Some(short) => out.extend(['\\', short]),
                None if long => {
                    for unit in char.encode_utf16(&mut [0; 2]) {
                        let digits = if self.upper { format!("\\u{unit:04X}") } else { format!("\\u{unit:04x}") };
                        out.push_str(&digits);
                    }
                }
                None => out.push(char),
            }
        }
        out.push('"');
    }
}
