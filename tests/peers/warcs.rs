//! Resource Dumps that are WARC files, written by the Python package warcio (0.1, 4.2 and B).

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::support::dump::{list_package, offer};
use crate::support::opened::Mirror;
use crate::support::server::{Reply, Server};
use crate::support::{bytes, entry_of, pywb, resource_list};
use base64::Engine as _;
use serde_json::{Value, json};

/// What `warcio` makes of these resources.
fn warc(resources: &[Value], form: &str) -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("dump.warc");
    let mut python = Command::new(pywb::program("python"))
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/support/dump_warc.py"))
        .args([file.as_os_str(), form.as_ref()])
        .stdin(Stdio::piped())
        .spawn()
        .expect("python with warcio: run scripts/test-deps");
    python.stdin.take().unwrap().write_all(json!(resources).to_string().as_bytes()).unwrap();
    assert!(python.wait().unwrap().success());
    std::fs::read(file).unwrap()
}

fn coded(body: &[u8]) -> String {
    base64::engine::general_purpose::STANDARD.encode(body)
}

/// Forty resources, served by nobody: each in another way in the file.
fn resources(server: &Server) -> Vec<(String, Vec<u8>, Value)> {
    (0..40)
        .map(|n: usize| {
            let path = format!("/data/{}/{n}.bin", n % 3);
            // One is empty, one is large, one ends in line breaks.
            let mut body = bytes(n as u64, [0, 300_000, 5_000][n.min(2)]);
            if n == 3 {
                body.extend_from_slice(b"\r\n\r\nWARC/1.0\r\n\r\n");
            }
            let kind = if n % 5 == 4 { "resource" } else { "response" };
            let resource = json!({
                "url": server.url(&path), "type": "application/octet-stream", "body": coded(&body), "kind": kind,
                "modified": "Wed, 02 Jan 2013 08:00:00 GMT", "chunked": n % 5 == 1, "gzip": n % 5 == 2,
            });
            (path, body, resource)
        })
        .collect()
}

/// A Sitemap of 2012 with these entries, that links to the dump.
fn sitemap(server: &Server, entries: &str) -> String {
    format!(
        "<urlset xmlns=\"http://www.sitemaps.org/schemas/sitemap/0.9\" xmlns:rs=\"http://www.openarchives.org/rs/terms/\" \
         xmlns:xhtml=\"http://www.w3.org/1999/xhtml\"><xhtml:meta name=\"DCTERMS.modified\" content=\"2013-01-03T10:00:00Z\"/>\
         <xhtml:link href=\"{}\" rel=\"http://www.openarchives.org/rs/dump\"/>{entries}</urlset>",
        server.url("/dump.warc")
    )
}

#[test]
fn a_dump_of_2012_that_is_a_warc_seeds_a_mirror() {
    for form in ["gzip", "plain"] {
        for ranges in [true, false] {
            let server = Server::start();
            let all = resources(&server);
            let mut records: Vec<Value> = all.iter().map(|(_, _, resource)| resource.clone()).collect();
            // An older record of the same resource, one of nothing, and the manifest of the dump are no resources of it.
            records.insert(0, json!({"url": records[5]["url"], "type": "text/plain", "body": coded(b"older")}));
            records.push(json!({"url": server.url("/gone"), "type": "text/plain", "body": coded(b"no"), "status": "404 Not Found"}));
            records.push(json!({"url": "metadata:gnu.org/wget.log", "type": "text/plain", "body": coded(b"log"), "kind": "resource"}));
            records.push(json!({"url": server.url("/manifest.xml"), "type": "text/xml", "body": coded(b"<x/>"), "kind": "resource"}));
            let entries: String = all
                .iter()
                .map(|(path, body, _)| {
                    let fixity = base64::engine::general_purpose::STANDARD.encode(<md5::Md5 as md5::Digest>::digest(body));
                    format!(
                        "<url><loc>{}</loc><lastmod>2013-01-02T08:00:00Z</lastmod><rs:fixity type=\"md5\">{fixity}</rs:fixity></url>",
                        server.url(path)
                    )
                })
                .collect();
            let dump = warc(&records, form);
            if ranges {
                server.file("/dump.warc", dump);
            } else {
                server.on("/dump.warc", move |_| Reply::ok(dump.clone()));
            }
            server.file("/sitemap.xml", sitemap(&server, &entries));
            let mirror = Mirror::mount(&server.url("/sitemap.xml"), "poll=0,content=all");
            mirror.wait("the content", |status| status["cached"]["resources"] == 40);
            for (path, body, _) in &all {
                assert_eq!(mirror.read(&path[1..]).unwrap(), *body, "{path} {form}");
                // What was compressed is not what the list has the digest of.
                let asked = server.count(path);
                assert!(asked == 0, "{path} was asked for {asked} times, {form}");
            }
            assert_eq!(mirror.status()["seed"]["from"], "dump");
            // What was written anew is whole for the next process, too.
            drop(server);
            mirror.remount();
            for (path, body, _) in &all {
                assert_eq!(mirror.read(&path[1..]).unwrap(), *body, "{path} {form}, later");
            }
        }
    }
}

#[test]
fn a_warc_alone_says_what_there_is() {
    let server = Server::start();
    let all = resources(&server);
    let records: Vec<Value> = all.iter().map(|(_, _, resource)| resource.clone()).collect();
    server.file("/dump.warc", warc(&records, "gzip"));
    list_package(&server, "2013-01-03T09:00:00Z", "/dump.warc");
    offer(&server, &["resourcedump"]);
    let mirror = Mirror::mount(&server.url("/"), "poll=0");
    assert_eq!(mirror.files().len(), all.len());
    for (path, body, resource) in &all {
        assert_eq!(mirror.read(&path[1..]).unwrap(), *body, "{path}");
        let seconds = mirror.stat(&path[1..]).unwrap().mtime();
        // A resource of which no server said when it was modified is as old as the dump.
        assert_eq!(seconds, if resource["kind"] == "resource" { 1_357_203_600 } else { 1_357_113_600 }, "{path}");
    }
}

