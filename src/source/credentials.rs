//! `credentials=FILE`: who we are, to whom.

use std::collections::HashMap;
use std::fmt;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use thiserror::Error;
use url::Url;

use crate::printable;

/// The credentials of a file, by origin. A line each: `HOST[:PORT] bearer TOKEN` or
/// `HOST[:PORT] basic USER:PASSWORD`; for HTTPS, unless the host is written `http://HOST[:PORT]`. For the PubSub service of an
/// XMPP channel, `SERVICE xmpp USER@DOMAIN:PASSWORD`, with ` at HOST:PORT` after it where the domain's server is not found by DNS.
/// Lines that begin with `#` and empty lines say nothing.
#[derive(Default)]
pub struct Credentials {
    headers: HashMap<(String, String, u16), String>,
    accounts: HashMap<String, Account>,
}

/// An account at an XMPP server.
#[derive(Clone, PartialEq, Eq)]
pub struct Account {
    /// Its bare address.
    pub jid: String,
    /// Its password.
    pub password: String,
    /// Where its server is, if that is said.
    pub server: Option<(String, u16)>,
}

/// Secrets are never shown.
impl fmt::Debug for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Account of {}", self.jid)
    }
}

impl Account {
    fn parse(text: &str) -> Result<Self, &'static str> {
        let wrong = "an account is USER@DOMAIN:PASSWORD";
        let (user, rest) = text.split_once('@').ok_or(wrong)?;
        let (domain, rest) = rest.split_once(':').ok_or(wrong)?;
        let is_name = |text: &str| !text.is_empty() && !text.contains(['/', '@', '[', ' ', '\t']);
        if !is_name(user) || !is_name(domain) {
            return Err(wrong);
        }
        // A password that ends like that is one that nobody has.
        let (password, server) = match rest.rsplit_once(" at ") {
            None => (rest, None),
            Some((password, server)) => (password.trim_end(), Some(place(server.trim())?)),
        };
        Ok(Self { jid: format!("{user}@{domain}"), password: password.to_owned(), server })
    }
}

/// Keeps a secret, and what is derived from it, out of all that is shown.
fn register(secret: &str, is_basic: bool) {
    printable::register_secret(secret);
    if is_basic {
        printable::register_secret(&STANDARD.encode(secret));
        secret.split_once(':').into_iter().for_each(|(_, password)| printable::register_secret(password));
    }
}

/// A host and a port.
fn place(text: &str) -> Result<(String, u16), &'static str> {
    let wrong = "after ` at `, the server is HOST:PORT";
    let (host, port) = text.rsplit_once(':').ok_or(wrong)?;
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    if host.is_empty() || host.contains(char::is_whitespace) {
        return Err(wrong);
    }
    Ok((host.to_owned(), port.parse().map_err(|_| wrong)?))
}

/// Secrets are never shown.
impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Credentials for {} hosts", self.headers.len() + self.accounts.len())
    }
}

/// Why a credentials file cannot be used.
#[derive(Debug, Error)]
pub enum CredentialsError {
    /// It cannot be read.
    #[error("credentials file {path}: {error}")]
    Io {
        /// The file.
        path: String,
        /// Why.
        error: std::io::Error,
    },
    /// Others may read it.
    #[error("credentials file {0} may be read by others; run: chmod 600 {0}")]
    Open(String),
    /// A line is not understood. The line itself is not shown: it may hold a secret.
    #[error(
        "credentials file {path}, line {line}: {problem}; expected: HOST[:PORT] bearer TOKEN, HOST[:PORT] basic USER:PASSWORD, or SERVICE xmpp USER@DOMAIN:PASSWORD [at HOST:PORT]"
    )]
    Line {
        /// The file.
        path: String,
        /// Counted from 1.
        line: usize,
        /// What is wrong with it.
        problem: &'static str,
    },
}

impl Credentials {
    /// Reads a credentials file, which nobody but its owner may read.
    ///
    /// # Errors
    /// If it cannot be read, is open to others, or is not understood.
    pub fn read(path: &Path) -> Result<Self, CredentialsError> {
        let name = path.display().to_string();
        let io = |error| CredentialsError::Io { path: name.clone(), error };
        let metadata = std::fs::metadata(path).map_err(io)?;
        if metadata.permissions().mode() & 0o077 != 0 {
            return Err(CredentialsError::Open(name));
        }
        let text = std::fs::read_to_string(path).map_err(io)?;
        Self::parse(&text).map_err(|(line, problem)| CredentialsError::Line { path: name, line, problem })
    }

