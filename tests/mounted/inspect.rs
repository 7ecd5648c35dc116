//! `resourcesync inspect`, discovery by every route, and what documents may get wrong.

use serde_json::Value;

use crate::support::server::{Reply, Server};
use crate::support::{Mirror, capability, document, entry, entry_of, output, resource_list, run, text};

const AT: &str = "2026-01-02T03:04:05Z";

fn json(what: &str) -> Value {
    serde_json::from_str(&output(&["inspect", "--json", what])).unwrap()
}

fn file(folder: &tempfile::TempDir, name: &str, content: impl AsRef<[u8]>) -> String {
    let path = folder.path().join(name);
    std::fs::write(&path, content).unwrap();
    path.to_string_lossy().into_owned()
}

#[test]
fn one_document_as_json() {
    let folder = tempfile::tempdir().unwrap();
    let example =
        std::fs::read(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/examples/core-example-24.xml")).unwrap();
    let value = json(&file(&folder, "list.xml", example));
    assert_eq!(
        value,
        serde_json::json!({
            "kind": "urlset", "dialect": "1.1", "capability": "changelist",
            "md": {"capability": "changelist", "from": "2013-01-03T00:00:00Z"},
            "links": [{"rel": "up", "href": "http://example.com/dataset1/capabilitylist.xml"}],
            "entries": [{
                "loc": "http://example.com/res1", "lastmod": "2013-01-03T18:00:00Z", "changefreq": null,
                "md": {"change": "updated", "hash": "md5:1584abdf8ebdc9802ac0c6a7402c03b6", "length": "8876", "type": "text/html"},
                "links": [
                    {"rel": "duplicate", "pri": "1", "href": "http://mirror1.example.com/res1", "modified": "2013-01-03T18:00:00Z"},
                    {"rel": "duplicate", "pri": "2", "href": "http://mirror2.example.com/res1", "modified": "2013-01-03T18:00:00Z"},
                    {"rel": "duplicate", "pri": "3", "href": "gsiftp://gridftp.example.com/res1", "modified": "2013-01-03T18:00:23Z"},
                ],
            }],
            "warnings": [],
        })
    );
}

#[test]
fn dialects_have_their_names() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/examples/");
    for (example, dialect, kind) in [
        ("core-example-15", "1.1", "sitemapindex"),
        ("v0.1-example-5.1", "0.1", "urlset"),
        ("dlib-figure-4", "dlib-2013", "urlset"),
        ("v0.1-example-2.1", "sitemap", "urlset"),
    ] {
        let value = json(&format!("{folder}{example}.xml"));
        assert_eq!((value["dialect"].as_str(), value["kind"].as_str()), (Some(dialect), Some(kind)), "{example}");
    }
}

