//! The options of a mount, defined once ([`DEFINITIONS`]): the parser, defaults, `--help`, the man page and the README come
//! from that table.
//!
//! Layout, each line uses only those above it:
//! - `value`
//! - `table`

mod table;
mod value;

pub use table::{DEFINITIONS, Definition};

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use data_encoding::HEXLOWER;
use value::Value;

use crate::bounds::{self, Bounds};
use crate::catalog::{Filter, Wish};
use crate::fs::AskedIo;
use crate::source::{Allowed, Reach};
use crate::sync::{SeedFrom, Verify};
use crate::users::{self, User};

/// Options that mount(8) and systemd know, and that mean nothing to a mounted Source.
const ACCEPTED: &[&str] = &[
    "rw",
    "ro",
    "auto",
    "noauto",
    "user",
    "nouser",
    "users",
    "owner",
    "group",
    "nofail",
    "_netdev",
    "defaults",
    "suid",
    "nosuid",
    "dev",
    "nodev",
    "async",
    "sync",
    "dirsync",
    "atime",
    "noatime",
    "relatime",
    "norelatime",
    "strictatime",
    "nostrictatime",
    "diratime",
    "nodiratime",
    "lazytime",
    "nolazytime",
    "silent",
    "loud",
    "mand",
    "nomand",
    "iversion",
    "noiversion",
    // What mount(8) repeats from the kernel's list at -o remount.
    "user_id",
    "group_id",
    "rootmode",
    "max_read",
    "blksize",
    "fd",
    "fsname",
    "subtype",
    "symfollow",
    "nosymfollow",
    // Always on: the kernel checks permissions, and no file can be executed.
    "default_permissions",
    "noexec",
    "exec",
];

/// The options of one mount.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs, reason = "each is in DEFINITIONS")]
pub struct Options {
    pub cache: Option<PathBuf>,
    pub cache_size: Option<u64>,
    pub content_all: bool,
    pub seed: SeedFrom,
    pub verify: Verify,
    pub timeout: Duration,
    pub connections: usize,
    pub rate: Option<u64>,
    pub poll: Option<Duration>,
    pub relist: Option<Duration>,
    /// `None`: as often as the Source is polled; `Some(None)`: never.
    pub revalidate: Option<Option<Duration>>,
    pub notify: bool,
    pub listen: Option<SocketAddr>,
    pub callback: Option<url::Url>,
    pub keep: Duration,
    pub set: Option<String>,
    /// What `include`, `exclude`, `type`, `collection` and `newer` ask for.
    pub filter: Wish,
    pub prefer: Option<String>,
    pub base: Option<String>,
    /// What resources are called whose URI ends in `/`, if not [`crate::path::INDEX`].
    pub index: Option<String>,
    pub credentials: Option<PathBuf>,
    pub allow_private: bool,
    pub allow_http: bool,
    pub ca: Option<PathBuf>,
    pub offline: bool,
    pub wait: Duration,
    pub bg: bool,
    pub visible: bool,
    pub io: AskedIo,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    pub umask: u16,
    pub allow_other: bool,
    pub run_as: Option<User>,
    pub remount: bool,
    /// What `limit_NAME=` sets.
    pub bounds: Bounds,
    /// The names of those that were given.
    pub given: Vec<String>,
}

impl Default for Options {
    fn default() -> Self {
        let mut options = Self::unset();
        for definition in DEFINITIONS {
            if let table::Default::Value(text) = definition.default {
                let value = Value { name: definition.name(), usage: definition.usage, text: Some(text), sloppy: false };
                // A test sets all of them.
                let set = (definition.set)(&mut options, value);
                debug_assert!(set.is_ok(), "{set:?}");
            }
        }
        options
    }
}

