//! What the demo Source says of its channels, and what it sends on them.

use super::*;
use crate::demo::changes::XML;
use crate::demo::notifications::{Channel, WAITING};
use crate::document::{Attributes, Capability, Change, Entry, Facts, Head, Limits, Reader, Warnings};

/// A document as it is read.
pub(super) struct Read {
    pub(super) head: Head,
    pub(super) entries: Vec<Entry>,
}

impl Read {
    pub(super) fn of(text: &[u8]) -> Self {
        let mut reader = Reader::open(text, "test:", Limits::default()).unwrap();
        let mut entries = Vec::new();
        while let Some(entry) = reader.next().unwrap() {
            // It is in another place in each document.
            entries.push(Entry { line: 0, ..entry });
        }
        assert_eq!(reader.warnings().count(), 0, "{:?}", reader.warnings().lines());
        Self { head: reader.head().clone(), entries }
    }

    pub(super) fn interval(&self) -> (Datetime, Datetime) {
        let Facts { from, until, .. } = facts(&self.head.md);
        (from.unwrap(), until.unwrap())
    }
}

fn facts(md: &Attributes) -> Facts {
    let mut warnings = Warnings::default();
    let facts = Facts::of_attributes(md, 0, &mut warnings);
    assert_eq!(warnings.count(), 0, "{:?}", warnings.lines());
    facts
}

/// Notifications whose intervals join, as they have to.
pub(super) fn assert_joined(notifications: &[Read]) {
    for pair in notifications.windows(2) {
        assert_eq!(pair[0].interval().1, pair[1].interval().0);
    }
}

impl Running {
    /// Lets something change, as often as is said.
    pub(super) fn change(&self, times: usize) {
        let mut content = self.content.write();
        (0..times).for_each(|_| content.change(Datetime::now()));
    }

    async fn read(&self, path: &str) -> Read {
        Read::of(self.text(path).await.as_bytes())
    }
}

#[tokio::test]
async fn the_capability_list_names_the_channels() {
    let running = Running::start().await;
    let list = running.read("/capabilitylist.xml").await;
    let hub = format!("{}/hub", running.base);
    let sockets = running.base.replace("http:", "ws:");
    let (changes, framework) = (Capability::ChangeNotification, Capability::FrameworkNotification);
    let channels: Vec<_> = list
        .entries
        .iter()
        .filter(|entry| [Some(changes), Some(framework)].contains(&entry.md.capability()))
        .map(|entry| {
            let hub = entry.links.iter().find(|link| link.is("hub")).and_then(|link| link.href());
            (entry.loc.clone(), entry.md.capability().unwrap(), hub)
        })
        .collect();
    assert_eq!(
        channels,
        [
            (format!("{}/notifications/changes", running.base), changes, Some(hub.as_str())),
            (format!("{}/notifications/framework", running.base), framework, Some(hub.as_str())),
            (format!("{sockets}/channels/changes"), changes, None),
            (format!("{sockets}/channels/framework"), framework, None),
        ]
    );
}

#[tokio::test]
async fn a_topic_shows_the_last_notification() {
    let running = Running::start().await;
    let path = Channel::Changes.topic();
    let begun = facts(&running.read("/changes/0001.xml").await.head.md).from.unwrap();
    for method in [Method::GET, Method::HEAD] {
        let empty = running.ask(method, path, &[]).await;
        assert_eq!(empty.status(), StatusCode::OK);
        assert_eq!((field(&empty, "content-type").as_str(), field(&empty, "content-length").as_str()), (XML, "0"));
        assert_eq!(link(&links(&empty), "self"), [format!("{}{path}", running.base)]);
        assert_eq!(link(&links(&empty), "hub"), [format!("{}/hub", running.base)]);
        assert!(empty.bytes().await.unwrap().is_empty());
    }
    running.change(1);
    let first = running.read(path).await;
    running.change(1);
    let second = running.read(path).await;
    assert_eq!(first.interval().0, begun);
    assert_joined(&[first, second]);
    let head = running.ask(Method::HEAD, path, &[]).await;
    assert_eq!(field(&head, "content-length"), running.text(path).await.len().to_string());
}

#[tokio::test]
async fn a_change_is_told_as_the_change_list_has_it() {
    let running = Running::start().await;
    let mut told = Vec::new();
    for _ in 0..8 {
        running.change(1);
        let notification = running.read(Channel::Changes.topic()).await;
        let Read { head, entries } = &notification;
        assert_eq!(head.capability(), Some(Capability::ChangeNotification));
        assert_eq!(head.link("up"), Some(format!("{}/capabilitylist.xml", running.base).as_str()));
        assert_eq!(facts(&entries[0].md).datetime, facts(&head.md).until);
        assert_eq!(entries.last(), running.read("/changes/0001.xml").await.entries.last());
        assert_eq!(entries.len(), 1);
        told.push(notification);
    }
    assert_joined(&told);
}

#[tokio::test]
async fn what_is_published_is_told_and_served() {
    let running = Running::start().await;
    running.change(29);
    assert!(running.text(Channel::Framework.topic()).await.is_empty());
    running.change(1);
    let first = running.read(Channel::Framework.topic()).await;
    assert_eq!(first.head.capability(), Some(Capability::FrameworkNotification));
    let told: Vec<_> = first
        .entries
        .iter()
        .map(|entry| {
            let path = entry.loc.strip_prefix(&running.base).unwrap();
            let index = entry.links.iter().find(|link| link.is("index")).and_then(|link| link.href());
            (path, facts(&entry.md).change.unwrap(), entry.md.capability().unwrap(), index)
        })
        .collect();
    let index = format!("{}/changelist.xml", running.base);
    assert_eq!(
        told,
        [
            ("/resourcelist.xml", Change::Created, Capability::ResourceList, None),
            ("/changes/0001.xml", Change::Updated, Capability::ChangeList, Some(index.as_str())),
            ("/changes/0002.xml", Change::Created, Capability::ChangeList, Some(index.as_str())),
            ("/changedump.xml", Change::Updated, Capability::ChangeDump, None),
        ]
    );
    let until = facts(&first.head.md).until;
    for (path, _, capability, _) in told {
        let document = running.read(path).await;
        assert_eq!(document.head.capability(), Some(capability));
        let facts = facts(&document.head.md);
        match path {
            "/resourcelist.xml" => assert_eq!(facts.at, until),
            "/changes/0001.xml" => assert_eq!(facts.until, until),
            "/changes/0002.xml" => assert_eq!((facts.from, facts.until), (until, None)),
            _ => assert_eq!(document.entries.len(), 1),
        }
    }
    running.change(30);
    assert_joined(&[first, running.read(Channel::Framework.topic()).await]);
}

#[tokio::test]
async fn a_clock_that_is_set_back_leaves_no_gap() {
    let running = Running::start().await;
    running.change(1);
    let first = running.read(Channel::Changes.topic()).await;
    running.content.write().change(moment(MOMENTS[1].0));
    let second = running.read(Channel::Changes.topic()).await;
    running.change(1);
    let third = running.read(Channel::Changes.topic()).await;
    assert!(second.interval().0 <= second.interval().1);
    assert_joined(&[first, second, third]);
}

#[tokio::test]
async fn who_is_too_slow_misses_some() {
    let running = Running::start().await;
    let mut slow = running.content.read().listen(Channel::Changes);
    running.change(WAITING + 1);
    assert!(slow.recv().await.is_err());
    let mut rest = Vec::new();
    while let Ok(text) = slow.try_recv() {
        rest.push(Read::of(text.as_bytes()));
    }
    assert_eq!(rest.len(), WAITING);
    assert_joined(&rest);
}
