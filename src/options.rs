//! The options of a mount, defined once: `--help`, the man page, the README and the parser say the same.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use crate::bounds::{self, Bounds, Unfit};
use crate::catalog::{Filter, Wish};
use crate::document::Datetime;
use crate::fs::AskedIo;
use crate::path::{INDEX, Mapper};
use crate::source::{Allowed, Reach};
use crate::sync::{SeedFrom, Verify};
use crate::users::{self, User};

/// One `-o` option as users read of it.
#[derive(Clone, Copy, Debug)]
pub struct Definition {
    /// `name`, or `name=VALUE`.
    pub usage: &'static str,
    /// What holds without it.
    pub default: &'static str,
    /// What it does.
    pub help: &'static str,
}

const fn define(usage: &'static str, default: &'static str, help: &'static str) -> Definition {
    Definition { usage, default, help }
}

/// All options, in the order in which help shows them.
pub const DEFINITIONS: &[Definition] = &[
    define(
        "cache=DIR",
        "/var/cache/resourcesync/NAME; ~/.cache/resourcesync/NAME for users",
        "where the mirror is kept",
    ),
    define(
        "cache_size=BYTES",
        "no limit",
        "evict the least recently used content above this size (K, M, G, T are understood); what is pinned stays, and so does all under content=all",
    ),
    define(
        "content=lazy|all",
        "lazy",
        "fetch content when it is read, or all of it ahead: a complete mirror that also reads when the Source is away",
    ),
    define(
        "verify=strict|stream|warn|off",
        "strict",
        "verify a file whole before its first byte is served; or serve files of 8 MiB and more in ranges meanwhile; or serve what does not verify, with a warning; or do not verify",
    ),
    define(
        "timeout=DURATION",
        "30",
        "the longest wait for the next byte of progress; then a reader gets EIO, and the log says why",
    ),
    define("connections=N", "12", "the most connections to one host"),
    define("rate=BYTES", "no limit", "the most bytes a second (K, M, G are understood)"),
    define("poll=DURATION", "1h", "how often the Source is asked what changed; 0: only at mount and by `refresh`"),
    define(
        "relist=DURATION",
        "1d",
        "how often lists of resources are compared with the tree although changes are followed, since Sources omit deletions from their Change Lists: 12h, 7d; 0: only where the changes leave something open",
    ),
    define(
        "revalidate=DURATION",
        "as poll",
        "how old content may be when it is opened of which the Source lists neither a hash nor a time of modification: 10m, 1h; its server is asked whether it has changed, and a changed one is a new version; 0: the first copy is served for ever",
    ),
    define(
        "notify=auto|off",
        "auto",
        "join the channels of notifications that the Source offers, so that a change is here a moment later, and poll ever more rarely meanwhile: WebSocket channels at once, hubs (WebSub) where listen= says how they reach this machine",
    ),
    define(
        "listen=ADDR",
        "none: hubs are not asked",
        "the address and port at which hubs deliver notifications: 192.0.2.7:8088, or [::]:8088 with callback=",
    ),
    define(
        "callback=URL",
        "http:// and what listen= says",
        "the URL that leads hubs to listen=, through a proxy that has a certificate, for one; a path that nobody can guess is added for each subscription",
    ),
    define(
        "keep=DURATION|all",
        "30d",
        "how long content is kept that was superseded (s, m, h, d, w, y are understood); the last three versions of each resource are kept in any case, and what can be fetched again is not counted; with `all`, it is kept for ever, and what the Source archives of lists, dumps and changes becomes history",
    ),
    define(
        "set=NAME",
        "all sets",
        "mirror one of several sets of resources, by its name or the URL of its Capability List",
    ),
    define(
        "include=GLOB",
        "everything",
        "show only what matches one of these patterns (repeat the option for each): *.pdf is of names in any directory, data/2013 is a directory and all below it, data/*/a.xml has its slashes where paths have them, and ** stands for any number of directories",
    ),
    define("exclude=GLOB", "nothing", "leave out what matches one of these patterns, which are as those of include"),
    define(
        "type=TYPE",
        "all types",
        "show only resources of one of these media types: application/pdf, or image/*; one of which the Source does not say the type is left out",
    ),
    define(
        "collection=NAME",
        "all",
        "show only members of one of these collections, or categories of the draft of 2012, by the URI that the Source gives them, the last part of it, or what a category is called",
    ),
    define(
        "newer=TIME",
        "no limit",
        "show only what was modified at this time or later: 2013, 2013-01-31, 2013-01-31T12:00:00Z",
    ),
    define(
        "prefer=TYPE",
        "the resource itself",
        "take the alternate representation of this media type as the content of each resource that has one; another type needs another cache",
    ),
    define(
        "base=URI",
        "the Source's origin",
        "the URI whose resources lie at the root; all others lie under @authority",
    ),
    define(
        "index=NAME",
        "@index",
        "what a resource is called whose URI ends in a slash, such as index.html; another name needs another cache",
    ),
    define(
        "seed=auto|dump|list",
        "auto",
        "what the mirror is first filled from: the Source's Resource Dump, whose packages are read in place, or its Resource Lists and then each resource; auto takes a dump where there is one",
    ),
    define(
        "credentials=FILE",
        "none",
        "lines of HOST[:PORT] bearer TOKEN, HOST[:PORT] basic USER:PASSWORD, or SERVICE xmpp USER@DOMAIN:PASSWORD [at HOST:PORT]; readable by its owner only",
    ),
    define(
        "allow_private",
        "off",
        "let a Source on a public address lead to private ones, by its documents, redirects and names: to this machine, its network, and what clouds tell machines about themselves; a Source that is itself on a private address always may",
    ),
    define(
        "allow_http",
        "off",
        "let a Source on https lead to http, by its documents and redirects: what is fetched that way, everybody on the way can read, and can change where no hash is listed",
    ),
    define("ca=FILE", "the system's", "certificates to trust beside the system's, in PEM"),
    define("offline", "off", "leave the Source alone; serve what is in the cache"),
    define(
        "wait=DURATION",
        "60",
        "how long mount waits for the tree to be complete before it returns and goes on behind",
    ),
    define("bg", "off", "return as soon as the mount answers, even if the Source does not"),
    define("visible", "off", "list .resourcesync and .versions in the root; they can always be reached by name"),
    define("uid=ID", "who mounts", "the owner of all files"),
    define("gid=ID", "who mounts", "the group of all files"),
    define("umask=OCTAL", "022", "permissions to take away from 0444 and 0555"),
    define("allow_other", "on for root", "let others than who mounts use it"),
    define(
        "io=auto|kernel|passthrough",
        "auto",
        "how content reaches readers: from the kernel's page cache (fastest for small files), or straight from the \
         files of the cache (for very large ones; for root); auto chooses by the sizes of the resources",
    ),
    define(
        "run_as=NAME",
        "root stays root",
        "who the daemon becomes before it talks to anybody (for root): a system user that owns nothing but the cache, which is given to it",
    ),
    define(
        "limit_NAME=VALUE",
        "as the table of bounds says",
        "how much is taken from the Source of one thing, for example limit_document=1G: there is a bound for each that could grow without end",
    ),
    define("ro", "always", "read-only; rw is accepted and served read-only"),
    define(
        "remount",
        "",
        "change timeout, connections, rate, poll, include, exclude, type, collection and newer of a mount that is there; include= and its like, without a value, ask for everything again",
    ),
];

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
    /// What resources are called whose URI ends in `/`, if not [`INDEX`].
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
        Self {
            cache: None,
            cache_size: None,
            content_all: false,
            seed: SeedFrom::Auto,
            verify: Verify::Strict,
            timeout: Duration::from_secs(30),
            connections: 12,
            rate: None,
            poll: Some(Duration::from_secs(3600)),
            relist: Some(Duration::from_secs(86_400)),
            revalidate: None,
            notify: true,
            listen: None,
            callback: None,
            keep: Duration::from_secs(30 * 86_400),
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
            wait: Duration::from_secs(60),
            bg: false,
            visible: false,
            io: AskedIo::Auto,
            uid: None,
            gid: None,
            umask: 0o022,
            allow_other: false,
            run_as: None,
            remount: false,
            bounds: Bounds::default(),
            given: Vec::new(),
        }
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

    fn set(&mut self, name: &str, value: Option<&str>, sloppy: bool) -> Result<(), String> {
        let needs = || {
            value.filter(|value| !value.is_empty()).ok_or_else(|| format!("-o {name} needs a value: {}", usage(name)))
        };
        // `allow_private=off` would allow it.
        if let Some(value) = value.filter(|_| DEFINITIONS.iter().any(|one| one.usage == name)) {
            return Err(format!("-o {name}={value}: this option has no value; give {name}, or leave it out"));
        }
        match name {
            "cache" => {
                let cache = PathBuf::from(needs()?);
                if !cache.is_absolute() {
                    return Err(format!("-o cache={}: the cache needs an absolute path", cache.display()));
                }
                self.cache = Some(cache);
            }
            "cache_size" => self.cache_size = Some(bytes(name, needs()?)?),
            "content" => self.content_all = choice(name, needs()?, &[("lazy", false), ("all", true)])?,
            "verify" => {
                let known = [
                    ("strict", Verify::Strict),
                    ("stream", Verify::Stream),
                    ("warn", Verify::Warn),
                    ("off", Verify::Off),
                ];
                self.verify = choice(name, needs()?, &known)?;
            }
            "timeout" => self.timeout = duration(name, needs()?, 1, 3600)?,
            "connections" => self.connections = usize::try_from(number(name, needs()?, 1, 256)?).unwrap_or(12),
            "rate" => self.rate = Some(bytes(name, needs()?)?),
            "poll" => {
                self.poll = Some(duration(name, needs()?, 0, 31_536_000)?).filter(|poll| !poll.is_zero());
            }
            "relist" => {
                let value = needs()?;
                let wrong = || format!("-o relist={value}: not a duration; give 0, 12h, 1d or 7d");
                self.relist = Some(bounds::duration(value).ok_or_else(wrong)?).filter(|relist| !relist.is_zero());
            }
            "revalidate" => {
                let value = needs()?;
                let wrong = || format!("-o revalidate={value}: not a duration; give 0, 10m, 1h or 1d");
                self.revalidate = Some(Some(bounds::duration(value).ok_or_else(wrong)?).filter(|age| !age.is_zero()));
            }
            "notify" => self.notify = choice(name, needs()?, &[("auto", true), ("off", false)])?,
            "listen" => self.listen = Some(address(needs()?)?),
            "callback" => {
                let value = needs()?;
                let url = url::Url::parse(value).ok().filter(|url| matches!(url.scheme(), "http" | "https"));
                let url =
                    url.filter(|url| url.username().is_empty() && url.password().is_none() && url.fragment().is_none());
                let wrong = || {
                    format!("-o callback={value}: not a URL that a hub could use, as https://mirror.example/hook/ is")
                };
                self.callback = Some(url.ok_or_else(wrong)?);
            }
            "keep" => {
                let value = needs()?;
                let wrong = || format!("-o keep={value}: not a duration; give 0, 12h, 30d, 10y or all");
                self.keep = if value == "all" { Duration::MAX } else { bounds::duration(value).ok_or_else(wrong)? };
            }
            "set" => self.set = Some(needs()?.to_owned()),
            "prefer" => self.prefer = Some(needs()?.to_owned()),
            "include" | "exclude" | "type" | "collection" => {
                let Some(value) = value else { return Err(format!("-o {name} needs a value: {}", usage(name))) };
                let values = match name {
                    "include" => &mut self.filter.include,
                    "exclude" => &mut self.filter.exclude,
                    "type" => &mut self.filter.types,
                    _ => &mut self.filter.collections,
                };
                if value.is_empty() {
                    values.clear();
                } else {
                    values.push(value.to_owned());
                }
            }
            "newer" => {
                let value = value.ok_or_else(|| format!("-o newer needs a value: {}", usage(name)))?;
                let wrong = |error| format!("-o newer={value}: {error}; give 2013, 2013-01-31 or 2013-01-31T12:00:00Z");
                self.filter.newer = match value {
                    "" => None,
                    time => Some(Datetime::parse(time).map_err(wrong)?.0),
                };
            }
            "base" => {
                let base = needs()?;
                url::Url::parse(base).map_err(|error| format!("-o base={base}: {error}; expected an absolute URI"))?;
                self.base = Some(base.to_owned());
            }
            "index" => {
                let index = needs()?;
                Mapper::new("http://localhost/", false)
                    .and_then(|mapper| mapper.with_index(index))
                    .map_err(|error| format!("-o index={index}: {error}; give one such as index.html"))?;
                self.index = Some(index.to_owned()).filter(|index| index != INDEX);
            }
            "seed" => {
                let known = [("auto", SeedFrom::Auto), ("dump", SeedFrom::Dump), ("list", SeedFrom::List)];
                self.seed = choice(name, needs()?, &known)?;
            }
            "io" => {
                let known =
                    [("auto", AskedIo::Auto), ("kernel", AskedIo::Kernel), ("passthrough", AskedIo::Passthrough)];
                self.io = choice(name, needs()?, &known)?;
            }
            "credentials" => self.credentials = Some(absolute(needs()?)?),
            "allow_private" => self.allow_private = true,
            "allow_http" => self.allow_http = true,
            "ca" => self.ca = Some(absolute(needs()?)?),
            "offline" => self.offline = true,
            "wait" => self.wait = duration(name, needs()?, 0, 86_400)?,
            "bg" => self.bg = true,
            "visible" => self.visible = true,
            "uid" => self.uid = Some(id(name, needs()?)?),
            "gid" => self.gid = Some(id(name, needs()?)?),
            "umask" => {
                self.umask = u16::from_str_radix(needs()?, 8)
                    .ok()
                    .filter(|umask| *umask <= 0o777)
                    .ok_or_else(|| format!("-o umask={}: not an octal number up to 777", value.unwrap_or_default()))?;
            }
            "allow_other" => self.allow_other = true,
            "remount" => self.remount = true,
            "run_as" => {
                let user = User::find(needs()?)?;
                if !rustix::process::geteuid().is_root() {
                    return Err(format!("-o run_as={}: only root can become another user; leave it out", user.name));
                }
                self.run_as = Some(user);
            }
            // mount(8) has a `user` of its own, without a value.
            "user" if value.is_some() => {
                return Err(format!(
                    "-o user={0}: mount(8) uses this name for something else; to run the daemon as {0}, give run_as={0}",
                    value.unwrap_or_default()
                ));
            }
            _ if name.starts_with("limit_") => self.limit(name, needs, sloppy)?,
            _ if ACCEPTED.contains(&name) => {}
            _ if name.starts_with("x-") || name == "comment" => {}
            _ if sloppy => {}
            _ => return Err(format!("-o {name}: there is no such option; `resourcesync mount --help` lists them all")),
        }
        Ok(())
    }

    /// Sets a bound.
    fn limit<'v>(
        &mut self,
        name: &str,
        value: impl FnOnce() -> Result<&'v str, String>,
        sloppy: bool,
    ) -> Result<(), String> {
        let known = bounds::TABLE.iter().any(|bound| bound.name == name);
        if !known && sloppy {
            return Ok(());
        }
        let text = if known { value()? } else { "" };
        self.bounds.set(name, text).map_err(|unfit| match unfit {
            Unfit::Value(bound) => format!("-o {name}={text}: expected {}", bound.range()),
            Unfit::Unknown => {
                let names: Vec<&str> = bounds::TABLE.iter().map(|bound| bound.name).collect();
                format!("-o {name}: there is no such limit; there are {}", names.join(", "))
            }
        })
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
        let hash =
            Sha256::digest(key.as_bytes()).iter().take(4).fold(String::new(), |text, byte| format!("{text}{byte:02x}"));
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

/// How an option is written.
fn usage(name: &str) -> &'static str {
    let name = if name.starts_with("limit_") { "limit_NAME" } else { name };
    DEFINITIONS
        .iter()
        .map(|definition| definition.usage)
        .find(|usage| usage.split('=').next() == Some(name))
        .unwrap_or("see `resourcesync mount --help`")
}

