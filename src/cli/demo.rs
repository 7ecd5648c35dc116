//! `resourcesync demo`: a Source on loopback, mounted.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::messages::{Request, Response};
use super::mount::{self, Mount};
use super::{Done, Stop, control, log, mounts, show};
use crate::demo;
use crate::document::Datetime;

/// How often it is looked what has changed.
const EVERY: std::time::Duration = std::time::Duration::from_millis(500);
/// How long the mount may take to show what changed.
const SHOWN_WITHIN: std::time::Duration = std::time::Duration::from_secs(10);

/// Takes the mount away when the demo ends, however it ends.
struct Unmount<'d>(&'d Path);

impl Drop for Unmount<'_> {
    fn drop(&mut self) {
        if let Ok(Some(_)) = mounts::at(self.0)
            && rustix::mount::unmount(self.0, rustix::mount::UnmountFlags::DETACH).is_err()
        {
            let _ = Command::new("fusermount3").arg("-uz").arg("--").arg(self.0).status();
        }
    }
}

pub(super) fn run(directory: Option<&Path>, once: bool) -> Done {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().map_err(Stop::failed)?;
    let work = tempfile::Builder::new().prefix("resourcesync-demo-").tempdir().map_err(Stop::failed)?;
    let directory = match directory {
        Some(directory) => std::path::absolute(directory).map_err(Stop::failed)?,
        None => work.path().join("mirror"),
    };
    std::fs::create_dir_all(&directory)
        .map_err(|error| Stop::failed(format_args!("{}: {error}", directory.display())))?;
    let directory = directory.canonicalize().map_err(Stop::failed)?;
    let source = runtime.block_on(demo::Source::start()).map_err(Stop::failed)?;
    let cache = work.path().join("cache");
    let asked = Mount {
        source: source.url(),
        directory: directory.clone(),
        options: vec![format!("cache={},listen=127.0.0.1:0", cache.display())],
        sloppy: false,
        foreground: false,
        fake: false,
        verbose: false,
    };
    let began = std::time::Instant::now();
    mount::run(&asked)?;
    let unmount = Unmount(&directory);
    introduce(&source, &directory, began.elapsed());
    if once {
        show_once(&directory)?;
    } else {
        show::out("\nIt runs until Ctrl-C. This changes meanwhile, at the Source and in the mount:\n");
        let mirror = directory.clone();
        // It ends with the program, or when the mount does.
        std::thread::spawn(move || tell_changes(&mirror));
        runtime.block_on(async {
            let terminate = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate());
            match terminate {
                Ok(mut terminate) => tokio::select! {
                    _ = tokio::signal::ctrl_c() => {}
                    _ = terminate.recv() => {}
                },
                Err(_) => {
                    let _ = tokio::signal::ctrl_c().await;
                }
            }
        });
        show::out("");
    }
    drop(unmount);
    // The daemon may still be writing its last words into the cache.
    for _ in 0..50 {
        let lock = crate::catalog::CacheLock::take(&cache, "demo", std::time::Duration::from_millis(100));
        if lock.is_ok() {
            break;
        }
    }
    show::out(format_args!("unmounted {}", directory.display()));
    Ok(())
}