#[test]
fn each_thing_tolerated_is_a_warning() {
    let folder = tempfile::tempdir().unwrap();
    let gzip = |bytes: &[u8]| {
        let mut out = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        std::io::Write::write_all(&mut out, bytes).unwrap();
        out.finish().unwrap()
    };
    let usual = resource_list(AT, &entry("http://e.example/x", "length=\"1\""));
    let utf16: Vec<u8> = [0xfe_u8, 0xff].into_iter().chain(usual.encode_utf16().flat_map(u16::to_be_bytes)).collect();
    let old =
        usual.replace("http://www.sitemaps.org/schemas/sitemap/0.9", "https://www.sitemaps.org/schemas/sitemap/0.9/");
    for (name, content, warning) in [
        ("bom", [b"\xef\xbb\xbf", usual.as_bytes()].concat(), "byte order mark"),
        ("utf-16", utf16, "UTF-16"),
        ("twice.gz", gzip(&gzip(usual.as_bytes())), "compressed twice"),
        ("namespace", old.into_bytes(), "not spelled as its specification"),
        (
            "no namespace",
            usual.replace("xmlns=\"http://www.sitemaps.org/schemas/sitemap/0.9\"", "").into_bytes(),
            "in no namespace",
        ),
        ("blanks", usual.replace("<loc>", "<loc>\n  ").into_bytes(), "blanks around loc"),
        ("zone", usual.replace("05Z", "05").into_bytes(), "no time zone"),
        ("date", usual.replace(AT, "last week").into_bytes(), "not a W3C datetime"),
        ("length", usual.replace("length=\"1\"", "length=\"one\"").into_bytes(), "not a number of bytes"),
        (
            "hash",
            usual.replace("length=\"1\"", "hash=\"md5:1B2M2Y8AsgTpgAmY7PhCfg==\"").into_bytes(),
            "base64, not hexadecimal",
        ),
        ("algorithm", usual.replace("length=\"1\"", "hash=\"crc32:00\"").into_bytes(), "is not known; passed over"),
        ("rel", usual.replace("</url>", "<rs:ln href=\"http://e.example/\"/></url>").into_bytes(), "without rel"),
        ("href", usual.replace("</url>", "<rs:ln rel=\"x\" href=\"../y\"/></url>").into_bytes(), "is relative"),
        ("loc", usual.replace("http://e.example/x", "x").into_bytes(), "is relative; taken as"),
        ("two md", usual.replace("</url>", "<rs:md length=\"2\"/></url>").into_bytes(), "a second rs:md"),
        ("no loc", usual.replace("</urlset>", "<url/></urlset>").into_bytes(), "without loc"),
        (
            "late head",
            usual.replace("</urlset>", "<rs:ln rel=\"up\" href=\"http://e.example/\"/></urlset>").into_bytes(),
            "after entries",
        ),
        ("capability", usual.replace("resourcelist", "resourcelisp").into_bytes(), "is not known"),
        ("change", usual.replace("length=\"1\"", "change=\"moved\"").into_bytes(), "not created, updated or deleted"),
    ] {
        let value = json(&file(&folder, name, content));
        let warnings = value["warnings"].to_string();
        assert!(warnings.contains(warning), "{name}: {warnings}");
        assert_eq!(value["entries"].as_array().unwrap().len(), 1, "{name}");
    }
    let foreign = usual.replace("</url>", "<i:image xmlns:i=\"http://www.google.com/schemas/sitemap-image/1.1\"><i:loc>http://e.example/no</i:loc></i:image></url>");
    let value = json(&file(&folder, "foreign", foreign));
    assert_eq!(
        (value["entries"][0]["loc"].as_str(), value["warnings"].as_array().unwrap().len()),
        (Some("http://e.example/x"), 0)
    );
    let swapped = usual.replace(
        "<loc>http://e.example/x</loc><rs:md length=\"1\"/>",
        "<rs:md length=\"1\"/><loc>http://e.example/x</loc>",
    );
    let value = json(&file(&folder, "md before loc", swapped));
    assert_eq!(value["entries"][0]["md"]["length"], "1");
    assert_eq!(json(&file(&folder, "not-gzip.gz", &usual))["entries"].as_array().unwrap().len(), 1);
}

#[test]
fn what_is_not_well_formed_has_a_place() {
    let folder = tempfile::tempdir().unwrap();
    let usual = resource_list(AT, &(entry("http://e.example/x", "length=\"1\"") + &entry("http://e.example/y", "")));
    let cut = |at: &str| usual[..usual.find(at).unwrap()].to_owned();
    for (name, content, problem) in [
        ("cut in text", cut("example/y"), "line 5, column 20: the document is cut short after 1 entries"),
        ("cut in a tag", cut("=\"1\"/>"), "line 4"),
        ("mismatch", usual.replace("</loc>", "</lok>"), "line 4"),
        ("entity", usual.replace("/x<", "/&x;<"), "the entity &x; is not declared"),
        ("doctype", usual.replace("<urlset", "<!DOCTYPE x [<!ENTITY a \"b\">]><urlset"), "a DOCTYPE has no place"),
        ("second root", format!("{usual}<urlset/>"), "a second root element"),
        ("text after", format!("{usual}x"), "text stands outside"),
        ("prefix", usual.replace("<rs:md length", "<q:md length"), "prefix \"q\" is not declared"),
        ("twice", usual.replace("length=\"1\"", "length=\"1\" length=\"2\""), "line 4"),
        ("control", usual.replace("/x<", "/\u{1}<"), "U+0001 is not allowed"),
        ("empty", String::new(), "the document is empty"),
        ("html", "<html><body/></html>".to_owned(), "the root element is \"html\""),
        ("deep", usual.replace("</url>", &format!("{}</url>", "<a>".repeat(100))), "deeper in one another"),
        ("token", usual.replace("/x<", &format!("/{}<", "x".repeat(2 << 20))), "larger than"),
        ("json", "{}".to_owned(), "text stands outside"),
    ] {
        let path = file(&folder, name, content);
        let output = run(&["inspect", "--json", &path]);
        assert_eq!(output.status.code(), Some(1), "{name}: {}", text(&output));
        let said = text(&output);
        assert!(said.contains(problem) && said.contains(&format!("{path}: line ")), "{name}: {said}");
        assert!(output.stdout.is_empty(), "{name}: nothing is said of a document that is not whole");
    }
}

