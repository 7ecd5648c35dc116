//! Called by mount(8): its arguments, and its exit codes.

use std::ffi::OsString;
use std::path::PathBuf;

use super::mount::{self, Mount};
use super::{Done, Stop, exit, show};
use crate::options;

const USAGE: &str = "usage: mount.resourcesync SOURCE DIR [-sfnv] [-N NAMESPACE] [-t TYPE] [-o OPTIONS]";

/// Mounts as mount(8) asks.
pub(super) fn run(arguments: &[OsString]) -> Done {
    if arguments.iter().any(|argument| argument == "--help" || argument == "-h") {
        show::out(format_args!("{USAGE}\n\n{}", options::help()));
        return Ok(());
    }
    let (asked, namespace) = parse(arguments)?;
    if let Some(namespace) = namespace {
        enter(&namespace)?;
    }
    mount::run(&asked)
}

fn wrong(problem: &str) -> Stop {
    Stop::new(exit::FAILED, format!("{problem}\n{USAGE}"))
}

fn parse(arguments: &[OsString]) -> Result<(Mount, Option<String>), Stop> {
    let mut asked = Mount {
        source: String::new(),
        directory: PathBuf::new(),
        options: Vec::new(),
        sloppy: false,
        foreground: false,
        fake: false,
        verbose: false,
    };
    let mut namespace = None;
    let mut places = Vec::new();
    let mut left = arguments.iter();
    let text =
        |argument: &OsString| argument.to_str().map(str::to_owned).ok_or_else(|| wrong("an argument is not UTF-8"));
    while let Some(argument) = left.next() {
        let Some(flags) = argument.to_str().and_then(|word| word.strip_prefix('-')).filter(|flags| !flags.is_empty())
        else {
            places.push(argument.clone());
            continue;
        };
        for (at, flag) in flags.char_indices() {
            let mut value = || -> Result<String, Stop> {
                let rest = &flags[at + 1..];
                if !rest.is_empty() {
                    return Ok(rest.to_owned());
                }
                left.next().map_or_else(|| Err(wrong(&format!("-{flag} needs a value"))), text)
            };
            match flag {
                's' => asked.sloppy = true,
                'f' => asked.fake = true,
                'n' => {}
                'v' => asked.verbose = true,
                'r' | 'w' => {}
                'o' => asked.options.push(value()?),
                't' => {
                    value()?;
                }
                'N' => namespace = Some(value()?),
                _ => return Err(wrong(&format!("-{flag} is not known"))),
            }
            if matches!(flag, 'o' | 't' | 'N') {
                break;
            }
        }
    }
    let [source, directory] = places.as_slice() else { return Err(wrong("a Source and a directory are needed")) };
    asked.source = text(source)?;
    asked.directory = directory.into();
    Ok((asked, namespace))
}

/// Enters another mount namespace, given by its file or by a process in it.
fn enter(namespace: &str) -> Done {
    let path = match namespace.parse::<u32>() {
        Ok(process) => format!("/proc/{process}/ns/mnt"),
        Err(_) => namespace.to_owned(),
    };
    let failed = |error: std::io::Error| Stop::new(exit::USAGE, format!("namespace {path}: {error}"));
    let file = std::fs::File::open(&path).map_err(failed)?;
    rustix::thread::move_into_link_name_space(
        std::os::fd::AsFd::as_fd(&file),
        Some(rustix::thread::LinkNameSpaceType::Mount),
    )
    .map_err(|error| failed(error.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<OsString> {
        text.split(' ').map(OsString::from).collect()
    }

    #[test]
    fn what_mount_passes_is_understood() {
        for text in [
            "https://s.example/ /mnt -o rw,timeout=3 -sv -t fuse.resourcesync",
            "https://s.example/ /mnt -s -v -n -orw,timeout=3",
            "-sv -o rw,timeout=3 https://s.example/ /mnt",
        ] {
            let (asked, namespace) = parse(&words(text)).unwrap_or_else(|stop| panic!("{text}: {}", stop.message));
            assert_eq!(
                (asked.source.as_str(), asked.directory.to_str()),
                ("https://s.example/", Some("/mnt")),
                "{text}"
            );
            assert_eq!(asked.options, ["rw,timeout=3"]);
            assert!(asked.sloppy && asked.verbose && !asked.fake && namespace.is_none());
        }
        assert_eq!(
            parse(&words("-N 17 a://b /c")).map(|(_, namespace)| namespace).ok().flatten().as_deref(),
            Some("17")
        );
    }

    #[test]
    fn what_is_wrong_exits_with_one() {
        for text in ["https://s.example/", "a b c", "a b -o", "a b -q"] {
            let Err(stop) = parse(&words(text)) else { panic!("{text}") };
            assert_eq!(stop.code, 1);
            assert!(stop.message.contains("usage:"), "{text}");
        }
    }
}
