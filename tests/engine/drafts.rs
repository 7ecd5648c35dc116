//! Sources that speak the drafts of 2012 and 2013: each example of theirs is made into a small Source, mounted and followed.

use std::collections::BTreeMap;

use crate::support::draft::{Draft, Pushing, change_set, example, listed, paths, robots, sitemap_of_2012};
use crate::support::dump::{Item, package_with};
use crate::support::opened::Mirror;
use crate::support::server::{Reply, Server};

/// What a mirror shows.
fn shown(mirror: &Mirror) -> BTreeMap<String, Vec<u8>> {
    mirror
        .files()
        .into_iter()
        .map(|path| (path.clone(), mirror.read(&path).unwrap_or_else(|e| panic!("{path}: {e}"))))
        .collect()
}

#[track_caller]
fn agrees(mirror: &Mirror, draft: &Draft, what: &str) {
    let (shown, tree) = (shown(mirror), draft.tree());
    let text = |tree: &BTreeMap<String, Vec<u8>>| -> BTreeMap<String, String> {
        tree.iter().map(|(path, bytes)| (path.clone(), String::from_utf8_lossy(bytes).into_owned())).collect()
    };
    assert_eq!(text(&shown), text(&tree), "{what}: {:#}", mirror.status());
}

/// A document with another time of publication.
fn published(text: &str, time: &str) -> String {
    text.replace("2012-08-08T16:30:00Z", time).replace("2012-10-31T09:00:00Z", time)
}

fn document_of_2013(capability: &str, modified: &str, entries: &str) -> String {
    format!(
        "<urlset xmlns=\"http://www.sitemaps.org/schemas/sitemap/0.9\" xmlns:rs=\"http://www.openarchives.org/rs/\">\
         <rs:ln rel=\"top\" href=\"http://example.com/capabilitylist.xml\"/>\
         <rs:md capability=\"{capability}\" modified=\"{modified}\"/>{entries}</urlset>"
    )
}

const CURRENT: &str = "<xhtml:link href=\"http://example.com/changesets/most_recent.xml\" rel=\"current http://www.openarchives.org/rs/changeset\"/>";

#[test]
fn each_sitemap_of_2012_is_mounted_and_followed() {
    for name in
        ["2.1", "2.3", "2.5", "3.2", "3.3", "3.4", "3.5", "3.6", "3.7", "3.8", "3.9", "4.1", "5.1", "5.4", "5.6"]
    {
        let mut draft = Draft::start();
        let text = example(&format!("v0.1-example-{name}"));
        draft.put_all(&text, "as first listed");
        robots(&draft);
        draft.serve("/sitemap.xml", &text);
        draft.serve("/changesets/most_recent.xml", &change_set("2012-08-08T16:00:00Z", CURRENT, ""));
        let mirror = Mirror::mount(&draft.server.url("/"), "poll=0,content=all");
        agrees(&mirror, &draft, name);
        // The first resource changes, where anything tells of it, and another comes.
        if text.contains("<lastmod") && name != "3.4" {
            let coded = text.contains("<rs:contentencoding>");
            draft.put("/res1", &format!("changed in {name}"), coded);
        }
        draft.put("/new/res", "new", false);
        let next = published(&text, "2012-08-09T16:30:00Z")
            .replacen("2012-08-08T08:15:00Z", "2012-08-09T08:15:00Z", 1)
            .replace("</urlset>", &format!("{}</urlset>", listed("/new/res", "2012-08-09T08:00:00Z")));
        draft.serve("/sitemap.xml", &next);
        if matches!(name, "2.5" | "5.1") {
            // Changes are told, and the list is not read for them.
            let changes = listed("/new/res", "2012-08-09T08:00:00Z")
                .replace("<lastmod", "<lastmod rs:type=\"created\"")
                + &listed("/res1", "2012-08-09T08:15:00Z").replace("<lastmod", "<lastmod rs:type=\"updated\"");
            draft.serve("/changesets/most_recent.xml", &change_set("2012-08-09T09:00:00Z", CURRENT, &changes));
        }
        mirror.refreshed();
        agrees(&mirror, &draft, name);
        if matches!(name, "2.3" | "3.9") {
            let subject = mirror.xattr("res1", "user.resourcesync.DCTERMS.subject");
            assert_eq!(subject.as_deref(), Some("http://en.wikipedia.org/wiki/Category:Frogs"), "{name}");
        }
        if name == "3.9" {
            let keyword = mirror.xattr("res1", "user.resourcesync.DC.subject");
            assert_eq!(keyword.as_deref(), Some("Crocodiles"));
        }
        if name == "3.7" {
            assert_eq!(mirror.xattr("res1", "user.mime_type").as_deref(), Some("text/html; charset=utf-8"));
        }
    }
}