/// What is served at a URL, and what discovery makes of it.
fn discovered(server: &Server, source: &str) -> (String, Vec<String>) {
    let value = json(&server.url(source));
    let sets = value["sets"].as_array().unwrap();
    let lists = sets
        .iter()
        .flat_map(|set| set["capabilities"].as_array().unwrap())
        .map(|one| one["url"].as_str().unwrap().to_owned());
    (value["route"].as_str().unwrap().to_owned(), lists.collect())
}

#[test]
fn discovery_by_every_route() {
    let server = Server::start();
    server.file("/x", "text");
    let list = |up: &str| {
        let up = format!("<rs:ln rel=\"up\" href=\"{}\"/>", server.url(up));
        document("resourcelist", &format!("at=\"{AT}\""), &up, &entry_of(&server.url("/x"), b"text"))
    };
    server.file("/list.xml", list("/capabilities.xml"));
    let up = format!("<rs:ln rel=\"up\" href=\"{}\"/>", server.url("/description.xml"));
    server.file(
        "/capabilities.xml",
        document("capabilitylist", "", &up, &capability(&server.url("/list.xml"), "resourcelist")),
    );
    server.file(
        "/description.xml",
        document("description", "", "", &capability(&server.url("/capabilities.xml"), "capabilitylist")),
    );
    let found = |source: &str| discovered(&server, source);
    let expected = |route: &str| (route.to_owned(), vec![server.url("/list.xml")]);

    // robots.txt: a ResourceSync list wins over a plain sitemap.
    server.file("/plain.xml", "<urlset xmlns=\"http://www.sitemaps.org/schemas/sitemap/0.9\"/>");
    server.file(
        "/robots.txt",
        format!("User-agent: *\nSITEMAP: {}\nsitemap:{}\n", server.url("/plain.xml"), server.url("/list.xml")),
    );
    assert_eq!(found("/"), expected("robots.txt"));
    // A <link> of the page.
    server.on("/", |_| {
        Reply::ok("<!doctype html><head><link rel=resourcesync href=/capabilities.xml></head>")
            .with("Content-Type", "text/html")
    });
    assert_eq!(found("/"), expected("html-link"));
    // A Link header field.
    server
        .on("/", |_| Reply::ok("anything").with("Link", "</other>; rel=x, </capabilities.xml>; rel=\"resourcesync\""));
    assert_eq!(found("/"), expected("link-header"));
    // The well-known URI, as a Description and as its index.
    let description =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/examples/core-example-12.xml"))
            .unwrap();
    assert!(description.contains("description"));
    server
        .file("/.well-known/resourcesync", crate::support::index("description", "", &[server.url("/description.xml")]));
    assert_eq!(found("/"), expected("well-known"));
    server.file(
        "/.well-known/resourcesync",
        document("description", "", "", &capability(&server.url("/capabilities.xml"), "capabilitylist")),
    );
    assert_eq!(found("/"), expected("well-known"));
    // Any document's own URL mounts the set that it belongs to: by `up`, and by `index`.
    let index = format!("<rs:ln rel=\"index\" href=\"{}\"/>", server.url("/index.xml"));
    server.file(
        "/part.xml",
        document("resourcelist", &format!("at=\"{AT}\""), &index, &entry_of(&server.url("/x"), b"text")),
    );
    server
        .file("/index.xml", crate::support::index("resourcelist", &format!("at=\"{AT}\""), &[server.url("/part.xml")]));
    for source in ["/description.xml", "/capabilities.xml", "/list.xml", "/part.xml", "/index.xml"] {
        let mirror = Mirror::mount(&server.url(source), "");
        assert_eq!(mirror.files(), ["x"], "{source}");
        assert_eq!(mirror.read("x").unwrap(), b"text", "{source}");
    }
    let people = output(&["inspect", &server.url("/")]);
    for part in ["well-known", "resourcelist", "1 entry", AT] {
        assert!(people.contains(part), "{part:?} is not in {people}");
    }
    assert!(!people.contains('\u{1b}'), "no colours where stdout is no terminal");
}

