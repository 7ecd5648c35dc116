use std::collections::HashMap;

use proptest::prelude::*;

use super::*;

fn mapper() -> Mapper {
    Mapper::new("https://source.example/", false).unwrap()
}

#[test]
fn what_uris_look_like() {
    for (uri, expected) in [
        ("https://source.example/a/b.pdf", "a/b.pdf"),
        ("https://source.example/a%20b/%C3%A9t%C3%A9.txt", "a b/été.txt"),
        ("https://source.example/a%2Fb", "a%2Fb"),
        ("https://source.example/100%25", "100%25"),
        ("https://source.example/a%00b%1Fc", "a%00b%1Fc"),
        ("https://source.example/%FFx", "%FFx"),
        ("https://source.example/%2E%2E/%2E/x", "%2E%2E/%2E/x"),
        ("https://source.example/a//b", "a/%/b"),
        ("https://source.example/a/", "a/@index"),
        ("https://source.example/", "@index"),
        ("https://source.example/a?b=c", "a?b=c"),
        ("https://source.example/a?b=/c/../d", "a?b=%2Fc%2F..%2Fd"),
        ("https://source.example/a/?q", "a/?q"),
        ("https://source.example/@user/post", "%40user/post"),
        ("https://source.example/x/@user", "x/%40user"),
        ("https://source.example/.versions/x", "%2Eversions/x"),
        ("https://source.example/x/.versions", "x/.versions"),
        ("https://source.example/.resourcesync", "%2Eresourcesync"),
        ("https://other.example.org/x", "@other.example.org/x"),
        ("https://other.example.org:8080/x", "@other.example.org:8080/x"),
        ("http://source.example/x", "@http:source.example/x"),
        ("http://other.example.org/", "@http:other.example.org/@index"),
        ("ftp://source.example/x", "@ftp:source.example/x"),
        ("urn:isbn:0451450523", "@urn:/isbn:0451450523"),
    ] {
        let found = mapper().path(uri).unwrap();
        assert_eq!(found.to_string(), expected, "{uri}");
        assert!(!found.needs_uri(), "{uri}");
        assert_eq!(mapper().uri(&found.names).as_deref(), Some(uri));
    }
}

#[test]
fn other_spellings_of_a_name_are_shown_by_it_or_told_apart_by_the_long_form() {
    for (plain, other) in [
        ("https://source.example/a?b", "https://source.example/a%3Fb"),
        ("https://source.example/A", "https://source.example/%41"),
        ("https://source.example/%C3%A9", "https://source.example/é"),
        ("https://source.example/%C3%A9", "https://source.example/%c3%a9"),
        ("https://source.example/@x", "https://source.example/%40x"),
        ("https://source.example/a%23b", "https://source.example/a#b"),
        ("https://source.example/a%20b", "https://source.example/a b"),
        ("https://source.example/x/%2E%2E/y", "https://source.example/x/../y"),
        ("https://source.example/f(1).pdf", "https://source.example/f%281%29.pdf"),
        ("https://source.example/caf%C3%A9/x", "https://source.example/caf%c3%a9/x"),
    ] {
        let (one, two) = (mapper().path(plain).unwrap(), mapper().path(other).unwrap());
        assert!(!one.needs_uri() && two.needs_uri(), "{plain} {one} / {other} {two}");
        assert_eq!(one.names, two.names);
        let stem = one.leaf().strip_suffix(extension(one.leaf())).unwrap();
        for (path, uri) in [(&one, plain), (&two, other)] {
            let apart = path.apart(uri);
            assert!(apart.starts_with(&format!("{stem}~")) && is_long_form(&apart), "{uri} {apart}");
        }
        assert_ne!(one.apart(plain), two.apart(other));
    }
}

#[test]
fn pages_can_be_called_as_is_wished() {
    let mapper = || mapper().with_index("index.html").unwrap();
    for (uri, path, naming) in [
        ("https://source.example/", "index.html", Naming::Encoded),
        ("https://source.example/a/", "a/index.html", Naming::Encoded),
        ("https://source.example/a/index.html", "a/index.html", Naming::Respelled),
        ("https://source.example/a/%40index", "a/%40index", Naming::Respelled),
        ("https://source.example/a/@index", "a/%40index", Naming::Encoded),
        ("https://source.example/a/?q", "a/?q", Naming::Encoded),
        ("https://source.example/index.html/a", "index.html/a", Naming::Encoded),
        ("http://other.example/", "@http:other.example/index.html", Naming::Encoded),
    ] {
        let found = mapper().path(uri).unwrap();
        assert_eq!((found.to_string().as_str(), found.naming), (path, naming), "{uri}");
        assert_eq!(mapper().uri(&found.names).is_some_and(|known| known == uri), naming == Naming::Encoded, "{uri}");
    }
    let long = "x".repeat(256);
    for index in ["", ".", "..", "a/b", "a%b", "a?b", "a\n", "@self", "@x", ".versions", "a~0123456789abcdef", &long] {
        let error = Mapper::new("https://source.example/", false).unwrap().with_index(index).unwrap_err();
        assert!(matches!(error, PathError::NoIndex(..)), "{index:?}");
    }
}

