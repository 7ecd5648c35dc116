//! What lists and notifications tell of the same changes, one before the other: nothing is taken back, nothing counts
//! twice, and what a list tells late is seen.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::support::catalog::versions_of;
use crate::support::changes::{agrees, at};
use crate::support::opened::Mirror;
use crate::support::server::Reply;
use crate::support::telling::{Telling, channel, live, notification, settles};
use crate::support::websocket::WebSocketServer;
use crate::support::{at_once, document, entry, facts_of, resource_list, sha256};
use resourcesync::catalog::Reader;

/// A channel, a Source with six resources, and a mount that heard of nothing yet.
fn start(lists: bool) -> (WebSocketServer, Telling, Mirror) {
    let sends = WebSocketServer::start();
    let telling = Telling::start(1, 6, lists);
    telling.offers(&channel(&sends.url(), "change-notification", &[]));
    let mirror = Mirror::mount(&telling.source.url("/"), "poll=0,content=all");
    sends.wait_for_client();
    live(&mirror);
    dealt_with(&mirror, 0);
    (sends, telling, mirror)
}

/// Waits until so many deliveries have come, and all of them are dealt with.
fn dealt_with(mirror: &Mirror, count: usize) {
    mirror.wait("deliveries", |status| status["channels"][0]["received"].as_u64() >= Some(count as u64));
    mirror.deals_with_deliveries();
}

fn message(entries: &str) -> String {
    document("x", "", "", entries).replace("<rs:md capability=\"x\" />", "")
}

#[test]
fn an_older_resource_list_takes_nothing_back_that_was_notified() {
    for validators in [true, false] {
        let (sends, mut telling, mirror) = start(false);
        let source = &mut telling.source;
        let entries: String = source.now.iter().map(|(path, body)| entry(&source.url(path), &facts_of(body))).collect();
        let told = source.does("updated", "/data/0.txt", 10, "told at ten")
            + &source.does("created", "/data/new.txt", 10, "created at ten")
            + &source.does("deleted", "/data/1.txt", 10, "");
        sends.send(&notification(0, 10, &told));
        settles(&mirror, &telling.source);
        // Of before that, whether it is another edition, or the same from a server that does not say so.
        let older = resource_list(&at(if validators { 5 } else { 0 }), &entries);
        match validators {
            true => telling.source.server.file("/resourcelist.xml", older),
            false => telling.source.server.on("/resourcelist.xml", move |_| Reply::ok(older.as_str())),
        }
        mirror.refreshed();
        agrees(&mirror, &telling.source);
    }
}

#[test]
fn what_a_list_has_of_the_second_of_its_creation_is_no_second_version() {
    let (sends, mut telling, mirror) = start(false);
    let created = telling.source.does("created", "/data/new.txt", 10, "one");
    telling.source.list(10);
    mirror.refreshed();
    let updated = telling.source.does("updated", "/data/new.txt", 19, "two");
    for (number, (until, told)) in [(19, updated), (20, created)].into_iter().enumerate() {
        sends.send(&notification(10, until, &told));
        dealt_with(&mirror, number + 1);
    }
    agrees(&mirror, &telling.source);
    let versions = versions_of(&mirror.cache, "new.txt");
    assert_eq!(versions, 2);
}

#[test]
fn what_a_list_has_of_the_second_of_two_notified_changes_is_the_version_of_the_later_one() {
    let (sends, mut telling, mirror) = start(false);
    let created = telling.source.does("created", "/data/new.txt", 10, "one");
    let updated = telling.source.does("updated", "/data/new.txt", 10, "two");
    telling.source.list(10);
    mirror.refreshed();
    for (number, (from, told)) in [(0, created), (10, updated)].into_iter().enumerate() {
        sends.send(&notification(from, 10, &told));
        dealt_with(&mirror, number + 1);
    }
    settles(&mirror, &telling.source);
    mirror.refreshed();
    agrees(&mirror, &telling.source);
    let versions = versions_of(&mirror.cache, "new.txt");
    assert_eq!(versions, 2);
}

#[test]
fn what_a_list_had_keeps_its_content_and_its_name_when_changes_of_its_second_are_told_late() {
    let (sends, mut telling, mirror) = start(false);
    let created = telling.source.does("created", "/data/new.txt", 10, "one");
    let updated = telling.source.does("updated", "/data/new.txt", 10, "two");
    telling.source.list(10);
    mirror.refreshed();
    assert_eq!(mirror.read("data/new.txt").unwrap(), b"two");
    let last = telling.source.does("updated", "/data/new.txt", 19, "three");
    for (number, (until, told)) in [(19, last), (20, created), (20, updated)].into_iter().enumerate() {
        sends.send(&notification(10, until, &told));
        dealt_with(&mirror, number + 1);
    }
    settles(&mirror, &telling.source);
    let name = format!("{}.txt", at(10).replace(['-', ':'], ""));
    assert_eq!(mirror.read(&format!(".versions/data/new.txt/{name}")).unwrap(), b"two");
    let versions = versions_of(&mirror.cache, "new.txt");
    assert_eq!(versions, 3);
}

