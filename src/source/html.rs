//! `<link rel="resourcesync">` in an HTML page (core 6.3.3).

use html5gum::{Token, Tokenizer};

/// The targets of the links with relation `resourcesync`, as written.
pub(super) fn resourcesync_links(page: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(page);
    let mut links = Vec::new();
    for Ok(token) in Tokenizer::new(text.as_ref()) {
        let Token::StartTag(tag) = token else { continue };
        let attribute = |name: &str| {
            tag.attributes
                .iter()
                .find(|(key, _)| key.eq_ignore_ascii_case(name.as_bytes()))
                .map(|(_, value)| String::from_utf8_lossy(value).into_owned())
        };
        if !tag.name.eq_ignore_ascii_case(b"link") {
            continue;
        }
        let rel = attribute("rel").unwrap_or_default();
        if rel.split_ascii_whitespace().any(|one| one.eq_ignore_ascii_case("resourcesync")) {
            links.extend(attribute("href").map(|href| href.trim().to_owned()).filter(|href| !href.is_empty()));
        }
    }
    links
}

#[cfg(test)]
mod tests {
    #[test]
    fn links_are_found_where_html_has_them() {
        let page = br#"<!DOCTYPE html><HTML><head><!-- <link rel="resourcesync" href="no"> -->
            <LINK REL="alternate ResourceSync" HREF=" http://www.example.com/dataset1/capabilitylist.xml ">
            <link rel=stylesheet href=x><script>"<link rel=resourcesync href=no>"</scr"#;
        let found = super::resourcesync_links(page);
        assert!(found.contains(&"http://www.example.com/dataset1/capabilitylist.xml".to_owned()), "{found:?}");
    }
}
