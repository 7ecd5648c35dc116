//! Random histories, told on a channel in the ways that channels fail: lost, late, twice, cut, before the list is
//! written, without times, without intervals, to a mount that is killed. In the end the mount is what the Source is, and
//! each version was counted once.

use std::time::Duration;

use crate::support::channel::Channel;
use crate::support::telling::{Manner, Telling, channel, has_all_versions, live, notification, settles};
use crate::support::{Mirror, document, scramble, seed, text};

/// Plays one history.
fn play(seed: u64, manner: Manner, lists: bool, late: bool) {
    println!("SEED={seed} manner={manner:?} lists={lists} late={late}");
    let mut random = seed;
    let mut next = |below: u64| {
        random = scramble(random);
        random % below
    };
    let mut sends = Channel::start(None);
    // A list that leaves out more than half of what there is would not be believed at once.
    let mut telling = Telling::start(seed, if lists { 15 } else { 80 }, lists);
    telling.manner = manner;
    telling.late = late;
    telling.offers(&channel(&sends.url(), "change-notification", &[]));
    let mirror = Mirror::mount(&telling.source.url("/"), "poll=0,content=all");
    live(&mirror);
    let mut sent: Vec<String> = Vec::new();
    let mut held: Vec<String> = Vec::new();
    for _ in 0..150 {
        match next(100) {
            0..60 => held.push(telling.tells()),
            // Lost on the way.
            60..68 => drop(telling.happens()),
            68..72 if !sent.is_empty() => held.push(sent[usize::try_from(next(sent.len() as u64)).unwrap()].clone()),
            72..76 => {
                telling.happens();
                held.push(String::new());
            }
            76..80 => {
                let (entry, ..) = telling.happens();
                held.push(document("x", "", "", &entry).replace("<rs:md capability=\"x\" />", ""));
            }
            // Several in one.
            80..84 => {
                let (mut entries, from, _) = telling.happens();
                let (more, _, until) = telling.happens();
                entries += &more;
                held.push(notification(from, until, &entries));
            }
            84..90 => telling.publish(),
            90..93 => sends.cut(),
            93 => {
                mirror.kill();
                let output = mirror.try_mount();
                assert!(output.status.success(), "{}", text(&output));
            }
            94 => drop(mirror.refreshed()),
            _ => std::thread::sleep(Duration::from_millis(next(400))),
        }
        // What is held is sent in any order, sooner or later.
        while held.len() as u64 > next(4) {
            let told = held.remove(usize::try_from(next(held.len() as u64)).unwrap());
            sends.send(&told);
            sent.push(told);
        }
    }
    // Of what is told without a time, and of one moment in another order, only a list of a later moment knows how it ended.
    telling.second += u64::from(manner == Manner::Hashed && !lists);
    telling.publish();
    sends.cut();
    settles(&mirror, &telling.source);
    if lists && manner == Manner::Full {
        has_all_versions(&mirror, &telling);
    }
    // Nothing comes later that undoes it.
    std::thread::sleep(Duration::from_secs(1));
    settles(&mirror, &telling.source);
    mirror.refreshed();
    crate::support::changes::agrees(&mirror, &telling.source);
}

#[test]
fn told_in_full() {
    play(seed(), Manner::Full, true, false);
}

#[test]
fn told_in_full_before_the_list_is_written() {
    play(seed() + 1, Manner::Full, true, true);
}

#[test]
fn told_with_times_alone() {
    play(seed() + 2, Manner::Dated, true, true);
}

#[test]
fn told_without_times() {
    play(seed() + 3, Manner::Hashed, true, false);
}

#[test]
fn told_without_times_before_the_list_is_written() {
    play(seed() + 4, Manner::Hashed, true, true);
}

#[test]
fn told_in_full_beside_resource_lists_alone() {
    play(seed() + 5, Manner::Full, false, false);
}

#[test]
fn told_without_times_beside_resource_lists_alone() {
    play(seed() + 6, Manner::Hashed, false, false);
}