#[test]
fn records_that_are_not_what_they_say_and_files_that_break_off_are_not_used() {
    for cut in [false, true] {
        let server = Server::start();
        let bodies: Vec<(String, Vec<u8>)> = (0..6).map(|n| (format!("/{n}"), bytes(n, 4000))).collect();
        let records: Vec<Value> = bodies
            .iter()
            .map(|(path, body)| json!({"url": server.url(path), "type": "text/plain", "body": coded(body)}))
            .collect();
        let mut dump = warc(&records, "plain");
        if cut {
            dump.truncate(dump.len() / 2);
        } else {
            // One byte of one of them is another than it was.
            let body = &bodies[2].1;
            let at = dump.windows(body.len()).position(|window| window == body).unwrap();
            dump[at + 100] ^= 1;
        }
        server.file("/dump.warc", dump);
        list_package(&server, "2013-01-03T09:00:00Z", "/dump.warc");
        offer(&server, &["resourcedump", "resourcelist"]);
        let entries: String = bodies.iter().map(|(path, body)| entry_of(&server.url(path), body)).collect();
        server.file("/resourcelist.xml", resource_list("2013-01-03T09:00:00Z", &entries));
        bodies.iter().for_each(|(path, body)| server.file(path, body.clone()));
        let mirror = Mirror::mount(&server.url("/"), "poll=0,content=all");
        mirror.wait("the content", |status| status["cached"]["resources"] == 6);
        for (n, (path, body)) in bodies.iter().enumerate() {
            assert_eq!(mirror.read(&path[1..]).unwrap(), *body, "{path} cut={cut}");
            assert_eq!(server.count(path) > 0, cut || n == 2, "{path} cut={cut}");
        }
        let said = mirror.errors();
        assert!(said.contains(if cut { "dump.warc: " } else { "1 records are not" }), "{said}");
        // It is not downloaded again and again.
        let asked = server.count("/dump.warc");
        mirror.refreshed();
        assert_eq!(server.count("/dump.warc"), asked);
    }
}

#[test]
fn what_still_comes_of_a_file_that_was_written_anew_harms_nobody() {
    let server = Server::start();
    let bodies: Vec<(String, Vec<u8>)> = (0..8).map(|n| (format!("/{n}"), bytes(n, 400_000))).collect();
    let records: Vec<Value> = bodies
        .iter()
        .map(|(path, body)| json!({"url": server.url(path), "type": "text/plain", "body": coded(body)}))
        .collect();
    let dump = warc(&records, "plain");
    // The whole comes slowly, and each part of it later than that.
    server.on("/dump.warc", move |request| {
        let slow = if request.header("range").is_some() { 2000 } else { 0 };
        let drip = if request.header("range").is_some() { 0 } else { 4 };
        Reply {
            delay: std::time::Duration::from_millis(slow),
            drip: std::time::Duration::from_millis(drip),
            ..Reply::good(request, &dump)
        }
    });
    list_package(&server, "2013-01-03T09:00:00Z", "/dump.warc");
    offer(&server, &["resourcedump"]);
    let mirror = Mirror::mount(&server.url("/"), "poll=0,content=all");
    mirror.wait("the tree", |status| status["state"] == "complete" && status["resources"] == 8);
    std::thread::sleep(std::time::Duration::from_millis(2500));
    for again in [false, true] {
        for (path, body) in &bodies {
            assert_eq!(mirror.read(&path[1..]).unwrap(), *body, "{path} {again}");
        }
        mirror.remount();
    }
    assert!(bodies.iter().all(|(path, _)| server.count(path) == 0));
}

#[test]
fn a_file_that_is_not_what_its_dump_says_is_held_to_what_is_listed() {
    let server = Server::start();
    let all = resources(&server);
    let records: Vec<Value> = all.iter().map(|(_, _, resource)| resource.clone()).collect();
    server.file("/dump.warc", warc(&records, "gzip"));
    let md = format!("type=\"application/warc\" hash=\"md5:{}\"", crate::support::md5(b"another file"));
    let dump =
        crate::support::dump::dump("at=\"2013-01-03T10:00:00Z\"", &[(server.url("/dump.warc"), md, String::new())]);
    server.file("/resourcedump.xml", dump);
    // Of every other one, the list has no digest: what lies in such a file is not believed to be it.
    let entries: String = all
        .iter()
        .enumerate()
        .map(|(n, (path, body, _))| {
            server.file(path, body.clone());
            if n % 2 == 0 { entry_of(&server.url(path), body) } else { crate::support::entry(&server.url(path), "") }
        })
        .collect();
    server.file("/resourcelist.xml", resource_list("2013-01-03T10:00:00Z", &entries));
    offer(&server, &["resourcelist", "resourcedump"]);
    let mirror = Mirror::mount(&server.url("/"), "poll=0");
    mirror.wait("the package was looked at", |status| status["packages"]["whole"] == 1);
    for (n, (path, body, _)) in all.iter().enumerate() {
        assert_eq!(mirror.read(&path[1..]).unwrap(), *body, "{path}");
        assert!(n % 2 == 0 || server.count(path) > 0, "{path} was taken from a file that is not what was listed");
    }
    assert!(mirror.errors().contains("/dump.warc"), "{}", mirror.errors());
}