#[test]
fn long_names_are_cut_at_a_character_and_keep_their_extension() {
    let uri = format!("https://source.example/d/{}.pdf", "é".repeat(300));
    let found = mapper().path(&uri).unwrap();
    let name = &found.names[1];
    assert!(found.naming == Naming::Digest && name.len() <= NAME_MAX && name.ends_with(".pdf"), "{name}");
    assert!(is_long_form(name));
    let hash = Sha256::digest(uri.as_bytes()).iter().take(8).fold(String::new(), |s, b| format!("{s}{b:02x}"));
    assert!(name.contains(&format!("~{hash}.pdf")), "{name}");
    let directory = format!("https://source.example/{}/x", "d".repeat(300));
    let other = format!("https://source.example/{}/y", "d".repeat(300));
    let (one, two) = (mapper().path(&directory).unwrap(), mapper().path(&other).unwrap());
    assert_eq!(one.names[0], two.names[0], "a long directory is one directory");
    assert_eq!(one.names[1], "x");
}

#[test]
fn a_name_that_looks_like_a_long_form_takes_one_of_its_own() {
    let uri = "https://source.example/a~0123456789abcdef.pdf";
    let found = mapper().path(uri).unwrap();
    assert!(found.naming == Naming::Digest && found.names[0].starts_with("a~0123456789abcdef~"), "{found}");
}

#[test]
fn a_base_moves_the_root() {
    let mapper = Mapper::new("https://data.example/export/v1/list.xml", true).unwrap();
    assert_eq!(mapper.path("https://data.example/export/v1/a/b").unwrap().to_string(), "a/b");
    assert_eq!(mapper.path("https://data.example/other").unwrap().to_string(), "@data.example/other");
    assert_eq!(mapper.path("https://source.example/x").unwrap().to_string(), "@source.example/x");
}

#[test]
fn only_what_is_its_own_name_is_plain() {
    for (rest, plain) in [
        ("a/b.pdf", true),
        ("a-b_c~d!$&'()*+,;=:e/x@y", true),
        ("a?b=c&d", true),
        ("?b", true),
        ("a?b?c", true),
        ("", false),
        ("a/", false),
        ("a//b", false),
        ("/a", false),
        ("@a", false),
        ("a/@index", false),
        (".", false),
        ("a/../b", false),
        (".versions", false),
        ("a/%41", false),
        ("a b", false),
        ("a?b/c", false),
        ("a#b", false),
        ("é", false),
        ("a\u{7f}", false),
        ("a[b]", false),
    ] {
        assert_eq!(mapper().plain(&format!("https://source.example/{rest}")).is_some(), plain, "{rest}");
    }
    for uri in
        ["http://source.example/a", "https://source.example", "HTTPS://source.example/a", "https://source.examplea/"]
    {
        assert!(mapper().plain(uri).is_none(), "{uri}");
    }
    let odd = "https://source.example/a/".to_owned() + &"x".repeat(300) + "~0123456789abcdef.pdf/y~0123456789abcdef";
    assert_eq!(mapper().path(&odd), mapper().by_rules(&odd));
}

/// What such URIs are put together from.
const ATOMS: [&str; 46] = [
    "a",
    "A",
    "%41",
    "%61",
    "/",
    "//",
    ".",
    "..",
    "%2E",
    "%2e",
    "%2F",
    "%2f",
    "?",
    "%3F",
    "#",
    "%23",
    "@",
    "%40",
    "%",
    "%25",
    "%00",
    "\u{1}",
    "%01",
    "é",
    "%C3%A9",
    "%c3%a9",
    "%C3",
    "%A9",
    " ",
    "%20",
    "~",
    "0123456789abcdef",
    ".pdf",
    ":",
    ";",
    "&",
    "=",
    "@index",
    "@self",
    ".versions",
    ".resourcesync",
    "\\",
    "%5C",
    "[",
    "%5B",
    "%C2%85",
];

