//! Where connections may lead: a Source on a public address leads to public addresses.
//!
//! Whoever publishes a document chooses what we ask for: the content and its mirrors, mementos, hubs, redirects, and the
//! addresses that their names resolve to. From the inside of a network that is a way to reach what is not for
//! the outside: the services of this machine, those of its neighbours, and what clouds tell machines about
//! themselves (169.254.169.254). So addresses are looked at where connections are made: names as they are resolved, for
//! the very connection that uses the answer (an answer that changes with each question gains nothing), and
//! addresses in URLs before they are asked. A Source that is itself on a private address may lead anywhere.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use reqwest::dns::{Name, Resolve, Resolving};
use url::{Host, Url};

use super::error::{SourceError, Trouble};

/// Where connections may lead.
#[derive(Clone, Debug, Default)]
pub struct Reach(Option<Arc<Home>>);

/// Where the Source is.
#[derive(Debug)]
struct Home {
    host: String,
    /// Whether private addresses may be reached from wherever the Source is.
    allow_private: bool,
    /// Whether the Source is on https and nothing may be asked by http.
    is_https_only: bool,
    /// One of the constants below.
    seen: AtomicU8,
    /// Their hosts; these are chosen by whoever runs the machine.
    proxies: Vec<String>,
}

const UNSEEN: u8 = 0;
const PRIVATE: u8 = 1;
/// Stays so: a name that is public first and private later is how one gets in.
const PUBLIC: u8 = 2;

/// The variables that name proxies.
const PROXIES: [&str; 6] = ["http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"];

/// What whoever runs the machine allows a Source, beside what is safe.
#[derive(Clone, Copy, Debug, Default)]
pub struct Allowed {
    /// Private addresses, for a Source that is not on one itself.
    pub private: bool,
    /// http, for a Source that is had by https.
    pub http: bool,
}

impl Reach {
    /// Anywhere.
    #[must_use]
    pub fn anywhere() -> Self {
        Self(None)
    }

    /// Where this Source may lead: to private addresses if it is on one itself or that is allowed; from https to http only if that
    /// is.
    #[must_use]
    pub fn of(source: &Url, allowed: Allowed) -> Self {
        let proxies = PROXIES.iter().filter_map(|name| std::env::var(name).ok()).filter_map(|proxy| {
            let proxy = Url::parse(&proxy).or_else(|_| Url::parse(&format!("http://{proxy}"))).ok()?;
            proxy.host_str().map(str::to_ascii_lowercase)
        });
        Self::from(source, proxies.collect(), allowed)
    }

    fn from(source: &Url, proxies: Vec<String>, allowed: Allowed) -> Self {
        let seen = match literal(source) {
            Some(address) if is_public(address) => PUBLIC,
            Some(_) => PRIVATE,
            None => UNSEEN,
        };
        let host = source.host_str().unwrap_or_default().to_ascii_lowercase();
        let is_https_only = source.scheme() == "https" && !allowed.http;
        Self(Some(Arc::new(Home {
            host,
            allow_private: allowed.private,
            is_https_only,
            seen: AtomicU8::new(seen),
            proxies,
        })))
    }

    /// Whether the Source was seen on a public address.
    #[must_use]
    pub fn is_public(&self) -> bool {
        self.0.as_ref().is_some_and(|home| home.seen.load(Ordering::Relaxed) == PUBLIC)
    }

    /// The Source was seen on a public address in an earlier life.
    pub fn was_public(&self) {
        if let Some(home) = &self.0 {
            home.seen.store(PUBLIC, Ordering::Relaxed);
        }
    }

