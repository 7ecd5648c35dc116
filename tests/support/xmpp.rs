//! prosody, an XMPP server with a PubSub service, on a free port of this machine.

use std::fs;
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::peer::{Script, end};
use super::shell;
use super::telling::free_port;

/// The service that publishes.
pub const SERVICE: &str = "pubsub.localhost";
/// The node that is published on.
pub const NODE: &str = "changes of a/source";

/// A running server. Dropping it stops it.
pub struct Prosody {
    pub port: u16,
    folder: tempfile::TempDir,
    process: Option<Child>,
}

impl Prosody {
    /// Starts it: with a certificate of an authority of its own, or without TLS.
    pub fn start(tls: bool) -> Self {
        super::require(&["openssl"]);
        for program in ["prosody", "prosodyctl"] {
            assert!(PathBuf::from("/usr/bin").join(program).exists(), "{program} is missing; run scripts/test-deps");
        }
        let folder = tempfile::tempdir().expect("a temporary directory");
        let (path, port) = (folder.path().display().to_string(), free_port());
        let modules = if tls { "\"tls\"; " } else { "" };
        let ssl = format!("ssl = {{ certificate = \"{path}/server.crt\"; key = \"{path}/server.key\" }}");
        let configuration = format!(
            "daemonize = false\npidfile = \"{path}/pid\"\ndata_path = \"{path}/data\"\nlog = {{ info = \"{path}/log\" }}\n\
             interfaces = {{ \"127.0.0.1\" }}\nc2s_ports = {{ {port} }}\nc2s_direct_tls_ports = {{}}\ns2s_ports = {{}}\n\
             modules_enabled = {{ {modules}\"roster\"; \"saslauth\"; \"disco\"; \"ping\" }}\n\
             modules_disabled = {{ \"s2s\"; \"http\"; \"offline\"{} }}\nauthentication = \"internal_hashed\"\n\
             storage = \"internal\"\nc2s_require_encryption = false\nallow_unencrypted_plain_auth = true\n{}\n\
             VirtualHost \"localhost\"\nComponent \"{SERVICE}\" \"pubsub\"\n    autocreate_on_subscribe = false\n    \
             default_admin_affiliation = \"owner\"\n    admins = {{ \"publisher@localhost\" }}\n",
            if tls { "" } else { "; \"tls\"" },
            if tls { ssl } else { String::new() },
        );
        fs::write(folder.path().join("prosody.cfg.lua"), configuration).expect("its configuration");
        if tls {
            shell(&format!(
                "cd {path} && exec 2>&1 && \
                 openssl req -x509 -newkey rsa:2048 -nodes -days 3 -subj '/CN=test authority' -keyout ca.key -out ca.crt && \
                 openssl req -newkey rsa:2048 -nodes -subj /CN=localhost -keyout server.key -out server.csr && \
                 echo subjectAltName=DNS:localhost > extensions && \
                 openssl x509 -req -in server.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 2 -extfile extensions -out server.crt"
            ));
        }
        fs::create_dir(folder.path().join("data")).expect("a folder");
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).expect("its mode");
        // It does not run as root.
        shell(&format!("chown -R prosody {path}"));
        for user in ["publisher", "other", "mirror"] {
            shell(&format!("prosodyctl --config {path}/prosody.cfg.lua register {user} localhost secret 2>&1"));
        }
        shell(&format!("chown -R prosody {path}"));
        let mut server = Self { port, folder, process: None };
        server.start_again();
        server
    }

    /// The authority that its certificate is of.
    pub fn authority(&self) -> PathBuf {
        self.folder.path().join("ca.crt")
    }

    pub fn stop(&mut self) {
        if let Some(mut process) = self.process.take() {
            end(&mut process);
        }
    }

    pub fn start_again(&mut self) {
        let id = |what: &str| shell(&format!("id {what} prosody")).trim().parse::<u32>().expect("a number");
        let configuration = self.folder.path().join("prosody.cfg.lua");
        let process = Command::new("prosody")
            .args(["--config", &configuration.to_string_lossy(), "-F"])
            .uid(id("-u"))
            .gid(id("-g"))
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        self.process = Some(process.expect("prosody starts"));
        let began = Instant::now();
        while TcpStream::connect(("127.0.0.1", self.port)).is_err() {
            let log = || fs::read_to_string(self.folder.path().join("log")).unwrap_or_default();
            assert!(began.elapsed() < Duration::from_secs(60), "prosody does not start: {}", log());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Whoever publishes on the node.
    pub fn publisher(&self) -> Script {
        let arguments = [self.port.to_string(), SERVICE.to_owned(), NODE.to_owned()];
        Script::start("xmpp_publisher.py", &arguments, self.folder.path()).expect("the publisher logs in")
    }
}

impl Drop for Prosody {
    fn drop(&mut self) {
        self.stop();
        if std::thread::panicking()
            && let Ok(log) = fs::read_to_string(self.folder.path().join("log"))
        {
            eprintln!("--- the log of prosody\n{log}---");
        }
    }
}
