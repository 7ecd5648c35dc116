//! From joining a channel to leaving it: hubs that redirect, deny, hide or go; paths that survive; what is shown of
//! them, and what is not.

use crate::support::channel::Channel;
use crate::support::hub::{Hub, HubOptions};
use crate::support::opened::Mirror;
use crate::support::scripted_hub::ScriptedHub;
use crate::support::seed;
use crate::support::server::Reply;
use crate::support::telling::{Telling, channel, free_port, listening, live, only_channel, settles};
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
fn the_topic_itself_names_its_hub_where_the_capability_list_does_not() {
    let hub = Hub::start(&HubOptions::default());
    let mut telling = Telling::start(seed(), 5, false);
    let url = telling.source.url("/topic");
    telling
        .silent_topic(&format!("<{url}#x>; rel=\"alternate\", </topic>; rel=\"self\", <{}>; rel=\"hub\"", hub.url()));
    telling.offers(&channel(&url, CHANGES, &[]));
    let mirror = mount(&telling, &listening());
    live(&mirror);
    delivers(&hub, &url, &mut telling, &mirror);
    assert_eq!(only_channel(&mirror)["hub"], hub.url());
}

#[test]
fn framework_notifications_come_by_hub_too() {
    let hub = Hub::start(&HubOptions::default());
    let mut telling = Telling::start(seed(), 5, true);
    let url = telling.silent_topic("");
    telling.offers(&channel(&url, "framework-notification", &[&hub.url()]));
    let mirror = mount(&telling, &listening());
    live(&mirror);
    hub.wait_for_subscriptions(1);
    telling.source.put("/data/unsaid.txt", b"unsaid");
    telling.source.list(telling.second + 10);
    let list = crate::support::entry(
        &telling.source.url("/resourcelist.xml"),
        "change=\"created\" capability=\"resourcelist\"",
    );
    hub.push(&url, crate::support::document("framework-notification", "", "", &list).as_bytes());
    settles(&mirror, &telling.source);
}

#[test]
fn a_hub_that_the_topic_alone_names_is_stayed_with() {
    let ill = crate::support::server::Server::start();
    ill.on("/hub", |_| Reply::status(503));
    let hub = Hub::start(&HubOptions::default());
    let mut telling = Telling::start(seed(), 5, false);
    let url = telling.source.url("/topic");
    telling.silent_topic(&format!("<{}>; rel=\"hub\"", hub.url()));
    telling.offers(&channel(&url, CHANGES, &[&ill.url("/hub")]));
    let mirror = mount(&telling, &listening());
    live(&mirror);
    std::thread::sleep(Duration::from_secs(3));
    delivers(&hub, &url, &mut telling, &mirror);
    assert_eq!(ill.count("/hub"), 1, "each is asked once");
    assert_eq!(hub.log().matches("POST /hub").count(), 1);
}

#[test]
fn a_hub_that_moved_is_followed_and_one_that_is_gone_gives_way_to_the_next() {
    for status in [301, 302, 307, 308] {
        let hub = Hub::start(&HubOptions::default());
        let mut telling = Telling::start(seed(), 5, false);
        let to = hub.url();
        telling.source.server.on("/hub", move |_| Reply::status(status).with("Location", &to));
        let url = telling.silent_topic("");
        let (gone, old) = (telling.source.url("/gone"), telling.source.url("/hub"));
        telling.offers(&channel(&url, CHANGES, &[&gone, &old]));
        let mirror = mount(&telling, &listening());
        live(&mirror);
        delivers(&hub, &url, &mut telling, &mirror);
    }
}

#[test]
fn a_hub_that_does_not_answer_for_a_minute_yields_to_a_websocket_and_comes_back() {
    let mut telling = Telling::start(seed(), 5, true);
    let url = telling.silent_topic("");
    let mut hub = Hub::start(&HubOptions::default());
    hub.stop();
    let mut sends = Channel::start(None);
    telling.offers(&(channel(&url, CHANGES, &[&hub.url()]) + &channel(&sends.url(), CHANGES, &[])));
    let mirror = mount(&telling, &listening());
    let began = Instant::now();
    while sends.clients() == 0 {
        assert!(began.elapsed() < Duration::from_secs(100), "nobody takes its place");
        std::thread::sleep(Duration::from_millis(200));
    }
    assert!(began.elapsed() > Duration::from_secs(50), "it was given its time");
    let told = telling.tells();
    assert_eq!(sends.send(&told), 1);
    settles(&mirror, &telling.source);
    hub.start_again();
    let began = Instant::now();
    while sends.clients() > 0 {
        assert!(began.elapsed() < Duration::from_secs(150), "one of them is enough");
        std::thread::sleep(Duration::from_millis(200));
    }
    live(&mirror);
    delivers(&hub, &url, &mut telling, &mirror);
}