#[test]
fn each_sitemap_index_of_2012_is_mounted_and_followed() {
    for name in ["3.10", "3.11"] {
        let mut draft = Draft::start();
        robots(&draft);
        let text = example(&format!("v0.1-example-{name}"));
        draft.serve("/sitemap.xml", &text);
        for part in 1..=2 {
            draft.put(&format!("/part{part}/res"), "one", false);
            let entries = listed(&format!("/part{part}/res"), "2012-08-08T10:00:00Z");
            draft.serve(&format!("/sitemap{part}.xml"), &sitemap_of_2012("2012-08-08T15:00:00Z", "", &entries));
        }
        let mirror = Mirror::mount(&draft.server.url("/"), "poll=0");
        agrees(&mirror, &draft, name);
        draft.delete("/part2/res");
        draft.put("/part2/other", "two", false);
        let entries = listed("/part2/other", "2012-08-08T16:40:00Z");
        draft.serve("/sitemap2.xml", &sitemap_of_2012("2012-08-08T16:45:00Z", "", &entries));
        draft.serve("/sitemap.xml", &published(&text, "2012-08-08T16:50:00Z"));
        mirror.refreshed();
        agrees(&mirror, &draft, name);
    }
}

/// A Source of before the changes of an example, which it then tells of; and then of one more.
fn follows(name: &str, text: &str, earlier: &str) {
    let mut draft = Draft::start();
    let of_2012 = name.starts_with("v0.1");
    let feed = if of_2012 { "/changesets/most_recent.xml" } else { "/changelist.xml" };
    for (path, what) in paths(text).into_iter().chain(paths(earlier)) {
        if what != "created" {
            draft.put(&path, &format!("{path} before\n"), false);
        }
    }
    draft.put("/untouched", "untouched", false);
    let entries: String = draft.content.keys().map(|path| listed(path, "2012-08-01T00:00:00Z")).collect();
    if of_2012 {
        robots(&draft);
        draft.serve("/sitemap.xml", &sitemap_of_2012("2012-08-01T00:00:00Z", CURRENT, &entries));
        draft.serve(feed, &change_set("2012-08-01T00:00:00Z", CURRENT, ""));
    } else {
        draft.serve("/resourcelist.xml", &document_of_2013("resourcelist", "2012-08-01T00:00:00Z", &entries));
        draft.serve(feed, &document_of_2013("changelist", "2012-08-01T00:00:00Z", ""));
        let all = ["resourcelist", "changelist"].map(|capability| {
            format!("<url><loc>http://example.com/{capability}.xml</loc><rs:md capability=\"{capability}\"/></url>")
        });
        draft.serve("/capabilitylist.xml", &document_of_2013("capabilitylist", "2012-08-01T00:00:00Z", &all.concat()));
    }
    let root = draft.server.url(if of_2012 { "/" } else { "/resourcelist.xml" });
    let mirror = Mirror::mount(&root, "poll=0,content=all");
    agrees(&mirror, &draft, name);
    if !earlier.is_empty() {
        draft.put_all(earlier, "of the earlier Change Set");
        draft.serve("/changesets/20120807.xml", earlier);
    }
    draft.put_all(text, "after");
    draft.serve(feed, text);
    mirror.refreshed();
    agrees(&mirror, &draft, name);
    // One more, in the form of the example, as each of the drafts puts it.
    let next = match text {
        _ if text.contains("<feed") => {
            let content = "<link rel=\"canonical\" href=\"http://example.com/res1\" rs:change=\"updated\"/>";
            text.replacen(
                "<entry>",
                &format!("<entry><updated>2012-11-01T00:00:00Z</updated>{content}</entry><entry>"),
                1,
            )
        }
        _ if text.contains("<resync") => text.replacen(
            "<item ",
            "<item change=\"updated\" href=\"http://example.com/res1\" modified=\"2012-11-01T00:00:00Z\"/><item ",
            1,
        ),
        _ if of_2012 => {
            let entry = listed("/res1", "2012-11-01T00:00:00Z").replace("<lastmod>", "<lastmod rs:type=\"updated\">");
            text.replace("</urlset>", &format!("{entry}</urlset>"))
        }
        _ => {
            let entry = listed("/res1", "2012-11-01T00:00:00Z").replace("</url>", "<rs:md change=\"updated\"/></url>");
            text.replacen("<url>", &format!("{entry}<url>"), 1)
        }
    };
    // The entry that comes anew has no digest, and those of the others stay what they were.
    draft.serve(feed, &next);
    draft.put("/res1", "once more", false);
    mirror.refreshed();
    agrees(&mirror, &draft, name);
    let versions = mirror.log("res1");
    let changes: Vec<&str> = versions.iter().filter_map(|version| version["change"].as_str()).collect();
    // That of the earlier Change Set was superseded before it was fetched: it is known, and nowhere to be had.
    assert_eq!(changes, vec!["updated"; if earlier.is_empty() { 2 } else { 3 }], "{name}: {versions:#?}");
    assert_eq!(mirror.names(".versions/res1").len(), 3, "{name}: {:?}", mirror.names(".versions/res1"));
    assert_eq!(mirror.read(".versions/res1/20121101T000000Z").unwrap(), b"once more", "{name}");
    // All of it was told by changes.
    assert!(mirror.status()["sets"][0]["state"] == "complete", "{name}: {:#}", mirror.status());
}

