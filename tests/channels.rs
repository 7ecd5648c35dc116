//! From joining a channel to leaving it: hubs that redirect, deny, hide or go; paths that survive; what is shown of
//! them, and what is not.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that panics has failed")]

mod support;

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use support::channel::Channel;
use support::hub::{Hub, HubOptions};
use support::server::Reply;
use support::telling::{Telling, channel, free_port, live, only_channel, settles};
use support::{Mirror, output, run, seed, text};

const CHANGES: &str = "change-notification";

fn mount(telling: &Telling, options: &str) -> Mirror {
    Mirror::mount(&telling.source.url("/"), options)
}

fn listening() -> String {
    format!("poll=0,listen=127.0.0.1:{}", free_port())
}

/// A topic that says nothing, with these `Link` values.
fn topic(telling: &Telling, links: &str) -> String {
    let links = links.to_owned();
    telling
        .source
        .server
        .on("/topic", move |_| Reply::ok("").with("Content-Type", "application/xml").with("Link", &links));
    telling.source.url("/topic")
}

/// What is pushed arrives.
fn delivers(hub: &Hub, topic: &str, telling: &mut Telling, mirror: &Mirror) {
    let told = telling.tells();
    hub.push(topic, told.as_bytes());
    settles(mirror, &telling.source);
}

#[test]
fn the_topic_itself_names_its_hub_where_the_capability_list_does_not() {
    let hub = Hub::start(&HubOptions::default());
    let mut telling = Telling::start(seed(), 5, false);
    let url = telling.source.url("/topic");
    topic(&telling, &format!("<{url}#x>; rel=\"alternate\", </topic>; rel=\"self\", <{}>; rel=\"hub\"", hub.url()));
    telling.offers(&channel(&url, CHANGES, &[]));
    let mirror = mount(&telling, &listening());
    live(&mirror);
    delivers(&hub, &url, &mut telling, &mirror);
    assert_eq!(only_channel(&mirror)["hub"], hub.url());
}

#[test]
fn a_hub_that_moved_is_followed_and_one_that_is_gone_gives_way_to_the_next() {
    for status in [301, 302, 307, 308] {
        let hub = Hub::start(&HubOptions::default());
        let mut telling = Telling::start(seed(), 5, false);
        let to = hub.url();
        telling.source.server.on("/hub", move |_| Reply::status(status).with("Location", &to));
        let url = topic(&telling, "");
        let (gone, old) = (telling.source.url("/gone"), telling.source.url("/hub"));
        telling.offers(&channel(&url, CHANGES, &[&gone, &old]));
        let mirror = mount(&telling, &listening());
        live(&mirror);
        delivers(&hub, &url, &mut telling, &mirror);
    }
}

#[test]
fn a_hub_that_denies_is_shown_with_its_reason_and_a_websocket_takes_its_place() {
    let mut telling = Telling::start(seed(), 5, true);
    let url = topic(&telling, "");
    let hub = Hub::start(&HubOptions { denied: vec![url.clone()], ..HubOptions::default() });
    let mut sends = Channel::start(None);
    telling.offers(&(channel(&url, CHANGES, &[&hub.url()]) + &channel(&sends.url(), CHANGES, &[])));
    let mirror = mount(&telling, &listening());
    let status = mirror.wait("a denial", |status| status["channels"][0]["state"] == "denied");
    assert!(status["channels"][0]["reason"].as_str().unwrap().contains(&hub.url()), "{status:#}");
    sends.wait_for_client();
    let told = telling.tells();
    sends.send(&told);
    settles(&mirror, &telling.source);
    let shown = output(&["status", &mirror.directory.to_string_lossy()]);
    assert!(shown.contains("denied") && shown.contains("by WebSocket: live"), "{shown}");
}

#[test]
fn without_an_address_to_listen_at_a_hub_is_left_alone_and_the_status_says_what_would_help() {
    let hub = Hub::start(&HubOptions::default());
    let telling = Telling::start(seed(), 5, true);
    telling.topic(&hub.url());
    let mirror = mount(&telling, "poll=0");
    let status = mirror.wait("the channel", |status| status["channels"][0]["state"] == "unused");
    assert!(status["channels"][0]["reason"].as_str().unwrap().contains("listen="), "{status:#}");
    drop(mirror);
    let mirror = mount(&telling, &format!("{},notify=off", listening()));
    std::thread::sleep(Duration::from_secs(1));
    assert_eq!(mirror.status()["channels"], serde_json::json!([]));
    assert_eq!(hub.subscriptions(), []);
}

