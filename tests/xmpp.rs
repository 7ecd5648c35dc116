//! Sources of 2012 that publish their changes on a node of an XMPP PubSub service.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that panics has failed")]

mod support;

use std::collections::BTreeMap;
use std::io::Write as _;
use std::time::{Duration, Instant};

use serde_json::json;
use support::draft::Pushing;
use support::xmpp::{NODE, Prosody, SERVICE};
use support::{Mirror, Mirrored as _, telling};

fn link() -> String {
    format!(
        "<xhtml:link href=\"xmpp:{SERVICE}\" rs:protocol=\"http://xmpp.org/extensions/xep-0060.html\" rs:pubsubnode=\"{NODE}\"/>"
    )
}

/// A file with the account, and the option that names it.
fn account(password: &str, port: u16) -> (tempfile::NamedTempFile, String) {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    writeln!(file, "{SERVICE} xmpp mirror@localhost:{password} at 127.0.0.1:{port}").unwrap();
    let option = format!("credentials={}", file.path().display());
    (file, option)
}

/// A message as the service would send it.
fn headline(payload: &str) -> String {
    format!(
        "<message to='mirror@localhost' type='headline'><event xmlns='http://jabber.org/protocol/pubsub#event'>\
         <items node='{NODE}'><item id='x'>{payload}</item></items></event></message>"
    )
}

