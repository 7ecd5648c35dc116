//! `resourcesync install`: the program, the mount helper, the man page and completions in place.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use clap_complete::{Shell, generate};

use super::{Done, Stop, show};
use crate::{bounds, options};

#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// Where programs live
    #[arg(long, default_value = "/usr/local", value_name = "DIR")]
    prefix: PathBuf,
    /// Put everything below this directory, for a package
    #[arg(long, value_name = "DIR")]
    destdir: Option<PathBuf>,
    /// Take everything away again
    #[arg(long)]
    remove: bool,
}

/// Where mount(8) looks for helpers; mount.fuse gives the second its arguments unchanged.
const HELPERS: [&str; 2] = ["/sbin/mount.resourcesync", "/sbin/mount.fuse.resourcesync"];

struct Plan {
    root: PathBuf,
    program: PathBuf,
    files: Vec<(PathBuf, Vec<u8>)>,
}

pub(super) fn run(arguments: &Arguments, definition: clap::Command) -> Done {
    let plan = plan(arguments, &definition);
    if arguments.remove { remove(&plan) } else { install(&plan) }
}

/// What is installed; man page and completions are of the `definition` of the command line.
fn plan(arguments: &Arguments, definition: &clap::Command) -> Plan {
    let share = arguments.prefix.join("share");
    let completion = |shell: Shell| {
        let mut text = Vec::new();
        generate(shell, &mut definition.clone(), "resourcesync", &mut text);
        text
    };
    Plan {
        root: arguments.destdir.clone().unwrap_or_else(|| PathBuf::from("/")),
        program: arguments.prefix.join("bin/resourcesync"),
        files: vec![
            (share.join("man/man8/resourcesync.8"), manual(definition.clone())),
            (share.join("man/man8/mount.resourcesync.8"), b".so man8/resourcesync.8\n".to_vec()),
            (share.join("bash-completion/completions/resourcesync"), completion(Shell::Bash)),
            (share.join("zsh/site-functions/_resourcesync"), completion(Shell::Zsh)),
            (share.join("fish/vendor_completions.d/resourcesync.fish"), completion(Shell::Fish)),
        ],
    }
}

impl Plan {
    /// A path below the root of the installation.
    fn at(&self, path: &Path) -> PathBuf {
        self.root.join(path.strip_prefix("/").unwrap_or(path))
    }
}

fn failed(path: &Path, error: &std::io::Error) -> Stop {
    let hint = match error.kind() {
        std::io::ErrorKind::PermissionDenied => "; run it as root",
        _ => "",
    };
    Stop::failed(format_args!("{}: {error}{hint}", path.display()))
}

/// Writes a file whole, or not at all.
fn place(path: &Path, content: &[u8], mode: u32) -> Done {
    let failed = |error: std::io::Error| failed(path, &error);
    let folder = path.parent().unwrap_or(Path::new("/"));
    fs::create_dir_all(folder).map_err(failed)?;
    let mut file = tempfile::NamedTempFile::new_in(folder).map_err(failed)?;
    file.write_all(content).map_err(failed)?;
    file.as_file().set_permissions(fs::Permissions::from_mode(mode)).map_err(failed)?;
    file.persist(path).map_err(|error| failed(error.error))?;
    show::out(format_args!("wrote {}", path.display()));
    Ok(())
}

fn install(plan: &Plan) -> Done {
    let program = plan.at(&plan.program);
    let own = std::env::current_exe().map_err(Stop::failed)?;
    if own != program {
        let content = fs::read(&own).map_err(|error| failed(&own, &error))?;
        place(&program, &content, 0o755)?;
    }
    for helper in HELPERS {
        let path = plan.at(Path::new(helper));
        fs::create_dir_all(path.parent().unwrap_or(Path::new("/"))).map_err(|error| failed(&path, &error))?;
        match fs::remove_file(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(failed(&path, &error)),
            _ => {}
        }
        symlink(&plan.program, &path).map_err(|error| failed(&path, &error))?;
        show::out(format_args!("linked {} to {}", path.display(), plan.program.display()));
    }
    for (path, content) in &plan.files {
        place(&plan.at(path), content, 0o644)?;
    }
    show::out("\nNow a Source can be mounted:  mount -t resourcesync https://source.example/ /mnt/mirror");
    Ok(())
}

