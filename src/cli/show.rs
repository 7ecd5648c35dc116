//! How things are printed: colours on a terminal only, sizes and times for people.

use std::io::IsTerminal;

use indicatif::{ProgressBar, ProgressStyle};

use super::messages::Syncing;
use crate::document::Datetime;
use crate::printable;
pub(super) use crate::printable::count;
use crate::sync::Progress;

/// Styles: their code in SGR sequences (ECMA-48, 8.3.117), and the noncharacter that marks them in text on its way to the
/// [printer](render). Text from outside that contains such a mark changes its own colour and nothing else.
const STYLES: [(&str, char); 7] = [
    ("0", '\u{fdd0}'),
    ("1", '\u{fdd1}'),
    ("2", '\u{fdd2}'),
    ("31", '\u{fdd3}'),
    ("32", '\u{fdd4}'),
    ("33", '\u{fdd5}'),
    ("36", '\u{fdd6}'),
];

fn coloured(terminal: bool) -> bool {
    terminal && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// Text as it is printed: without control characters and secrets, and with styles where `coloured`.
fn render(text: &str, coloured: bool) -> String {
    let safe = printable::lines(text);
    let mut out = String::with_capacity(safe.len());
    for c in safe.chars() {
        match STYLES.iter().find(|(_, mark)| *mark == c) {
            None => out.push(c),
            Some((code, _)) if coloured => out.push_str(&format!("\x1b[{code}m")),
            Some(_) => {}
        }
    }
    out
}

/// Prints text on stdout as it is, without a line feed after it.
#[allow(clippy::print_stdout, reason = "this is the printer")]
pub(super) fn print(text: impl std::fmt::Display) {
    print!("{}", render(&text.to_string(), coloured(std::io::stdout().is_terminal())));
}

/// Clears the terminal.
#[allow(clippy::print_stdout, reason = "this is the printer")]
pub(super) fn clear() {
    print!("\x1b[2J\x1b[H");
}

/// Prints a line on stdout.
pub(super) fn out(text: impl std::fmt::Display) {
    print(format_args!("{text}\n"));
}

/// Prints a line on stderr.
#[allow(clippy::print_stderr, reason = "this is the printer")]
pub(super) fn err(text: impl std::fmt::Display) {
    eprintln!("{}", render(&text.to_string(), coloured(std::io::stderr().is_terminal())));
}

/// Prints JSON on stdout, without a line feed after it.
#[allow(clippy::print_stdout, reason = "this is the printer")]
pub(super) fn json(text: &str) {
    print!("{}", printable::json(text));
}

/// Stdout for output that is too long to be kept. Each write is of whole characters.
#[derive(Debug)]
pub(super) struct Output<W> {
    out: W,
    is_json: bool,
    coloured: bool,
}

impl Output<std::io::BufWriter<std::io::StdoutLock<'static>>> {
    /// The printer of a command's JSON, or of its text.
    pub(super) fn stdout(is_json: bool) -> Self {
        let stdout = std::io::stdout();
        let coloured = coloured(stdout.is_terminal());
        Self { out: std::io::BufWriter::new(stdout.lock()), is_json, coloured }
    }
}

impl<W: std::io::Write> std::io::Write for Output<W> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let text = String::from_utf8_lossy(bytes);
        match self.is_json {
            true => self.out.write_all(printable::json(&text).as_bytes())?,
            false => self.out.write_all(render(&text, self.coloured).as_bytes())?,
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.out.flush()
    }
}

/// Text in a colour or weight, where it is printed on a terminal; `code` is one of those of [`STYLES`].
pub(super) fn paint(code: &str, text: &str) -> String {
    let [reset, ..] = STYLES;
    match STYLES.iter().find(|(known, _)| *known == code) {
        Some((_, mark)) => format!("{mark}{text}{}", reset.1),
        None => text.to_owned(),
    }
}

pub(super) fn bold(text: &str) -> String {
    paint("1", text)
}

pub(super) fn dim(text: &str) -> String {
    paint("2", text)
}

/// A state in its colour.
pub(super) fn state(state: &str) -> String {
    let code = match state {
        "complete" | "live" => "32",
        "unused" => "2",
        "syncing" | "empty" | "joining" => "36",
        _ => "33",
    };
    paint(code, state)
}

/// The program's name before an error.
pub(super) fn error_word(name: &str) -> String {
    paint("31", name)
}

/// A bar on stderr, where that is a terminal.
pub(super) fn bar(template: &str) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(1);
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar
}

/// Shows how far a sync is.
pub(super) fn progress(bar: &ProgressBar, Syncing { phase, progress }: &Syncing) {
    let mut text = format!("{phase}, {}", size(progress.document_bytes));
    if progress.entries > 0 {
        text.push_str(&format!(", {}", plural(progress.entries, "entry", "entries")));
    }
    if progress.packages_known > 0 {
        text.push_str(&format!(
            "; {} of {} packages read, {}",
            progress.packages,
            progress.packages_known,
            download(progress)
        ));
    }
    bar.set_length((progress.documents_known + progress.packages_known).max(1));
    bar.set_position(progress.documents + progress.packages);
    bar.set_message(text);
    bar.tick();
}

/// How far packages have come: bytes, rate, time left.
fn download(progress: &Progress) -> String {
    let mut text = format!("{} of {}", size(progress.package_bytes), size(progress.package_bytes_known));
    if progress.bytes_per_second > 0 {
        text.push_str(&format!(", {}/s", size(progress.bytes_per_second)));
    }
    if let Some(left) = progress.seconds_left.filter(|_| progress.bytes_per_second > 0) {
        text.push_str(&format!(", {} left", duration(left)));
    }
    text
}

/// A part of a whole as a bar of text.
pub(super) fn gauge(part: u64, whole: u64) -> String {
    const WIDTH: u64 = 20;
    let full = usize::try_from(part.saturating_mul(WIDTH).checked_div(whole).unwrap_or(0).min(WIDTH)).unwrap_or(0);
    format!("[{}{}]", "#".repeat(full), "-".repeat(20 - full))
}

/// A length of time for people.
pub(super) fn duration(seconds: u64) -> String {
    match seconds {
        0..=119 => format!("{seconds} s"),
        120..=7199 => format!("{} min", seconds / 60),
        _ => format!("{} h", seconds / 3600),
    }
}

/// A size for people.
pub(super) fn size(bytes: u64) -> String {
    indicatif::BinaryBytes(bytes).to_string()
}

/// `1 file`, `2 files`.
pub(super) fn plural(number: u64, one: &str, many: &str) -> String {
    format!("{} {}", count(number), if number == 1 { one } else { many })
}

/// A moment for people, to the second; a text that is none stays as it is.
pub(super) fn moment(text: &str) -> String {
    match text.split_once('.') {
        Some((whole, _)) => format!("{whole}Z"),
        None => text.to_owned(),
    }
}

/// How long ago a moment was.
pub(super) fn ago(moment: Datetime) -> String {
    let seconds = (Datetime::now().nanos() - moment.nanos()).max(0) / 1_000_000_000;
    match seconds {
        0..=1 => "just now".to_owned(),
        2..=119 => format!("{seconds} s ago"),
        120..=7199 => format!("{} min ago", seconds / 60),
        7200..=172_799 => format!("{} h ago", seconds / 3600),
        _ => format!("{} days ago", seconds / 86_400),
    }
}
