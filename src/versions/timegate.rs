//! TimeGates (RFC 7089, 4): what was at a moment.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use url::Url;

use super::{Memento, Negotiated, http_date, memento_datetime, targets};
use crate::document::Datetime;
use crate::source::{Answer, Asked, Client, LinkValue, SourceError, Trouble, parse_link_header};

type Result<T> = std::result::Result<T, SourceError>;

/// The most links that are taken from the heads of the answers to a question.
const MOST_LINKS: usize = 1000;

/// The share of the time that `HEAD` has, so that enough is left to ask by `GET` where it is not understood.
const HEAD_SHARE: f32 = 0.4;

/// Asks a TimeGate for what was at a moment; without one, for what it says of now. That there is no memento
/// is no error.
///
/// # Errors
/// If it cannot be asked, refuses, or does not answer in the time.
pub async fn ask_timegate(
    client: &Arc<Client>,
    url: &str,
    moment: Option<Datetime>,
    within: Duration,
) -> Result<Negotiated> {
    let asking = tokio::time::timeout(within, ask(client, url, moment, within));
    let stalled = |_| SourceError::new(url, Trouble::Stalled { what: "answer of the TimeGate", after: within });
    match asking.await.map_err(stalled)? {
        Ok(answer) => Ok(understand(&answer, moment)),
        Err(error) if matches!(error.trouble, Trouble::Status { code: 404 | 410, .. }) => Ok(Negotiated::default()),
        Err(error) => Err(error),
    }
}

async fn ask(client: &Arc<Client>, url: &str, moment: Option<Datetime>, within: Duration) -> Result<Answer> {
    let begun = Instant::now();
    let date = moment.map(http_date);
    let head = Asked {
        aside: true,
        head: true,
        accept_datetime: date.as_deref(),
        memento: true,
        patience: Some(within.mul_f32(HEAD_SHARE).min(client.timeout())),
        ..Asked::default()
    };
    match client.ask(url, &head).await {
        Err(error) if is_refusal_of_head(&error.trouble) => {
            let patience = Some(within.saturating_sub(begun.elapsed()).min(client.timeout()));
            client.ask(url, &Asked { head: false, patience, ..head }).await
        }
        answer => answer,
    }
}

/// Whether a `GET` may do better. Some break off where they do not expect `HEAD`.
fn is_refusal_of_head(trouble: &Trouble) -> bool {
    match trouble {
        Trouble::Status { code, .. } => matches!(code, 400 | 403 | 405 | 406 | 500 | 501 | 502),
        Trouble::Walled { .. } => true,
        Trouble::Broken(_) | Trouble::Stalled { .. } => true,
        _ => false,
    }
}

/// A link of a head, with its target resolved.
#[derive(Debug)]
struct Named {
    url: Url,
    link: LinkValue,
}

/// The links of all heads on the way; the last answer's first, which knows best.
fn named(answer: &Answer) -> Vec<Named> {
    let passed = answer.passed.iter().map(|(url, headers)| (url, headers));
    std::iter::once((&answer.url, &answer.headers))
        .chain(passed)
        .flat_map(|(url, headers)| headers.get_all("link").iter().map(move |value| (url, value)))
        .flat_map(|(url, value)| {
            let links = parse_link_header(&String::from_utf8_lossy(value.as_bytes()));
            links.into_iter().map(move |link| (url, link))
        })
        .take(MOST_LINKS)
        .filter_map(|(base, link)| targets::resolve(base, &link.href).map(|url| Named { url, link }))
        .collect()
}

fn understand(answer: &Answer, moment: Option<Datetime>) -> Negotiated {
    let links = named(answer);
    let others = mementos(&links);
    let not_after = |memento: &Memento| moment.is_none_or(|moment| memento.datetime <= moment);
    let mut found = Negotiated { timemap: timemap(&links), ..Negotiated::default() };
    if let Some((memento, negotiated)) = itself(answer, &links) {
        let believed = not_after(&memento);
        // What was archived may be that there is no such thing.
        let fails = answer.status >= 400;
        found.negotiated = negotiated && believed && !fails;
        // The one that is nearest to the moment may be after it; the one before is often named beside it.
        found.memento = match believed {
            true => Some(memento).filter(|_| !fails),
            false => others.iter().rfind(|other| not_after(other)).cloned(),
        };
    }
    Negotiated { others, ..found }
}

/// The memento that an answer is, and whether it can be had by negotiation only.
///
/// In the patterns of RFC 7089, 4 the answer is the memento itself, after a redirect or without (1.1, 2.1,
/// 3, 4); or the TimeGate sends its bytes, and names its URL (1.2, 2.2) or does not (1.3, 2.3).
fn itself(answer: &Answer, links: &[Named]) -> Option<(Memento, bool)> {
    let own = targets::itself(&answer.url);
    let says = |rel: &str| links.iter().any(|named| named.url == own && named.link.is(rel));
    let direct = answer.passed.is_empty();
    let negotiates = varies(answer) || says("timegate");
    let fixed = says("memento") || says("original");
    let location = answer
        .header_values("content-location")
        .next()
        .filter(|_| direct || negotiates)
        .and_then(|location| targets::resolve(&answer.url, location))
        .filter(|location| *location != own);
    let negotiated = location.is_none() && (negotiates || direct && !fixed);
    let url = location.unwrap_or(own);
    let linked = || links.iter().filter(|named| named.url == url).find_map(|named| targets::datetime(&named.link));
    let datetime = memento_datetime(&answer.headers).or_else(linked)?;
    Some((Memento { url: url.into(), datetime }, negotiated))
}

fn varies(answer: &Answer) -> bool {
    let mut names = answer.header_values("vary").flat_map(|value| value.split(','));
    names.any(|name| name.trim().eq_ignore_ascii_case("accept-datetime"))
}

fn mementos(links: &[Named]) -> Vec<Memento> {
    let mut known = HashSet::new();
    let mut mementos: Vec<Memento> = links
        .iter()
        .filter_map(|named| Some((&named.url, targets::datetime(&named.link)?)))
        .filter(|(url, _)| known.insert(*url))
        .map(|(url, datetime)| Memento { url: url.to_string(), datetime })
        .collect();
    targets::sort(&mut mementos);
    mementos
}

/// The TimeMap that can be read, if several are named: one that says that it is in link format goes first.
fn timemap(links: &[Named]) -> Option<String> {
    let timemaps = || links.iter().filter(|named| named.link.is("timemap") && targets::is_link_format(&named.link));
    let typed = timemaps().find(|named| named.link.parameter("type").is_some());
    typed.or_else(|| timemaps().next()).map(|named| named.url.to_string())
}
