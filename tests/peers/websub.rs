//! Mounts that hear of changes by WebSub, from a third party's hub.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use crate::support::catalog::deliveries_left;
use crate::support::changes::{Source, agrees};
use crate::support::hub::{Hub, HubOptions};
use crate::support::opened::{Mirror, said};
use crate::support::telling::{Telling, free_port, has_all_versions, live, notification, only_channel, settles};
use crate::support::{scramble, seed};
use hmac::{Hmac, KeyInit as _, Mac as _};

/// A mount that is told of changes, and polls nothing.
fn opened(source: &Source, more: &str) -> Mirror {
    let mirror = Mirror::mount(&source.url("/"), &format!("poll=0,listen=127.0.0.1:{}{more}", free_port()));
    live(&mirror);
    mirror
}

/// As [`mounted`], when the hub has the subscription: it keeps it after it has verified it.
fn subscribed(source: &Source, hub: &Hub) -> Mirror {
    let mirror = opened(source, "");
    hub.wait_for_subscriptions(1);
    mirror
}

/// Waits until so many notifications are here, and nothing is left to be done with them. One that a hub sends again because our
/// answer was slow is no other; pings are all alike.
fn heard(mirror: &Mirror, count: u64) {
    mirror.wait("all notifications", |status| {
        let channel = &status["channels"][0];
        let alike = if channel["pings"] == 0 { 0 } else { channel["repeated"].as_u64().unwrap() };
        channel["received"].as_u64().unwrap() + alike >= count
    });
    mirror.deals_with_deliveries();
}

/// Sends a request to a URL as somebody else than the hub might.
fn posts(url: &str, headers: &str, body: &[u8]) -> String {
    let rest = url.strip_prefix("http://").unwrap();
    let (host, path) = rest.split_once('/').unwrap();
    let mut stream = TcpStream::connect(host).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let head = format!("POST /{path} HTTP/1.1\r\nHost: {host}\r\nContent-Length: {}\r\n{headers}\r\n", body.len());
    stream.write_all(head.as_bytes()).unwrap();
    // Whoever refuses may not read to the end.
    let _ = stream.write_all(body);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).split(' ').nth(1).unwrap_or_default().to_owned()
}

#[test]
fn a_thousand_changes_delivered_whole_are_a_version_each_in_their_order() {
    let hub = Hub::start(&HubOptions::default());
    // There is no Change List: nothing but what is delivered can tell.
    let mut telling = Telling::start(seed(), 60, false);
    let topic = telling.topic(&hub.url());
    let mirror = subscribed(&telling.source, &hub);
    for _ in 0..1000 {
        let told = telling.tells();
        hub.push(&topic, told.as_bytes());
    }
    heard(&mirror, 1000);
    agrees(&mirror, &telling.source);
    has_all_versions(&mirror, &telling);
    let channel = only_channel(&mirror);
    assert_eq!(
        (&channel["received"], &channel["gaps"], &channel["pings"]),
        (&1000.into(), &0.into(), &0.into()),
        "{channel}"
    );
    assert_eq!(mirror.status()["state"], "complete");
}

#[test]
fn a_thousand_thin_pings_bring_the_tree_in_step() {
    let hub = Hub::start(&HubOptions::default());
    let mut telling = Telling::start(seed(), 60, true);
    let topic = telling.topic(&hub.url());
    let mirror = subscribed(&telling.source, &hub);
    for _ in 0..1000 {
        telling.happens();
        hub.ping(&topic);
    }
    heard(&mirror, 1000);
    settles(&mirror, &telling.source);
    agrees(&mirror, &telling.source);
    has_all_versions(&mirror, &telling);
    let asked = telling.source.server.count("/changelist.xml");
    assert!(asked < 500, "many pings are one look: {asked}");
}

#[test]
fn deliveries_shuffled_doubled_dropped_and_forged_lead_to_what_the_source_has() {
    let hub = Hub::start(&HubOptions { workers: 4, ..HubOptions::default() });
    let mut random = seed();
    let mut telling = Telling::start(random, 40, true);
    let topic = telling.topic(&hub.url());
    let mirror = subscribed(&telling.source, &hub);
    // Somebody has found out the path, and not the secret.
    let callback = hub.wait_for_subscriptions(1)[0].callback.clone();
    let mut next = |below: u64| {
        random = scramble(random);
        random % below
    };
    let mut sent = Vec::new();
    let mut forged = 0;
    for round in 0..60 {
        let mut batch: Vec<String> = (0..1 + next(6)).map(|_| telling.tells()).collect();
        for place in (1..batch.len()).rev() {
            batch.swap(place, usize::try_from(next(place as u64 + 1)).unwrap());
        }
        for told in batch {
            match next(10) {
                0 => continue,
                1 => (0..3).for_each(|_| hub.push(&topic, told.as_bytes())),
                2 if !sent.is_empty() => {
                    let before: &String = &sent[usize::try_from(next(sent.len() as u64)).unwrap()];
                    hub.push(&topic, before.as_bytes());
                    hub.push(&topic, told.as_bytes());
                }
                _ => hub.push(&topic, told.as_bytes()),
            }
            sent.push(told);
        }
        let evil = telling.source.url(&format!("/evil/{round}"));
        let entry = crate::support::changes::told(&evil, "created", telling.second, b"evil");
        let deleted =
            crate::support::changes::told(&telling.source.url("/data/1.txt"), "deleted", telling.second + 50, b"");
        let body = notification(telling.second, telling.second, &(entry + &deleted));
        let signature = ["", "X-Hub-Signature: sha256=00\r\n", "X-Hub-Signature: none=\r\n"][round % 3];
        assert_eq!(posts(&callback, signature, body.as_bytes()), "403");
        forged += 1;
        assert!(!mirror.exists("evil"));
        std::thread::sleep(Duration::from_millis(next(60)));
    }
    settles(&mirror, &telling.source);
    heard(&mirror, 0);
    has_all_versions(&mirror, &telling);
    assert!(mirror.ever().iter().all(|path| !path.contains("evil")), "no name was ever made");
    assert_eq!(only_channel(&mirror)["refused"]["forged"], forged);
}

