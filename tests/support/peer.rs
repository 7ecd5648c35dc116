//! Programs of others that tests talk to, in processes of their own.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

/// How long a script may take to start or to answer.
const WITHIN: Duration = Duration::from_secs(60);

/// A program of a virtual environment, which scripts/test-deps makes beside what Cargo builds.
pub fn program(environment: &str, name: &str) -> PathBuf {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("a folder");
    let program = target.join(environment).join("bin").join(name);
    assert!(program.exists(), "{} is missing; run scripts/test-deps", program.display());
    program
}

/// Ends a process and whatever it started: all are in a group of its own.
pub fn end(process: &mut Child) {
    let group = i32::try_from(process.id()).ok().and_then(rustix::process::Pid::from_raw);
    if let Some(group) = group.filter(|_| matches!(process.try_wait(), Ok(None))) {
        let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
    }
    let _ = process.wait();
}

/// A Python script of this folder that runs until its input ends, and says in one line of JSON each that it can be
/// asked and what it answers. Dropping it ends it; its log is shown where a test has failed.
pub struct Script {
    pub port: u16,
    name: String,
    log: PathBuf,
    process: Child,
    input: ChildStdin,
    /// In a lock so that many threads may hold the script.
    answers: Mutex<Receiver<String>>,
}

impl Script {
    /// Starts it, in this folder; nothing where it ends instead.
    pub fn start(name: &str, arguments: &[String], folder: &Path) -> Option<Self> {
        let log = folder.join(format!("{name}.log"));
        let to = fs::File::options().create(true).append(true).open(&log).expect("a log");
        let mut process = Command::new(program("peers", "python"))
            // Nothing from the environment, nor from where a user keeps packages.
            .arg("-I")
            .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/support").join(name))
            .args(arguments)
            .current_dir(folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(to)
            .process_group(0)
            .spawn()
            .expect("Python starts");
        let input = process.stdin.take().expect("its input");
        let lines = BufReader::new(process.stdout.take().expect("its output")).lines();
        let (says, answers) = channel();
        // It ends with the process.
        std::thread::spawn(move || lines.map_while(Result::ok).try_for_each(|line| says.send(line)));
        let answers = Mutex::new(answers);
        let mut script = Self { port: 0, name: name.to_owned(), log, process, input, answers };
        let began: serde_json::Value = serde_json::from_str(&script.next_line().ok()?).expect("JSON");
        script.port = began["port"].as_u64().and_then(|port| port.try_into().ok()).expect("a port");
        Some(script)
    }

    /// Tells it something, and returns what it answers.
    pub fn ask(&mut self, what: &serde_json::Value) -> serde_json::Value {
        writeln!(self.input, "{what}").unwrap_or_else(|error| panic!("{} has ended: {error}", self.name));
        let answer = self.next_line();
        let answer = answer.unwrap_or_else(|error| panic!("{} does not answer: {error}", self.name));
        serde_json::from_str(&answer).expect("JSON")
    }

    /// The next line that it says.
    fn next_line(&mut self) -> Result<String, RecvTimeoutError> {
        self.answers.get_mut().expect("no panic").recv_timeout(WITHIN)
    }
}

impl Drop for Script {
    fn drop(&mut self) {
        end(&mut self.process);
        if std::thread::panicking()
            && let Ok(log) = fs::read_to_string(&self.log)
        {
            eprintln!("--- the log of {}\n{log}---", self.name);
        }
    }
}
