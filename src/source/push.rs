//! What channels of notifications need beside GET: a form that is posted to a hub (WebSub 5.1), and a connection that
//! becomes a WebSocket (RFC 6455, 4.1).

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use reqwest::header::{self, HeaderMap, HeaderValue};
use reqwest::{Method, Response, Upgraded};
use sha1::{Digest as _, Sha1};
use url::{Url, form_urlencoded};

use super::client::{Client, host_of, redirects};
use super::error::{SourceError, Trouble};
use super::pace::Permit;
use super::validators::text;
use crate::printable;

type Result<T> = std::result::Result<T, SourceError>;

/// The most of an answer's body that is read, in bytes.
const MOST_TEXT: usize = 4096;

/// What a server answers to a form.
#[derive(Clone, Debug)]
pub struct Posted {
    /// Where it was answered, after redirects.
    pub url: Url,
    /// Its status.
    pub status: u16,
    /// The beginning of its body, on one line of at most 4096 bytes.
    pub text: String,
}

impl Posted {
    /// Whether the server took it.
    #[must_use]
    pub fn is_good(&self) -> bool {
        (200..300).contains(&self.status)
    }
}

impl Client {
    /// Posts a form. A redirect is followed with the form, for what is asked for is asked of whoever is there now;
    /// but never from https to http, for it may have a secret in it.
    ///
    /// # Errors
    /// If there is no answer within the timeout, or redirects do not end.
    pub async fn post_form(&self, url: &str, form: &[(&str, &str)]) -> Result<Posted> {
        let first = self.checked(url)?;
        let body = form_urlencoded::Serializer::new(String::new()).extend_pairs(form).finish();
        let mut next = first.clone();
        for _ in 0..=self.bounds().redirects {
            let mut headers = self.identity(&next);
            let form = HeaderValue::from_static("application/x-www-form-urlencoded");
            headers.insert(header::CONTENT_TYPE, form);
            let request = self.http().request(Method::POST, next.clone()).headers(headers).body(body.clone());
            let host = host_of(&next);
            let entering = self.pace().enter(&host, false);
            let _permit = tokio::time::timeout(self.timeout(), entering).await.map_err(|_| self.silent(&next))?;
            let response = self.answered(&next, request).await?;
            let status = response.status().as_u16();
            // After a 303, the answer to something else is elsewhere.
            if !redirects(status) || status == 303 {
                let text = self.beginning(response).await;
                return Ok(Posted { url: next, status, text });
            }
            next = self.led(&next, response.headers())?;
        }
        Err(self.too_many_redirects(&first))
    }

    /// Opens a connection and turns it into that of a WebSocket, whose frames are the caller's matter. It counts in
    /// `limit_connections` until the permit is dropped. `url` is one of `ws`, `wss`, `http` or `https`.
    ///
    /// # Errors
    /// If the server does not agree to it within the timeout.
    pub async fn upgrade(self: &Arc<Self>, url: &str) -> Result<(Upgraded, Permit)> {
        let first = self.checked(&as_http(url))?;
        let permit = tokio::time::timeout(self.timeout(), self.pace().enter_to_stay()).await.ok().flatten();
        let stalled = Trouble::Stalled { what: "free connection (limit_connections)", after: self.timeout() };
        let permit = permit.ok_or_else(|| SourceError::new(url, stalled))?;
        let http = self.upgrading()?;
        let mut next = first.clone();
        for _ in 0..=self.bounds().redirects {
            let mut nonce = [0; 16];
            getrandom::fill(&mut nonce)
                .map_err(|error| SourceError::new(url, Trouble::Broken(format!("no random numbers: {error}"))))?;
            let key = BASE64_STANDARD.encode(nonce);
            let mut headers = self.identity(&next);
            for (name, value) in [
                (header::CONNECTION, "Upgrade"),
                (header::UPGRADE, "websocket"),
                (header::SEC_WEBSOCKET_VERSION, "13"),
                (header::SEC_WEBSOCKET_KEY, key.as_str()),
            ] {
                headers.extend(HeaderValue::from_str(value).map(|value| (name, value)));
            }
            let response = self.answered(&next, http.get(next.clone()).headers(headers)).await?;
            let status = response.status().as_u16();
            if redirects(status) {
                next = self.led(&next, response.headers())?;
                continue;
            }
            if status != 101 {
                return Err(SourceError::new(url, Trouble::Status { code: status, retry_after: None }));
            }
            let agreed = text(response.headers(), &header::SEC_WEBSOCKET_ACCEPT);
            if agreed.as_deref() != Some(accept(&key).as_str()) {
                let why = "it does not answer as a WebSocket does (Sec-WebSocket-Accept)".to_owned();
                return Err(SourceError::new(url, Trouble::Broken(why)));
            }
            let upgraded = tokio::time::timeout(self.timeout(), response.upgrade()).await;
            let upgraded = upgraded
                .map_err(|_| self.silent(&next))?
                .map_err(|error| SourceError::new(url, Trouble::Broken(error.to_string())))?;
            return Ok((upgraded, permit));
        }
        Err(self.too_many_redirects(&first))
    }

