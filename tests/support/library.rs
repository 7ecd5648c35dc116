//! A Source of many resources that are related to each other: collections, metadata, alternates.

use std::collections::BTreeSet;

use super::server::Server;
use super::{document, entry, resource_list, sha256};

/// One of its resources.
#[derive(Clone)]
pub struct Book {
    pub path: String,
    pub body: Vec<u8>,
    pub media: &'static str,
    pub modified: String,
    /// The URI of its collection.
    pub collection: String,
    /// Its metadata, which may be in the mirror or elsewhere.
    pub described_by: String,
    /// The same in another media type.
    pub alternate: Option<(String, &'static str)>,
}

impl Book {
    pub fn of(server: &Server, n: usize) -> Self {
        let (extension, media) = [
            ("pdf", "application/pdf"),
            ("html", "text/html; charset=utf-8"),
            ("jpg", "image/jpeg"),
            ("png", "image/png"),
        ][n % 4];
        let collection = ["monographs", "journals/1", "journals/2"][n % 3];
        Self {
            path: format!("/data/{}/{n}.{extension}", n % 50),
            body: format!("book {n}\n").into_bytes(),
            media,
            modified: format!("20{:02}-01-{:02}T00:00:00Z", 10 + n % 10, 1 + n % 28),
            collection: format!("http://library.example/{collection}"),
            described_by: match n % 2 {
                0 => server.url(&format!("/meta/{n}.xml")),
                _ => format!("http://elsewhere.example/{n}.rdf"),
            },
            alternate: n.is_multiple_of(5).then(|| (server.url(&format!("/alternates/{n}.json")), "application/json")),
        }
    }

    pub fn in_list(&self, server: &Server) -> String {
        let md =
            format!("hash=\"sha-256:{}\" length=\"{}\" type=\"{}\"", sha256(&self.body), self.body.len(), self.media);
        let mut links = format!(
            "<lastmod>{}</lastmod><rs:ln rel=\"collection\" href=\"{}\"/><rs:ln rel=\"describedby\" href=\"{}\" type=\"application/xml\"/>",
            self.modified, self.collection, self.described_by
        );
        if let Some((url, media)) = &self.alternate {
            links += &format!("<rs:ln rel=\"alternate\" href=\"{url}\" type=\"{media}\"/>");
        }
        // An element stands after those of the sitemap.
        let (before, after) = links.split_at(links.find("</lastmod>").expect("a time") + "</lastmod>".len());
        entry(&server.url(&self.path), &md)
            .replace("</loc>", &format!("</loc>{before}"))
            .replace("</url>", &format!("{after}</url>"))
    }
}

/// Serves books and their list. Each book that has metadata here has it as a resource of its own.
pub fn publish(server: &Server, books: &[Book], at: &str) {
    let mut entries = String::new();
    for book in books {
        server.file(&book.path, book.body.clone());
        entries += &book.in_list(server);
        if let Some(path) = book.described_by.strip_prefix(&server.url("")) {
            let body = format!("<about>{}</about>", book.path).into_bytes();
            entries += &entry(
                &book.described_by,
                &format!("hash=\"sha-256:{}\" length=\"{}\" type=\"application/xml\"", sha256(&body), body.len()),
            );
            server.file(path, body);
        }
    }
    server.source(at, &entries);
    server.file("/resourcelist.xml", resource_list(at, &entries));
}

/// A Change List beside the Resource List.
pub fn offer_changes(server: &Server, from: &str, changes: &str) {
    let offers = ["resourcelist", "changelist"]
        .map(|name| super::capability(&server.url(&format!("/{name}.xml")), name))
        .concat();
    server.file("/capabilitylist.xml", document("capabilitylist", "", "", &offers));
    server.file("/changelist.xml", document("changelist", &format!("from=\"{from}\""), "", changes));
}

/// How often each of these paths was asked for, together.
pub fn asked<'p>(server: &Server, paths: impl IntoIterator<Item = &'p str>) -> usize {
    let paths: BTreeSet<&str> = paths.into_iter().collect();
    server.requests().iter().filter(|request| paths.contains(request.path.as_str())).count()
}
