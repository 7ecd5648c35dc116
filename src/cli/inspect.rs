//! `resourcesync inspect`: what a Source offers, or what one document says.

use std::fs::File;
use std::io::{Seek as _, Write as _};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::meaning::Meaning;
use super::{Done, Stop, exit, show};
use crate::document::{Capability, Dialect, DocumentError, Entry, Facts, Head, Kind, Limits, Reader, looks_like_html};
use crate::path::set_labels;
use crate::printable::line;
use crate::source::{Asked, CapabilityDocument, Client, Credentials, Discovery, Options as ClientOptions, discover};
use crate::{bounds, options};

#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// A Source's origin, or the URL or file name of one document
    #[arg(value_name = "URL-OR-FILE")]
    what: String,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Show all entries, not only the first
    #[arg(long)]
    all: bool,
    /// As for mounts: credentials=, ca=, timeout=, allow_private, limit_NAME=
    #[arg(short = 'o', value_name = "OPTIONS")]
    options: Vec<String>,
}

/// Entries that are shown to people unless they ask for all.
const SHOWN: u64 = 10;

pub(super) fn run(arguments: &Arguments) -> Done {
    if !arguments.what.contains("://") {
        let path = Path::new(&arguments.what);
        if !path.is_file() {
            let what = &arguments.what;
            return Err(Stop::failed(format_args!(
                "{what}: there is no such file; if it is a URL, write http://{what} or https://{what}"
            )));
        }
        let open = || File::open(path).map_err(|error| Stop::failed(format_args!("{}: {error}", path.display())));
        return document(arguments, &arguments.what, &open);
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(Stop::failed)?;
    runtime.block_on(remote(arguments))
}

async fn remote(arguments: &Arguments) -> Done {
    let client = client(arguments)?;
    let is_origin =
        url::Url::parse(&arguments.what).is_ok_and(|url| matches!(url.path(), "" | "/") && url.query().is_none());
    if !is_origin {
        let (file, start) = download(&client, &arguments.what).await?;
        if !looks_like_html(&start) {
            let again = || -> Result<File, Stop> {
                let mut again = file.try_clone().map_err(Stop::failed)?;
                again.rewind().map_err(Stop::failed)?;
                Ok(again)
            };
            return document(arguments, &arguments.what, &again);
        }
    }
    let found = discover(&client, &arguments.what).await.map_err(Stop::failed)?;
    source(arguments, &client, &found).await
}

fn parse(arguments: &Arguments) -> Result<options::Options, Stop> {
    options::Options::parse(&arguments.options, false).map_err(|error| Stop::new(exit::USAGE, error))
}

fn client(arguments: &Arguments) -> Result<Arc<Client>, Stop> {
    let options = parse(arguments)?;
    let credentials = match &options.credentials {
        Some(path) => Credentials::read(path).map_err(Stop::failed)?,
        None => Credentials::default(),
    };
    Client::new(ClientOptions {
        timeout: options.timeout.min(Duration::from_secs(3600)),
        reach: options.reach(&arguments.what),
        bounds: options.bounds,
        ca: options.ca,
        credentials,
        ..ClientOptions::default()
    })
    .map_err(Stop::failed)
}

/// Brings a document here; returns it and its first bytes.
async fn download(client: &Arc<Client>, url: &str) -> Result<(File, Vec<u8>), Stop> {
    let asked =
        Asked { accept_encoding: Some("gzip, identity;q=0.5"), patience: Some(client.timeout()), ..Asked::default() };
    let mut answer = client.ask(url, &asked).await.map_err(Stop::failed)?;
    let mut file = tempfile::tempfile().map_err(Stop::failed)?;
    let mut start = Vec::new();
    let (mut size, bounds) = (0, client.bounds());
    while let Some(chunk) = answer.chunk().await.map_err(Stop::failed)? {
        size += chunk.len() as u64;
        if size > bounds.document {
            return Err(Stop::failed(format_args!("{url}: {}", bounds::DOCUMENT.passed("its size", bounds))));
        }
        if start.len() < 1024 {
            start.extend_from_slice(&chunk);
        }
        file.write_all(&chunk).map_err(Stop::failed)?;
    }
    Ok((file, start))
}

/// What a whole document amounts to.
struct Read {
    head: Head,
    entries: u64,
    warnings: Vec<String>,
    meaning: Meaning,
    /// What it was read with.
    limits: Limits,
}

/// Reads a document to its end, and hands each entry on.
fn read(name: &str, file: &File, limits: Limits, mut visit: impl FnMut(&Entry)) -> Result<Read, DocumentError> {
    let mut reader = Reader::open(file, name, limits)?;
    let md = reader.head().md.clone();
    Facts::of_attributes(&md, 0, reader.warnings_mut());
    let (mut entries, mut meaning) = (0, Meaning::default());
    while let Some(entry) = reader.next()? {
        Facts::of_entry(&entry, reader.warnings_mut());
        entries += 1;
        meaning.of_entry(reader.head(), &entry);
        visit(&entry);
    }
    meaning.of_head(reader.head());
    Ok(Read { head: reader.head().clone(), entries, warnings: reader.warnings().lines(), meaning, limits })
}

/// Shows one document. It is read twice, so that its head stands before its entries in constant memory.
fn document(arguments: &Arguments, name: &str, open: &dyn Fn() -> Result<File, Stop>) -> Done {
    let limits = Limits::of(&parse(arguments)?.bounds);
    let whole = read(name, &open()?, limits, |_| ()).map_err(Stop::failed)?;
    let mut out = show::Output::stdout(arguments.json);
    let result = if arguments.json {
        json_document(&mut out, name, &open()?, &whole)
    } else {
        show_document(&mut out, name, &open()?, &whole, arguments.all)
    };
    result.and_then(|()| out.flush()).or_else(broken_pipe)
}

/// Whoever reads us may have seen enough.
fn broken_pipe(error: std::io::Error) -> Done {
    if error.kind() == std::io::ErrorKind::BrokenPipe { Ok(()) } else { Err(Stop::failed(error)) }
}

fn json_document(out: &mut impl std::io::Write, name: &str, file: &File, whole: &Read) -> std::io::Result<()> {
    let head = &whole.head;
    write!(
        out,
        "{{\n\"kind\": {},\n\"dialect\": {},\n\"capability\": {},\n\"md\": {},\n\"links\": {},\n\"entries\": [",
        json!(head.kind.name()),
        json!(head.dialect.name()),
        json!(head.md.get("capability")),
        serde_json::to_string(&head.md)?,
        serde_json::to_string(&head.links)?,
    )?;
    let mut first = true;
    let mut result = Ok(());
    let read = read(name, file, whole.limits, |entry| {
        if result.is_ok() {
            result = serde_json::to_string(entry).map_err(std::io::Error::from).and_then(|text| {
                let comma = if std::mem::take(&mut first) { "" } else { "," };
                write!(out, "{comma}\n{text}")
            });
        }
    });
    result?;
    read.map_err(std::io::Error::other)?;
    write!(out, "\n],\n\"warnings\": {}", serde_json::to_string(&whole.warnings)?)?;
    let meaning = whole.meaning.json();
    // Of a document of the specification in force, all of which means something, there is no more to say.
    if head.dialect != Dialect::V1_1 || meaning["ignored"].as_array().is_some_and(|ignored| !ignored.is_empty()) {
        for fate in ["used", "kept", "ignored"] {
            write!(out, ",\n\"{fate}\": {}", meaning[fate])?;
        }
    }
    writeln!(out, "\n}}")
}

fn show_document(
    out: &mut impl std::io::Write,
    name: &str,
    file: &File,
    whole: &Read,
    all: bool,
) -> std::io::Result<()> {
    let head = &whole.head;
    let capability = line(head.md.get("capability").unwrap_or("no capability: a plain sitemap"));
    writeln!(out, "{}", show::bold(name))?;
    writeln!(out, "  {} {capability} ({}, dialect {})", show::dim("document"), head.kind.name(), head.dialect.name())?;
    for (key, value) in head.md.iter().filter(|(key, _)| *key != "capability") {
        writeln!(out, "  {} {}", show::dim(&format!("{:<8}", line(key))), line(value))?;
    }
    for link in &head.links {
        let (rel, href) = (line(link.rel()), line(link.href().unwrap_or("(no href)")));
        writeln!(out, "  {} {href}", show::dim(&format!("{rel:<8}")))?;
    }
    writeln!(out, "  {} {}", show::dim("entries "), show::count(whole.entries))?;
    let shown = if all { u64::MAX } else { SHOWN };
    let mut number = 0;
    let mut result = Ok(());
    let read = read(name, file, whole.limits, |entry| {
        number += 1;
        if number <= shown && result.is_ok() {
            result = show_entry(out, entry);
        }
    });
    result?;
    read.map_err(std::io::Error::other)?;
    if whole.entries > shown {
        writeln!(out, "\n  {} more; --all shows them", show::count(whole.entries - shown))?;
    }
    write!(out, "{}", whole.meaning.text())?;
    if !whole.warnings.is_empty() {
        writeln!(out, "\n{}", show::paint("33", "tolerated"))?;
        whole.warnings.iter().try_for_each(|warning| writeln!(out, "  {}", line(warning)))?;
    }
    Ok(())
}

fn show_entry(out: &mut impl std::io::Write, entry: &Entry) -> std::io::Result<()> {
    writeln!(out, "\n  {}", line(&entry.loc))?;
    for (key, value) in [("lastmod", &entry.lastmod), ("changefreq", &entry.changefreq)] {
        if let Some(value) = value {
            writeln!(out, "    {} {}", show::dim(&line(key)), line(value))?;
        }
    }
    for (key, value) in entry.md.iter() {
        writeln!(out, "    {} {}", show::dim(&line(key)), line(value))?;
    }
    for link in &entry.links {
        let others: Vec<String> = link
            .0
            .iter()
            .filter(|(key, _)| !matches!(*key, "rel" | "href"))
            .map(|(key, value)| line(&format!("{key}={value}")).into_owned())
            .collect();
        writeln!(
            out,
            "    {} {} {}",
            show::dim(&line(link.rel())),
            line(link.href().unwrap_or("(no href)")),
            show::dim(&others.join(" "))
        )?;
    }
    Ok(())
}

/// Shows a Source as discovery found it.
async fn source(arguments: &Arguments, client: &Arc<Client>, found: &Discovery) -> Done {
    let mut sets = Vec::new();
    let keys: Vec<&str> = found.sets.iter().map(|set| set.key.as_str()).collect();
    for (set, label) in found.sets.iter().zip(set_labels(&keys)) {
        let mut capabilities = Vec::new();
        for document in &set.capabilities {
            capabilities.push(capability(client, document).await);
        }
        sets.push(json!({
            "name": label,
            "capability_list": set.capability_list,
            "capabilities": capabilities,
        }));
    }
    let value = json!({
        "source": arguments.what,
        "route": found.route.name(),
        "description": found.description,
        "sets": sets,
        "warnings": found.warnings,
    });
    if arguments.json {
        show::json(&(serde_json::to_string_pretty(&value).map_err(Stop::failed)? + "\n"));
    } else {
        show_source(&value);
    }
    Ok(())
}

/// What one document of a set amounts to.
async fn capability(client: &Arc<Client>, document: &CapabilityDocument) -> Value {
    let (capability, url) = (document.capability, document.url.as_str());
    let mut value = json!({"capability": capability.name(), "url": url});
    if capability.is_channel() {
        value["hubs"] = json!(document.hubs);
        return value;
    }
    if !url.starts_with("http") || capability == Capability::Dump {
        return value;
    }
    let read = match download(client, url).await {
        Ok((mut file, _)) => match file.rewind() {
            Ok(()) => read(url, &file, Limits::of(client.bounds()), |_| ()).map_err(|error| error.to_string()),
            Err(error) => Err(error.to_string()),
        },
        Err(stop) => Err(stop.message),
    };
    match read {
        Ok(read) => {
            value["kind"] = json!(read.head.kind.name());
            value["dialect"] = json!(read.head.dialect.name());
            value["ignored"] = read.meaning.json()["ignored"].take();
            value["entries"] = json!(read.entries);
            value["md"] = serde_json::to_value(&read.head.md).unwrap_or_default();
            value["warnings"] = json!(read.warnings);
        }
        Err(error) => value["error"] = json!(error),
    }
    value
}

fn show_source(value: &Value) {
    let text = |value: &Value| line(value.as_str().unwrap_or_default()).into_owned();
    show::out(format_args!("{}", show::bold(&text(&value["source"]))));
    show::out(format_args!("  {} {}", show::dim("found by   "), text(&value["route"])));
    if let Some(description) = value["description"].as_str() {
        show::out(format_args!("  {} {}", show::dim("description"), line(description)));
    }
    for set in value["sets"].as_array().into_iter().flatten() {
        show::out(format_args!("\n  {} {}", show::dim("set"), show::bold(&text(&set["name"]))));
        if let Some(list) = set["capability_list"].as_str() {
            show::out(format_args!("    {} {}", show::dim("capabilitylist"), line(list)));
        }
        for document in set["capabilities"].as_array().into_iter().flatten() {
            show::out(format_args!("    {} {}", show::dim(&text(&document["capability"])), text(&document["url"])));
            for hub in document["hubs"].as_array().into_iter().flatten() {
                show::out(format_args!("      hub {}", text(hub)));
            }
            if let Some(error) = document["error"].as_str() {
                show::out(format_args!("      {}", show::paint("31", &line(error))));
                continue;
            }
            let Some(entries) = document["entries"].as_u64() else { continue };
            let what = match (document["kind"].as_str() == Some(Kind::SitemapIndex.name()), entries) {
                (true, _) => show::plural(entries, "document", "documents"),
                (false, _) => show::plural(entries, "entry", "entries"),
            };
            let times: Vec<String> = ["at", "completed", "from", "until"]
                .into_iter()
                .filter_map(|key| Some(format!("{key} {}", document["md"][key].as_str()?)))
                .collect();
            let dialect = document["dialect"].as_str().filter(|dialect| *dialect != "1.1");
            let dialect = dialect.map(|dialect| format!(" (dialect {dialect})")).unwrap_or_default();
            show::out(format_args!("      {what}{dialect} {}", show::dim(&times.join(", "))));
            for ignored in document["ignored"].as_array().into_iter().flatten() {
                show::out(format_args!(
                    "      {}",
                    show::paint("33", &format!("ignored: {}: {}", text(&ignored["what"]), text(&ignored["why"])))
                ));
            }
            let warnings = document["warnings"].as_array().map_or(0, Vec::len);
            if warnings > 0 {
                show::out(format_args!(
                    "      {}",
                    show::paint(
                        "33",
                        &format!("{warnings} tolerated: resourcesync inspect {}", text(&document["url"]))
                    )
                ));
            }
        }
    }
    for warning in value["warnings"].as_array().into_iter().flatten() {
        show::out(format_args!("\n  {} {}", show::paint("33", "warning"), text(warning)));
    }
}