#[test]
fn each_change_set_of_2012_is_followed() {
    for name in ["2.4", "2.6", "5.2", "5.3", "5.5", "5.7", "6.1", "6.2", "6.3"] {
        let text = example(&format!("v0.1-example-{name}"));
        let earlier = match text.contains("20120807.xml") {
            true => change_set(
                "2012-08-07T23:00:00Z",
                "",
                &(listed("/res1", "2012-08-07T08:00:00Z").replace("<lastmod>", "<lastmod rs:type=\"updated\">")
                    + &listed("/res9", "2012-08-07T09:00:00Z").replace("<lastmod>", "<lastmod rs:type=\"updated\">")),
            ),
            false => String::new(),
        };
        follows(&format!("v0.1-example-{name}"), &text, &earlier);
    }
}

#[test]
fn each_change_list_of_2013_is_followed() {
    for name in ["dlib-figure-6", "dlib-figure-9", "dlib-figure-10", "dlib-figure-11"] {
        follows(name, &example(name), "");
    }
}

/// The package of an example manifest, with what it names.
fn packed(draft: &Draft, manifest: &str) -> Vec<u8> {
    let made = draft.made(manifest);
    let entries = made.split("<url>").skip(1);
    let mut items: Vec<Item> = entries
        .filter_map(|entry| {
            let path = entry.split("<rs:path>").nth(1).map(|rest| rest.split('<').next().unwrap());
            let path = path.or_else(|| entry.split("path=\"").nth(1).map(|rest| rest.split('"').next().unwrap()))?;
            let uri = entry.split("<loc>").nth(1).unwrap().split('<').next().unwrap();
            let sent = &draft.content[uri.strip_prefix(&draft.server.url("")).unwrap()].1;
            Some(Item::new(uri, sent).at(path))
        })
        .collect();
    assert!(!items.is_empty());
    items.sort_by(|one, other| one.path.cmp(&other.path));
    items.dedup_by(|one, other| one.path == other.path);
    package_with(&made, &items)
}

#[test]
fn a_dump_of_2012_seeds_a_mirror() {
    let mut draft = Draft::start();
    let (sitemap, manifest) = (example("v0.1-example-4.1"), example("v0.1-example-4.2"));
    draft.put_all(&manifest, "packed");
    robots(&draft);
    // The list says of the resources what the manifest says.
    let entries: String = manifest.split_inclusive("</url>").filter(|entry| entry.contains("<url>")).collect();
    let entries = &entries[entries.find("<url>").unwrap()..];
    let list = format!("{}{entries}</urlset>", &sitemap[..sitemap.find("<url>").unwrap()]).replacen(
        "<urlset ",
        "<urlset xmlns:rs=\"http://www.openarchives.org/rs/terms/\" ",
        1,
    );
    draft.serve("/sitemap.xml", &list);
    draft.server.file("/dump/dump.zip", packed(&draft, &manifest));
    let mirror = Mirror::mount(&draft.server.url("/"), "poll=0,content=all");
    agrees(&mirror, &draft, "4.1");
    for path in draft.content.keys() {
        assert_eq!(draft.server.count(path), 0, "{path} was asked for, which the dump has");
    }
    assert_eq!(mirror.status()["seed"]["from"], "dump", "{:#}", mirror.status());
    // It goes on from there.
    draft.put("/res1", "changed", false);
    let next = published(&list, "2012-08-09T16:30:00Z").replacen("2012-08-08T08:15:00Z", "2012-08-09T08:15:00Z", 1);
    draft.serve("/sitemap.xml", &next.replacen("<rs:contentencoding>gzip</rs:contentencoding>", "", 1));
    mirror.refreshed();
    agrees(&mirror, &draft, "4.1, changed");
}

