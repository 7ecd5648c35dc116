//! All options, defined once: usage, default, help, and what they set.

use std::path::PathBuf;
use std::time::Duration;

use super::Options;
use super::value::Value;
use crate::fs::AskedIo;
use crate::path::{INDEX, Mapper};
use crate::sync::{SeedFrom, Verify};
use crate::users::User;

/// What holds without an option.
#[derive(Clone, Copy, Debug)]
pub enum Default {
    /// As if this value were given.
    Value(&'static str),
    /// In words, where no value says the same.
    Text(&'static str),
}

impl Default {
    /// As help shows it.
    #[must_use]
    pub fn text(self) -> &'static str {
        let (Self::Value(text) | Self::Text(text)) = self;
        text
    }
}

/// Sets what an option is about.
type Set = fn(&mut Options, Value<'_>) -> Result<(), String>;

/// One `-o` option.
#[derive(Clone, Copy, Debug)]
pub struct Definition {
    /// `name`, or `name=VALUE`.
    pub usage: &'static str,
    /// What holds without it.
    pub default: Default,
    /// What it does.
    pub help: &'static str,
    pub(super) set: Set,
}

impl Definition {
    /// The name of the option.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.usage.split('=').next().unwrap_or(self.usage)
    }

    /// Whether it takes a value.
    #[must_use]
    pub fn takes_value(&self) -> bool {
        self.usage.contains('=')
    }

    /// The definition of an option of this name.
    #[must_use]
    pub fn find(name: &str) -> Option<&'static Self> {
        let name = if name.starts_with("limit_") { "limit_NAME" } else { name };
        DEFINITIONS.iter().find(|definition| definition.name() == name)
    }
}

