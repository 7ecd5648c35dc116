//! A channel on which the Source itself posts Change Sets to a URL that it was told (ResourceSync 0.1, 5.2.2).
//!
//! The draft knows no signature, no lease and no leave-taking: whoever knows the path is believed, so it is one that nobody can
//! guess, and stays the same from one process to the next.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::mpsc;

use super::listener::{MOST_EVENTS, MOST_SHOWN, Subscriber};
use super::websub::{callback, unguessable};
use super::{Context, Phase, backoff};
use crate::printable;
use crate::sync::{OfferedChannel, Subscription};

/// What stands before the URL of a subscription interface, in the URL of a channel.
pub(super) const SCHEME: &str = "callback+";
/// The longest wait between tries.
const LONGEST: Duration = Duration::from_secs(600);
/// How often a Source is told the URL again: it may have forgotten.
const AGAIN: Duration = Duration::from_secs(86_400);

/// Stays subscribed, for ever.
pub(super) async fn stay(context: Arc<Context>, offered: OfferedChannel) {
    let (id, mut tries, mut live) = (offered.channel.id, 0, false);
    loop {
        match subscribe(&context, &offered, live).await {
            Ok(()) => {
                context.board.set(id, Phase::Live);
                (tries, live) = (0, true);
                tokio::time::sleep(AGAIN.mul_f64(0.9 + 0.2 * fastrand::f64())).await;
            }
            Err(why) => {
                if tries == 0 {
                    context.engine.status().error(&format!("not subscribed, trying again: {why}"));
                }
                // What it was told before, it may still deliver to.
                if !live {
                    context.board.set(id, Phase::Failing(why));
                }
                tokio::time::sleep(backoff(tries, LONGEST)).await;
                tries += 1;
            }
        }
    }
}

/// Tells the Source where we listen.
async fn subscribe(context: &Arc<Context>, offered: &OfferedChannel, live: bool) -> Result<(), String> {
    let channel = &offered.channel;
    let interface = channel.url.strip_prefix(SCHEME).unwrap_or(&channel.url);
    let known = channel.subscription.as_ref().map(|known| known.token.clone());
    let known = known.or_else(|| {
        let all = context.registry.all();
        all.iter().find(|one| one.channel.id == channel.id).map(|one| one.subscription.token.clone())
    });
    let token = match known {
        Some(token) => token,
        None => unguessable::<24>()?,
    };
    let url = callback(context, &token).ok_or("there is no callback")?;
    let subscription = Subscription {
        callback: url.clone(),
        token,
        secret: String::new(),
        hub: interface.to_owned(),
        topic: interface.to_owned(),
        expires: None,
    };
    let kept = context.engine.inbox().keep_subscription(channel.id, Some(subscription.clone())).await;
    kept.map_err(|error| error.to_string())?;
    // Nobody speaks of this one; what is said of others has a receiver.
    let (tell, _) = mpsc::channel(MOST_EVENTS);
    context.registry.put(Subscriber {
        channel: channel.clone(),
        subscription,
        leaving: false,
        signed: false,
        verification: Mutex::default(),
        tell,
    });
    let posted = context.client.post_form(interface, &[("callbackURI", &url)]).await;
    let posted = posted.map_err(|error| error.to_string())?;
    if !posted.is_good() {
        let said = printable::short_line(&posted.text, MOST_SHOWN);
        return Err(format!("{interface}: the Source answers {} {said}", posted.status));
    }
    if !live {
        // What comes from now on is heard; what came before may have been missed.
        context.engine.inbox().joined(channel.id).await.map_err(|error| error.to_string())?;
        tracing::info!(interface, "the Source was told where to post changes");
    }
    Ok(())
}