    fn silent(&self, url: &Url) -> SourceError {
        SourceError::new(url, Trouble::Stalled { what: "answer", after: self.timeout() })
    }

    async fn answered(&self, url: &Url, request: reqwest::RequestBuilder) -> Result<Response> {
        self.reach().permits(url).await?;
        let timeout: Duration = self.timeout();
        let response = tokio::time::timeout(timeout, request.send())
            .await
            .map_err(|_| self.silent(url))?
            .map_err(|error| SourceError::new(url, self.trouble(&error, timeout)))?;
        self.check_head(url, response.headers())?;
        Ok(response)
    }

    /// Where a redirect leads.
    fn led(&self, from: &Url, headers: &HeaderMap) -> Result<Url> {
        let bad = |why: String| SourceError::new(from, Trouble::BadUrl(why));
        let target = text(headers, &header::LOCATION)
            .ok_or_else(|| SourceError::new(from, Trouble::Broken("a redirect without a Location".to_owned())))?;
        let target = from.join(&target).map_err(|error| bad(format!("redirect to {target:?}: {error}")))?;
        if from.scheme() == "https" && !matches!(target.scheme(), "https" | "wss") {
            return Err(bad(format!("it redirects to {target}, where everybody can listen")));
        }
        self.checked(&as_http(target.as_str()))
    }

    /// The beginning of a body, as far as it comes in time: it is for people.
    async fn beginning(&self, mut response: Response) -> String {
        let mut body = Vec::new();
        let reading = async {
            while body.len() < MOST_TEXT
                && let Ok(Some(chunk)) = response.chunk().await
            {
                body.extend_from_slice(&chunk);
            }
        };
        // What did not come in time is not worth waiting for.
        let _ = tokio::time::timeout(self.timeout(), reading).await;
        body.truncate(MOST_TEXT);
        printable::line(&words(&String::from_utf8_lossy(&body))).into_owned()
    }
}

/// The URL by which a WebSocket is asked for (RFC 6455, 3).
fn as_http(url: &str) -> String {
    match url.split_once(':') {
        Some((scheme, rest)) if scheme.eq_ignore_ascii_case("ws") => format!("http:{rest}"),
        Some((scheme, rest)) if scheme.eq_ignore_ascii_case("wss") => format!("https:{rest}"),
        _ => url.to_owned(),
    }
}

/// The words of a text, on one line.
fn words(text: &str) -> String {
    let words: Vec<&str> =
        text.split(|c: char| c.is_whitespace() || c.is_control()).filter(|one| !one.is_empty()).collect();
    words.join(" ")
}

/// What a server answers to a key (RFC 6455, 4.2.2).
fn accept(key: &str) -> String {
    let mut hasher = Sha1::new();
    hasher.update(key);
    hasher.update("258EAFA5-E914-47DA-95CA-C5AB0DC85B11");
    BASE64_STANDARD.encode(hasher.finalize())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_of_the_specification_is_accepted_as_it_says() {
        assert_eq!(accept("dGhlIHNhbXBsZSBub25jZQ=="), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    }

    #[test]
    fn the_words_of_an_answer_are_one_line() {
        assert_eq!(words("<p>no\n\n  such\ttopic</p>\u{7}"), "<p>no such topic</p>");
    }
}