/// All options, in the order in which help shows them.
pub const DEFINITIONS: &[Definition] = &[
    Definition {
        usage: "cache=DIR",
        default: Default::Text("/var/cache/resourcesync/NAME; ~/.cache/resourcesync/NAME for users"),
        help: "where the mirror is kept",
        set: |options, value| {
            let cache = PathBuf::from(value.required()?);
            if !cache.is_absolute() {
                return Err(format!("-o cache={}: the cache needs an absolute path", cache.display()));
            }
            options.cache = Some(cache);
            Ok(())
        },
    },
    Definition {
        usage: "cache_size=BYTES",
        default: Default::Text("no limit"),
        help: "evict the least recently used content above this size (K, M, G, T are understood); what is pinned stays, and so does all under content=all",
        set: |options, value| {
            options.cache_size = Some(value.bytes()?);
            Ok(())
        },
    },
    Definition {
        usage: "content=lazy|all",
        default: Default::Value("lazy"),
        help: "fetch content when it is read, or all of it ahead: a complete mirror that also reads when the Source is away",
        set: |options, value| {
            options.content_all = value.choice(&[("lazy", false), ("all", true)])?;
            Ok(())
        },
    },
    Definition {
        usage: "verify=strict|stream|warn|off",
        default: Default::Value("strict"),
        help: "verify a file whole before its first byte is served; or serve files of 8 MiB and more in ranges meanwhile; or serve what does not verify, with a warning; or do not verify",
        set: |options, value| {
            options.verify = value.choice(&[
                ("strict", Verify::Strict),
                ("stream", Verify::Stream),
                ("warn", Verify::Warn),
                ("off", Verify::Off),
            ])?;
            Ok(())
        },
    },
    Definition {
        usage: "timeout=DURATION",
        default: Default::Value("30"),
        help: "the longest wait for the next byte of progress; then a reader gets EIO, and the log says why",
        set: |options, value| {
            options.timeout = value.duration(1, 3600)?;
            Ok(())
        },
    },
    Definition {
        usage: "connections=N",
        default: Default::Value("12"),
        help: "the most connections to one host",
        set: |options, value| {
            options.connections = usize::try_from(value.number(1, 256)?).unwrap_or(usize::MAX);
            Ok(())
        },
    },
    Definition {
        usage: "rate=BYTES",
        default: Default::Text("no limit"),
        help: "the most bytes a second (K, M, G are understood)",
        set: |options, value| {
            options.rate = Some(value.bytes()?);
            Ok(())
        },
    },
    Definition {
        usage: "poll=DURATION",
        default: Default::Value("1h"),
        help: "how often the Source is asked what changed; 0: only at mount and by `refresh`",
        set: |options, value| {
            options.poll = Some(value.duration(0, 31_536_000)?).filter(|poll| !poll.is_zero());
            Ok(())
        },
    },
    Definition {
        usage: "relist=DURATION",
        default: Default::Value("1d"),
        help: "how often lists of resources are compared with the tree although changes are followed, since Sources omit deletions from their Change Lists: 12h, 7d; 0: only where the changes leave something open",
        set: |options, value| {
            options.relist = Some(value.any_duration("0, 12h, 1d or 7d")?).filter(|relist| !relist.is_zero());
            Ok(())
        },
    },
    Definition {
        usage: "revalidate=DURATION",
        default: Default::Text("as poll"),
        help: "how old content may be when it is opened of which the Source lists neither a hash nor a time of modification: 10m, 1h; its server is asked whether it has changed, and a changed one is a new version; 0: the first copy is served for ever",
        set: |options, value| {
            let age = value.any_duration("0, 10m, 1h or 1d")?;
            options.revalidate = Some(Some(age).filter(|age| !age.is_zero()));
            Ok(())
        },
    },
    Definition {
        usage: "notify=auto|off",
        default: Default::Value("auto"),
        help: "join the channels of notifications that the Source offers, so that a change is here a moment later, and poll ever more rarely meanwhile: WebSocket channels at once, hubs (WebSub) where listen= says how they reach this machine",
        set: |options, value| {
            options.notify = value.choice(&[("auto", true), ("off", false)])?;
            Ok(())
        },
    },
    Definition {
        usage: "listen=ADDR",
        default: Default::Text("none: hubs are not asked"),
        help: "the address and port at which hubs deliver notifications: 192.0.2.7:8088, or [::]:8088 with callback=",
        set: |options, value| {
            options.listen = Some(value.address()?);
            Ok(())
        },
    },
    Definition {
        usage: "callback=URL",
        default: Default::Text("http:// and what listen= says"),
        help: "the URL that leads hubs to listen=, through a proxy that has a certificate, for one; a path that nobody can guess is added for each subscription",
        set: |options, value| {
            options.callback = Some(value.callback()?);
            Ok(())
        },
    },
    Definition {
        usage: "keep=DURATION|all",
        default: Default::Value("30d"),
        help: "how long content is kept that was superseded (s, m, h, d, w, y are understood); the last three versions of each resource are kept in any case, and what can be fetched again is not counted; with `all`, it is kept for ever, and what the Source archives of lists, dumps and changes becomes history",
        set: |options, value| {
            options.keep = match value.required()? {
                "all" => Duration::MAX,
                _ => value.any_duration("0, 12h, 30d, 10y or all")?,
            };
            Ok(())
        },
    },
    Definition {
        usage: "set=NAME",
        default: Default::Text("all sets"),
        help: "mirror one of several sets of resources, by its name or the URL of its Capability List",
        set: |options, value| {
            options.set = Some(value.required()?.to_owned());
            Ok(())
        },
    },
    Definition {
        usage: "include=GLOB",
        default: Default::Text("everything"),
        help: "show only what matches one of these patterns (repeat the option for each): *.pdf is of names in any directory, data/2013 is a directory and all below it, data/*/a.xml has its slashes where paths have them, and ** stands for any number of directories",
        set: |options, value| value.add_to(&mut options.filter.include),
    },
    Definition {
        usage: "exclude=GLOB",
        default: Default::Text("nothing"),
        help: "leave out what matches one of these patterns, which are as those of include",
        set: |options, value| value.add_to(&mut options.filter.exclude),
    },
    Definition {
        usage: "type=TYPE",
        default: Default::Text("all types"),
        help: "show only resources of one of these media types: application/pdf, or image/*; one of which the Source does not say the type is left out",
        set: |options, value| value.add_to(&mut options.filter.types),
    },
    Definition {
        usage: "collection=NAME",
        default: Default::Text("all"),
        help: "show only members of one of these collections, or categories of the draft of 2012, by the URI that the Source gives them, the last part of it, or what a category is called",
        set: |options, value| value.add_to(&mut options.filter.collections),
    },
    Definition {
        usage: "newer=TIME",
        default: Default::Text("no limit"),
        help: "show only what was modified at this time or later: 2013, 2013-01-31, 2013-01-31T12:00:00Z",
        set: |options, value| {
            options.filter.newer = value.time()?;
            Ok(())
        },
    },
    Definition {
        usage: "prefer=TYPE",
        default: Default::Text("the resource itself"),
        help: "take the alternate representation of this media type as the content of each resource that has one; another type needs another cache",
        set: |options, value| {
            options.prefer = Some(value.required()?.to_owned());
            Ok(())
        },
    },
    Definition {
        usage: "base=URI",
        default: Default::Text("the Source's origin"),
        help: "the URI whose resources lie at the root; all others lie under @authority",
        set: |options, value| {
            let base = value.required()?;
            url::Url::parse(base).map_err(|error| format!("-o base={base}: {error}; expected an absolute URI"))?;
            options.base = Some(base.to_owned());
            Ok(())
        },
    },
    Definition {
        usage: "index=NAME",
        default: Default::Text("@index"),
        help: "what a resource is called whose URI ends in a slash, such as index.html; another name needs another cache",
        set: |options, value| {
            let index = value.required()?;
            Mapper::new("http://localhost/", false)
                .and_then(|mapper| mapper.with_index(index))
                .map_err(|error| format!("-o index={index}: {error}; give one such as index.html"))?;
            options.index = Some(index.to_owned()).filter(|index| index != INDEX);
            Ok(())
        },
    },
    Definition {
        usage: "seed=auto|dump|list",
        default: Default::Value("auto"),
        help: "what the mirror is first filled from: the Source's Resource Dump, whose packages are read in place, or its Resource Lists and then each resource; auto takes a dump where there is one",
        set: |options, value| {
            options.seed =
                value.choice(&[("auto", SeedFrom::Auto), ("dump", SeedFrom::Dump), ("list", SeedFrom::List)])?;
            Ok(())
        },
    },
    Definition {
        usage: "credentials=FILE",
        default: Default::Text("none"),
        help: "lines of HOST[:PORT] bearer TOKEN, HOST[:PORT] basic USER:PASSWORD, or SERVICE xmpp USER@DOMAIN:PASSWORD [at HOST:PORT]; readable by its owner only",
        set: |options, value| {
            options.credentials = Some(value.file()?);
            Ok(())
        },
    },
    Definition {
        usage: "allow_private",
        default: Default::Text("off"),
        help: "let a Source on a public address lead to private ones, by its documents, redirects and names: to this machine, its network, and what clouds tell machines about themselves; a Source that is itself on a private address always may",
        set: |options, _| {
            options.allow_private = true;
            Ok(())
        },
    },
    Definition {
        usage: "allow_http",
        default: Default::Text("off"),
        help: "let a Source on https lead to http, by its documents and redirects: what is fetched that way, everybody on the way can read, and can change where no hash is listed",
        set: |options, _| {
            options.allow_http = true;
            Ok(())
        },
    },
    Definition {
        usage: "ca=FILE",
        default: Default::Text("the system's"),
        help: "certificates to trust beside the system's, in PEM",
        set: |options, value| {
            options.ca = Some(value.file()?);
            Ok(())
        },
    },
    Definition {
        usage: "offline",
        default: Default::Text("off"),
        help: "leave the Source alone; serve what is in the cache",
        set: |options, _| {
            options.offline = true;
            Ok(())
        },
    },
    Definition {
        usage: "wait=DURATION",
        default: Default::Value("60"),
        help: "how long mount waits for the tree to be complete before it returns and goes on behind",
        set: |options, value| {
            options.wait = value.duration(0, 86_400)?;
            Ok(())
        },
    },
    Definition {
        usage: "bg",
        default: Default::Text("off"),
        help: "return as soon as the mount answers, even if the Source does not",
        set: |options, _| {
            options.bg = true;
            Ok(())
        },
    },
    Definition {
        usage: "visible",
        default: Default::Text("off"),
        help: "list .resourcesync and .versions in the root; they can always be reached by name",
        set: |options, _| {
            options.visible = true;
            Ok(())
        },
    },
    Definition {
        usage: "uid=ID",
        default: Default::Text("who mounts"),
        help: "the owner of all files",
        set: |options, value| {
            options.uid = Some(value.id()?);
            Ok(())
        },
    },
    Definition {
        usage: "gid=ID",
        default: Default::Text("who mounts"),
        help: "the group of all files",
        set: |options, value| {
            options.gid = Some(value.id()?);
            Ok(())
        },
    },
    Definition {
        usage: "umask=OCTAL",
        default: Default::Value("022"),
        help: "permissions to take away from 0444 and 0555",
        set: |options, value| {
            options.umask = value.umask()?;
            Ok(())
        },
    },
    Definition {
        usage: "allow_other",
        default: Default::Text("on for root"),
        help: "let others than who mounts use it",
        set: |options, _| {
            options.allow_other = true;
            Ok(())
        },
    },
    Definition {
        usage: "io=auto|kernel|passthrough",
        default: Default::Value("auto"),
        help: "how content reaches readers: from the kernel's page cache (fastest for small files), or straight from the \
         files of the cache (for very large ones; for root); auto chooses by the sizes of the resources",
        set: |options, value| {
            options.io = value.choice(&[
                ("auto", AskedIo::Auto),
                ("kernel", AskedIo::Kernel),
                ("passthrough", AskedIo::Passthrough),
            ])?;
            Ok(())
        },
    },
    Definition {
        usage: "run_as=NAME",
        default: Default::Text("root stays root"),
        help: "who the daemon becomes before it talks to anybody (for root): a system user that owns nothing but the cache, which is given to it",
        set: |options, value| {
            let user = User::find(value.required()?)?;
            if !rustix::process::geteuid().is_root() {
                return Err(format!("-o run_as={}: only root can become another user; leave it out", user.name));
            }
            options.run_as = Some(user);
            Ok(())
        },
    },
    Definition {
        usage: "limit_NAME=VALUE",
        default: Default::Text("as the table of bounds says"),
        help: "how much is taken from the Source of one thing, for example limit_document=1G: there is a bound for each that could grow without end",
        set: |options, value| value.set_limit(&mut options.bounds),
    },
    Definition {
        usage: "ro",
        default: Default::Text("always"),
        help: "read-only; rw is accepted and served read-only",
        set: |_, _| Ok(()),
    },
    Definition {
        usage: "remount",
        default: Default::Text(""),
        help: "change timeout, connections, rate, poll, include, exclude, type, collection and newer of a mount that is there; include= and its like, without a value, ask for everything again",
        set: |options, _| {
            options.remount = true;
            Ok(())
        },
    },
];
