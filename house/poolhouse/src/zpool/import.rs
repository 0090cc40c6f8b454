//! `poolhouse zpool import`.

mod cachefile;

use std::io::{self, Write};
use std::path::PathBuf;
use std::time::Duration;

use api::{
    FindEncryptionRoots, FindImportablePools, GetRewindProgress, ImportPools, ImportResult,
    ImportablePool, MountOverrides, Secret, StopRewindProbe,
};
use engine::pool::{Rewind, RewindProgress};

use super::config_tree::{Row, print_states};
use crate::daemon::DaemonArgs;
use crate::interrupt;
use crate::keys;
use crate::outcome::{CommandResult, Failure, Outcome};
use crate::print;
use crate::progress::Progress;
use crate::table::escape_control;
use crate::time;

/// Interval between looks at the progress of a read.
const POLL_INTERVAL: Duration = Duration::from_millis(200);
/// The search directory without `-d`.
const DEFAULT_SEARCH_PATH: &str = "/dev";

/// Import a pool, or list the pools that can be imported
#[derive(clap::Args, Debug)]
#[command(after_help = "Without a pool's name it lists the pools that can be imported.

Examples:
  poolhouse zpool import                        which pools are on this machine's disks?
  poolhouse zpool import tank
  poolhouse zpool import -l tank                load the keys of encrypted datasets
  poolhouse zpool import -d ~/images -a         all pools in images of a folder
  poolhouse zpool import -o readonly=on tank    read it, and change nothing
  poolhouse zpool import -f tank                its host is gone and did not export it
  poolhouse zpool import -D -f tank oldtank     it was destroyed; import it under a new name
  poolhouse zpool import -Fn tank               how far back would it be rewound?
  poolhouse zpool import -F tank                rewind it, and discard later changes")]
#[expect(clippy::struct_excessive_bools, reason = "switches of a command")]
pub(super) struct Args {
    /// All that are found
    #[arg(short = 'a', conflicts_with = "pool")]
    all: bool,
    /// Where to look: a folder, an image file, a disk or a partition; may be repeated
    #[arg(short = 'd', value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// Only the pools that this cache file names (/etc/zfs/zpool.cache of OpenZFS, or the property
    /// `cachefile`), on the drives that it names and on those in the same folders
    #[arg(short = 'c', value_name = "CACHEFILE", conflicts_with = "paths")]
    cachefile: Option<PathBuf>,
    /// Even if another host had it and did not export it
    #[arg(short = 'f')]
    force: bool,
    /// Load the keys of encrypted datasets: from their key files, or typed in. A pool that
    /// was not exported may need them to replay its intent logs
    #[arg(short = 'l', conflicts_with = "unmounted")]
    load_keys: bool,
    /// Import even if a log device is missing: the last seconds of synchronous writes may be
    /// lost
    #[arg(short = 'm')]
    allow_missing_logs: bool,
    /// Look at all drives, as is done without it
    #[arg(short = 's', conflicts_with = "paths")]
    _search: bool,
    /// Mount nothing
    #[arg(short = 'N')]
    unmounted: bool,
    /// Import destroyed pools
    #[arg(short = 'D')]
    destroyed: bool,
    /// It has its new name until it is exported only
    #[arg(short = 't')]
    temporary: bool,
    /// Rewind a damaged pool by as little as needed, two transaction groups at most. All metadata
    /// are read first. Later changes are discarded
    #[arg(short = 'F')]
    rewind: bool,
    /// With -F: change nothing, only print how far back the pool would be rewound
    #[arg(short = 'n', requires = "rewind")]
    dry_run: bool,
    /// With -F: rewind as far as needed. Older states may be partly overwritten by later ones
    #[arg(short = 'X', requires = "rewind")]
    extreme_rewind: bool,
    /// Rewind to this transaction group; `rescue scan -v` lists those that are still complete
    #[arg(short = 'T', value_name = "TXG", conflicts_with_all = ["rewind", "checkpoint"])]
    txg: Option<u64>,
    /// Rewind to the checkpoint, and discard later changes
    #[arg(long = "rewind-to-checkpoint", conflicts_with = "rewind")]
    checkpoint: bool,
    /// A property of the pool: readonly=on (nothing is written, not even the replay of intent
    /// logs), altroot, cachefile, or any that `zpool set` accepts. Without =: mount options of its
    /// file systems for this import, as of `zfs mount -o`
    #[arg(short = 'o', value_name = "NAME=VALUE|OPTION,...")]
    properties: Vec<String>,
    /// Prefix of all mountpoints (altroot)
    #[arg(short = 'R', value_name = "ROOT")]
    altroot: Option<PathBuf>,
    /// Name or number of the pool
    pool: Option<String>,
    /// New name
    #[arg(value_name = "NEW NAME")]
    new_name: Option<String>,
}

