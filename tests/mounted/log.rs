//! `resourcesync log`.

use std::time::Duration;

use crate::support::changes::{Source, at, mounted};
use crate::support::output;

#[test]
fn the_log_tells_what_changed_and_when() {
    let mut source = Source::start(&[("/a", "a"), ("/d/b", "b")], &["changelist"]);
    source.changes("");
    let mirror = mounted(&source);
    let directory = mirror.directory.to_string_lossy().into_owned();
    let first = source.does("updated", "/a", 10, "a, anew") + &source.does("created", "/d/c", 11, "c");
    source.changes(&first);
    mirror.refreshed();
    std::thread::sleep(Duration::from_millis(1100));
    let between =
        String::from_utf8(std::process::Command::new("date").args(["-u", "+%FT%TZ"]).output().unwrap().stdout).unwrap();
    std::thread::sleep(Duration::from_millis(1100));
    let both = first + &source.does("deleted", "/d/b", 20, "");
    source.changes(&both);
    mirror.refreshed();
    let all = output(&["log", &directory]);
    let lines: Vec<&str> = all.lines().filter(|line| line.trim_start().starts_with(['A', 'M', 'D'])).collect();
    let told: Vec<String> = lines.iter().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    assert_eq!(told, [format!("D d/b {}", at(20)), format!("A d/c {}", at(11)), format!("M a {}", at(10))], "{all}");
    let since = output(&["log", &directory, "--since", between.trim()]);
    assert!(since.contains("d/b") && !since.contains("d/c"), "{since}");
    let json: serde_json::Value = serde_json::from_str(&output(&["log", &directory, "--json"])).unwrap();
    assert_eq!(json[0]["changes"][0]["path"], "d/b", "{json:#}");
    assert_eq!(json[0]["changes"][0]["change"], "deleted");
    assert_eq!((&json[0]["deleted"], &json[1]["updated"], &json[1]["added"]), (&1.into(), &1.into(), &1.into()));
    let below = output(&["log", &mirror.path("d").to_string_lossy()]);
    assert!(below.contains("d/b") && !below.contains("M  a"), "{below}");
    // The versions of one resource, also of one that is gone.
    let one: serde_json::Value =
        serde_json::from_str(&output(&["log", &mirror.path("a").to_string_lossy(), "--json"])).unwrap();
    assert_eq!(one.as_array().unwrap().len(), 2, "{one:#}");
    assert_eq!(
        (&one[0]["begin"], &one[0]["until"], &one[1]["until"]),
        (&at(10).into(), &serde_json::Value::Null, &at(10).into())
    );
    let gone = output(&["log", &mirror.path("d/b").to_string_lossy()]);
    assert!(gone.contains("deleted"), "{gone}");
}