    /// Whether this URL may be asked, as far as it can be told before its name is resolved for the connection.
    pub(super) async fn permits(&self, url: &Url) -> Result<(), SourceError> {
        let Some(home) = &self.0 else { return Ok(()) };
        let refused = |trouble| SourceError::new(url, trouble);
        if home.is_https_only && url.scheme() == "http" {
            return Err(refused(Trouble::Downgrade));
        }
        if let Some(address) = literal(url) {
            let host = url.host_str().unwrap_or_default();
            return home.admit(host, vec![SocketAddr::new(address, 0)]).await.map(drop).map_err(refused);
        }
        let Some(host) = url.host_str().filter(|_| !home.proxies.is_empty()) else { return Ok(()) };
        // A proxy resolves names itself. Those that this machine does not know are left to it.
        match look_up(host).await {
            Ok(addresses) => home.admit(host, addresses).await.map(drop).map_err(refused),
            Err(_) => Ok(()),
        }
    }
}

impl Home {
    /// Of the addresses of a host, those that may be reached.
    async fn admit(&self, host: &str, all: Vec<SocketAddr>) -> Result<Vec<SocketAddr>, Trouble> {
        if self.allow_private {
            return Ok(all);
        }
        let is_home = host.eq_ignore_ascii_case(&self.host);
        let public: Vec<_> = all.iter().copied().filter(|one| is_public(one.ip())).collect();
        if is_home && !public.is_empty() {
            self.seen.store(PUBLIC, Ordering::Relaxed);
        }
        let private = match all.first() {
            Some(private) if public.is_empty() => private.ip(),
            _ if self.seen.load(Ordering::Relaxed) == PRIVATE => return Ok(all),
            _ => return Ok(public),
        };
        let refused = Trouble::Private { host: host.to_owned(), address: private, moved: is_home };
        if is_home {
            // Public once is public for good, whoever else comes to see it at this moment.
            let seen = self.seen.compare_exchange(UNSEEN, PRIVATE, Ordering::Relaxed, Ordering::Relaxed);
            return if seen == Err(PUBLIC) { Err(refused) } else { Ok(all) };
        }
        if self.is_private().await { Ok(all) } else { Err(refused) }
    }

    /// Whether the Source is on a private address, as far as is known or can be found out.
    async fn is_private(&self) -> bool {
        if self.seen.load(Ordering::Relaxed) == UNSEEN
            && let Ok(addresses) = look_up(&self.host).await
            && !addresses.is_empty()
        {
            let seen = if addresses.iter().any(|one| is_public(one.ip())) { PUBLIC } else { PRIVATE };
            let _ = self.seen.compare_exchange(UNSEEN, seen, Ordering::Relaxed, Ordering::Relaxed);
        }
        self.seen.load(Ordering::Relaxed) == PRIVATE
    }
}

impl Resolve for Reach {
    fn resolve(&self, name: Name) -> Resolving {
        let home = self.0.clone();
        Box::pin(async move {
            let host = name.as_str();
            let mut addresses = look_up(host).await?;
            if let Some(home) = home.filter(|home| !home.proxies.iter().any(|proxy| proxy.eq_ignore_ascii_case(host))) {
                addresses = home.admit(host, addresses).await?;
            }
            Ok(Box::new(addresses.into_iter()) as reqwest::dns::Addrs)
        })
    }
}

async fn look_up(host: &str) -> std::io::Result<Vec<SocketAddr>> {
    Ok(tokio::net::lookup_host((host, 0)).await?.collect())
}

/// The address in a URL that has one instead of a name.
fn literal(url: &Url) -> Option<IpAddr> {
    match url.host()? {
        Host::Domain(_) => None,
        Host::Ipv4(address) => Some(address.into()),
        Host::Ipv6(address) => Some(address.into()),
    }
}

/// Whether an address is one of the internet at large (RFC 6890 and its successors), and not this machine's own, behind which
/// its services listen, too. Those of documentation (RFC 5737) are routed nowhere, and count as public. What only a router
/// knows to lead to this machine, by NAT, is not known here.
fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => is_public_v6(address) && !is_own(address.into()),
    }
}