fn introduce(source: &demo::Source, directory: &Path, took: std::time::Duration) {
    let at = directory.display();
    show::out(format_args!(
        "{} is a ResourceSync Source with {}, which keeps changing.",
        show::bold(&source.url()),
        show::plural(source.resources(), "resource", "resources")
    ));
    show::out(format_args!("It is mounted at {} after {:.1} s.\n", show::bold(&at.to_string()), took.as_secs_f32()));
    show::out("Try:");
    for (command, what) in [
        (format!("ls {at}"), "the resources are files"),
        (format!("cat {at}/texts/00/text-0007.txt"), "read out of a package of the Source's dump, and verified"),
        (format!("getfattr -d {at}/texts/00/text-0007.txt"), "what the Source says of it"),
        ("resourcesync status".to_owned(), "what the mount is doing"),
        (format!("resourcesync log --since 1m {at}"), "what changed; the Source says so as it happens"),
        (format!("watch cat {at}/records/record-0.json"), "a record that changes, brought up to date by patches"),
        (format!("ls -l {at}/.versions/records/record-0.json"), "every version of it is a file"),
        (format!("diff -r {at}/.versions/@$(date -u -d -1min +%FT%TZ) {at}"), "what all of it was a minute ago"),
        (format!("resourcesync audit {at}"), "whether the mirror is what the Source lists"),
        (format!("resourcesync fetch {at}/texts"), "bring content ahead of use"),
        (format!("resourcesync inspect {}", source.url()), "what the Source offers"),
        (format!("cat {at}/.resourcesync/status.json"), "the same for programs"),
    ] {
        show::out(format_args!("  {command:<60} {}", show::dim(&format!("# {what}"))));
    }
}

/// Says what changes in a mount, as it happens.
fn tell_changes(directory: &Path) {
    let mut since = Datetime::now();
    loop {
        std::thread::sleep(EVERY);
        let mut syncs = Vec::new();
        let request = Request::Log { path: String::new(), since: Some(since.to_string()) };
        let asked = control::ask(directory, &request, |response| {
            if let Response::Sync(sync) = response {
                syncs.push(sync.clone());
            }
        });
        if asked.is_err() {
            return;
        }
        for sync in syncs.iter().rev() {
            if let Ok((time, _)) = Datetime::parse(&sync.time) {
                since = since.max(Datetime::from_nanos(time.nanos() + 1));
            }
            sync.changes.iter().rev().for_each(|change| show::print(format_args!("  {}", log::change_text(change))));
        }
    }
}

/// Walks the tree and reads a part of it, as a user would.
fn show_once(directory: &Path) -> Done {
    let mut files: Vec<PathBuf> = Vec::new();
    let mut left = vec![directory.to_owned()];
    while let Some(folder) = left.pop() {
        let failed = |error: std::io::Error| Stop::failed(format_args!("{}: {error}", folder.display()));
        for entry in std::fs::read_dir(&folder).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            if entry.file_type().map_err(failed)?.is_dir() {
                left.push(entry.path());
            } else {
                files.push(entry.path());
            }
        }
    }
    files.sort();
    let mut bytes = 0;
    let began = std::time::Instant::now();
    let read = files.iter().step_by(20);
    let mut count = 0;
    for path in read {
        bytes += read_latest(path)?;
        count += 1;
    }
    show::out(format_args!(
        "\nFound {}; read {} of them ({}), fetched and verified, in {:.2} s.",
        show::plural(files.len() as u64, "file", "files"),
        show::count(count),
        show::size(bytes),
        began.elapsed().as_secs_f32()
    ));
    show::out("\nWhat changes at the Source meanwhile:");
    std::thread::sleep(std::time::Duration::from_secs(6));
    log::run(directory, None, false)
}

/// Reads a file and returns its length. An open file keeps its version, and reading it fails once the Source has another one
/// and this one was not fetched before; then the other one is read, as soon as the mount shows it.
fn read_latest(path: &Path) -> Result<u64, Stop> {
    let failed = |error: std::io::Error| Stop::failed(format_args!("{}: {error}", path.display()));
    let version = || path.metadata().and_then(|file| file.modified()).map_err(failed);
    let began = std::time::Instant::now();
    loop {
        let before = version()?;
        let error = match std::fs::read(path) {
            Ok(content) => return Ok(content.len() as u64),
            Err(error) => error,
        };
        while began.elapsed() < SHOWN_WITHIN && version()? == before {
            std::thread::sleep(EVERY);
        }
        if began.elapsed() >= SHOWN_WITHIN {
            return Err(failed(error));
        }
    }
}