#[test]
fn dumps_of_2013_seed_a_mirror_and_bring_its_changes() {
    let mut draft = Draft::start();
    let (list, manifest, changes) = (example("dlib-figure-4"), example("dlib-figure-5"), example("dlib-figure-7"));
    draft.put_all(&manifest, "packed");
    // One body for files of several formats would be refused.
    draft.put("/res1.html", "html of the list", false);
    draft.put("/res2.pdf", "pdf of the list", false);
    draft.put("/res3.tiff", "tiff of the list", false);
    let more: String =
        ["/res1.html", "/res2.pdf", "/res3.tiff"].map(|path| listed(path, "2012-10-01T00:00:00Z")).concat();
    let package = |of: &str, name: &str| {
        let zip = format!("<url><loc>http://example.com/{name}.zip</loc></url>");
        document_of_2013(of, "2012-10-31T19:00:00Z", &zip)
    };
    let list = list.replace("modified=\"2012-10-31T09:00:00Z\"", "modified=\"2012-10-15T00:00:00Z\"");
    let manifest = manifest.replace("modified=\"2012-10-31T19:00:00Z\"", "modified=\"2012-10-15T00:00:00Z\"");
    let prefix = |text: &str| text.replace("<loc>http://example.com/dataset1", "<loc>http://example.com");
    draft.serve("/resourcelist.xml", &list.replace("</urlset>", &format!("{more}</urlset>")));
    draft.serve("/resourcedump.xml", &package("resourcedump", "resources").replace("10-31T19", "10-15T00"));
    draft.server.file("/resources.zip", packed(&draft, &manifest));
    draft.serve("/changedump.xml", &document_of_2013("changedump", "2012-10-16T00:00:00Z", ""));
    // Changes come by packages alone.
    let all = prefix(&example("dlib-figure-8"));
    let from = all.find("<url> <loc>http://example.com/changelist.xml").unwrap();
    let to = from + all[from..].find("</url>").unwrap() + "</url>".len();
    draft.serve("/capabilitylist.xml", &format!("{}{}", &all[..from], &all[to..]));
    let mirror = Mirror::mount(&draft.server.url("/capabilitylist.xml"), "poll=0,content=all");
    agrees(&mirror, &draft, "figures 4 and 5");
    assert_eq!((draft.server.count("/res1"), draft.server.count("/res2")), (0, 0));
    let (of_html, of_pdf) = (draft.server.count("/res1.html"), draft.server.count("/res2.pdf"));
    // The oldest entry of the figure says that /res1.html was created: of the same path, it has the newest bytes.
    draft.put("/res1.html", "html, changed", false);
    draft.put("/res2.pdf", "pdf, changed", false);
    draft.delete("/res3.tiff");
    draft.server.file("/changes.zip", packed(&draft, &changes));
    draft.serve("/changedump.xml", &package("changedump", "changes"));
    mirror.refreshed();
    agrees(&mirror, &draft, "figure 7");
    assert_eq!((draft.server.count("/res1.html"), draft.server.count("/res2.pdf")), (of_html, of_pdf));
}

#[test]
fn a_diff_in_a_change_dump_of_2013_is_never_served_as_the_resource() {
    let (before, after) = ("{\"title\": \"old\"}", "{\"title\": \"new\"}");
    let diff = "[{\"op\": \"replace\", \"path\": \"/title\", \"value\": \"new\"}]";
    let mut draft = Draft::start();
    draft.put("/doc.json", before, false);
    draft.serve(
        "/resourcelist.xml",
        &document_of_2013("resourcelist", "2012-10-15T00:00:00Z", &listed("/doc.json", "2012-10-01T00:00:00Z")),
    );
    draft.serve("/changedump.xml", &document_of_2013("changedump", "2012-10-16T00:00:00Z", ""));
    let offered = ["resourcelist", "changedump"]
        .map(|name| format!("<url><loc>http://example.com/{name}.xml</loc><rs:md capability=\"{name}\"/></url>"));
    draft.serve("/capabilitylist.xml", &document_of_2013("capabilitylist", "2012-10-16T00:00:00Z", &offered.concat()));
    let mirror = Mirror::mount(&draft.server.url("/capabilitylist.xml"), "poll=0,content=all");
    agrees(&mirror, &draft, "before");
    draft.put("/doc.json", after, false);
    let changed = format!(
        "<url><loc>{}</loc><lastmod>2012-10-20T00:00:00Z</lastmod>\
         <rs:md change=\"updated\" type=\"application/json-patch\" {} path=\"/changes/doc.json\"/></url>",
        draft.server.url("/doc.json"),
        crate::support::facts_of(diff.as_bytes())
    );
    let manifest = document_of_2013("changedump-manifest", "2012-10-21T00:00:00Z", &changed);
    let item = Item::new(&draft.server.url("/doc.json"), diff.as_bytes()).at("/changes/doc.json");
    draft.server.file("/changes.zip", package_with(&manifest, &[item]));
    let zip = "<url><loc>http://example.com/changes.zip</loc></url>";
    draft.serve("/changedump.xml", &document_of_2013("changedump", "2012-10-21T00:00:00Z", zip));
    mirror.refreshed();
    agrees(&mirror, &draft, "after");
    assert_eq!(mirror.status()["state"], "complete", "{}", mirror.errors());
}

#[test]
fn a_mirror_of_2012_is_asked_where_the_source_fails() {
    let mut draft = Draft::start();
    let text = example("v0.1-example-4.3");
    draft.put_all(&text, "at the Source");
    robots(&draft);
    draft.serve("/sitemap.xml", &text);
    let body = draft.content["/res1"].0.clone();
    draft.server.file("/example-com-mirror/res1", body);
    draft.server.on("/res1", |_| Reply::status(404));
    let mirror = Mirror::mount(&draft.server.url("/"), "poll=0");
    agrees(&mirror, &draft, "4.3");
    assert!(draft.server.count("/example-com-mirror/res1") > 0);
}

