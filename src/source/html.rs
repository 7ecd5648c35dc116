//! `<link rel="resourcesync">` in an HTML page (core 6.3.3).

use html5gum::emitters::default::DefaultEmitter;
use html5gum::{Token, Tokenizer};
use url::Url;

/// The targets of the links with relation `resourcesync`, resolved against the page's `<base href>`, else against `url`.
pub(super) fn resourcesync_links(url: &Url, page: &[u8]) -> Vec<Url> {
    let text = String::from_utf8_lossy(page);
    let mut emitter = DefaultEmitter::default();
    // What stands in <script>, <style>, <textarea> and <title> is text.
    emitter.naively_switch_states(true);
    let (mut base, mut links) = (None, Vec::new());
    for Ok(token) in Tokenizer::new_with_emitter(text.as_ref(), emitter) {
        let Token::StartTag(tag) = token else { continue };
        let attribute = |name: &str| {
            let found = tag.attributes.iter().find(|(key, _)| key.eq_ignore_ascii_case(name.as_bytes()));
            let value = found.map(|(_, value)| String::from_utf8_lossy(value).trim().to_owned());
            value.filter(|value| !value.is_empty())
        };
        if tag.name.eq_ignore_ascii_case(b"base") {
            base = base.or_else(|| attribute("href").and_then(|href| url.join(&href).ok()));
        } else if tag.name.eq_ignore_ascii_case(b"link") {
            let rel = attribute("rel").unwrap_or_default();
            if rel.split_ascii_whitespace().any(|one| one.eq_ignore_ascii_case("resourcesync")) {
                links.extend(attribute("href"));
            }
        }
    }
    let base = base.as_ref().unwrap_or(url);
    links.iter().filter_map(|href| base.join(href).ok()).collect()
}

#[cfg(test)]
mod tests {
    use url::Url;

    fn links(page: &str) -> Vec<String> {
        let url = Url::parse("http://example.com/pages/home.html").unwrap();
        super::resourcesync_links(&url, page.as_bytes()).into_iter().map(String::from).collect()
    }

    #[test]
    fn links_are_found_where_html_has_them() {
        let page = r#"<!DOCTYPE html><HTML><head><!-- <link rel="resourcesync" href="no"> -->
            <title><link rel=resourcesync href=no></title><script>"<link rel=resourcesync href=no>"</script>
            <LINK REL="alternate ResourceSync" HREF=" http://www.example.com/dataset1/capabilitylist.xml ">
            <link rel=stylesheet href=x><link rel=resourcesync href=list.xml>
            <body><textarea><link rel=resourcesync href=no></textarea>"#;
        let expected = ["http://www.example.com/dataset1/capabilitylist.xml", "http://example.com/pages/list.xml"];
        assert_eq!(links(page), expected);
    }

    #[test]
    fn a_base_counts_wherever_it_stands() {
        let page = "<link rel=resourcesync href=list.xml><base href='/other/'><base href='/not/this/'>";
        assert_eq!(links(page), ["http://example.com/other/list.xml"]);
    }
}