fn absolute(path: &str) -> Result<PathBuf, String> {
    std::path::absolute(path).map_err(|error| format!("{path}: {error}"))
}

/// An address with its port.
fn address(text: &str) -> Result<SocketAddr, String> {
    let wrong = "expected an address and a port, such as 192.0.2.7:8088, 127.0.0.1:8088 or [::]:8088";
    text.parse().map_err(|_| format!("-o listen={text}: {wrong}"))
}

fn choice<T: Clone>(name: &str, value: &str, known: &[(&str, T)]) -> Result<T, String> {
    known
        .iter()
        .find(|(one, _)| *one == value)
        .map(|(_, meaning)| meaning.clone())
        .ok_or_else(|| format!("-o {name}={value}: expected {}", usage(name)))
}

fn number(name: &str, value: &str, least: u64, most: u64) -> Result<u64, String> {
    value
        .parse()
        .ok()
        .filter(|number| (least..=most).contains(number))
        .ok_or_else(|| format!("-o {name}={value}: expected a number from {least} to {most}"))
}

/// A duration of so many seconds.
fn duration(name: &str, value: &str, least: u64, most: u64) -> Result<Duration, String> {
    let wrong =
        || format!("-o {name}={value}: expected a duration from {least} to {most} seconds, such as 90, 90s, 15m or 1h");
    bounds::duration(value).filter(|span| (least..=most).contains(&span.as_secs())).ok_or_else(wrong)
}

/// A number of bytes that is not 0.
fn bytes(name: &str, value: &str) -> Result<u64, String> {
    let wrong = || format!("-o {name}={value}: expected a number of bytes, such as 500M or 2G");
    bounds::bytes(value).filter(|bytes| *bytes > 0).ok_or_else(wrong)
}

/// A number, or the name of a user or group.
fn id(name: &str, value: &str) -> Result<u32, String> {
    if let Ok(number) = value.parse() {
        return Ok(number);
    }
    let what = if name == "gid" { "group" } else { "user" };
    users::id(value, name == "gid").ok_or_else(|| format!("-o {name}={value}: neither a number nor a name of a {what}"))
}

/// All options as help shows them.
#[must_use]
pub fn help() -> String {
    let mut text = String::from("Options for -o, separated by commas:\n");
    for Definition { usage, default, help } in DEFINITIONS {
        text.push_str(&format!("\n  {usage}\n      {help}"));
        if !default.is_empty() {
            text.push_str(&format!(" [default: {default}]"));
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
    fn the_readme_has_every_option() {
        let readme = include_str!("../README.md");
        for Definition { usage, default, help } in DEFINITIONS {
            let row = format!("| `{}` | {default} | {help} |", usage.replace('|', "\\|"));
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