    fn parse(text: &str) -> Result<Self, (usize, &'static str)> {
        let mut known = Self::default();
        for (index, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let wrong = |problem| (index + 1, problem);
            let (host, rest) = line.split_once(char::is_whitespace).ok_or(wrong("three words are needed"))?;
            let (kind, secret) =
                rest.trim_start().split_once(char::is_whitespace).ok_or(wrong("three words are needed"))?;
            let secret = secret.trim_start();
            if kind == "xmpp" {
                if host.contains([':', '/']) {
                    return Err(wrong("a service is a name alone, as pubsub.example.com is"));
                }
                let account = Account::parse(secret).map_err(wrong)?;
                printable::register_secret(&account.password);
                known.accounts.insert(host.to_ascii_lowercase(), account);
                continue;
            }
            let origin = if host.contains("://") { host.to_owned() } else { format!("https://{host}") };
            let origin = Url::parse(&origin).ok().and_then(|url| origin_of(&url)).ok_or(wrong("that is no host"))?;
            register(secret, kind == "basic");
            let header = match kind {
                "bearer" => format!("Bearer {secret}"),
                "basic" if secret.contains(':') => format!("Basic {}", STANDARD.encode(secret)),
                "basic" => return Err(wrong("a basic secret is USER:PASSWORD")),
                _ => return Err(wrong("the second word is none of basic, bearer and xmpp")),
            };
            known.headers.insert(origin, header);
        }
        Ok(known)
    }

    /// The value of the `Authorization` header for this URL, if there is one for its origin.
    #[must_use]
    pub fn header(&self, url: &Url) -> Option<&str> {
        self.headers.get(&origin_of(url)?).map(String::as_str)
    }

    /// The account that is subscribed at a PubSub service, if there is one.
    #[must_use]
    pub fn account(&self, service: &str) -> Option<&Account> {
        self.accounts.get(&service.to_ascii_lowercase())
    }
}

fn origin_of(url: &Url) -> Option<(String, String, u16)> {
    let scheme = url.scheme();
    matches!(scheme, "http" | "https").then_some(())?;
    Some((scheme.to_owned(), url.host_str()?.to_owned(), url.port_or_known_default()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_for_one_origin() {
        let known =
            Credentials::parse("# mine\n\na.example bearer t0k3n\nhttp://b.example:8080 basic me:pass word\n").unwrap();
        for (url, header) in [
            ("https://a.example/x", Some("Bearer t0k3n")),
            ("https://a.example:443/x", Some("Bearer t0k3n")),
            ("http://a.example/x", None),
            ("https://a.example:8443/x", None),
            ("https://sub.a.example/x", None),
            ("https://a.example.evil.example/", None),
            ("http://b.example:8080/", Some("Basic bWU6cGFzcyB3b3Jk")),
            ("https://b.example:8080/", None),
        ] {
            assert_eq!(known.header(&Url::parse(url).unwrap()), header, "{url}");
        }
    }

    #[test]
    fn accounts_are_for_services() {
        let text = "pubsub.a.example xmpp me@a.example:pass: word\nB.example xmpp me@b.example:at at [::1]:5222\n";
        let known = Credentials::parse(text).unwrap();
        let account = |jid: &str, password: &str, server: Option<(&str, u16)>| Account {
            jid: jid.to_owned(),
            password: password.to_owned(),
            server: server.map(|(host, port)| (host.to_owned(), port)),
        };
        assert_eq!(known.account("pubsub.a.example"), Some(&account("me@a.example", "pass: word", None)));
        assert_eq!(known.account("b.example"), Some(&account("me@b.example", "at", Some(("::1", 5222)))));
        assert_eq!(known.account("a.example"), None);
        // Columns may be aligned.
        let aligned = Credentials::parse("a.example   bearer\t TOKEN\nb.example \t xmpp    u@d:p  at h:1\n").unwrap();
        assert_eq!(aligned.header(&Url::parse("https://a.example/").unwrap()), Some("Bearer TOKEN"));
        assert_eq!(aligned.account("b.example"), Some(&account("u@d", "p", Some(("h", 1)))));
        assert!(!format!("{known:?} {:?}", known.account("b.example")).contains("word"));
    }

    #[test]
    fn a_bad_line_is_named_and_not_shown() {
        for (text, line) in [
            ("a.example bearer", 1),
            ("\na.example digest x", 2),
            ("a.example basic secret", 1),
            ("a.example xmpp me:secret", 1),
            ("a.example xmpp me@a.example:secret at chat.example", 1),
            ("a.example xmpp me@a.example:secret at chat.example:99999", 1),
            ("a.example xmpp me@a.example/res:secret", 1),
            ("xmpp:a.example xmpp me@a.example:secret", 1),
        ] {
            assert_eq!(Credentials::parse(text).unwrap_err().0, line);
        }
    }
}