#[test]
fn behind_a_proxy_the_path_of_the_callback_may_be_kept_or_cut() {
    let hub = Hub::start(&HubOptions::default());
    let mut telling = Telling::start(seed(), 5, true);
    let url = telling.topic(&hub.url());
    let port = free_port();
    let base = format!("http://127.0.0.1:{port}/some/hook/");
    let mirror = mount(&telling, &format!("poll=0,listen=127.0.0.1:{port},callback={base}"));
    live(&mirror);
    let known = hub.wait_for_subscriptions(1)[0].callback.clone();
    let token = known.strip_prefix(&base).expect("it lies below what callback= says");
    delivers(&hub, &url, &mut telling, &mirror);
    let asks = |path: &str| {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    };
    let topic: String = url::form_urlencoded::byte_serialize(url.as_bytes()).collect();
    let query = format!("hub.mode=subscribe&hub.topic={topic}&hub.challenge=c0de&hub.lease_seconds=900");
    for path in [format!("/some/hook/{token}"), format!("/{token}")] {
        assert!(asks(&format!("{path}?{query}")).ends_with("\r\n\r\nc0de"), "{path}");
    }
    // What the README has people look for.
    assert!(asks("/some/hook/").contains(" 404 ") && asks("/").contains("there is no subscription here"));
    assert_eq!(mirror.status()["notifications"]["callback"], base);
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
    output.unwrap();
    live(&mirror);
    delivers(&hub, &url, &mut telling, &mirror);
    let again = hub.subscriptions();
    assert_eq!((again.len(), &again[0].callback, &again[0].secret), (1, &first[0].callback, &first[0].secret));
    mirror.unmount();
    hub.wait_for_subscriptions(0);
    let output = mirror.try_mount();
    output.unwrap();
    let anew = hub.wait_for_subscriptions(1);
    assert_ne!(anew[0].callback, first[0].callback, "each subscription has a path of its own");
    assert_ne!(anew[0].secret, first[0].secret);
}

#[test]
fn a_hub_that_verifies_twice_or_denies_what_it_verified_is_not_asked_in_circles() {
    let hub = ScriptedHub::start();
    let telling = Telling::start(seed(), 5, true);
    telling.topic(&hub.url());
    let mirror = mount(&telling, &listening());
    let form = hub.form(1);
    (0..5).for_each(|_| ScriptedHub::verify(&form, "864000"));
    live(&mirror);
    std::thread::sleep(Duration::from_secs(2));
    assert_eq!(hub.forms().len(), 1, "one request is enough");
    let reason = format!("no room for {}", form["hub.callback"]);
    assert_eq!(ScriptedHub::ask(&form, "denied", &[("hub.reason", &reason)]), "200");
    // Anybody who knows the path can report that: the hub is asked.
    let renewal = hub.form(2);
    assert_eq!(
        (&renewal["hub.callback"], only_channel(&mirror)["state"].as_str()),
        (&form["hub.callback"], Some("live"))
    );
    assert_eq!(ScriptedHub::ask(&form, "denied", &[("hub.reason", &reason)]), "200");
    let status = mirror.wait("the denial", |status| status["channels"][0]["state"] == "denied");
    assert!(!status.to_string().contains(form["hub.callback"].rsplit('/').next().unwrap()), "{status:#}");
    std::thread::sleep(Duration::from_secs(2));
    assert_eq!(hub.forms().len(), 2, "a hub that denies is left alone for a while");
    // It changes its mind.
    ScriptedHub::verify(&form, "864000");
    live(&mirror);
    // After a restart, what it granted is asked for again, with the same path, and shown when it answers.
    mirror.kill();
    mirror.try_mount().unwrap();
    let again = hub.form(3);
    assert_eq!((&again["hub.callback"], &again["hub.secret"]), (&form["hub.callback"], &form["hub.secret"]));
    assert_eq!(only_channel(&mirror)["state"], "joining");
    ScriptedHub::verify(&again, "864000");
    live(&mirror);
    // What was denied before a restart is not live after it.
    assert_eq!(ScriptedHub::ask(&again, "denied", &[]), "200");
    hub.form(4);
    assert_eq!(ScriptedHub::ask(&again, "denied", &[]), "200");
    mirror.wait("the denial", |status| status["channels"][0]["state"] == "denied");
    mirror.kill();
    mirror.try_mount().unwrap();
    let anew = hub.form(5);
    assert_ne!(anew["hub.callback"], form["hub.callback"]);
}

