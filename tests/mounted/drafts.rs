//! Sources that speak the drafts of 2012 and 2013: each example of theirs is made into a small Source, mounted and followed.

use crate::support::draft::{Draft, robots, sitemap_of_2012};
use crate::support::{Mirror, output};

#[test]
fn sitemaps_of_2012_whose_index_excludes_a_category_are_not_fetched() {
    let draft = Draft::start();
    let subject = |category: &str| {
        format!(
            "<xhtml:link rel=\"DCTERMS.subject\" href=\"http://en.wikipedia.org/wiki/Category:{category}\" title=\"{category}\"/>"
        )
    };
    let of = |part: u32, category: &str| {
        draft.server.file(&format!("/res{part}"), format!("{part}"));
        let entry = format!("<url><loc>{}</loc>{}</url>", draft.server.url(&format!("/res{part}")), subject(category));
        let sitemap = sitemap_of_2012("2012-08-08T15:00:00Z", "", &entry);
        draft.server.file(&format!("/sitemap{part}.xml"), sitemap);
        let categories = if category == "Newts" { String::new() } else { subject(category) };
        format!("<url><loc>{}</loc>{categories}</url>", draft.server.url(&format!("/sitemap{part}.xml")))
    };
    let parts = [of(1, "Frogs"), of(2, "Fish"), of(3, "Newts")].concat();
    let index = sitemap_of_2012("2012-08-08T16:00:00Z", "", &parts);
    draft.server.file("/sitemap.xml", index.replace("urlset", "sitemapindex").replace("url>", "sitemap>"));
    robots(&draft);
    let asked =
        |part: u32| draft.server.requests().iter().filter(|one| one.path == format!("/sitemap{part}.xml")).count();
    let mut mirror = Mirror::mount(&draft.server.url("/"), "poll=0,collection=Frogs");
    assert_eq!((mirror.files(), asked(2)), (vec!["res1".to_owned()], 0));
    assert!(asked(1) > 0 && asked(3) > 0, "of the last, the index says nothing");
    mirror.refreshed();
    assert_eq!((mirror.status()["state"].as_str(), asked(2)), (Some("complete"), 0));
    let audit = || output(&["audit", &mirror.directory.to_string_lossy()]);
    audit();
    // Another selection while it is mounted, and with the next mount.
    let remount = |options: &str| {
        output(&[
            "mount",
            &draft.server.url("/"),
            &mirror.directory.to_string_lossy(),
            "-o",
            &format!("remount,{options}"),
        ]);
    };
    remount("collection=Fish");
    assert_eq!(mirror.files(), ["res2"]);
    audit();
    remount("collection=Frogs");
    assert_eq!(mirror.files(), ["res1"]);
    audit();
    mirror.refreshed();
    assert_eq!(mirror.status()["state"], "complete");
    mirror.unmount();
    mirror.set_options("poll=0");
    assert!(mirror.try_mount().status.success());
    assert_eq!(mirror.files(), ["res1", "res2", "res3"]);
    mirror.wait("all that the Source has", |status| status["state"] == "complete");
}
