//! Mounts that hear of changes by WebSocket.

use std::time::{Duration, Instant};

use crate::support::changes::{agrees, change, change_list, told};
use crate::support::channel::Channel;
use crate::support::opened::Mirror;
use crate::support::telling::{Telling, channel, has_all_versions, live, settles};
use crate::support::{capability, document, entry, seed};

const CHANGES: &str = "change-notification";

/// The draft's message: changes, and nothing of an interval.
fn message(entries: &str) -> String {
    document("changelist", "", "", entries).replace("<rs:md capability=\"changelist\" />", "")
}

/// A mount that is told of changes, and polls nothing.
fn opened(telling: &Telling, channel: &mut Channel) -> Mirror {
    let mirror = Mirror::mount(&telling.source.url("/"), "poll=0");
    channel.wait_for_client();
    live(&mirror);
    mirror
}

#[test]
fn a_connection_that_is_cut_every_few_frames_misses_nothing() {
    let mut sends = Channel::start(Some(3));
    let mut telling = Telling::start(seed(), 30, true);
    telling.offers(&channel(&sends.url(), CHANGES, &[]));
    let mirror = opened(&telling, &mut sends);
    let (mut lost, mut changes) = (0, 0);
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(25) {
        let (entry, ..) = telling.happens();
        changes += 1;
        lost += usize::from(sends.send(&message(&entry)) == 0);
        std::thread::sleep(Duration::from_millis(150));
    }
    settles(&mirror, &telling.source);
    has_all_versions(&mirror, &telling);
    assert!(lost > 10 && lost < changes, "{lost} of {changes} messages went nowhere");
}

#[test]
fn whole_notifications_are_applied_as_they_come_and_what_is_lost_is_told_by_the_list() {
    let mut sends = Channel::start(None);
    let mut telling = Telling::start(seed(), 30, true);
    telling.offers(&channel(&sends.url(), CHANGES, &[]));
    let mirror = opened(&telling, &mut sends);
    for number in 0..200 {
        let told = telling.tells();
        // Some are lost on the way.
        if number % 40 != 39 {
            sends.send(&told);
        }
    }
    let told = telling.tells();
    sends.send(&told);
    settles(&mirror, &telling.source);
    has_all_versions(&mirror, &telling);
    mirror.wait("the gaps", |status| status["channels"][0]["gaps"].as_u64() > Some(0));
}

#[test]
fn messages_of_a_source_that_lists_no_changes_are_taken_as_they_are() {
    let mut sends = Channel::start(None);
    let mut telling = Telling::start(seed(), 20, false);
    telling.offers(&channel(&sends.url(), CHANGES, &[]));
    let mirror = opened(&telling, &mut sends);
    for _ in 0..100 {
        let (entry, ..) = telling.happens();
        sends.send(&message(&entry));
    }
    settles(&mirror, &telling.source);
    has_all_versions(&mirror, &telling);
}

#[test]
fn what_a_channel_missed_a_resource_list_tells_where_there_is_nothing_else() {
    let mut sends = Channel::start(None);
    let mut telling = Telling::start(seed(), 20, false);
    telling.offers(&channel(&sends.url(), CHANGES, &[]));
    let mirror = opened(&telling, &mut sends);
    for _ in 0..10 {
        telling.happens();
    }
    telling.source.list(telling.second);
    sends.cut();
    settles(&mirror, &telling.source);
}

#[test]
fn wss_is_trusted_by_the_certificates_that_ca_names() {
    let folder = tempfile::tempdir().unwrap();
    let (cert, key) = (folder.path().join("cert.pem"), folder.path().join("key.pem"));
    crate::support::shell(&format!(
        "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -addext subjectAltName=IP:127.0.0.1 \
         -addext basicConstraints=critical,CA:FALSE -keyout {} -out {} 2>/dev/null",
        key.display(),
        cert.display()
    ));
    let mut sends = Channel::start_tls(None, &cert, &key);
    let mut telling = Telling::start(seed(), 5, true);
    telling.offers(&channel(&sends.url(), CHANGES, &[]));
    let stranger = Mirror::mount(&telling.source.url("/"), "poll=0");
    stranger.wait("a refusal", |status| status["channels"][0]["state"] == "failing");
    let mirror = Mirror::mount(&telling.source.url("/"), &format!("poll=0,ca={}", cert.display()));
    live(&mirror);
    let told = telling.tells();
    assert_eq!(sends.send(&told), 1, "one client trusts it");
    settles(&mirror, &telling.source);
}

#[test]
fn framework_notifications_have_the_named_documents_read_again() {
    let mut sends = Channel::start(None);
    let mut telling = Telling::start(seed(), 5, true);
    telling.offers(&channel(&sends.url(), "framework-notification", &[]));
    let mirror = opened(&telling, &mut sends);
    let source = |telling: &Telling, path: &str| telling.source.url(path);
    let says = |loc: &str, kind: &str, what: &str| {
        document("framework-notification", "", "", &entry(loc, &format!("change=\"{kind}\" capability=\"{what}\"")))
    };
    // A Change List that has grown.
    telling.happens();
    sends.send(&says(&source(&telling, "/changelist.xml"), "updated", "changelist"));
    settles(&mirror, &telling.source);

    // A new Resource List, of what no Change List told.
    telling.source.put("/data/unsaid.txt", b"unsaid");
    telling.source.list(telling.second + 10);
    sends.send(&says(&source(&telling, "/resourcelist.xml"), "created", "resourcelist"));
    settles(&mirror, &telling.source);

    // A Capability List that leads to another Change List.
    let entry = told(&source(&telling, "/data/unsaid.txt"), "updated", telling.second + 20, b"moved");
    telling.source.put("/data/unsaid.txt", b"moved");
    let moved = change_list(Some(telling.second + 11), None, "", &entry);
    telling.source.server.file("/elsewhere.xml", moved);
    let all: String = [("/resourcelist.xml", "resourcelist"), ("/elsewhere.xml", "changelist")]
        .iter()
        .map(|(path, name)| capability(&source(&telling, path), name))
        .collect();
    let all = all + &channel(&sends.url(), "framework-notification", &[]);
    telling.source.server.file("/capabilitylist.xml", document("capabilitylist", "", "", &all));
    sends.send(&says(&source(&telling, "/capabilitylist.xml"), "updated", "capabilitylist"));
    settles(&mirror, &telling.source);
    agrees(&mirror, &telling.source);
}

#[test]
fn what_makes_no_sense_has_the_list_read_and_harms_nothing() {
    let mut sends = Channel::start(None);
    let mut telling = Telling::start(seed(), 10, true);
    telling.offers(&channel(&sends.url(), CHANGES, &[]));
    let mirror = opened(&telling, &mut sends);
    let evil = change("file:///etc/passwd", "created", "datetime=\"2026-03-01T08:00:00Z\"");
    for nonsense in [
        String::new(),
        "hello".to_owned(),
        "<html><body>maintenance</body></html>".to_owned(),
        "<urlset".to_owned(),
        message(&change("::no URL", "created", "")),
        message(&evil),
        document("resourcelist", "at=\"2026-03-01T08:00:00Z\"", "", ""),
        "\u{feff}<?xml version=\"1.0\"?><!DOCTYPE x [<!ENTITY a \"b\">]><x>&a;</x>".to_owned(),
    ] {
        telling.happens();
        sends.send(&nonsense);
        settles(&mirror, &telling.source);
    }
    has_all_versions(&mirror, &telling);
}
