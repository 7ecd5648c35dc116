//! A WebSocket server, on a free port.

use std::path::Path;

use serde_json::{Value, json};

use super::peer::Script;

/// A running server of the package `websockets`. Dropping it ends it.
pub struct Channel {
    tls: bool,
    script: Script,
    _folder: tempfile::TempDir,
}

impl Channel {
    /// Starts it. With `cut_after`, it drops each connection after so many frames sent to it.
    pub fn start(cut_after: Option<u32>) -> Self {
        Self::launch(cut_after, &[])
    }

    /// As [`Channel::start`], with TLS by a certificate and its key.
    pub fn start_tls(cut_after: Option<u32>, cert: &Path, key: &Path) -> Self {
        let files = [("--cert", cert), ("--key", key)];
        Self::launch(cut_after, &files.map(|(name, path)| [name.to_owned(), path.display().to_string()]).concat())
    }

    pub fn url(&self) -> String {
        format!("{}://127.0.0.1:{}/", if self.tls { "wss" } else { "ws" }, self.script.port)
    }

    /// Sends a text frame to all clients connected now, and returns how many these were.
    pub fn send(&mut self, text: &str) -> usize {
        self.ask(&json!({ "send": text }))
    }

    pub fn clients(&mut self) -> usize {
        self.ask(&json!({ "clients": null }))
    }

    /// Waits until there is a client.
    pub fn wait_for_client(&mut self) {
        assert!(self.ask(&json!({ "wait": 30 })) > 0, "no client comes");
    }

    /// Drops all connections, without a close frame.
    pub fn cut(&mut self) {
        self.ask(&json!({ "cut": null }));
    }

    fn launch(cut_after: Option<u32>, more: &[String]) -> Self {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let mut arguments = more.to_vec();
        arguments.extend(cut_after.iter().flat_map(|frames| ["--cut-after".to_owned(), frames.to_string()]));
        let script = Script::start("ws_channel.py", &arguments, folder.path());
        let script = script.unwrap_or_else(|| {
            let log = std::fs::read_to_string(folder.path().join("ws_channel.py.log")).unwrap_or_default();
            panic!("the WebSocket server does not start: {log}")
        });
        Self { tls: !more.is_empty(), script, _folder: folder }
    }

    fn ask(&mut self, what: &Value) -> usize {
        self.script.ask(what).as_u64().and_then(|count| count.try_into().ok()).expect("a number")
    }
}