/// Whether an address is one of this machine: a socket can be bound to it, unless the kernel binds any address
/// (`ip_nonlocal_bind`), or the machine talks to it from the very same address. Neither sends anything.
fn is_own(address: IpAddr) -> bool {
    let bind = |address: IpAddr| std::net::UdpSocket::bind((address, 0));
    let (any, nobodys): (IpAddr, IpAddr) = match address {
        IpAddr::V4(_) => (Ipv4Addr::UNSPECIFIED.into(), Ipv4Addr::new(192, 0, 2, 1).into()),
        IpAddr::V6(_) => (Ipv6Addr::UNSPECIFIED.into(), Ipv6Addr::new(0x100, 0, 0, 0, 0, 0, 0, 1).into()),
    };
    if bind(address).is_ok() && bind(nobodys).is_err() {
        return true;
    }
    let own = bind(any).and_then(|socket| {
        // The port of the discard protocol (RFC 863): any would do.
        socket.connect((address, 9))?;
        socket.local_addr()
    });
    own.is_ok_and(|own| own.ip() == address)
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    !matches!(
        address.octets(),
        [0 | 10 | 127 | 224..=255, ..]
            | [100, 64..=127, ..]
            | [169, 254, ..]
            | [172, 16..=31, ..]
            | [192, 0, 0, _]
            | [192, 168, ..]
            | [198, 18 | 19, ..]
    ) && !is_own(address.into())
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    let within = |high: u16, low: u16| {
        let ([a, b], [c, d]) = (high.to_be_bytes(), low.to_be_bytes());
        is_public_v4(Ipv4Addr::new(a, b, c, d))
    };
    match address.segments() {
        // Mapped (RFC 4291, 2.5.5), compatible, and translated (RFC 6052) addresses lead where that of version 4 does;
        // ::1 and :: are among them.
        [0, 0, 0, 0, 0, 0 | 0xffff, high, low]
        | [0, 0, 0, 0, 0xffff, 0, high, low]
        | [0x64, 0xff9b, 0, 0, 0, 0, high, low]
        // 6to4 (RFC 3056).
        | [0x2002, high, low, ..] => within(high, low),
        // Teredo (RFC 4380) has it inverted.
        [0x2001, 0, .., high, low] => within(!high, !low),
        // Translated within a network (RFC 8215), unique local, link-local, site-local, multicast, discarded.
        [0x64, 0xff9b, 1, ..] | [0x100, 0, 0, 0, ..] => false,
        [first, ..] => !matches!(first, 0xfc00..=0xfdff | 0xfe80..=0xffff),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &str) -> Url {
        Url::parse(text).unwrap()
    }

    #[test]
    fn addresses_of_machines_and_their_networks_are_private() {
        for address in [
            "0.0.0.0",
            "10.0.0.1",
            "100.64.0.1",
            "127.0.0.2",
            "169.254.169.254",
            "172.16.0.1",
            "172.31.255.255",
            "192.0.0.1",
            "192.168.7.7",
            "198.18.0.1",
            "224.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::ffff:10.0.0.1",
            "::ffff:0:10.0.0.1",
            "::127.0.0.1",
            "64:ff9b::a9fe:a9fe",
            "64:ff9b:1::1",
            "100::1",
            "2002:7f00:1::1",
            "2001:0:1:2:3:4:80ff:fffd",
            "fc00::1",
            "fd12::1",
            "fe80::1",
            "fec0::1",
            "ff02::1",
        ] {
            assert!(!is_public(address.parse().unwrap()), "{address}");
        }
        for address in [
            "1.1.1.1",
            "100.63.0.1",
            "100.128.0.1",
            "172.15.0.1",
            "172.32.0.1",
            "192.0.2.1",
            "198.51.100.1",
            "203.0.113.1",
            "223.255.255.255",
            "2001:db8::1",
            "2606:4700::1111",
            "::ffff:203.0.113.1",
            "64:ff9b::cb00:7101",
            "2002:cb00:7101::1",
        ] {
            assert!(is_public(address.parse().unwrap()), "{address}");
        }
    }

    #[tokio::test]
    async fn a_public_source_leads_to_public_addresses_however_private_ones_are_spelled() {
        let reach = Reach::from(&url("https://203.0.113.1/"), Vec::new(), Allowed { private: false, http: true });
        for there in ["http://203.0.113.9/", "https://[2001:db8::1]/", "http://name.example/"] {
            reach.permits(&url(there)).await.unwrap();
        }
        for there in [
            "http://127.0.0.2/",
            "http://2130706434/",
            "http://0x7f.2/",
            "http://0251.0376.0251.0376/",
            "http://[::ffff:10.0.0.1]:8080/",
            "https://10.1/",
        ] {
            let error = reach.permits(&url(there)).await.unwrap_err();
            assert!(matches!(error.trouble, Trouble::Private { moved: false, .. }), "{there}: {error}");
        }
        for free in [
            Reach::anywhere(),
            Reach::from(&url("http://10.0.0.7:8080/"), Vec::new(), Allowed { private: false, http: false }),
        ] {
            free.permits(&url("http://127.0.0.2/")).await.unwrap();
        }
    }

    #[tokio::test]
    async fn a_source_on_https_leads_to_http_only_where_that_is_allowed() {
        for (source, allow_http, is_refused) in [
            ("https://203.0.113.1/", false, true),
            ("https://203.0.113.1/", true, false),
            ("http://203.0.113.1/", false, false),
        ] {
            let reach = Reach::from(&url(source), Vec::new(), Allowed { private: false, http: allow_http });
            let there = reach.permits(&url("http://203.0.113.9/")).await;
            let refused = matches!(&there, Err(SourceError { trouble: Trouble::Downgrade, .. }));
            assert_eq!(refused, is_refused, "{source} {allow_http}: {there:?}");
            reach.permits(&url("https://203.0.113.9/")).await.unwrap();
        }
    }

    #[test]
    fn this_machines_own_addresses_are_private() {
        assert!(is_own("127.0.0.1".parse().unwrap()) && !is_own("203.0.113.77".parse().unwrap()));
    }

    #[tokio::test]
    async fn public_once_is_public_for_good() {
        let address = |text: &str| SocketAddr::new(text.parse().unwrap(), 0);
        let reach = Reach::from(&url("https://source.example/"), Vec::new(), Allowed { private: false, http: true });
        let home = reach.0.as_ref().unwrap();
        let private = vec![address("10.0.0.1")];
        assert_eq!(home.admit("Source.example", private.clone()).await, Ok(private.clone()));
        assert_eq!(home.admit("other.example", private.clone()).await, Ok(private.clone()), "it is on one itself");
        let both = vec![address("10.0.0.1"), address("203.0.113.1")];
        assert_eq!(home.admit("source.example", both.clone()).await, Ok(vec![address("203.0.113.1")]));
        assert!(reach.is_public());
        for (host, moved) in [("source.example", true), ("other.example", false)] {
            let refused = Trouble::Private { host: host.to_owned(), address: "10.0.0.1".parse().unwrap(), moved };
            assert_eq!(home.admit(host, private.clone()).await, Err(refused));
            assert_eq!(home.admit(host, both.clone()).await, Ok(vec![address("203.0.113.1")]));
        }
    }

    #[tokio::test]
    async fn a_proxy_is_where_whoever_runs_the_machine_says() {
        let reach = Reach::from(
            &url("https://203.0.113.1/"),
            vec!["localhost".to_owned()],
            Allowed { private: false, http: true },
        );
        assert!(reach.resolve("localhost".parse().unwrap()).await.is_ok());
        let error = reach.permits(&url("http://localhost/")).await.unwrap_err();
        assert!(matches!(error.trouble, Trouble::Private { .. }), "{error}");
        let reach = Reach::from(&url("https://203.0.113.1/"), Vec::new(), Allowed { private: false, http: true });
        let Err(error) = reach.resolve("localhost".parse().unwrap()).await else { panic!("it led to this machine") };
        assert!(error.downcast_ref::<Trouble>().is_some_and(|trouble| matches!(trouble, Trouble::Private { .. })));
    }
}