#[test]
fn what_is_too_large_or_of_another_topic_changes_nothing_and_is_counted() {
    let hub = Hub::start(&HubOptions::default());
    let mut telling = Telling::start(seed(), 5, false);
    let topic = telling.topic(&hub.url());
    let mirror = subscribed(&telling.source, &hub);
    let callback = hub.wait_for_subscriptions(1)[0].callback.clone();
    let told = telling.tells();
    assert_eq!(posts(&callback, "", &vec![b'x'; (16 << 20) + 1]), "413");
    let foreign = "Link: <http://other.example/topic>; rel=\"self\"\r\n";
    assert_eq!(posts(&callback, foreign, told.as_bytes()), "403");
    assert_eq!(posts(&format!("{callback}x"), "", told.as_bytes()), "404", "another path");
    let base = callback.rsplit_once('/').unwrap().0;
    assert_eq!(posts(&format!("{base}/"), "", told.as_bytes()), "404", "no path");
    let refused = only_channel(&mirror)["refused"].clone();
    assert_eq!(refused, serde_json::json!({"forged": 0, "foreign": 1, "too_large": 1}));
    assert_eq!(only_channel(&mirror)["received"], 0);
    hub.push(&topic, told.as_bytes());
    heard(&mirror, 1);
    agrees(&mirror, &telling.source);
}

#[test]
fn a_signed_delivery_counts_however_its_topic_is_spelled() {
    let hub = Hub::start(&HubOptions::default());
    let mut telling = Telling::start(seed(), 5, false);
    telling.topic(&hub.url());
    let mirror = subscribed(&telling.source, &hub);
    let known = hub.wait_for_subscriptions(1).remove(0);
    let told = telling.tells();
    let mut mac = Hmac::<sha2::Sha256>::new_from_slice(known.secret.unwrap().as_bytes()).unwrap();
    mac.update(told.as_bytes());
    let signature = crate::support::hex(&mac.finalize().into_bytes());
    let headers =
        format!("Link: <https://proxy.example/topic>; rel=\"self\"\r\nX-Hub-Signature: sha256={signature}\r\n");
    assert_eq!(posts(&known.callback, &headers, told.as_bytes()), "202");
    heard(&mirror, 1);
    agrees(&mirror, &telling.source);
}

#[test]
fn a_channel_that_refuses_deliveries_is_not_live_and_the_lists_are_read() {
    let hub = Hub::start(&HubOptions::default());
    let mut telling = Telling::start(seed(), 5, true);
    let topic = telling.topic(&hub.url());
    let mirror = subscribed(&telling.source, &hub);
    let callback = hub.wait_for_subscriptions(1)[0].callback.clone();
    // What was too large told of this.
    telling.happens();
    assert_eq!(posts(&callback, "", &vec![b'x'; (16 << 20) + 1]), "413");
    let channel = only_channel(&mirror);
    assert_eq!(channel["state"], "failing", "{channel:#}");
    assert!(channel["reason"].as_str().unwrap().contains("limit_delivery"), "{channel:#}");
    settles(&mirror, &telling.source);
    // One that is taken makes it live again.
    let told = telling.tells();
    hub.push(&topic, told.as_bytes());
    heard(&mirror, 1);
    live(&mirror);
    // Unsigned ones of another topic, as one that knows the path may send; three in a row.
    let foreign = "Link: <http://other.example/topic>; rel=\"self\"\r\n";
    (0..3).for_each(|_| assert_eq!(posts(&callback, foreign, b"x"), "403"));
    let channel = only_channel(&mirror);
    assert_eq!(channel["state"], "failing", "{channel:#}");
    assert!(channel["reason"].as_str().unwrap().contains("another topic"), "{channel:#}");
}