impl Options {
    /// Reads options as `-o` gives them, separated by commas. What is not known is an error, unless
    /// `sloppy`. Relative paths are taken from the current directory.
    ///
    /// # Errors
    /// With the option, what is wrong with it, and what would be right.
    pub fn parse(texts: &[String], sloppy: bool) -> Result<Self, String> {
        let mut options = Self::default();
        for option in texts.iter().flat_map(|text| text.split(',')).map(str::trim).filter(|one| !one.is_empty()) {
            let (name, value) = match option.split_once('=') {
                Some((name, value)) => (name, Some(value)),
                None => (option, None),
            };
            options.set(name, value, sloppy)?;
            options.given.push(name.to_owned());
        }
        options.agree()?;
        Ok(options)
    }

    /// Whether options that need each other are there.
    fn agree(&self) -> Result<(), String> {
        Filter::new(self.filter.clone()).map_err(|error| format!("-o include=, exclude= or type=: {error}"))?;
        match (&self.listen, &self.callback) {
            (None, Some(callback)) => Err(format!(
                "-o callback={callback} needs listen=: the address at which what comes to that URL arrives here, for example listen=127.0.0.1:8088"
            )),
            (Some(listen), None) if listen.ip().is_unspecified() => Err(format!(
                "-o listen={listen} is every address of this machine; say with callback= how hubs reach it, for example callback=http://mirror.example:{}/",
                listen.port()
            )),
            _ => Ok(()),
        }
    }

    fn set(&mut self, name: &str, text: Option<&str>, sloppy: bool) -> Result<(), String> {
        // `allow_private=off` would allow it.
        match (Definition::find(name), text) {
            (Some(definition), Some(text)) if !definition.takes_value() => {
                Err(format!("-o {name}={text}: this option has no value; give {name}, or leave it out"))
            }
            (Some(definition), text) => (definition.set)(self, Value { name, usage: definition.usage, text, sloppy }),
            // mount(8) has a `user` of its own, without a value.
            (None, Some(user)) if name == "user" => Err(format!(
                "-o user={user}: mount(8) uses this name for something else; to run the daemon as {user}, give run_as={user}"
            )),
            (None, _) if ACCEPTED.contains(&name) || name.starts_with("x-") || name == "comment" || sloppy => Ok(()),
            (None, _) => Err(format!("-o {name}: there is no such option; `resourcesync mount --help` lists them all")),
        }
    }

    /// No option at all, not even with its default.
    fn unset() -> Self {
        Self {
            cache: None,
            cache_size: None,
            content_all: false,
            seed: SeedFrom::Auto,
            verify: Verify::Strict,
            timeout: Duration::ZERO,
            connections: 0,
            rate: None,
            poll: None,
            relist: None,
            revalidate: None,
            notify: false,
            listen: None,
            callback: None,
            keep: Duration::ZERO,
            set: None,
            filter: Wish::default(),
            prefer: None,
            base: None,
            index: None,
            credentials: None,
            allow_private: false,
            allow_http: false,
            ca: None,
            offline: false,
            wait: Duration::ZERO,
            bg: false,
            visible: false,
            io: AskedIo::Auto,
            uid: None,
            gid: None,
            umask: 0,
            allow_other: false,
            run_as: None,
            remount: false,
            bounds: Bounds::default(),
            given: Vec::new(),
        }
    }

    /// Where a Source may lead.
    #[must_use]
    pub fn reach(&self, source: &str) -> Reach {
        match url::Url::parse(source) {
            Ok(source) => Reach::of(&source, Allowed { private: self.allow_private, http: self.allow_http }),
            Err(_) => Reach::anywhere(),
        }
    }

