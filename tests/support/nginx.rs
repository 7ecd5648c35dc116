//! nginx on a free port, serving a folder.

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A running nginx. Dropping it stops it.
pub struct Nginx {
    pub port: u16,
    folder: tempfile::TempDir,
    root: PathBuf,
    tls: bool,
    process: Option<Child>,
}

impl Nginx {
    /// A free port, so that documents can name it before the server runs.
    pub fn prepare() -> Self {
        super::require(&["nginx"]);
        let folder = tempfile::tempdir().expect("a temporary directory");
        // nginx drops to another user, who must reach its files.
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        fs::set_permissions(folder.path(), open).expect("permissions");
        let root = folder.path().join("htdocs");
        fs::create_dir(&root).expect("a folder");
        let port = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a free port").port();
        Self { port, folder, root, tls: false, process: None }
    }

    /// As [`Nginx::prepare`], with HTTPS by a certificate that [`Nginx::authority`] vouches for.
    pub fn prepare_tls() -> Self {
        super::require(&["openssl"]);
        let mut nginx = Self::prepare();
        nginx.tls = true;
        super::shell(&format!(
            "cd {} && exec 2>/dev/null
             openssl req -x509 -newkey rsa:2048 -nodes -days 3 -subj '/CN=test authority' \
                 -addext 'basicConstraints=critical,CA:TRUE' -addext 'keyUsage=critical,keyCertSign' -keyout ca.key -out ca.crt
             openssl req -newkey rsa:2048 -nodes -subj '/CN=127.0.0.1' -keyout server.key -out server.csr
             printf 'subjectAltName=IP:127.0.0.1\nextendedKeyUsage=serverAuth\n' > extensions
             openssl x509 -req -in server.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 2 -extfile extensions -out server.crt",
            nginx.folder.path().display()
        ));
        nginx
    }

    /// The certificate that `ca=` wants.
    pub fn authority(&self) -> PathBuf {
        self.folder.path().join("ca.crt")
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    pub fn url(&self, path: &str) -> String {
        let scheme = if self.tls { "https" } else { "http" };
        format!("{scheme}://127.0.0.1:{}{path}", self.port)
    }

    pub fn start(&mut self) {
        let folder = self.folder.path().display();
        let tls = match self.tls {
            true => format!("ssl http2; ssl_certificate {folder}/server.crt; ssl_certificate_key {folder}/server.key"),
            false => String::new(),
        };
        let config = format!(
            "daemon off; pid {folder}/pid; worker_processes 2; error_log {folder}/error.log;\n\
             events {{ worker_connections 512; }}\n\
             http {{ access_log {folder}/access.log; sendfile on; default_type application/octet-stream;\n\
             client_body_temp_path {folder}/t1; proxy_temp_path {folder}/t2; fastcgi_temp_path {folder}/t3;\n\
             uwsgi_temp_path {folder}/t4; scgi_temp_path {folder}/t5;\n\
             server {{ listen 127.0.0.1:{} {tls}; root {}; }} }}\n",
            self.port,
            self.root.display()
        );
        let path = self.folder.path().join("nginx.conf");
        fs::write(&path, config).expect("the configuration");
        let process = Command::new("/usr/sbin/nginx")
            .arg("-c")
            .arg(&path)
            .stdout(Stdio::null())
            .stderr(Stdio::inherit())
            .spawn()
            .expect("nginx starts");
        self.process = Some(process);
        let began = Instant::now();
        while TcpStream::connect(("127.0.0.1", self.port)).is_err() {
            assert!(began.elapsed() < Duration::from_secs(60), "nginx does not answer");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    pub fn stop(&mut self) {
        if let Some(mut process) = self.process.take() {
            // The master ends its workers when it is asked to.
            let _ = Command::new("kill").arg(process.id().to_string()).output();
            let _ = process.wait();
        }
    }

    /// The paths that were asked for.
    pub fn log(&self) -> Vec<String> {
        let text = fs::read_to_string(self.folder.path().join("access.log")).unwrap_or_default();
        text.lines().filter_map(|line| line.split('"').nth(1)?.split(' ').nth(1).map(str::to_owned)).collect()
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        self.stop();
    }
}
