//! `Link` header fields (RFC 8288). The crates at hand keep one link for each relation; a Source may
//! well have several.

/// One link of a `Link` header field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkValue {
    /// The target as written.
    pub href: String,
    /// Parameters: names in lower case, values unquoted.
    pub parameters: Vec<(String, String)>,
}

impl LinkValue {
    /// The value of the first parameter of this name.
    #[must_use]
    pub fn parameter(&self, name: &str) -> Option<&str> {
        self.parameters.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// Whether one of the relation types is this.
    #[must_use]
    pub fn is(&self, rel: &str) -> bool {
        self.parameter("rel").is_some_and(|rels| rels.split_ascii_whitespace().any(|one| one.eq_ignore_ascii_case(rel)))
    }
}

/// Reads the value of a `Link` header field. What is no link is passed over.
#[must_use]
pub fn parse_link_header(value: &str) -> Vec<LinkValue> {
    let mut links = Vec::new();
    let mut rest = value;
    while let Some(begin) = rest.find('<') {
        let Some(end) = rest[begin..].find('>') else { break };
        let href = rest[begin + 1..begin + end].trim().to_owned();
        rest = &rest[begin + end + 1..];
        let mut parameters = Vec::new();
        loop {
            rest = rest.trim_start();
            let Some(after) = rest.strip_prefix(';') else { break };
            let (name, after) = after.split_at(after.find(['=', ';', ',']).unwrap_or(after.len()));
            let (text, after) = match after.strip_prefix('=') {
                Some(after) => parameter_value(after.trim_start()),
                None => (String::new(), after),
            };
            parameters.push((name.trim().to_ascii_lowercase(), text));
            rest = after;
        }
        links.push(LinkValue { href, parameters });
    }
    links
}

fn parameter_value(text: &str) -> (String, &str) {
    // An apostrophe may begin a token (RFC 9110, 5.6.2): it is a quote in the wild, if there are two.
    let quote = text.chars().next().filter(|first| *first == '"' || *first == '\'' && text[1..].contains('\''));
    let Some(quote) = quote else {
        let end = text.find([';', ',']).unwrap_or(text.len());
        return (text[..end].trim().to_owned(), &text[end..]);
    };
    let quoted = &text[1..];
    let mut value = String::new();
    let mut characters = quoted.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            _ if character == quote => return (value, &quoted[at + 1..]),
            '\\' => value.extend(characters.next().map(|(_, escaped)| escaped)),
            _ => value.push(character),
        }
    }
    (value, "")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_links_in_one_field() {
        let links = parse_link_header(
            "<http://www.example.com/dataset1/capabilitylist.xml>;\n rel=\"resourcesync\", </a,b;c>; rel=up; title=\"x \\\"y\\\", z\" ; x, <b>",
        );
        assert_eq!(links.len(), 3);
        assert!(links[0].is("resourcesync"));
        assert_eq!((links[1].href.as_str(), links[1].parameter("title")), ("/a,b;c", Some("x \"y\", z")));
        assert!(links[1].is("UP") && links[2].parameters.is_empty());
    }

    #[test]
    fn single_quotes_are_understood_and_an_apostrophe_is_none() {
        let links = parse_link_header("<a>; rel='first memento'; datetime = 'Thu, 03 Jan', <b>; rel='up; title=x");
        assert!(links[0].is("memento") && links[0].parameter("datetime") == Some("Thu, 03 Jan"));
        assert_eq!((links[1].parameter("rel"), links[1].parameter("title")), (Some("'up"), Some("x")));
    }

    #[test]
    fn what_is_no_link_is_passed_over() {
        for text in ["", "x", "<", "<a", ";;", "<a>;", "<a>;rel=\"", ",,,<a>", "<a>;rel='", "<a>;rel=''"] {
            let _ = parse_link_header(text);
        }
    }
}
