//! A WebSub hub within the test.

use std::collections::HashMap;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use super::server::{Reply, Server};

/// The fields of a request to the hub.
pub type Form = HashMap<String, String>;

/// A WebSub hub that accepts each request, keeps what was posted, and asks callbacks what the test wants asked.
pub struct ScriptedHub {
    pub server: Server,
}

impl ScriptedHub {
    pub fn start() -> Self {
        let server = Server::start();
        server.on("/hub", |_| Reply::status(202));
        Self { server }
    }

    pub fn url(&self) -> String {
        self.server.url("/hub")
    }

    /// The forms that were posted.
    pub fn forms(&self) -> Vec<Form> {
        let posts = self.server.requests().into_iter().filter(|request| request.method == "POST");
        posts.map(|request| url::form_urlencoded::parse(&request.body).into_owned().collect()).collect()
    }

    /// The last form, once there are so many.
    pub fn form(&self, count: usize) -> Form {
        let began = Instant::now();
        while self.forms().len() < count {
            assert!(began.elapsed() < Duration::from_secs(20), "{count} requests do not come");
            std::thread::sleep(Duration::from_millis(10));
        }
        self.forms().remove(count - 1)
    }

    /// Sends a verification or denial to the callback of a form (WebSub 5.2, 5.3); returns the HTTP status.
    pub fn ask(form: &Form, mode: &str, more: &[(&str, &str)]) -> String {
        let (host, path) =
            form["hub.callback"].strip_prefix("http://").and_then(|url| url.split_once('/')).expect("a URL");
        let query = url::form_urlencoded::Serializer::new(String::new())
            .append_pair("hub.mode", mode)
            .append_pair("hub.topic", &form["hub.topic"])
            .extend_pairs(more)
            .finish();
        let mut stream = TcpStream::connect(host).expect("the callback listens");
        write!(stream, "GET /{path}?{query} HTTP/1.1\r\nHost: {host}\r\n\r\n").expect("a request is sent");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        answer.split(' ').nth(1).expect("a status").to_owned()
    }

    /// Verifies what the form asks for (WebSub 5.3).
    pub fn verify(form: &Form, lease: &str) {
        let more = [("hub.challenge", "c0de"), ("hub.lease_seconds", lease)];
        assert_eq!(Self::ask(form, &form["hub.mode"].clone(), &more), "200");
    }
}