pub(super) fn run(args: &Args, asking: &DaemonArgs) -> CommandResult {
    if let Some(file) = &args.cachefile {
        return cachefile::run(args, file, asking);
    }
    let paths = search_paths(args)?;
    if args.pool.is_none() && !args.all {
        return print_importable(&find_importable(args, paths, asking)?, asking);
    }
    import(args, paths, args.pool.clone(), asking)
}

/// The pools that can be imported from the devices at these paths.
fn find_importable(
    args: &Args,
    paths: Vec<PathBuf>,
    asking: &DaemonArgs,
) -> Result<Vec<ImportablePool>, Failure> {
    if rewind_policy(args) != Rewind::No {
        return Err(Failure::usage(
            "-F, -T and --rewind-to-checkpoint are for a pool that is named",
        ));
    }
    asking.request(&FindImportablePools { paths, destroyed: args.destroyed })
}

/// Imports the pool of that name or number, or all.
fn import(
    args: &Args,
    paths: Vec<PathBuf>,
    pool: Option<String>,
    asking: &DaemonArgs,
) -> CommandResult {
    if needs_rewind_probe(args) && !asking.json {
        print::info(&"all metadata of the pool are read first: of a large one that takes minutes");
    }
    let ImportProperties { altroot, read_only, pool_properties: own, overrides: wish } =
        parse_properties(args)?;
    let (name, destroyed, rewind) = (pool.clone(), args.destroyed, rewind_policy(args));
    let roots = FindEncryptionRoots { paths: paths.clone(), name, destroyed, rewind };
    let keys = if args.load_keys { read_keys(&roots, asking)? } else { Vec::new() };
    let imported = import_with_progress(
        args,
        asking,
        &ImportPools {
            paths,
            name: pool,
            new_name: args.new_name.clone(),
            temporary: args.temporary,
            force: args.force,
            destroyed: args.destroyed,
            no_mount: args.unmounted,
            overrides: wish,
            pool_properties: own,
            allow_missing_logs: args.allow_missing_logs,
            read_only,
            rewind: rewind_policy(args),
            dry_run: args.dry_run,
            altroot,
            keys,
        },
    )?;
    for why in imported.failures.iter().chain(&imported.not_mounted) {
        print::error(why);
    }
    if !imported.not_mounted.is_empty() {
        print::error(&"Import was successful, but unable to mount some datasets");
    }
    if asking.json && args.dry_run {
        print::json(&imported.rewound)?;
    } else if asking.json {
        print::json(&imported.imported)?;
    } else {
        print_rewound(args, &imported)?;
    }
    // like OpenZFS, success even if a file system could not be mounted: the pool is imported
    Ok(Outcome::complete_unless(!imported.failures.is_empty()))
}

/// Whether all metadata are read before an import.
const fn needs_rewind_probe(args: &Args) -> bool {
    args.rewind || args.txg.is_some()
}