/// Waits until the mirror has what the Source has.
#[track_caller]
fn comes_to(mirror: &Mirror, source: &Pushing) {
    let now = || -> BTreeMap<String, Vec<u8>> {
        // What is listed may be gone before it is read.
        mirror.files().into_iter().filter_map(|path| Some((path.clone(), mirror.read(&path).ok()?))).collect()
    };
    let began = Instant::now();
    while now() != source.draft.tree() {
        assert!(began.elapsed() < Duration::from_secs(60), "{:#}", mirror.status());
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_hundred_changes_are_published() {
    let mut server = Prosody::start(false);
    let mut publisher = server.publisher();
    let mut source = Pushing::start(&link());
    let (_file, account) = account("secret", server.port);
    let mirror = Mirror::mount(&source.draft.server.url("/"), &format!("poll=0,content=all,{account}"));
    telling::live(&mirror);
    let seed = support::seed();
    for n in 0..100 {
        let body = source.changes(support::scramble(seed + n));
        publisher.ask(&json!({"publish": body}));
    }
    let status = mirror.wait("all of them", |status| status["channels"][0]["received"].as_u64() >= Some(100));
    assert_eq!(status["channels"][0]["transport"], "xmpp");
    comes_to(&mirror, &source);
    // Each is applied when it comes, and no list is read for it.
    let notified = || -> u64 {
        let syncs = mirror.log("").into_iter().filter(|sync| sync["from"] == "notification");
        syncs
            .map(|sync| ["added", "updated", "deleted"].iter().filter_map(|what| sync[what].as_u64()).sum::<u64>())
            .sum()
    };
    mirror.wait("all changes", |_| notified() >= 100 && mirror.ask(support::catalog::deliveries_left) == 0);
    assert_eq!(notified(), 100, "{:#}", mirror.status());
    // Who is not the service is not believed.
    let forged = source.changes(1);
    source.undo();
    publisher.ask(&json!({"from_another": headline(&forged)}));
    mirror.wait("it is refused", |status| status["channels"][0]["refused"]["foreign"] == 1);
    comes_to(&mirror, &source);
    // The next process finds the subscription; what was published meanwhile the Sitemap tells.
    mirror.unmount();
    let body = source.changes(5);
    publisher.ask(&json!({"publish": body}));
    source.lists();
    assert!(mirror.try_mount().status.success());
    telling::live(&mirror);
    comes_to(&mirror, &source);
    // So does a session after a server that was away.
    drop(publisher);
    server.stop();
    mirror.wait("it is noticed", |status| status["channels"][0]["state"] == "failing");
    source.changes(8);
    source.lists();
    server.start_again();
    let mut publisher = server.publisher();
    telling::live(&mirror);
    comes_to(&mirror, &source);
    let body = source.changes(9);
    publisher.ask(&json!({"publish": body}));
    comes_to(&mirror, &source);
    assert!(!mirror.errors().contains("secret"), "{}", mirror.errors());
}

#[test]
fn an_account_is_needed_and_its_password_is_sent_to_whom_it_is_for() {
    let server = Prosody::start(true);
    let mut publisher = server.publisher();
    let mut source = Pushing::start(&link());
    let mut mirror = Mirror::mount(&source.draft.server.url("/"), "poll=0,content=all");
    let state = |mirror: &Mirror, wanted: &str| {
        let status = mirror.wait(wanted, |status| status["channels"][0]["state"] == wanted);
        status["channels"][0]["reason"].as_str().unwrap_or_default().to_owned()
    };
    let reason = state(&mirror, "unused");
    assert!(reason.contains(&format!("{SERVICE} xmpp USER@DOMAIN:PASSWORD")), "{reason}");
    // Its certificate is of an authority that nobody trusts.
    let (_file, good) = account("secret", server.port);
    mirror.set_options(&format!("poll=0,content=all,{good}"));
    mirror.remount();
    let reason = state(&mirror, "failing");
    assert!(reason.contains("certificate"), "{reason}");
    let ca = format!("ca={}", server.authority().display());
    let (_file, wrong) = account("other", server.port);
    mirror.set_options(&format!("poll=0,content=all,{ca},{wrong}"));
    mirror.remount();
    let reason = state(&mirror, "denied");
    assert_eq!(reason, "the server does not take the account and its password");
    mirror.set_options(&format!("poll=0,content=all,{ca},{good}"));
    mirror.remount();
    telling::live(&mirror);
    let body = source.changes(3);
    publisher.ask(&json!({"publish": body}));
    comes_to(&mirror, &source);
}

#[test]
fn what_is_larger_than_a_notification_may_be_is_no_harm() {
    let server = Prosody::start(false);
    let mut publisher = server.publisher();
    let mut source = Pushing::start(&link());
    let (_file, account) = account("secret", server.port);
    let options = format!("poll=0,content=all,limit_delivery=64K,{account}");
    let mirror = Mirror::mount(&source.draft.server.url("/"), &options);
    telling::live(&mirror);
    let body = source.changes(3);
    // More than that, with all that goes with it; less than the server itself takes.
    let large = body.replace("</urlset>", &format!("<more>{}</more></urlset>", "x".repeat(180_000)));
    publisher.ask(&json!({"publish": large}));
    mirror.wait("it is noticed", |status| status["channels"][0]["state"] == "failing");
    source.lists();
    telling::live(&mirror);
    comes_to(&mirror, &source);
}

#[test]
fn what_anybody_may_send_ends_a_session_at_most() {
    let server = Prosody::start(false);
    let mut publisher = server.publisher();
    let mut source = Pushing::start(&link());
    let (_file, account) = account("secret", server.port);
    let mirror = Mirror::mount(&source.draft.server.url("/"), &format!("poll=0,content=all,{account}"));
    telling::live(&mirror);
    let deep = format!("{}{}", "<a xmlns='x'>".repeat(5_000), "</a>".repeat(5_000));
    for odd in [
        format!("<message to='mirror@localhost'>{deep}</message>"),
        headline(&deep),
        format!("<message to='mirror@localhost' type='chat'><body>{}</body></message>", "x".repeat(100_000)),
        "<message to='mirror@localhost' type='weird'><body>hello</body></message>".to_owned(),
        "<iq to='mirror@localhost' type='get' id='1'><query xmlns='jabber:iq:version'/></iq>".to_owned(),
    ] {
        publisher.ask(&json!({"from_another": odd}));
        std::thread::sleep(Duration::from_millis(300));
        telling::live(&mirror);
        let body = source.changes(7);
        source.lists();
        publisher.ask(&json!({"publish": body}));
        comes_to(&mirror, &source);
    }
    // A node that was deleted has no subscribers.
    publisher.ask(&json!({"anew": true}));
    let received = |mirror: &Mirror| mirror.status()["channels"][0]["received"].as_u64();
    let (before, began) = (received(&mirror), Instant::now());
    while received(&mirror) == before {
        let body = source.changes(8);
        source.lists();
        publisher.ask(&json!({"publish": body}));
        assert!(began.elapsed() < Duration::from_secs(60), "{:#}", mirror.status());
        std::thread::sleep(Duration::from_millis(200));
    }
    comes_to(&mirror, &source);
    assert!(mirror.daemon().is_some());
}
