//! The documents of the demo Source that tell of a moment: the Source Description, the Capability List, the
//! Resource List, and the Resource Dump with its packages.

use std::fmt::Write as _;
use std::io::Write as _;

use quick_xml::escape::escape;
use zip::CompressionMethod;
use zip::write::{SimpleFileOptions, ZipWriter};

use super::{Content, Make, Package, Resource, hexadecimal};
use crate::document::{Capability, Datetime};

/// The packages of the dump: where they are, where copies of their manifests are, and what is in them.
const PACKAGES: [(&str, &str, &str); 2] = [
    ("/dump/texts.zip", "/dump/texts-manifest.xml", "/texts/"),
    ("/dump/scans.zip", "/dump/scans-manifest.xml", "/scans/"),
];

impl Content {
    pub(super) fn describe(&mut self, now: Datetime) {
        let description =
            self.document(Capability::Description, None, &[("/capabilitylist.xml", Capability::CapabilityList)], "");
        let capabilities = self.document(
            Capability::CapabilityList,
            Some("/.well-known/resourcesync"),
            &[
                ("/resourcelist.xml", Capability::ResourceList),
                ("/resourcedump.xml", Capability::ResourceDump),
                ("/changelist.xml", Capability::ChangeList),
                ("/changedump.xml", Capability::ChangeDump),
            ],
            &self.channels(),
        );
        let list = self.list(Capability::ResourceList, now, "/");
        self.documents.insert("/.well-known/resourcesync".to_owned(), description);
        self.documents.insert("/capabilitylist.xml".to_owned(), capabilities);
        self.documents.insert("/resourcelist.xml".to_owned(), list);
        for (path, manifest, below) in PACKAGES {
            let described = self.list(Capability::ResourceDumpManifest, now, below);
            match self.pack(&described, below) {
                Ok(bytes) => {
                    let sha256 = hexadecimal(&bytes);
                    self.packages.insert(path.to_owned(), Package { bytes: bytes.into(), sha256, manifest });
                    self.documents.insert(manifest.to_owned(), described);
                }
                Err(error) => tracing::error!(%error, path, "the demo Source goes without this package"),
            }
        }
        let dump = self.dump(now);
        self.documents.insert("/resourcedump.xml".to_owned(), dump);
    }

    pub(super) fn head(&self, capability: Capability, attributes: &str, up: Option<&str>) -> String {
        let mut text = String::from(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<urlset xmlns=\"http://www.sitemaps.org/schemas/sitemap/0.9\"\n        \
             xmlns:rs=\"http://www.openarchives.org/rs/terms/\">\n",
        );
        if let Some(up) = up {
            let _ = writeln!(text, "  <rs:ln rel=\"up\" href=\"{}{up}\"/>", self.base);
        }
        let _ = writeln!(text, "  <rs:md capability=\"{capability}\"{attributes}/>");
        text
    }

    /// A document of documents, and what else is in it.
    fn document(&self, capability: Capability, up: Option<&str>, entries: &[(&str, Capability)], more: &str) -> String {
        let mut text = self.head(capability, "", up);
        for (path, capability) in entries {
            let _ = writeln!(text, "  <url><loc>{}{path}</loc><rs:md capability=\"{capability}\"/></url>", self.base);
        }
        text.push_str(more);
        text.push_str("</urlset>\n");
        text
    }

    /// The paths of the resources below one, in order.
    fn below(&self, prefix: &str) -> Vec<&String> {
        let mut paths: Vec<&String> = self.resources.keys().filter(|path| path.starts_with(prefix)).collect();
        paths.sort();
        paths
    }

    /// A Resource List, or the manifest of a package.
    pub(super) fn list(&self, capability: Capability, at: Datetime, prefix: &str) -> String {
        let mut text = self.head(capability, &format!(" at=\"{at}\""), Some("/capabilitylist.xml"));
        for path in self.below(prefix) {
            let Resource { media, modified, sha256, length, .. } = &self.resources[path];
            let loc = format!("{}{path}", self.base);
            let place = match capability {
                Capability::ResourceDumpManifest => format!(" path=\"/resources{path}\""),
                _ => String::new(),
            };
            let _ = writeln!(
                text,
                "  <url><loc>{}</loc><lastmod>{modified}</lastmod><rs:md hash=\"sha-256:{sha256}\" length=\"{length}\" type=\"{media}\"{place}/>{}</url>",
                escape(loc.as_str()),
                self.negotiation(path),
            );
        }
        text.push_str("</urlset>\n");
        text
    }

    fn pack(&self, manifest: &str, prefix: &str) -> zip::result::ZipResult<Vec<u8>> {
        let deflated = SimpleFileOptions::default().compression_method(CompressionMethod::Deflated);
        let stored = SimpleFileOptions::default().compression_method(CompressionMethod::Stored);
        let mut package = ZipWriter::new(std::io::Cursor::new(Vec::new()));
        package.start_file("manifest.xml", deflated)?;
        package.write_all(manifest.as_bytes())?;
        for path in self.below(prefix) {
            let make = &self.resources[path].make;
            let options = if matches!(make, Make::Text(_)) { deflated } else { stored };
            package.start_file(format!("resources{path}"), options)?;
            package.write_all(&make.bytes())?;
        }
        Ok(package.finish()?.into_inner())
    }

    fn dump(&self, at: Datetime) -> String {
        let mut text = self.head(Capability::ResourceDump, &format!(" at=\"{at}\""), Some("/capabilitylist.xml"));
        for (path, _, _) in PACKAGES {
            let Some(Package { bytes, sha256, manifest }) = self.packages.get(path) else { continue };
            let (base, length) = (&self.base, bytes.len());
            let _ = writeln!(
                text,
                "  <url><loc>{base}{path}</loc><rs:md hash=\"sha-256:{sha256}\" length=\"{length}\" type=\"application/zip\" at=\"{at}\"/>\
                 <rs:ln rel=\"contents\" href=\"{base}{manifest}\" type=\"application/xml\"/></url>",
            );
        }
        text.push_str("</urlset>\n");
        text
    }
}