#[test]
fn a_hub_that_is_slow_to_verify_is_believed_and_asked_again_with_the_same_path() {
    let hub = ScriptedHub::start();
    hub.server.on("/hub", |_| Reply { delay: Duration::from_secs(3), ..Reply::status(202) });
    let telling = Telling::start(seed(), 5, true);
    telling.topic(&hub.url());
    let mirror = mount(&telling, &format!("{},timeout=1", listening()));
    let (first, second) = (hub.form(1), hub.form(2));
    assert_eq!(first["hub.callback"], second["hub.callback"]);
    // Its answers come too late, and its verification comes all the same.
    ScriptedHub::verify(&first, "864000");
    live(&mirror);
}

#[test]
fn hubs_that_change_while_subscribed_are_moved_to() {
    let (old, new) = (Hub::start(&HubOptions::default()), Hub::start(&HubOptions::default()));
    let mut telling = Telling::start(seed(), 5, true);
    let url = telling.topic(&old.url());
    let mirror = mount(&telling, &listening());
    live(&mirror);
    // Another beside it changes nothing.
    telling.offers(&channel(&url, CHANGES, &[&new.url(), &old.url()]));
    mirror.refresh_accepting_deletions().unwrap();
    delivers(&old, &url, &mut telling, &mirror);
    assert_eq!((old.subscriptions().len(), new.subscriptions().len()), (1, 0));
    // Another in its place is moved to.
    let left = old.subscriptions()[0].callback.clone();
    telling.offers(&channel(&url, CHANGES, &[&new.url()]));
    mirror.refresh_accepting_deletions().unwrap();
    new.wait_for_subscriptions(1);
    old.wait_for_subscriptions(0);
    delivers(&new, &url, &mut telling, &mirror);
    assert_eq!(only_channel(&mirror)["hub"], new.url());
    // Whoever still delivers to the one that has ended is told so; of others nobody knows.
    for (callback, answer) in [(left.clone(), "410"), (format!("{left}x"), "404")] {
        let (host, path) = callback.strip_prefix("http://").unwrap().split_once('/').unwrap();
        let mut stream = TcpStream::connect(host).unwrap();
        write!(stream, "POST /{path} HTTP/1.1\r\nHost: {host}\r\nContent-Length: 0\r\n\r\n").unwrap();
        let mut said = String::new();
        stream.read_to_string(&mut said).unwrap();
        assert_eq!(said.split(' ').nth(1), Some(answer), "{said}");
    }
}

#[test]
fn a_lease_that_lapsed_may_have_missed_something_and_another_hub_takes_nothing_from_it() {
    let (hub, other) = (ScriptedHub::start(), ScriptedHub::start());
    other.server.on("/hub", |_| Reply::status(503));
    let mut telling = Telling::start(seed(), 5, true);
    let url = telling.topic(&hub.url());
    telling.offers(&channel(&url, CHANGES, &[&other.url(), &hub.url()]));
    let mirror = mount(&telling, &format!("{},content=all", listening()));
    mirror.wait("content", |status| status["cached"]["resources"] == 5);
    let form = hub.form(1);
    let asked = other.forms().len();
    ScriptedHub::verify(&form, "4");
    live(&mirror);
    // What follows joining is over.
    let renewal = hub.form(2);
    assert_eq!(other.forms().len(), asked, "who has taken us is asked first");
    mirror.wait("the lapse", |status| status["channels"][0]["state"] == "failing");
    std::thread::sleep(Duration::from_secs(12));
    telling.happens();
    ScriptedHub::verify(&renewal, "864000");
    settles(&mirror, &telling.source);
}

#[test]
fn the_name_of_a_topic_that_its_hub_accepts_is_used() {
    let hub = ScriptedHub::start();
    let telling = Telling::start(seed(), 5, true);
    let url = telling.source.url("/topic");
    telling.silent_topic(&format!("</canonical>; rel=\"self\", <{}>; rel=\"hub\"", hub.url()));
    telling.offers(&channel(&url, CHANGES, &[&hub.url()]));
    let mirror = mount(&telling, &listening());
    let first = hub.form(1);
    assert_eq!(first["hub.topic"], url);
    assert_eq!(ScriptedHub::ask(&first, "denied", &[("hub.reason", "no such topic")]), "200");
    let second = hub.form(2);
    assert_eq!(second["hub.topic"], telling.source.url("/canonical"));
    ScriptedHub::verify(&second, "4");
    live(&mirror);
    // It is renewed under that name, without asking for the other again.
    assert_eq!(hub.form(3)["hub.topic"], telling.source.url("/canonical"));
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
    assert!(often >= 5 && rarely <= 3, "{often} polls without a channel, {rarely} with it");
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