    /// The directory of the mirror of a Source, unless `cache=` gives one: never one that others share, such as `/tmp`.
    ///
    /// # Errors
    /// If the user has no home directory.
    pub fn cache_for(&self, source: &str) -> Result<PathBuf, String> {
        use sha2::{Digest as _, Sha256};
        if let Some(cache) = &self.cache {
            return Ok(cache.clone());
        }
        let (set, base) = (self.set.as_deref().unwrap_or_default(), self.base.as_deref().unwrap_or_default());
        let prefer = self.prefer.as_ref().map(|prefer| format!("\n{prefer}")).unwrap_or_default();
        // An option has no line break in it.
        let index = self.index.as_ref().map(|index| format!("\n\n{index}")).unwrap_or_default();
        let key = [source, set, base].join("\n") + &prefer + &index;
        let hash = HEXLOWER.encode(&Sha256::digest(key.as_bytes())[..4]);
        let host = url::Url::parse(source).ok().and_then(|url| url.host_str().map(str::to_owned)).unwrap_or_default();
        let host: String =
            host.chars().map(|c| if c.is_ascii_alphanumeric() || matches!(c, '.' | '-') { c } else { '_' }).collect();
        let name = format!("{}-{hash}", host.trim_matches('.'));
        let base = if rustix::process::geteuid().is_root() {
            PathBuf::from("/var/cache")
        } else {
            let named =
                |variable: &str| std::env::var_os(variable).map(PathBuf::from).filter(|path| path.is_absolute());
            // mount(8) passes neither variable to the helper of a user's mount.
            let home = || named("HOME").or_else(|| users::home(rustix::process::getuid().as_raw()));
            named("XDG_CACHE_HOME").or_else(|| home().map(|home| home.join(".cache"))).ok_or_else(|| {
                let user = users::describe(rustix::process::getuid().as_raw());
                format!("user {user} has no home directory to keep the cache in; give one: -o cache=DIR")
            })?
        };
        Ok(base.join("resourcesync").join(name))
    }
}