#[test]
fn a_mount_takes_leave_of_its_hub_and_a_killed_one_keeps_its_path() {
    let hub = Hub::start(&HubOptions::default());
    let mut telling = Telling::start(seed(), 5, true);
    let url = telling.topic(&hub.url());
    let mirror = mount(&telling, &listening());
    live(&mirror);
    let first = hub.wait_for_subscriptions(1);
    mirror.kill();
    let output = mirror.try_mount();
    assert!(output.status.success(), "{}", text(&output));
    live(&mirror);
    delivers(&hub, &url, &mut telling, &mirror);
    let again = hub.subscriptions();
    assert_eq!((again.len(), &again[0].callback, &again[0].secret), (1, &first[0].callback, &first[0].secret));
    assert_eq!(again[0].expires, first[0].expires, "a lease that goes on needs no request");
    mirror.unmount();
    hub.wait_for_subscriptions(0);
    let output = mirror.try_mount();
    assert!(output.status.success(), "{}", text(&output));
    let anew = hub.wait_for_subscriptions(1);
    assert_ne!(anew[0].callback, first[0].callback, "each subscription has a path of its own");
    assert_ne!(anew[0].secret, first[0].secret);
}

#[test]
fn nobody_is_shown_a_path_or_a_secret() {
    let hub = Hub::start(&HubOptions::default());
    let mut telling = Telling::start(seed(), 5, true);
    let url = telling.topic(&hub.url());
    let mirror = mount(&telling, &listening());
    live(&mirror);
    delivers(&hub, &url, &mut telling, &mirror);
    let known = hub.subscriptions()[0].clone();
    let token = known.callback.rsplit('/').next().unwrap().to_owned();
    let secret = known.secret.unwrap();
    assert!(token.len() >= 22 && secret.len() >= 22, "128 random bits at least");
    let shown = output(&["status", "--json", &mirror.directory.to_string_lossy()])
        + &output(&["status", &mirror.directory.to_string_lossy()])
        + &fs::read_to_string(mirror.path(".resourcesync/status.json")).unwrap()
        + &fs::read_to_string(mirror.path(".resourcesync/metrics")).unwrap()
        + &fs::read_to_string(mirror.cache.join("log")).unwrap()
        + &support::shell("ps -ef");
    assert!(!shown.contains(&token) && !shown.contains(&secret));
    assert!(shown.contains("resourcesync_notifications_total 1") && shown.contains("resourcesync_channels_live 1"));
    let mode =
        |path: &std::path::Path| std::os::unix::fs::PermissionsExt::mode(&fs::metadata(path).unwrap().permissions());
    assert_eq!(mode(&mirror.cache) & 0o077, 0, "nobody else may look into the cache");
}

#[test]
fn the_callback_server_stands_what_the_world_sends() {
    let hub = Hub::start(&HubOptions::default());
    let mut telling = Telling::start(seed(), 5, true);
    let url = telling.topic(&hub.url());
    let mirror = mount(&telling, &listening());
    live(&mirror);
    let callback = hub.wait_for_subscriptions(1)[0].callback.clone();
    let (host, path) = callback.strip_prefix("http://").unwrap().split_once('/').unwrap();
    let asks = |request: String| {
        let mut stream = TcpStream::connect(host).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        String::from_utf8_lossy(&answer).into_owned()
    };
    let get = |query: &str| asks(format!("GET /{path}?{query} HTTP/1.1\r\nHost: x\r\n\r\n"));
    let topic: String = url::form_urlencoded::byte_serialize(url.as_bytes()).collect();
    for (query, status) in [
        (format!("hub.mode=subscribe&hub.topic={topic}&hub.challenge=c0de&hub.lease_seconds=900"), "200"),
        (format!("hub.mode=subscribe&hub.topic={topic}"), "400"),
        (format!("hub.mode=subscribe&hub.topic={topic}&hub.challenge={}", "x".repeat(5000)), "400"),
        (format!("hub.mode=unsubscribe&hub.topic={topic}&hub.challenge=c0de"), "404"),
        ("hub.mode=subscribe&hub.topic=http://other.example/&hub.challenge=c0de".to_owned(), "404"),
        (format!("hub.topic={topic}"), "404"),
        (String::new(), "404"),
    ] {
        let answer = get(&query);
        assert_eq!(answer.split(' ').nth(1), Some(status), "{query}: {answer}");
        assert_eq!(answer.ends_with("\r\n\r\nc0de"), status == "200", "{answer}");
        assert!(!answer.contains("text/html"), "{answer}");
    }
    assert!(asks(format!("DELETE /{path} HTTP/1.1\r\nHost: x\r\n\r\n")).contains(" 405 "));
    assert!(asks("nonsense\r\n\r\n".to_owned()).contains(" 400 "));
    assert!(asks(format!("GET /{} HTTP/1.1\r\nHost: x\r\n\r\n", "a".repeat(100_000))).contains(" 4"));
    // Many that say nothing, and one that breaks off, keep nobody else from being heard.
    let _idle: Vec<TcpStream> = (0..100).map(|_| TcpStream::connect(host).unwrap()).collect();
    let mut broken = TcpStream::connect(host).unwrap();
    broken
        .write_all(format!("POST /{path} HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\nhalf").as_bytes())
        .unwrap();
    drop(broken);
    delivers(&hub, &url, &mut telling, &mirror);
}