#[test]
fn what_was_answered_well_is_there_after_a_kill() {
    let hub = Hub::start(&HubOptions::default());
    // No list tells of it: what is not on the disk by then is lost.
    let mut telling = Telling::start(seed(), 5, false);
    telling.topic(&hub.url());
    let mirror = subscribed(&telling.source, &hub);
    for _ in 0..5 {
        let known = hub.subscriptions()[0].clone();
        let told = telling.tells();
        let mut mac = Hmac::<sha2::Sha512>::new_from_slice(known.secret.unwrap().as_bytes()).unwrap();
        mac.update(told.as_bytes());
        let signature = crate::support::hex(&mac.finalize().into_bytes());
        let header = format!("X-Hub-Signature: sha512={signature}\r\n");
        assert_eq!(posts(&known.callback, &header, told.as_bytes()), "202");
        mirror.kill();
        let output = mirror.try_mount();
        assert!(output.is_ok(), "{}", said(&output));
        settles(&mirror, &telling.source);
    }
    has_all_versions(&mirror, &telling);
}

#[test]
fn every_algorithm_of_signatures_is_understood() {
    for algorithm in ["sha1", "sha256", "sha384", "sha512"] {
        let hub = Hub::start(&HubOptions { algorithm, ..HubOptions::default() });
        let mut telling = Telling::start(seed(), 5, false);
        let topic = telling.topic(&hub.url());
        let mirror = subscribed(&telling.source, &hub);
        let told = telling.tells();
        hub.push(&topic, told.as_bytes());
        heard(&mirror, 1);
        agrees(&mirror, &telling.source);
        assert_eq!(only_channel(&mirror)["refused"]["forged"], 0, "{algorithm}");
    }
}

#[test]
fn a_lease_of_seconds_is_renewed_and_nothing_is_missed_for_a_minute() {
    let hub = Hub::start(&HubOptions::with_lease(20));
    let mut telling = Telling::start(seed(), 20, false);
    let topic = telling.topic(&hub.url());
    let mirror = subscribed(&telling.source, &hub);
    let began = Instant::now();
    let mut count = 0;
    while began.elapsed() < Duration::from_secs(60) {
        let told = telling.tells();
        hub.push(&topic, told.as_bytes());
        count += 1;
        std::thread::sleep(Duration::from_millis(400));
    }
    heard(&mirror, count);
    agrees(&mirror, &telling.source);
    has_all_versions(&mirror, &telling);
    let channel = only_channel(&mirror);
    assert_eq!((&channel["received"], &channel["gaps"]), (&count.into(), &0.into()), "{channel}");
    assert_eq!(hub.subscriptions().len(), 1, "one path for all of them");
}

#[test]
fn a_hub_that_was_away_a_source_that_was_and_a_mount_that_was_killed_are_caught_up() {
    let mut hub = Hub::start(&HubOptions::with_lease(10));
    let mut telling = Telling::start(seed(), 20, true);
    let topic = telling.topic(&hub.url());
    let mirror = opened(&telling.source, ",timeout=3");
    hub.wait_for_subscriptions(1);
    let told = telling.tells();
    hub.push(&topic, told.as_bytes());
    heard(&mirror, 1);
    agrees(&mirror, &telling.source);

    // The hub: what happens meanwhile nobody delivers.
    hub.stop();
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(15) {
        telling.happens();
        std::thread::sleep(Duration::from_millis(200));
    }
    hub.start_again();
    settles(&mirror, &telling.source);
    has_all_versions(&mirror, &telling);
    live(&mirror);

    // The subscriber.
    let path = hub.subscriptions()[0].callback.clone();
    mirror.kill();
    for _ in 0..5 {
        let told = telling.tells();
        hub.push(&topic, told.as_bytes());
    }
    let output = mirror.try_mount();
    assert!(output.is_ok(), "{}", said(&output));
    settles(&mirror, &telling.source);
    live(&mirror);
    let told = telling.tells();
    hub.push(&topic, told.as_bytes());
    settles(&mirror, &telling.source);
    has_all_versions(&mirror, &telling);
    assert!(hub.subscriptions().iter().all(|one| one.callback == path), "the path is the same");

    // The Source: what is delivered waits until it says what is missing before it.
    telling.goes_away();
    // In a second of its own: within the last one, nobody could tell that it is missing.
    telling.second += 1;
    telling.happens();
    let told = telling.tells();
    hub.push(&topic, told.as_bytes());
    let waits = || mirror.ask(deliveries_left);
    let until = |what: &str, done: &dyn Fn() -> bool| {
        let began = Instant::now();
        while !done() {
            assert!(began.elapsed() < Duration::from_secs(30), "{what}");
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    until("it is not delivered", &|| waits() == 1);
    let asked = telling.source.server.count("/changelist.xml");
    until("nobody asks the Source", &|| telling.source.server.count("/changelist.xml") > asked);
    assert_eq!(waits(), 1, "it is kept");
    telling.comes_back();
    settles(&mirror, &telling.source);
    has_all_versions(&mirror, &telling);
}