/// All options as help shows them.
#[must_use]
pub fn help() -> String {
    let mut text = String::from("Options for -o, separated by commas:\n");
    for Definition { usage, default, help, .. } in DEFINITIONS {
        text.push_str(&format!("\n  {usage}\n      {help}"));
        if !default.text().is_empty() {
            text.push_str(&format!(" [default: {}]", default.text()));
        }
        text.push('\n');
    }
    text.push_str("\nThe bounds of limit_NAME=, and what holds without them:\n");
    text.push_str(&bounds::help());
    text.push_str("\nOptions of mount(8) and systemd (_netdev, nofail, noauto, user, x-systemd.*) are accepted.\n");
    text
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn parse(text: &str) -> Result<Options, String> {
        Options::parse(&[text.to_owned()], false)
    }

    #[test]
    fn what_fstab_holds_is_understood() {
        let options = parse(
            "rw,_netdev,nofail,x-systemd.automount,x-systemd.mount-timeout=60,noauto,user,cache=/c,cache_size=2G,rate=500K,\
             content=all,verify=stream,timeout=5,connections=3,poll=0,umask=077,uid=root,noexec,comment=x",
        )
        .unwrap();
        assert_eq!(options.cache.as_deref(), Some(Path::new("/c")));
        assert_eq!((options.cache_size, options.rate), (Some(2 << 30), Some(500 << 10)));
        let polls = ["poll=90", "poll=90s", "poll=15m", "poll=1h", "poll=30d"].map(|text| parse(text).unwrap().poll);
        assert_eq!(polls, [90, 90, 900, 3600, 2_592_000].map(|seconds| Some(Duration::from_secs(seconds))));
        assert_eq!((options.poll, options.umask, options.uid), (None, 0o077, Some(0)));
        assert!(options.content_all && options.verify == Verify::Stream);
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (text, part) in [
            ("bogus", "-o bogus: there is no such option"),
            ("timeout=x", "expected a duration from 1 to 3600 seconds"),
            ("timeout=2h", "expected a duration from 1 to 3600 seconds"),
            ("timeout", "needs a value: timeout=DURATION"),
            (
                "allow_private=off",
                "-o allow_private=off: this option has no value; give allow_private, or leave it out",
            ),
            ("verify=maybe", "expected verify=strict|stream|warn|off"),
            ("umask=999", "not an octal number"),
            ("uid=nobody-at-all", "neither a number nor a name of a user"),
            ("cache_size=10Q", "such as 500M or 2G"),
            ("run_as=nobody-at-all", "there is no such user"),
            ("user=nobody", "give run_as=nobody"),
            ("callback=http://x/", "needs listen=:"),
            ("callback=ftp://x/,listen=127.0.0.1:1", "not a URL that a hub could use"),
            ("listen=8088", "expected an address and a port"),
            ("listen=0.0.0.0:8088", "say with callback= how hubs reach it"),
            ("notify=maybe", "expected notify=auto|off"),
            ("index=@self", "such names have a meaning; give one such as index.html"),
            ("limit_depth", "needs a value: limit_NAME=VALUE"),
            ("limit_depth=0", "-o limit_depth=0: expected a number from 1 to 32"),
            ("limit_patch_time=4q", "expected a duration, such as 90, 90s, 15m or 1h, from 1 to 3600"),
            ("limit_document=1Q", "expected a number of bytes (K, M, G, T are understood) from 1K to 1024T"),
            (
                "limit_documnet=1G",
                "-o limit_documnet: there is no such limit; there are limit_document, limit_entries, ",
            ),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
        assert!(Options::parse(&["bogus,limit_bogus=1,timeout=3".to_owned()], true).is_ok(), "-s is sloppy");
    }

    #[test]
    fn every_defined_option_is_parsed() {
        for definition in DEFINITIONS {
            let (name, value) = match definition.usage.split_once('=') {
                None => (definition.usage, None),
                Some((name, "URI")) => (name, Some("https://x.example/")),
                Some((name @ "run_as", _)) => (name, Some("root")),
                Some((name @ "index", _)) => (name, Some("index.html")),
                Some(("limit_NAME", _)) => ("limit_document", Some("1G")),
                Some((name, "DIR" | "FILE" | "NAME" | "GLOB" | "TYPE")) => (name, Some("/x")),
                Some((name, "ADDR")) => (name, Some("127.0.0.1:8088")),
                Some((name, "URL")) => (name, Some("https://x.example/hook/,listen=127.0.0.1:8088")),
                Some((name, "DURATION" | "DURATION|all")) => (name, Some("30m")),
                Some((name, "TIME")) => (name, Some("2013-01-31")),
                Some((name, "BYTES" | "N" | "ID" | "OCTAL")) => (name, Some("7")),
                Some((name, choices)) => (name, choices.split('|').next()),
            };
            let text = value.map_or_else(|| name.to_owned(), |value| format!("{name}={value}"));
            assert!(parse(&text).is_ok(), "{text}: {:?}", parse(&text));
        }
        assert_eq!(parse("keep=all").unwrap().keep, Duration::MAX);
    }

    #[test]
    fn defaults_are_what_the_table_says() {
        for definition in DEFINITIONS {
            if let table::Default::Value(text) = definition.default {
                let value = Value { name: definition.name(), usage: definition.usage, text: Some(text), sloppy: false };
                assert_eq!((definition.set)(&mut Options::unset(), value), Ok(()), "{}", definition.usage);
            }
        }
        let options = Options::default();
        assert_eq!((options.timeout, options.wait), (Duration::from_secs(30), Duration::from_secs(60)));
        assert_eq!((options.connections, options.umask), (12, 0o022));
        assert_eq!(
            (options.poll, options.relist),
            (Some(Duration::from_secs(3600)), Some(Duration::from_secs(86_400)))
        );
        assert_eq!((options.keep, options.notify, options.rate), (Duration::from_secs(30 * 86_400), true, None));
    }

    #[test]
    fn the_readme_has_every_option() {
        let readme = include_str!("../README.md");
        for Definition { usage, default, help, .. } in DEFINITIONS {
            let row = format!("| `{}` | {} | {help} |", usage.replace('|', "\\|"), default.text());
            assert!(readme.contains(&row), "README.md lacks: {row}");
        }
    }

    #[test]
    fn a_cache_is_one_source_s() {
        let options = Options::default();
        let one = options.cache_for("https://a.example/").unwrap();
        assert_ne!(one, options.cache_for("https://b.example/").unwrap());
        assert_ne!(one, parse("set=x").unwrap().cache_for("https://a.example/").unwrap());
        assert!(one.file_name().unwrap().to_str().unwrap().starts_with("a.example-"));
    }
}
