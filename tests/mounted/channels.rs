//! From joining a channel to leaving it: hubs that redirect, deny, hide or go; paths that survive; what is shown of
//! them, and what is not.

use crate::support::channel::Channel;
use crate::support::hub::{Hub, HubOptions};
use crate::support::scripted_hub::ScriptedHub;
use crate::support::telling::{Telling, channel, listening, live, settles};
use crate::support::{Mirror, output, run, seed, text};
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

const CHANGES: &str = "change-notification";

fn mount(telling: &Telling, options: &str) -> Mirror {
    Mirror::mount(&telling.source.url("/"), options)
}

/// What is pushed arrives.
fn delivers(hub: &Hub, topic: &str, telling: &mut Telling, mirror: &Mirror) {
    // It keeps a subscription after it has verified it.
    hub.wait_for_subscriptions(1);
    let told = telling.tells();
    hub.push(topic, told.as_bytes());
    settles(mirror, &telling.source);
}

#[test]
fn a_hub_that_denies_is_shown_with_its_reason_and_a_websocket_takes_its_place() {
    let mut telling = Telling::start(seed(), 5, true);
    let url = telling.silent_topic("");
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
fn a_hub_that_does_not_sign_is_shown_as_such_and_polls_go_on() {
    let hub = ScriptedHub::start();
    let telling = Telling::start(seed(), 5, true);
    telling.topic(&hub.url());
    let mirror = mount(&telling, &listening());
    let form = hub.form(1);
    ScriptedHub::verify(&form, "864000");
    live(&mirror);
    let (host, path) = form["hub.callback"].strip_prefix("http://").unwrap().split_once('/').unwrap();
    for _ in 0..3 {
        let mut stream = TcpStream::connect(host).unwrap();
        write!(stream, "POST /{path} HTTP/1.1\r\nHost: {host}\r\nContent-Length: 2\r\n\r\nhi").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.contains(" 403 "), "{answer}");
    }
    let status = mirror.status();
    assert_eq!(status["channels"][0]["state"], "failing");
    assert!(status["channels"][0]["reason"].as_str().unwrap().contains("does not sign"), "{status:#}");
    assert_eq!(status["notifications"]["refused"], 3);
    let metrics = fs::read_to_string(mirror.path(".resourcesync/metrics")).unwrap();
    assert!(metrics.contains("resourcesync_notifications_refused_total 3"), "{metrics}");
}

#[test]
fn nobody_is_shown_a_path_or_a_secret() {
    let hub = Hub::start(&HubOptions::default());
    let mut telling = Telling::start(seed(), 5, true);
    let url = telling.topic(&hub.url());
    let mirror = mount(&telling, &listening());
    live(&mirror);
    delivers(&hub, &url, &mut telling, &mirror);
    mirror.wait("the notification", |status| status["channels"][0]["received"] == 1);
    let known = hub.subscriptions()[0].clone();
    let token = known.callback.rsplit('/').next().unwrap().to_owned();
    let secret = known.secret.unwrap();
    assert!(token.len() >= 22 && secret.len() >= 22, "128 random bits at least");
    let shown = output(&["status", "--json", &mirror.directory.to_string_lossy()])
        + &output(&["status", &mirror.directory.to_string_lossy()])
        + &fs::read_to_string(mirror.path(".resourcesync/status.json")).unwrap()
        + &fs::read_to_string(mirror.path(".resourcesync/metrics")).unwrap()
        + &fs::read_to_string(mirror.cache.join("log")).unwrap()
        + &crate::support::shell("ps -ef");
    assert!(!shown.contains(&token) && !shown.contains(&secret));
    assert!(shown.contains("resourcesync_notifications_total 1") && shown.contains("resourcesync_channels_live 1"));
    let mode =
        |path: &std::path::Path| std::os::unix::fs::PermissionsExt::mode(&fs::metadata(path).unwrap().permissions());
    assert_eq!(mode(&mirror.cache) & 0o077, 0, "nobody else may look into the cache");
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
fn each_set_has_a_channel_of_its_own() {
    let hub = Hub::start(&HubOptions::default());
    let sets = crate::support::server::Server::start();
    let mut entries = String::new();
    for name in ["one", "two"] {
        let topic = sets.url(&format!("/{name}/topic"));
        let list = sets.url(&format!("/{name}/resourcelist.xml"));
        let own = crate::support::capability(&list, "resourcelist") + &channel(&topic, CHANGES, &[&hub.url()]);
        let first = crate::support::entry_of(&sets.url(&format!("/{name}/a")), b"a");
        sets.file(&format!("/{name}/a"), "a");
        sets.file(
            &format!("/{name}/resourcelist.xml"),
            crate::support::resource_list(&crate::support::changes::at(0), &first),
        );
        sets.file(&format!("/{name}/capabilitylist.xml"), crate::support::document("capabilitylist", "", "", &own));
        entries += &crate::support::capability(&sets.url(&format!("/{name}/capabilitylist.xml")), "capabilitylist");
    }
    sets.file("/.well-known/resourcesync", crate::support::document("description", "", "", &entries));
    let mirror = Mirror::mount(&sets.url("/"), &listening());
    mirror.wait("both channels", |status| {
        let channels = status["channels"].as_array().unwrap();
        channels.len() == 2 && channels.iter().all(|one| one["state"] == "live")
    });
    assert_eq!(hub.wait_for_subscriptions(2).len(), 2);
    sets.file("/two/b", "b");
    let told = crate::support::changes::told(&sets.url("/two/b"), "created", 5, b"b");
    hub.push(&sets.url("/two/topic"), crate::support::telling::notification(0, 5, &told).as_bytes());
    let began = Instant::now();
    while mirror.read("two/two/b").is_err() {
        assert!(began.elapsed() < Duration::from_secs(20), "it does not come");
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(mirror.names("one/one"), ["a"]);
    let shown = run(&["status", &mirror.directory.to_string_lossy()]);
    assert!(text(&shown).contains("two, change-notification by WebSub: live"), "{}", text(&shown));
}
