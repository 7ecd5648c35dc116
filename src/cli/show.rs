//! How things are printed: colours on a terminal only, sizes and times for people.

use std::io::IsTerminal;

use indicatif::{ProgressBar, ProgressStyle};

use super::messages::Progress;
use crate::document::Datetime;

fn coloured(terminal: bool) -> bool {
    terminal && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// Text in a colour or weight, where stdout is a terminal.
pub(super) fn paint(code: &str, text: &str) -> String {
    if coloured(std::io::stdout().is_terminal()) { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
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
        "complete" => "32",
        "syncing" | "empty" => "36",
        _ => "33",
    };
    paint(code, state)
}

/// The program's name before an error, on stderr.
pub(super) fn error_word(name: &str) -> String {
    if coloured(std::io::stderr().is_terminal()) { format!("\x1b[31m{name}\x1b[0m") } else { name.to_owned() }
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
pub(super) fn progress(bar: &ProgressBar, progress: &Progress) {
    let mut text = format!("{}, {}", progress.phase, size(progress.bytes));
    if progress.entries > 0 {
        text.push_str(&format!(", {}", plural(progress.entries, "entry", "entries")));
    }
    bar.set_length(progress.documents_known.max(1));
    bar.set_position(progress.documents);
    bar.set_message(text);
    bar.tick();
}

/// A size for people.
pub(super) fn size(bytes: u64) -> String {
    indicatif::BinaryBytes(bytes).to_string()
}

/// A number with its thousands apart.
pub(super) fn count(number: u64) -> String {
    indicatif::HumanCount(number).to_string()
}

/// `1 file`, `2 files`.
pub(super) fn plural(number: u64, one: &str, many: &str) -> String {
    format!("{} {}", count(number), if number == 1 { one } else { many })
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