#[test]
fn of_changes_within_one_second_the_list_knows_the_order() {
    // What is delivered, after which the list has been read or not: the first change, the second, in which order.
    let cases: [(bool, &[usize]); 5] =
        [(true, &[0]), (true, &[0, 1]), (false, &[1, 0]), (false, &[0, 1]), (true, &[1, 0])];
    let kinds = [["updated", "updated"], ["deleted", "created"]];
    at_once(
        kinds.into_iter().flat_map(|kinds| cases.map(|(read, order)| (kinds, read, order))),
        |(kinds, read, order)| {
            let (sends, mut telling, mirror) = start(true);
            let changes = [0, 1].map(|n| telling.source.does(kinds[n], "/data/0.txt", 10, ["one", "two"][n]));
            telling.source.changes(&changes.concat());
            if read {
                mirror.refreshed();
            }
            for n in order {
                sends.send(&notification([0, 10][*n], 10, &changes[*n]));
                std::thread::sleep(Duration::from_millis(300));
            }
            dealt_with(&mirror, 1);
            settles(&mirror, &telling.source);
            mirror.refreshed();
            agrees(&mirror, &telling.source);
            let versions = versions_of(&mirror.cache, "0.txt");
            assert_eq!(versions, if kinds[0] == "updated" { 3 } else { 2 }, "{kinds:?} read={read} {order:?}");
        },
    );
}

#[test]
fn versions_of_one_second_are_in_the_order_of_the_list_whatever_order_they_came_in() {
    // Which of three are delivered, and in which order; what comes next is known before the list is read, or is not.
    let orders: [&[usize]; 6] = [&[0, 2, 1], &[1, 0, 2], &[1, 2, 0], &[2, 0, 1], &[2, 1, 0], &[2, 1]];
    at_once(orders.into_iter().flat_map(|order| [(order, true), (order, false)]), |(order, more)| {
        let (sends, mut telling, mirror) = start(true);
        let mut bodies = vec!["one", "two", "three"];
        let mut changes: Vec<String> =
            bodies.iter().map(|body| telling.source.does("updated", "/data/0.txt", 10, body)).collect();
        if more {
            bodies.push("four");
            changes.push(telling.source.does("updated", "/data/0.txt", 20, "four"));
        }
        let told: Vec<usize> = order.iter().copied().chain(more.then_some(3)).collect();
        for n in &told {
            telling.source.server.file("/data/0.txt", bodies[*n]);
            sends.send(&notification(if *n == 3 { 10 } else { 9 }, if *n == 3 { 20 } else { 10 }, &changes[*n]));
            std::thread::sleep(Duration::from_millis(200));
        }
        dealt_with(&mirror, told.len());
        let versions = || mirror.log("data/0.txt");
        let names = |versions: &[serde_json::Value]| -> BTreeMap<String, String> {
            let named = versions.iter().filter(|one| one["name"].is_string() && one["cached"] == true);
            named.map(|one| (one["hash"].to_string(), one["name"].to_string())).collect()
        };
        let named = names(&versions());
        telling.source.server.file("/data/0.txt", *bodies.last().unwrap());
        if *order == [1, 0, 2] {
            // An edition that is older than what was notified.
            telling.source.changes(&changes[..2].concat());
            mirror.refreshed();
            agrees(&mirror, &telling.source);
        }
        let expected: Vec<String> = bodies
            .iter()
            .rev()
            .chain(&["first 0"])
            .map(|body| format!("sha-256:{}", sha256(body.as_bytes())))
            .collect();
        for edition in ["", "<!-- another edition -->"] {
            telling.source.changes(&(changes.concat() + edition));
            // Whatever has it read: what is current now is wanted.
            sends.send("");
            let began = Instant::now();
            while versions()[0]["cached"] != true || versions().len() != expected.len() {
                assert!(began.elapsed() < Duration::from_secs(30), "{order:?} more={more}: {:#?}", versions());
                std::thread::sleep(Duration::from_millis(50));
            }
            mirror.refreshed();
            agrees(&mirror, &telling.source);
            let now = versions();
            let found: Vec<&str> = now.iter().filter_map(|one| one["hash"].as_str()).collect();
            assert_eq!(found, expected, "{order:?} more={more} {edition}: {now:#?}");
            let after = names(&now);
            assert!(named.iter().all(|(hash, name)| after.get(hash) == Some(name)), "{named:#?}, then {after:#?}");
        }
        // A version that was replaced is not current: its content is not fetched ahead for ever.
        mirror.wait("all content", |_| mirror.ask(Reader::count_missing).0 == 0);
    });
}