fn remove(plan: &Plan) -> Done {
    let own = HELPERS.iter().map(PathBuf::from).chain([plan.program.clone()]);
    for path in own.chain(plan.files.iter().map(|(path, _)| path.clone())) {
        let path = plan.at(&path);
        match fs::remove_file(&path) {
            Ok(()) => show::out(format_args!("removed {}", path.display())),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(failed(&path, &error)),
        }
    }
    Ok(())
}

/// The man page, from the definitions that the program itself is made of.
fn manual(mut command: clap::Command) -> Vec<u8> {
    command.build();
    let page = clap_mangen::Man::new(command.clone()).section("8").manual("System Administration");
    let mut text = Vec::new();
    // Writing to memory does not fail.
    let _ = page.render_title(&mut text).and_then(|()| page.render_name_section(&mut text));
    let mut more = String::from(
        ".SH SYNOPSIS\n.nf\nmount \\-t resourcesync SOURCE DIR [\\-o OPTIONS]\nresourcesync COMMAND\n.fi\n.SH COMMANDS\n",
    );
    for one in command.get_subcommands_mut().filter(|one| one.get_name() != "help") {
        let usage = one.render_usage().to_string();
        let usage = usage.trim_start_matches("Usage: ");
        more.push_str(&format!(".TP\n\\fB{}\\fR\n", roff(usage)));
        more.push_str(&format!("{}.\n", roff(&one.get_about().map(ToString::to_string).unwrap_or_default())));
        for argument in one.get_arguments().filter(|argument| !argument.is_hide_set() && argument.get_id() != "help") {
            let help = argument.get_help().map(ToString::to_string).unwrap_or_default();
            let name = argument.to_string();
            more.push_str(&format!(".br\n\\fB{}\\fR: {}\n", roff(&name), roff(&help)));
        }
    }
    more.push_str(
        ".SH EXIT STATUS\n0 all went well; 1 it failed; 2 wrong usage. \\fBmount\\fR exits as mount(8) says: ",
    );
    more.push_str("1 wrong usage, 2 system error, 32 nothing was mounted.\n");
    more.push_str(".SH OPTIONS OF A MOUNT\nGiven with \\-o, separated by commas.\n");
    for definition in options::DEFINITIONS {
        more.push_str(&format!(".TP\n\\fB{}\\fR\n{}", roff(definition.usage), roff(definition.help)));
        if !definition.default.text().is_empty() {
            more.push_str(&format!(". Default: {}", roff(definition.default.text())));
        }
        more.push_str(".\n");
    }
    more.push_str(".SH BOUNDS\nWhat \\fBlimit_NAME=\\fR sets.\n");
    for bound in bounds::TABLE {
        let bounds::Bound { name, default, help, unit, .. } = bound;
        more.push_str(&format!(".TP\n\\fB{}\\fR\n{}. Default: {}", roff(name), roff(help), unit.show(*default)));
        more.push_str(&format!("; {}.\n", roff(&bound.range())));
    }
    more.push_str(
        ".SH FSTAB\n.nf\nhttps://source.example/  /mnt/mirror  resourcesync  _netdev,nofail  0  0\n.fi\n\
         .SH FILES\n.TP\n\\fB.versions/PATH/\\fR\nin each mount: a file for each known version of PATH, named by its moment.\n\
         .TP\n\\fB.versions/@MOMENT/\\fR\nthe whole tree as of a moment: 2026\\-01\\-31, 2026\\-01\\-31T12:00:00Z, 20260131120000.\n.TP\n\\fB.resourcesync/status.json\\fR, \\fB.resourcesync/metrics\\fR\nin each mount: its state, as JSON and as OpenMetrics.\n\
         .SH ENVIRONMENT\n.TP\n\\fBRESOURCESYNC_LOG\\fR\nwhat is logged, for example \\fBresourcesync=debug\\fR.\n\
         .TP\n\\fBhttp_proxy\\fR, \\fBhttps_proxy\\fR, \\fBno_proxy\\fR\nproxies.\n.TP\n\\fBNO_COLOR\\fR\nno colours.\n",
    );
    text.extend_from_slice(more.as_bytes());
    text
}

fn roff(text: &str) -> String {
    text.replace('\\', "\\e").replace('-', "\\-").replace("\n.", "\n\\&.")
}
