//! Resource Dumps: packages with their manifests, and the documents that list them.

use std::io::Write as _;

use zip::CompressionMethod;
use zip::write::{SimpleFileOptions, ZipWriter};

use super::server::Server;
use super::{Mirrored, bytes, capability, document, entry, facts_of, scramble};

/// A bitstream of a package, as its manifest describes it.
#[derive(Clone)]
pub struct Item {
    pub uri: String,
    /// In the package, as the manifest gives it.
    pub path: String,
    pub bytes: Vec<u8>,
    /// Attributes of its `rs:md` beside the path; hash and length unless changed.
    pub md: String,
    pub lastmod: Option<String>,
    pub deflated: bool,
}

impl Item {
    pub fn new(uri: &str, bytes: &[u8]) -> Self {
        let name = uri.rsplit_once("://").map_or(uri, |(_, rest)| rest).replace(':', "_");
        Self {
            uri: uri.to_owned(),
            path: format!("/resources/{name}"),
            bytes: bytes.to_vec(),
            md: facts_of(bytes),
            lastmod: None,
            deflated: true,
        }
    }

    pub fn stored(mut self) -> Self {
        self.deflated = false;
        self
    }

    /// With other attributes than hash and length.
    pub fn saying(mut self, md: &str) -> Self {
        md.clone_into(&mut self.md);
        self
    }

    pub fn modified(mut self, time: &str) -> Self {
        self.lastmod = Some(time.to_owned());
        self
    }

    pub fn at(mut self, path: &str) -> Self {
        path.clone_into(&mut self.path);
        self
    }

    fn described(&self, attributes: &str) -> String {
        let md = format!("{} {attributes}", self.md);
        let lastmod = self.lastmod.as_ref().map(|time| format!("<lastmod>{time}</lastmod>")).unwrap_or_default();
        entry(&self.uri, &md).replace("</loc>", &format!("</loc>{lastmod}"))
    }

    /// Its entry in a manifest.
    pub fn in_manifest(&self) -> String {
        self.described(&format!("path=\"{}\"", self.path))
    }

    /// Its entry in a Resource List.
    pub fn in_list(&self) -> String {
        self.described("")
    }
}

/// A manifest.
pub fn manifest(at: &str, items: &[Item]) -> String {
    let entries: String = items.iter().map(Item::in_manifest).collect();
    document("resourcedump-manifest", &format!("at=\"{at}\""), "", &entries)
}

/// A package with its manifest.
pub fn package(at: &str, items: &[Item]) -> Vec<u8> {
    package_with(&manifest(at, items), items)
}

/// A package with a manifest of its own.
pub fn package_with(manifest: &str, items: &[Item]) -> Vec<u8> {
    let mut writer = ZipWriter::new(std::io::Cursor::new(Vec::new()));
    let method = |deflated| {
        SimpleFileOptions::default().compression_method(if deflated {
            CompressionMethod::Deflated
        } else {
            CompressionMethod::Stored
        })
    };
    for item in items {
        writer.start_file(item.path.trim_start_matches('/'), method(item.deflated)).expect("a member");
        writer.write_all(&item.bytes).expect("its bytes");
    }
    if !manifest.is_empty() {
        writer.start_file("manifest.xml", method(true)).expect("a member");
        writer.write_all(manifest.as_bytes()).expect("its bytes");
    }
    writer.finish().expect("a package").into_inner()
}

/// A Resource Dump whose packages are at these URLs, with these attributes, and links as given.
pub fn dump(attributes: &str, packages: &[(String, String, String)]) -> String {
    let entries: String =
        packages.iter().map(|(url, md, links)| entry(url, md).replace("</url>", &format!("{links}</url>"))).collect();
    document("resourcedump", attributes, "", &entries)
}

/// A link to a copy of a manifest.
pub fn contents(url: &str) -> String {
    format!("<rs:ln rel=\"contents\" href=\"{url}\" type=\"application/xml\"/>")
}

/// The Source Description and the Capability List of a Source with these capabilities, each at
/// `/CAPABILITY.xml`.
pub fn offer(server: &Server, capabilities: &[&str]) {
    let entries: String =
        capabilities.iter().map(|name| capability(&server.url(&format!("/{name}.xml")), name)).collect();
    server.file("/capabilitylist.xml", document("capabilitylist", "", "", &entries));
    let sets = capability(&server.url("/capabilitylist.xml"), "capabilitylist");
    server.file("/.well-known/resourcesync", document("description", "", "", &sets));
}

/// A Source with a dump of one package, `/package.zip`, and with a Resource List if it is to have one.
pub fn source(server: &Server, at: &str, items: &[Item], list: Option<(&str, &[Item])>) {
    server.file("/package.zip", package(at, items));
    list_package(server, at, "/package.zip");
    let mut capabilities = vec!["resourcedump"];
    if let Some((at, items)) = list {
        let entries: String = items.iter().map(Item::in_list).collect();
        server.file("/resourcelist.xml", super::resource_list(at, &entries));
        capabilities.push("resourcelist");
    }
    offer(server, &capabilities);
}

/// A dump with one package.
pub fn list_package(server: &Server, at: &str, path: &str) {
    let packages = [(server.url(path), "type=\"application/zip\"".to_owned(), String::new())];
    server.file("/resourcedump.xml", dump(&format!("at=\"{at}\""), &packages));
}

/// Some resources of a server, small and larger, at `/r/0` and so on.
pub fn items(server: &Server, count: u64) -> Vec<Item> {
    (0..count)
        .map(|number| {
            let length = 100 + usize::try_from(scramble(number) % 20_000).expect("it fits");
            Item::new(&server.url(&format!("/r/{number}")), &bytes(number, length))
        })
        .collect()
}

pub fn all_verified(mirror: &impl Mirrored, count: u64) -> serde_json::Value {
    mirror.wait("all members verified", |status| status["packages"]["verified"] == count)
}

/// How often resources were asked for by their own URLs.
pub fn singles(server: &Server) -> usize {
    server.requests().iter().filter(|request| request.path.starts_with("/r/")).count()
}