#[test]
fn of_one_second_nothing_is_told_twice_by_an_older_edition_or_the_rest_of_a_list() {
    // What the list says at first, which of the changes are then notified, and what the list says after that.
    let cases: [(usize, &[usize], &[usize]); 3] =
        [(0, &[1, 0, 2, 3], &[3, 4]), (1, &[1, 3], &[2, 4]), (1, &[2, 1, 3], &[3, 4])];
    for (read, order, editions) in cases {
        let (sends, mut telling, mirror) = start(true);
        let bodies = ["one", "two", "three", "four"];
        let changes: Vec<String> =
            bodies.iter().map(|body| telling.source.does("updated", "/data/0.txt", 10, body)).collect();
        if read > 0 {
            telling.source.server.file("/data/0.txt", bodies[0]);
            telling.source.changes(&changes[..read].concat());
            mirror.refreshed();
        }
        for n in order {
            telling.source.server.file("/data/0.txt", bodies[*n]);
            sends.send(&notification(9, 10, &changes[*n]));
            std::thread::sleep(Duration::from_millis(200));
        }
        dealt_with(&mirror, order.len());
        telling.source.server.file("/data/0.txt", bodies[3]);
        let versions = || versions_of(&mirror.cache, "0.txt");
        for edition in editions {
            telling.source.changes(&changes[..*edition].concat());
            mirror.refreshed();
            agrees(&mirror, &telling.source);
        }
        assert_eq!(versions(), 5, "{read} {order:?} {editions:?}");
        // A second look, at what differs in nothing that counts, changes nothing.
        telling.source.changes(&(changes.concat() + "<!-- another edition -->"));
        mirror.refreshed();
        agrees(&mirror, &telling.source);
        assert_eq!(versions(), 5, "{read} {order:?} {editions:?}");
    }
}

#[test]
fn a_list_that_is_written_after_its_ping_is_looked_at_again() {
    let (sends, mut telling, mirror) = start(true);
    let first = telling.source.does("updated", "/data/0.txt", 10, "told already");
    telling.source.changes(&first);
    let second = telling.source.does("updated", "/data/1.txt", 11, "pinged of");
    sends.send("");
    std::thread::sleep(Duration::from_millis(1600));
    telling.source.changes(&(first + &second));
    settles(&mirror, &telling.source);
}

#[test]
fn a_sync_that_was_for_something_else_is_no_answer_to_a_framework_notification() {
    let sends = WebSocketServer::start();
    let telling = Telling::start(1, 6, true);
    telling.offers(&channel(&sends.url(), "framework-notification", &[]));
    let mirror = Mirror::mount(&telling.source.url("/"), "poll=0");
    sends.wait_for_client();
    live(&mirror);
    let named = entry(&telling.source.url("/capabilitylist.xml"), "change=\"updated\" capability=\"capabilitylist\"");
    let before = telling.source.server.count("/capabilitylist.xml");
    sends.send(&message(&named));
    mirror.refreshed();
    let began = Instant::now();
    while telling.source.server.count("/capabilitylist.xml") == before {
        assert!(began.elapsed() < Duration::from_secs(20), "the Capability List is not read");
        std::thread::sleep(Duration::from_millis(20));
    }
    dealt_with(&mirror, 1);
}

#[test]
fn a_message_that_comes_twice_counts_once() {
    let (sends, mut telling, mirror) = start(false);
    let one = telling.source.does("updated", "/data/0.txt", 10, "one");
    let two = telling.source.does("updated", "/data/0.txt", 10, "two");
    for told in [&one, &two, &one, &one] {
        sends.send(&message(told));
    }
    mirror.wait("all four", |status| status["channels"][0]["repeated"] == 2);
    dealt_with(&mirror, 2);
    settles(&mirror, &telling.source);
    std::thread::sleep(Duration::from_millis(500));
    agrees(&mirror, &telling.source);
}

#[test]
fn what_joins_does_not_wait_for_a_list_that_hangs() {
    let (sends, mut telling, mirror) = start(true);
    let first = telling.source.does("updated", "/data/0.txt", 10, "first");
    sends.send(&notification(0, 10, &first));
    settles(&mirror, &telling.source);
    telling.source.server.on("/changelist.xml", |_| Reply { delay: Duration::from_secs(60), ..Reply::status(200) });
    sends.send("");
    let asked = telling.source.server.count("/changelist.xml");
    let began = Instant::now();
    while telling.source.server.count("/changelist.xml") == asked {
        assert!(began.elapsed() < Duration::from_secs(20), "the list is not asked for");
        std::thread::sleep(Duration::from_millis(10));
    }
    let second = telling.source.does("updated", "/data/1.txt", 20, "second");
    sends.send(&notification(10, 20, &second));
    let began = Instant::now();
    settles(&mirror, &telling.source);
    assert!(began.elapsed() < Duration::from_secs(15), "it waited for the list: {:?}", began.elapsed());
}
