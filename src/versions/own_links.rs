//! What a resource's own `Link` header says of its versions (RFC 7089, 4).

use std::sync::Arc;
use std::time::Duration;

use super::targets;
use crate::source::{Asked, Client, SourceError, parse_link_header};

/// Where the versions of a resource can be asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OwnLinks {
    /// Its TimeMaps.
    pub timemaps: Vec<String>,
    /// Its TimeGates.
    pub timegates: Vec<String>,
}

/// Asks for the head of a resource, and reads the links in it.
///
/// # Errors
/// If it cannot be asked, or does not answer in the time.
pub async fn own_links(client: &Arc<Client>, url: &str, within: Duration) -> Result<OwnLinks, SourceError> {
    let head = Asked { head: true, aside: true, patience: Some(within.min(client.timeout())), ..Asked::default() };
    let answer = client.ask(url, &head).await?;
    let links: Vec<_> = answer.header_values("link").flat_map(parse_link_header).collect();
    let targets = |rel: &str| -> Vec<String> {
        let named = links.iter().filter(|link| link.is(rel) && targets::is_link_format(link));
        // Of another resource than this one (RFC 8288, 3.2).
        let own = |anchor: &str| targets::resolve(&answer.url, anchor).is_none_or(|anchor| anchor == answer.url);
        let named = named.filter(|link| link.parameter("anchor").is_none_or(own));
        named.filter_map(|link| targets::resolve(&answer.url, &link.href)).map(String::from).collect()
    };
    Ok(OwnLinks { timemaps: targets("timemap"), timegates: targets("timegate") })
}