#[test]
fn a_large_document_costs_no_memory() {
    use std::io::Write as _;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("large.xml");
    let mut out = std::io::BufWriter::new(std::fs::File::create(&path).unwrap());
    let whole = resource_list(AT, "");
    let (head, tail) = whole.split_at(whole.find("</urlset>").unwrap());
    write!(out, "{head}").unwrap();
    for number in 0..300_000 {
        write!(
            out,
            "{}",
            entry(&format!("http://e.example/{number}"), "hash=\"md5:1584abdf8ebdc9802ac0c6a7402c03b6\"")
        )
        .unwrap();
    }
    write!(out, "{tail}").unwrap();
    out.flush().unwrap();
    drop(out);
    // 64 MiB of address space for data would not hold the entries.
    let output = std::process::Command::new("bash")
        .args(["-c", "ulimit -d 65536; \"$0\" inspect --json \"$1\" | grep -c '\"loc\"'", crate::support::PROGRAM])
        .arg(&path)
        .output()
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "300000", "{}", text(&output));
}

#[test]
fn what_older_documents_say_is_named_and_what_is_not_used_has_its_reason() {
    use crate::support::draft::example;
    let folder = tempfile::tempdir().unwrap();
    let inspected = |name: &str| -> (serde_json::Value, String) {
        let file = folder.path().join("document.xml");
        std::fs::write(&file, example(name)).unwrap();
        let file = file.to_string_lossy().into_owned();
        (serde_json::from_str(&output(&["inspect", "--json", &file])).unwrap(), output(&["inspect", &file]))
    };
    for (name, dialect, capability, fate, what, why) in [
        ("v0.1-example-3.7", "0.1", None, "used", "hash", "held to it"),
        ("v0.1-example-3.9", "0.1", None, "kept", "DC.subject", "extended attribute"),
        ("v0.1-example-4.1", "0.1", None, "used", "http://www.openarchives.org/rs/dump", "filled from it"),
        ("v0.1-example-4.3", "0.1", None, "used", "http://www.openarchives.org/rs/mirror", "same bytes"),
        (
            "v0.1-example-4.4",
            "0.1",
            Some("changelist"),
            "ignored",
            "patch http://example.com/protocols/changesonly",
            "fetched whole",
        ),
        (
            "v0.1-example-4.5",
            "0.1",
            None,
            "ignored",
            "protocol http://www.openarchives.org/OAI/openarchivesprotocol.html",
            "not fetched",
        ),
        ("v0.1-example-5.2", "0.1", Some("changelist"), "used", "lastmod", "when it happened"),
        ("v0.1-example-6.1", "0.1", Some("changelist"), "used", "prev", "changes before"),
        ("dlib-figure-6", "dlib-2013", Some("changelist"), "kept", "alternate", "prefer="),
        ("dlib-figure-9", "dlib-2013", Some("changelist"), "used", "change", "what happened"),
        ("dlib-figure-11", "dlib-2013", Some("changelist"), "used", "duplicate", "same bytes"),
    ] {
        let (json, text) = inspected(name);
        assert_eq!(json["dialect"], dialect, "{name}");
        assert_eq!(json["capability"].as_str(), capability, "{name}");
        let found = json[fate].as_array().unwrap().iter().find(|one| one["what"] == what);
        let found = found.unwrap_or_else(|| panic!("{name}: {what} is not {fate}: {json:#}"));
        assert!(found["why"].as_str().unwrap().contains(why) && found["count"].as_u64() > Some(0), "{name}: {found}");
        assert!(text.contains(&format!("dialect {dialect}")) && text.contains(fate) && text.contains(why), "{text}");
    }
}