#[test]
fn an_address_that_is_taken_is_an_error_before_anything_is_mounted() {
    let telling = Telling::start(seed(), 5, true);
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mirror = Mirror::prepare(&telling.source.url("/"), &format!("listen={}", taken.local_addr().unwrap()));
    let output = mirror.try_mount();
    assert_eq!(output.status.code(), Some(32), "{}", text(&output));
    assert!(text(&output).contains("-o listen=127.0.0.1:"), "{}", text(&output));
    assert!(mirror.names("").is_empty());
}

#[test]
fn polls_become_rarer_while_a_channel_is_live_and_find_what_it_does_not_tell() {
    let mut sends = Channel::start(None);
    let mut telling = Telling::start(seed(), 5, true);
    telling.offers(&channel(&sends.url(), CHANGES, &[]));
    let counts = |options: &str| {
        let mirror = mount(&telling, options);
        // What follows joining is over.
        std::thread::sleep(Duration::from_secs(13));
        let before = telling.source.server.count("/changelist.xml");
        std::thread::sleep(Duration::from_secs(10));
        (telling.source.server.count("/changelist.xml") - before, mirror)
    };
    let (often, _) = counts("poll=1,notify=off");
    let (rarely, mirror) = counts("poll=1");
    assert!(often >= 7 && rarely <= 3, "{often} polls without a channel, {rarely} with it");
    // Nobody says anything of this one.
    telling.happens();
    settles(&mirror, &telling.source);
    sends.cut();
    let began = Instant::now();
    let before = telling.source.server.count("/changelist.xml");
    while telling.source.server.count("/changelist.xml") == before {
        assert!(began.elapsed() < Duration::from_secs(10), "nobody looks what a channel missed that was cut");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn each_set_has_a_channel_of_its_own() {
    let hub = Hub::start(&HubOptions::default());
    let sets = support::server::Server::start();
    let mut entries = String::new();
    for name in ["one", "two"] {
        let topic = sets.url(&format!("/{name}/topic"));
        let list = sets.url(&format!("/{name}/resourcelist.xml"));
        let own = support::capability(&list, "resourcelist") + &channel(&topic, CHANGES, &[&hub.url()]);
        let first = support::entry_of(&sets.url(&format!("/{name}/a")), b"a");
        sets.file(&format!("/{name}/a"), "a");
        sets.file(&format!("/{name}/resourcelist.xml"), support::resource_list(&support::changes::at(0), &first));
        sets.file(&format!("/{name}/capabilitylist.xml"), support::document("capabilitylist", "", "", &own));
        entries += &support::capability(&sets.url(&format!("/{name}/capabilitylist.xml")), "capabilitylist");
    }
    sets.file("/.well-known/resourcesync", support::document("description", "", "", &entries));
    let mirror = Mirror::mount(&sets.url("/"), &listening());
    mirror.wait("both channels", |status| {
        let channels = status["channels"].as_array().unwrap();
        channels.len() == 2 && channels.iter().all(|one| one["state"] == "live")
    });
    assert_eq!(hub.wait_for_subscriptions(2).len(), 2);
    sets.file("/two/b", "b");
    let told = support::changes::told(&sets.url("/two/b"), "created", 5, b"b");
    hub.push(&sets.url("/two/topic"), support::telling::notification(0, 5, &told).as_bytes());
    let began = Instant::now();
    while mirror.read("two/two/b").is_err() {
        assert!(began.elapsed() < Duration::from_secs(20), "it does not come");
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(mirror.names("one/one"), ["a"]);
    let shown = run(&["status", &mirror.directory.to_string_lossy()]);
    assert!(text(&shown).contains("two, change-notification by WebSub: live"), "{}", text(&shown));
}