/// Requests the import, and shows the progress of the rewind probe before it. Ctrl-C
/// stops that.
fn import_with_progress(
    args: &Args,
    asking: &DaemonArgs,
    call: &ImportPools,
) -> Result<ImportResult, Failure> {
    if !needs_rewind_probe(args) {
        return asking.request(call);
    }
    interrupt::install_handler();
    std::thread::scope(|scope| {
        let asked = scope.spawn(|| asking.request(call));
        let mut seen: Option<(RewindProgress, Progress)> = None;
        while !asked.is_finished() {
            std::thread::sleep(POLL_INTERVAL);
            if interrupt::is_interrupted() {
                asking.try_request(&StopRewindProbe {});
            }
            let now: Option<RewindProgress> = asking.try_request(&GetRewindProgress {}).flatten();
            seen = now.map(|now| show_progress(now, seen.take(), asking.json));
        }
        if let Some((_, bar)) = seen {
            bar.finish();
        }
        asked.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// A bar for each state that is read.
fn show_progress(
    now: RewindProgress,
    seen: Option<(RewindProgress, Progress)>,
    quiet: bool,
) -> (RewindProgress, Progress) {
    let (before, bar) = match seen {
        Some((before, bar)) if before.txg == now.txg => (before.bytes_done, bar),
        Some((_, last)) => {
            last.finish();
            (0, Progress::new(now.bytes_total, quiet))
        }
        None => (0, Progress::new(now.bytes_total, quiet)),
    };
    bar.set_message(&format!("txg {}", now.txg));
    bar.add_bytes(now.bytes_done.saturating_sub(before));
    (now, bar)
}

/// How far back they may be taken.
fn rewind_policy(args: &Args) -> Rewind {
    match (args.txg, args.checkpoint, args.rewind) {
        (Some(txg), ..) => Rewind::Txg(txg),
        (None, true, _) => Rewind::Checkpoint,
        (None, false, true) if args.extreme_rewind => Rewind::Extreme,
        (None, false, true) => Rewind::Recent,
        (None, false, false) => Rewind::No,
    }
}

fn print_rewound(args: &Args, imported: &ImportResult) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    for (name, to) in &imported.rewound {
        let would = if args.dry_run { "would be" } else { "is" };
        writeln!(
            out,
            "pool '{}' {would} rewound to its state at {} (txg {}): about {} seconds of changes \
             {would} discarded.",
            escape_control(name),
            time::format_local(to.time),
            to.txg,
            to.lost_seconds,
        )?;
        if !args.dry_run && !to.checkpoint {
            writeln!(
                out,
                "Its metadata were read; the data of its files was not: run `zpool scrub {}`.",
                escape_control(name)
            )?;
        }
    }
    if args.dry_run && imported.rewound.is_empty() && imported.failures.is_empty() {
        writeln!(out, "nothing would be discarded: the newest state can be imported.")?;
    }
    Ok(())
}

/// The keys of the pools that are to be imported. One that cannot be had is done without, if the
/// pool can be.
pub(super) fn read_keys(
    ask: &FindEncryptionRoots,
    asking: &DaemonArgs,
) -> Result<Vec<(String, Secret)>, Failure> {
    let mut keys = Vec::new();
    for root in asking.request(ask)? {
        match keys::read_secret(&root.name, &root.location, &root.format, false) {
            Ok(secret) if secret.0.is_empty() => {
                print::warning(&format!("no key was given for '{}': it stays locked", root.name));
            }
            Ok(secret) => keys.push((root.name, secret)),
            Err(Failure::Engine(why)) => {
                print::warning(&format!("the key of '{}' is not loaded: {why}", root.name));
            }
            Err(other) => return Err(other),
        }
    }
    Ok(keys)
}

/// The options of -o and -R.
#[derive(Default)]
struct ImportProperties {
    altroot: Option<PathBuf>,
    read_only: bool,
    pool_properties: Vec<(String, String)>,
    overrides: MountOverrides,
}

fn parse_properties(args: &Args) -> Result<ImportProperties, Failure> {
    let mut said =
        ImportProperties { altroot: args.altroot.clone(), ..ImportProperties::default() };
    for words in &args.properties {
        let Some((name, value)) = words.split_once('=') else {
            said.overrides.options.extend(words.split(',').map(str::to_owned));
            continue;
        };
        match (name, value) {
            ("altroot", root) => said.altroot = Some(root.into()),
            ("readonly", "on" | "off") => said.read_only = value == "on",
            ("readonly", _) => {
                return Err(Failure::usage(format!("-o readonly={value}: it is on or off")));
            }
            _ => said.pool_properties.push((name.to_owned(), value.to_owned())),
        }
    }
    if said.altroot.is_some() {
        super::default_to_no_cachefile(&mut said.pool_properties);
    }
    if let Some(root) = said.altroot.as_ref().filter(|root| !root.is_absolute()) {
        return Err(Failure::usage(format!("-R {}: an absolute path is expected", root.display())));
    }
    Ok(said)
}

/// Where pools are looked for.
fn search_paths(args: &Args) -> Result<Vec<PathBuf>, Failure> {
    let mut paths = Vec::new();
    for path in &args.paths {
        let absolute = std::path::absolute(path);
        paths.push(absolute.map_err(|why| Failure::destination(path, &why))?);
    }
    if paths.is_empty() {
        paths.push(DEFAULT_SEARCH_PATH.into());
    }
    Ok(paths)
}

fn print_importable(found: &[ImportablePool], asking: &DaemonArgs) -> CommandResult {
    if asking.json {
        print::json(&found)?;
        return Ok(Outcome::Complete);
    }
    let mut out = io::stdout().lock();
    if found.is_empty() {
        writeln!(out, "no pools available to import")?;
    }
    for (at, pool) in found.iter().enumerate() {
        if at > 0 {
            writeln!(out)?;
        }
        print_pool(pool, &mut out)?;
    }
    Ok(Outcome::Complete)
}

/// The status, the action and OpenZFS's number of the page about them.
fn import_advice(pool: &ImportablePool) -> (Option<String>, String, Option<&'static str>) {
    let host = pool.host.as_deref().unwrap_or("another system");
    match (&pool.reason, pool.state.as_str(), pool.health.as_str()) {
        (Some(why), _, "ONLINE" | "DEGRADED") => (
            Some(why.clone()),
            "The pool can be imported in read-only mode with 'zpool import -o readonly=on'.".to_owned(),
            None,
        ),
        (Some(why), ..) => (
            Some(why.clone()),
            "The pool cannot be imported. Attach the missing\n\tdevices and try again.".to_owned(),
            Some("ZFS-8000-3C"),
        ),
        (None, "active", _) => (
            Some(format!("The pool was last accessed by another system ({host}).")),
            "The pool can be imported using its name or numeric identifier and\n\tthe '-f' flag.".to_owned(),
            Some("ZFS-8000-EY"),
        ),
        (None, "destroyed", _) => (
            None,
            "The pool can be imported using its name or numeric identifier and\n\tthe '-D' flag.".to_owned(),
            None,
        ),
        (None, _, "ONLINE") => {
            (None, "The pool can be imported using its name or numeric identifier.".to_owned(), None)
        }
        _ => (
            Some("One or more devices are missing from the system.".to_owned()),
            "The pool can be imported despite missing or damaged devices.  The\n\tfault tolerance of the \
             pool may be compromised if imported."
                .to_owned(),
            Some("ZFS-8000-2Q"),
        ),
    }
}

fn print_pool(pool: &ImportablePool, out: &mut dyn Write) -> io::Result<()> {
    let destroyed = if pool.state == "destroyed" { " (DESTROYED)" } else { "" };
    let (name, health) = (escape_control(&pool.name), &pool.health);
    writeln!(out, "  pool: {name}\n    id: {}\n state: {health}{destroyed}", pool.guid)?;
    let (status, action, page) = import_advice(pool);
    if let Some(status) = status {
        writeln!(out, "status: {}", escape_control(&status))?;
    }
    writeln!(out, "action: {action}")?;
    if let Some(page) = page {
        writeln!(out, "   see: https://openzfs.github.io/openzfs-docs/msg/{page}")?;
    }
    writeln!(out, "config:\n")?;
    let pool_row = (0, pool.name.clone(), health.clone());
    let rows: Vec<Row> = std::iter::once(&pool_row)
        .chain(&pool.vdevs)
        .map(|(depth, name, state)| Row {
            depth: *depth,
            name: name.clone(),
            // the head of a class of vdevs has none
            state: Some(state.clone()).filter(|state| !state.is_empty()),
            ..Row::default()
        })
        .collect();
    print_states(&rows, out)
}