const AUTHORITIES: [&str; 13] = [
    "https://source.example",
    "http://source.example",
    "https://other.example",
    "http://other.example",
    "https://http:80",
    "http://80",
    "https://source.example:443",
    "https://u@source.example",
    "HTTPS://source.example",
    "urn:",
    "ftp://x",
    "https://",
    "https://@http",
];

/// URIs that are made to collide: few letters, many ways to write them.
fn nasty_uri() -> impl Strategy<Value = String> {
    let atom = prop::sample::select(ATOMS.to_vec());
    let authority = prop::sample::select(AUTHORITIES.to_vec());
    let tail = prop::sample::select(vec!["", "/", "/x", "?x"]);
    (authority, tail, prop::collection::vec(atom, 0..8), 0..3_usize).prop_map(|(authority, tail, atoms, repeat)| {
        let long = ["", "q", "é"][repeat].repeat(if repeat == 0 { 0 } else { 270 });
        let body = if repeat > 0 && atoms.len() % 3 == 0 { long } else { String::new() };
        format!("{authority}/{}{body}{tail}", atoms.concat())
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]

    #[test]
    fn every_name_is_a_safe_name(uri in nasty_uri()) {
        let found = mapper().path(&uri).unwrap();
        prop_assert!(!found.names.is_empty());
        for (index, name) in found.names.iter().enumerate() {
            prop_assert!(!name.is_empty() && name.len() <= NAME_MAX, "{name:?}");
            prop_assert!(name != "." && name != "..");
            prop_assert!(!name.contains('/') && !name.contains(char::is_control), "{name:?}");
            prop_assert!(index > 0 || !RESERVED.contains(&name.as_str()));
            let ours = name.starts_with('@');
            let last = index + 1 == found.names.len();
            let is_long = is_long_form(name);
            prop_assert!(!ours || index == 0 || (last && (name == INDEX || is_long)), "{name:?}");
            prop_assert!(name != SELF);
        }
    }

    #[test]
    fn the_mapping_is_stable_and_reversible(uri in nasty_uri()) {
        let found = mapper().path(&uri).unwrap();
        prop_assert_eq!(&mapper().path(&uri).unwrap(), &found);
        match found.naming {
            Naming::Encoded => prop_assert_eq!(mapper().uri(&found.names), Some(uri)),
            Naming::Respelled | Naming::Digest => prop_assert_ne!(mapper().uri(&found.names), Some(uri)),
        }
    }

    #[test]
    fn two_uris_never_share_a_path(uris in prop::collection::vec(nasty_uri(), 2..400)) {
        let mut taken: HashMap<String, String> = HashMap::new();
        for uri in uris {
            let found = mapper().path(&uri).unwrap();
            let mut names = found.to_string();
            if taken.get(&names).is_some_and(|other| *other != uri) {
                prop_assert!(found.naming != Naming::Digest, "{} and {:?} are both {}", uri, taken.get(&names), names);
                names = found.above().join("/") + "/" + &found.apart(&uri);
            }
            if let Some(other) = taken.insert(names.clone(), uri.clone()) {
                prop_assert_eq!(other, uri, "both are {}", names);
            }
        }
    }

    #[test]
    fn a_plain_uri_is_mapped_as_the_rules_have_it(uri in nasty_uri(), tail in "[ -~]{0,40}", plain in "[/a-c.~@?;0-9]{0,40}") {
        let base = Mapper::new("https://source.example/a/", true).unwrap();
        for mapper in [mapper(), base] {
            for uri in [&uri, &format!("https://source.example/{tail}"), &format!("https://source.example/a/{plain}")] {
                prop_assert_eq!(mapper.path(uri), mapper.by_rules(uri), "{}", uri);
            }
        }
    }

    #[test]
    fn any_text_at_all_gives_a_path_or_an_error(text in "\\PC{0,200}") {
        let _ = mapper().path(&text);
        let _ = mapper().path(&format!("https://source.example/{text}"));
    }
}

#[test]
fn authorities_are_compared_without_case_and_default_port() {
    for base in ["HTTP://Example.ORG:80/", "http://example.org/", "http://EXAMPLE.org:/"] {
        let mapper = Mapper::new(base, false).unwrap();
        assert_eq!(mapper.path("http://example.org/a/b").unwrap().names, ["a", "b"], "{base}");
        // Another spelling is another URI, at the same place.
        let other = mapper.path("HTTP://example.org:80/a/b").unwrap();
        assert!(other.names == ["a", "b"] && other.naming == Naming::Respelled, "{other:?}");
        assert_eq!(mapper.path("http://example.org:8080/a").unwrap().names[0], "@example.org:8080");
    }
}