#[test]
fn partial_content_of_2012_is_used_where_it_is_a_patch_that_is_known() {
    for known in [true, false] {
        let mut draft = Draft::start();
        let before = format!("{{\"a\":1,\"long\":\"{}\"}}\n", "x".repeat(2000));
        let after = before.replacen('1', "2", 1);
        draft.put("/res1", &before, false);
        robots(&draft);
        draft.serve(
            "/sitemap.xml",
            &sitemap_of_2012("2012-08-01T00:00:00Z", CURRENT, &listed("/res1", "2012-08-01T00:00:00Z")),
        );
        draft.serve("/changesets/most_recent.xml", &change_set("2012-08-01T00:00:00Z", CURRENT, ""));
        let mirror = Mirror::mount(&draft.server.url("/"), "poll=0");
        agrees(&mirror, &draft, "before");
        draft.put("/res1", &after, false);
        draft.server.file("/res1/diff251", "[{\"op\":\"replace\",\"path\":\"/a\",\"value\":2}]");
        let asked = draft.server.count("/res1");
        let fixity = "<rs:fixity type=\"md5\">x</rs:fixity><rs:size>1</rs:size></url>";
        let text = example("v0.1-example-4.4").replace("</url>", fixity);
        let text = text.replace("<lastmod>", "<lastmod rs:type=\"updated\">");
        let protocol = "http://example.com/protocols/changesonly";
        draft.serve(
            "/changesets/most_recent.xml",
            &if known { text.replace(protocol, "application/json-patch+json") } else { text },
        );
        mirror.refreshed();
        agrees(&mirror, &draft, "after");
        assert_eq!(draft.server.count("/res1/diff251") > 0, known, "the patch");
        assert_eq!(draft.server.count("/res1") > asked, !known, "the resource");
    }
}

#[test]
fn what_is_asked_by_another_protocol_is_reported_and_not_fetched() {
    let draft = Draft::start();
    let text = example("v0.1-example-4.5");
    let more = listed("/res2", "2012-08-08T08:15:00Z");
    robots(&draft);
    let mut draft = draft;
    draft.put("/res2", "beside it", false);
    draft.serve("/sitemap.xml", &text.replace("</urlset>", &format!("{more}</urlset>")));
    draft.server.on("/oaipmh", |_| Reply::ok("<OAI-PMH/>"));
    let mirror = Mirror::mount(&draft.server.url("/"), "poll=0,content=all");
    agrees(&mirror, &draft, "4.5");
    assert_eq!(draft.server.count("/oaipmh"), 0);
    let warnings = mirror.status()["warnings"].to_string();
    assert!(warnings.contains("openarchivesprotocol"), "{:#}", mirror.status());
}

#[test]
fn versions_of_2012_are_had_by_memento_and_timegate() {
    for name in ["6.2", "6.3"] {
        let mut draft = Draft::start();
        let text = example(&format!("v0.1-example-{name}"));
        draft.put("/res1", "before", false);
        draft.put("/res2", "before", false);
        robots(&draft);
        let entries = listed("/res1", "2012-08-01T00:00:00Z") + &listed("/res2", "2012-08-01T00:00:00Z");
        draft.serve("/sitemap.xml", &sitemap_of_2012("2012-08-01T00:00:00Z", CURRENT, &entries));
        // The version of the example is superseded before anybody has seen it.
        let next = listed("/res1", "2012-08-09T00:00:00Z").replace("<lastmod>", "<lastmod rs:type=\"updated\">");
        draft.serve("/changesets/most_recent.xml", &text.replace("</urlset>", &format!("{next}</urlset>")));
        draft.put("/res1", "after", false);
        draft.put("/res3", "created", false);
        draft.delete("/res2");
        let (then, date) = ("of the eighth\n", "Wed, 08 Aug 2012 08:15:00 GMT");
        let memento = draft.server.url("/20120808081500/res1");
        draft.server.on("/20120808081500/res1", move |_| Reply::ok(then).with("Memento-Datetime", date));
        let gate = format!("/timegate/{}", draft.server.url("/res1"));
        draft.server.on(&gate, move |_| Reply::status(302).with("Location", &memento).with("Vary", "accept-datetime"));
        let mirror = Mirror::mount(&draft.server.url("/"), "poll=0");
        agrees(&mirror, &draft, name);
        assert_eq!(
            mirror.read(".versions/res1/20120808T120000Z").map(String::from_utf8).unwrap().unwrap(),
            then,
            "{name}"
        );
        assert_eq!(mirror.read(".versions/@20120808T120000Z/res1").unwrap(), then.as_bytes(), "{name}");
    }
}

#[test]
fn a_hundred_changes_are_posted_to_the_callback() {
    let link =
        "<xhtml:link href=\"http://example.com/subscribe\" rs:protocol=\"http://example.com/protocol/callback\"/>";
    let mut source = Pushing::start(link);
    let (tell, told) = std::sync::mpsc::channel::<String>();
    let tell = std::sync::Mutex::new(tell);
    source.draft.server.on("/subscribe", move |request| {
        let form = String::from_utf8(request.body.clone()).unwrap();
        let uri = form.strip_prefix("callbackURI=").filter(|_| request.method == "POST");
        uri.map_or(Reply::status(400), |uri| {
            let uri = uri.replace("%3A", ":").replace("%2F", "/");
            tell.lock().unwrap().send(uri).unwrap();
            Reply::ok("subscribed")
        })
    });
    let options = format!("poll=0,content=all,listen=127.0.0.1:{}", crate::support::telling::free_port());
    let mirror = Mirror::mount(&source.draft.server.url("/"), &options);
    let callback = told.recv_timeout(std::time::Duration::from_secs(30)).unwrap();
    crate::support::telling::live(&mirror);
    let post = |body: &str| -> u16 {
        let response = posted(&callback, body.as_bytes());
        response.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or(0)
    };
    let seed = crate::support::seed();
    for n in 0..100 {
        let body = source.changes(crate::support::scramble(seed + n));
        assert_eq!(post(&body), 202, "{n}");
        if n % 10 == 0 {
            // The same, once more, is nothing new.
            assert_eq!(post(&body), 202);
        }
    }
    mirror.wait("all of them", |status| status["channels"][0]["received"].as_u64() >= Some(100));
    mirror.deals_with_deliveries();
    agrees(&mirror, &source.draft, "after 100 changes");
    // What is no Change Set is a reason to look, and changes nothing; who does not know the path is told nothing.
    assert_eq!(post("hello"), 202);
    let (base, _) = callback.rsplit_once('/').unwrap();
    assert!(posted(&format!("{base}/guess"), b"<x/>").contains(" 404 "));
    // The next process is found under the same path.
    mirror.remount();
    assert_eq!(told.recv_timeout(std::time::Duration::from_secs(30)).unwrap(), callback);
    crate::support::telling::live(&mirror);
    let body = source.changes(1);
    assert_eq!(post(&body), 202);
    let began = std::time::Instant::now();
    // What is listed may be gone before it is read.
    let now = || -> BTreeMap<String, Vec<u8>> {
        mirror.files().into_iter().filter_map(|path| Some((path.clone(), mirror.read(&path).ok()?))).collect()
    };
    while now() != source.draft.tree() {
        assert!(began.elapsed() < std::time::Duration::from_secs(30), "{:#}", mirror.status());
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
}

/// Posts to a URL; returns the first line of the answer.
fn posted(url: &str, body: &[u8]) -> String {
    use std::io::{Read as _, Write as _};
    let (host, path) = url.strip_prefix("http://").unwrap().split_once('/').unwrap();
    let mut stream = std::net::TcpStream::connect(host).unwrap();
    stream.set_read_timeout(Some(std::time::Duration::from_secs(30))).unwrap();
    let head = format!("POST /{path} HTTP/1.1\r\nHost: {host}\r\nContent-Length: {}\r\n\r\n", body.len());
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(body).unwrap();
    let mut answer = String::new();
    let _ = stream.read_to_string(&mut answer);
    answer.lines().next().unwrap_or_default().to_owned()
}

#[test]
fn a_change_set_of_nothing_ends_no_walk_and_closes_no_gap() {
    let link = |rel: &str, day: u32| {
        format!(
            "<xhtml:link href=\"http://example.com/changesets/{day}.xml\" rel=\"{rel} http://www.openarchives.org/rs/changeset\"/>"
        )
    };
    let told = |path: &str, day: u32| {
        listed(path, &format!("2012-08-{day:02}T08:00:00Z")).replace("<lastmod>", "<lastmod rs:type=\"updated\">")
    };
    let mut draft = Draft::start();
    for path in ["/a", "/b", "/c"] {
        draft.put(path, "first", false);
    }
    robots(&draft);
    let entries: String = draft.content.keys().map(|path| listed(path, "2012-08-01T00:00:00Z")).collect();
    draft.serve("/sitemap.xml", &sitemap_of_2012("2012-08-01T00:00:00Z", CURRENT, &entries));
    draft.put("/b", "second", false);
    draft.serve("/changesets/most_recent.xml", &change_set("2012-08-02T09:00:00Z", "", &told("/b", 2)));
    let mirror = Mirror::mount(&draft.server.url("/"), "poll=0,content=all");
    agrees(&mirror, &draft, "day 2");
    // Three days later: on the third something happened, on the fourth nothing, on the fifth something.
    draft.put("/a", "third", false);
    draft.put("/c", "fifth", false);
    draft.serve("/changesets/3.xml", &change_set("2012-08-03T09:00:00Z", "", &(told("/b", 2) + &told("/a", 3))));
    draft.serve("/changesets/4.xml", &change_set("2012-08-04T09:00:00Z", &link("prev", 3), ""));
    draft.serve("/changesets/most_recent.xml", &change_set("2012-08-05T09:00:00Z", &link("prev", 4), &told("/c", 5)));
    mirror.refreshed();
    agrees(&mirror, &draft, "day 5");
    assert_eq!(mirror.status()["state"], "complete");
    // What came before the seventh nobody tells any more, and a set of nothing tells nothing of it.
    draft.put("/c", "seventh", false);
    draft.serve("/changesets/most_recent.xml", &change_set("2012-08-07T09:00:00Z", "", &told("/c", 7)));
    let _ = mirror.refresh();
    assert_eq!(mirror.status()["state"], "gap");
    draft.serve("/changesets/most_recent.xml", &change_set("2012-08-08T09:00:00Z", "", ""));
    let _ = mirror.refresh();
    assert_eq!(mirror.status()["state"], "gap");
    // A newer list does.
    draft.put("/a", "eighth", false);
    let entries: String = draft.content.keys().map(|path| listed(path, "2012-08-08T00:00:00Z")).collect();
    draft.serve("/sitemap.xml", &sitemap_of_2012("2012-08-08T10:00:00Z", CURRENT, &entries));
    mirror.refreshed();
    agrees(&mirror, &draft, "day 8");
    assert_eq!(mirror.status()["state"], "complete");
}

#[test]
fn what_will_expire_is_there_until_then() {
    let mut draft = Draft::start();
    for path in ["/a", "/b", "/c"] {
        draft.put(path, "first", false);
    }
    robots(&draft);
    let entries = listed("/a", "2012-08-01T00:00:00Z")
        .replace("</url>", "<expires>2099-01-01T00:00:00Z</expires></url>")
        + "<url><loc>http://example.com/b</loc><expires>2099-01-01T00:00:00Z</expires></url>"
        + "<url><loc>http://example.com/gone</loc><expires>2012-01-01T00:00:00Z</expires></url>"
        + &listed("/c", "2012-08-01T00:00:00Z");
    draft.serve("/sitemap.xml", &sitemap_of_2012("2012-08-01T00:00:00Z", CURRENT, &entries));
    draft.serve("/changesets/most_recent.xml", &change_set("2012-08-01T00:00:00Z", CURRENT, ""));
    let mirror = Mirror::mount(&draft.server.url("/"), "poll=0,content=all");
    agrees(&mirror, &draft, "as listed");
    draft.put("/a", "second", false);
    let changes = listed("/a", "2012-08-02T00:00:00Z")
        .replace("<lastmod>", "<lastmod rs:type=\"updated\">")
        .replace("</url>", "<expires>2099-01-01T00:00:00Z</expires></url>")
        + "<url><loc>http://example.com/c</loc><expires>2099-01-01T00:00:00Z</expires></url>";
    draft.serve("/changesets/most_recent.xml", &change_set("2012-08-02T00:00:00Z", CURRENT, &changes));
    mirror.refreshed();
    agrees(&mirror, &draft, "changed");
}

/// The head of a sitemap that has no mark of 2012 of its own.
fn unmarked(entries: &str) -> String {
    format!(
        "<urlset xmlns=\"http://www.sitemaps.org/schemas/sitemap/0.9\" xmlns:rs=\"http://www.openarchives.org/rs/terms/\">{entries}</urlset>"
    )
}

#[test]
fn what_has_expired_before_the_first_mark_of_2012_is_gone() {
    let mut draft = Draft::start();
    for path in ["/a", "/b"] {
        draft.put(path, "first", false);
    }
    robots(&draft);
    let marked = listed("/b", "2012-08-01T00:00:00Z").replace("</url>", "<rs:size>5</rs:size></url>");
    let expired = "<url><loc>http://example.com/gone</loc><expires>2012-01-01T00:00:00Z</expires></url>";
    let plain = "<url><loc>http://example.com/a</loc></url>";
    draft.serve("/sitemap.xml", &unmarked(&(expired.to_owned() + plain + &marked)));
    let mirror = Mirror::mount(&draft.server.url("/"), "poll=0,content=all");
    agrees(&mirror, &draft, "with a mark");
    // A sitemap without any mark of 2012 has no deletions.
    draft.put("/gone", "there", false);
    draft.serve("/sitemap.xml", &unmarked(&(expired.to_owned() + plain + &listed("/b", "2012-08-01T00:00:00Z"))));
    mirror.refreshed();
    agrees(&mirror, &draft, "without");
}

#[test]
fn what_is_compressed_as_in_2012_is_unfolded() {
    const CODED: [u8; 19] = [
        0x1f, 0x9d, 0x90, 0x68, 0xca, 0xb0, 0x61, 0xf3, 0x86, 0x05, 0x88, 0x80, 0x03, 0x0b, 0x1e, 0x14, 0x48, 0x50,
        0x01,
    ];
    let server = Server::start();
    server.on("/a", |request| Reply::good(request, &CODED).with("Content-Encoding", "compress"));
    server.file("/robots.txt", format!("Sitemap: {}\n", server.url("/sitemap.xml")));
    let entry = format!(
        "<url><loc>{}</loc><rs:size>{}</rs:size><rs:contentencoding>compress</rs:contentencoding></url>",
        server.url("/a"),
        CODED.len()
    );
    server.file("/sitemap.xml", sitemap_of_2012("2012-08-01T00:00:00Z", "", &entry));
    let mirror = Mirror::mount(&server.url("/"), "poll=0");
    assert_eq!(mirror.read("a").unwrap(), b"hello, hello, hello\n");
}

#[test]
fn resources_of_2012_are_selected_by_their_categories() {
    let mut draft = Draft::start();
    let text = example("v0.1-example-3.9");
    draft.put_all(&text, "as listed");
    robots(&draft);
    draft.serve("/sitemap.xml", &text);
    for (category, shown) in [
        ("http://en.wikipedia.org/wiki/Category:Frogs", vec!["res1"]),
        ("Crocodiles", vec!["res1"]),
        ("Fish", vec!["res2"]),
        ("Category:Fish", vec!["res2"]),
        ("Birds", vec![]),
    ] {
        let mirror = Mirror::mount(&draft.server.url("/"), &format!("poll=0,collection={category}"));
        assert_eq!(mirror.files(), shown, "{category}");
    }
}

#[test]
fn what_a_change_list_does_not_reach_back_to_its_archive_does() {
    use crate::support::{capability, document, entry_of, resource_list};
    let mut draft = Draft::start();
    let server_url = draft.server.url("");
    for n in 0..6 {
        draft.put(&format!("/{n}"), "first", false);
    }
    let entries: String =
        draft.content.iter().map(|(path, (body, _))| entry_of(&format!("{server_url}{path}"), body)).collect();
    let offers = ["resourcelist", "changelist", "changelist-archive"];
    let offers: String = offers.map(|name| capability(&format!("{server_url}/{name}.xml"), name)).concat();
    draft.server.file(
        "/.well-known/resourcesync",
        document("description", "", "", &capability(&format!("{server_url}/capabilitylist.xml"), "capabilitylist")),
    );
    draft.server.file("/capabilitylist.xml", document("capabilitylist", "", "", &offers));
    draft.server.file("/resourcelist.xml", resource_list("2013-01-01T00:00:00Z", &entries));
    let list = |day: u32, until: Option<u32>, changes: &str| {
        let until = until.map(|until| format!(" until=\"2013-01-{until:02}T00:00:00Z\"")).unwrap_or_default();
        document("changelist", &format!("from=\"2013-01-{day:02}T00:00:00Z\"{until}"), "", changes)
    };
    let archive = |days: &[u32]| {
        let parts: String = days
            .iter()
            .map(|day| {
                let md = format!(
                    "capability=\"changelist\" from=\"2013-01-{day:02}T00:00:00Z\" until=\"2013-01-{:02}T00:00:00Z\"",
                    day + 1
                );
                crate::support::entry(&format!("{server_url}/archive/{day}.xml"), &md)
            })
            .collect();
        document("changelist-archive", "from=\"2013-01-01T00:00:00Z\"", "", &parts)
    };
    draft.server.file("/changelist-archive.xml", archive(&[]));
    draft.server.file("/changelist.xml", list(1, None, ""));
    let mirror = Mirror::mount(&draft.server.url("/"), "poll=0,content=all");
    agrees(&mirror, &draft, "day 1");
    // Four days later, each with a list of its own; the current one begins with the fifth.
    let day_of = |draft: &mut Draft, n: u32| {
        draft.put(&format!("/{n}"), &format!("changed on day {n}"), false);
        let body = &draft.content[&format!("/{n}")].0;
        let md = format!("change=\"updated\" datetime=\"2013-01-{n:02}T12:00:00Z\" {}", crate::support::facts_of(body));
        crate::support::entry(&format!("{server_url}/{n}"), &md)
    };
    for n in 1..5 {
        let changes = day_of(&mut draft, n);
        draft.server.file(&format!("/archive/{n}.xml"), list(n, Some(n + 1), &changes));
    }
    draft.server.file("/changelist-archive.xml", archive(&[1, 2, 3, 4]));
    let changes = day_of(&mut draft, 5);
    draft.server.file("/changelist.xml", list(5, None, &changes));
    let lists = draft.server.count("/resourcelist.xml");
    mirror.refreshed();
    agrees(&mirror, &draft, "day 5");
    assert_eq!(mirror.status()["state"], "complete", "{:#}", mirror.status());
    assert_eq!(draft.server.count("/resourcelist.xml"), lists, "the list was read, where changes were told");
    let versions = mirror.log("2");
    assert_eq!(versions[0]["begin"], "2013-01-02T12:00:00Z");
    // One that is ill is no reason to miss what is told besides; what it has is read when it is well.
    draft.server.on("/changelist-archive.xml", |_| Reply::status(403));
    draft.server.file("/archive/5.xml", list(5, Some(6), &changes));
    let changes = day_of(&mut draft, 7);
    draft.server.file("/changelist.xml", list(7, None, &changes));
    let _ = mirror.refresh();
    agrees(&mirror, &draft, "day 7");
    assert_eq!(mirror.status()["state"], "gap");
    draft.server.file("/archive/6.xml", list(6, Some(7), ""));
    draft.server.file("/changelist-archive.xml", archive(&[1, 2, 3, 4, 5, 6]));
    mirror.refreshed();
    assert_eq!(mirror.status()["state"], "complete", "{:#}", mirror.status());
    // An archive that does not reach back either leaves a gap.
    let changes = day_of(&mut draft, 1);
    draft.server.file("/changelist.xml", list(9, None, &changes.replace("01-01", "01-09")));
    let _ = mirror.refresh();
    assert_eq!(mirror.status()["state"], "gap");
}
