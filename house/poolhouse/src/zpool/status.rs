//! `poolhouse zpool status`.

use std::io::{self, Write};

use api::PoolReport;
use engine::pool::{CheckpointStatus, DedupBucket, PoolStatus, VdevActivity, VdevStatus};
use units::{human_bytes, human_space};

use super::advice::advice;
use super::config_tree::{Row, print_rows};
use super::repeat::RepeatArgs;
use super::report_json::pool_status;
use super::scripts::ScriptColumns;
use crate::daemon::DaemonArgs;
use crate::json::{self, JsonArgs, NumberStyle};
use crate::outcome::{CommandResult, Outcome};
use crate::table::{Align, Table, escape_control};
use crate::time;

/// How pools and their drives are
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:
  poolhouse zpool status
  poolhouse zpool status -x       only unhealthy pools
  poolhouse zpool status -s tank  which drives are slow?
  poolhouse zpool status tank 5   again every five seconds
  poolhouse zpool status --json tank")]
#[expect(clippy::struct_excessive_bools, reason = "switches of a command")]
pub(super) struct Args {
    /// Only pools that are not well
    #[arg(short = 'x')]
    unhealthy_only: bool,
    /// Exact numbers
    #[arg(short = 'p')]
    parsable: bool,
    /// Whole paths of drives, as is done without it
    #[arg(short = 'P')]
    _paths: bool,
    /// Name the damaged files
    #[arg(short = 'v')]
    verbose: bool,
    /// Include deduplication statistics by reference count
    #[arg(short = 'D')]
    dedup: bool,
    /// How many requests of each drive took longer than half a minute, too
    #[arg(short = 's')]
    slow: bool,
    /// Include writes whose data changed during the write: none, because all are copied first
    #[arg(short = 'd')]
    direct: bool,
    /// How far writing to all free space of each drive has come, too
    #[arg(short = 'i')]
    initialize: bool,
    /// How far telling each drive which space is free has come, too
    #[arg(short = 't')]
    trim: bool,
    /// Show only unhealthy vdevs
    #[arg(short = 'e')]
    unhealthy_vdevs_only: bool,
    /// More columns for drives, which these scripts of /etc/zfs/zpool.d or ~/.zpool.d print
    #[arg(short = 'c', value_name = "SCRIPT,...", conflicts_with = "json")]
    scripts: Option<String>,
    #[command(flatten)]
    json: JsonArgs,
    /// With --json: pools by their guids
    #[arg(long = "json-pool-key-guid", requires = "json")]
    json_pool_key_guid: bool,
    #[command(flatten)]
    repeat: RepeatArgs,
}

pub(super) fn run(args: &Args, asking: &DaemonArgs) -> CommandResult {
    args.repeat.run_repeatedly(asking, args.verbose, |found, named, _| {
        print_pools(found, named, args, asking)
    })
}

fn print_pools(
    mut found: Vec<PoolReport>,
    named: &[String],
    args: &Args,
    asking: &DaemonArgs,
) -> CommandResult {
    let any = !found.is_empty();
    if args.unhealthy_only {
        found.retain(|pool| !is_healthy(&pool.status));
    }
    if asking.json {
        let style = NumberStyle { integers: args.json.integers, exact: args.parsable };
        let is_shown = |vdev: &VdevStatus| !args.unhealthy_vdevs_only || !is_well(vdev);
        let key = |pool: &PoolReport| {
            if args.json_pool_key_guid {
                pool.status.guid.to_string()
            } else {
                pool.status.name.clone()
            }
        };
        let pools = found.iter().map(|pool| (key(pool), pool_status(pool, style, &is_shown)));
        json::print("zpool status", "pools", pools.collect())?;
        return Ok(Outcome::Complete);
    }
    let mut out = io::stdout().lock();
    if !any {
        writeln!(out, "no pools available")?;
    } else if let (true, [pool]) = (found.is_empty(), named) {
        writeln!(out, "pool '{}' is healthy", escape_control(pool))?;
    } else if found.is_empty() {
        writeln!(out, "all pools are healthy")?;
    }
    for (at, pool) in found.iter().enumerate() {
        if at > 0 {
            writeln!(out)?;
        }
        let scripts = match &args.scripts {
            Some(names) => ScriptColumns::run(names, &drives(&pool.status))?,
            None => ScriptColumns::default(),
        };
        print_pool(&pool.status, args, &scripts, &mut out)?;
    }
    Ok(Outcome::Complete)
}

pub(super) fn is_healthy(pool: &PoolStatus) -> bool {
    let vdevs = pool.vdevs.iter().chain(&pool.caches);
    let is_whole = pool.state == "ONLINE" && unavailable_caches(pool) == 0 && !pool.needs_resilver;
    let is_whole = is_whole && pool.data_errors.is_empty();
    is_whole && vdevs.map(error_count).all(|count| count == 0)
}

/// How many drives of the cache are not in use.
pub(super) fn unavailable_caches(pool: &PoolStatus) -> usize {
    pool.caches.iter().filter(|cache| cache.state != "ONLINE").count()
}

/// How often something went wrong on a vdev and those below it.
pub(super) fn error_count(vdev: &VdevStatus) -> u64 {
    let own = vdev.read_errors + vdev.write_errors + vdev.checksum_errors;
    vdev.children.iter().map(error_count).fold(own, u64::saturating_add)
}

/// The columns of counts.
fn count_columns<'a>(args: &Args, scripts: &'a ScriptColumns) -> Vec<&'a str> {
    let mut columns = vec!["READ", "WRITE", "CKSUM"];
    columns.extend(args.slow.then_some("SLOW"));
    columns.extend(args.direct.then_some("DIO"));
    columns.extend(scripts.heads().iter().map(String::as_str));
    columns
}

/// The guids and paths of the drives of a pool, those of the cache included.
fn drives(pool: &PoolStatus) -> Vec<(u64, String)> {
    let mut all: Vec<&VdevStatus> = Vec::new();
    let mut rest: Vec<&VdevStatus> = pool.vdevs.iter().chain(&pool.caches).collect();
    while let Some(vdev) = rest.pop() {
        rest.extend(&vdev.children);
        all.extend(vdev.children.is_empty().then_some(vdev));
    }
    all.into_iter().map(|drive| (drive.guid, drive.name.clone())).collect()
}

fn print_pool(
    pool: &PoolStatus,
    args: &Args,
    scripts: &ScriptColumns,
    out: &mut dyn Write,
) -> io::Result<()> {
    writeln!(out, "  pool: {}\n state: {}", escape_control(&pool.name), pool.state)?;
    if let Some(advice) = advice(pool) {
        let status: Vec<String> = advice.status.split("\n\t").map(escape_control).collect();
        writeln!(out, "status: {}\naction: {}", status.join("\n\t"), advice.action)?;
        if let Some(page) = advice.see() {
            writeln!(out, "   see: {page}")?;
        }
    }
    if let Some(scan) = &pool.scan {
        super::scan::print_scan(scan, out)?;
    }
    if let Some(rebuild) = pool.last_rebuild() {
        super::scan::print_scan(rebuild, out)?;
    }
    if let Some(expansion) = &pool.expansion {
        super::expansion::print_expansion(expansion, out)?;
    }
    if let Some(removal) = &pool.removal {
        super::removal::print_removal(removal, out)?;
    }
    if pool.is_unavailable() {
        return Ok(());
    }
    if let Some(checkpoint) = &pool.checkpoint {
        print_checkpoint(checkpoint, out)?;
    }
    writeln!(out, "config:\n")?;
    print_rows(&vdev_rows(pool, args, scripts), &count_columns(args, scripts), out)?;
    match pool.data_errors.len() {
        0 => writeln!(out, "\nerrors: No known data errors")?,
        _ if args.verbose => super::scan::print_damaged(pool, out)?,
        count => writeln!(out, "\nerrors: {count} data errors, use '-v' for a list")?,
    }
    if args.dedup { print_dedup(&pool.dedup, out) } else { Ok(()) }
}

/// The pool and its vdevs, each class that is not for data below its own head.
fn vdev_rows(pool: &PoolStatus, args: &Args, scripts: &ScriptColumns) -> Vec<Row> {
    let mut counts = vec!["0".to_owned(); 3];
    counts.extend(args.slow.then(|| "-".to_owned()));
    counts.extend(args.direct.then(|| "-".to_owned()));
    let (name, state) = (pool.name.clone(), Some(pool.state.clone()));
    let mut rows = vec![Row { depth: 0, name, state, counts, notes: Vec::new() }];
    for (class, head) in [
        (None, None),
        (Some("dedup"), Some("dedup")),
        (Some("special"), Some("special")),
        (Some("log"), Some("logs")),
    ] {
        let is_of_class = |vdev: &&VdevStatus| vdev.class.as_deref() == class;
        // with -e zpool(8) shows the head of a class also where all of its vdevs are well
        if pool.vdevs.iter().any(|vdev| is_of_class(&vdev)) {
            rows.extend(head.map(Row::class));
        }
        visible_vdevs(args, &pool.vdevs)
            .filter(is_of_class)
            .for_each(|vdev| add_vdev(&mut rows, vdev, (args, scripts), 1));
    }
    if !pool.caches.is_empty() {
        rows.push(Row::class("cache"));
        visible_vdevs(args, &pool.caches)
            .for_each(|cache| add_vdev(&mut rows, cache, (args, scripts), 1));
    }
    if !pool.spares.is_empty() {
        rows.push(Row::class("spares"));
        rows.extend(visible_vdevs(args, &pool.spares).map(|spare| Row {
            depth: 1,
            name: args.repeat.vdev_name(spare),
            state: Some(spare.state.clone()),
            counts: Vec::new(),
            notes: spare.note.iter().cloned().collect(),
        }));
    }
    rows
}

/// The line about the checkpoint.
fn print_checkpoint(checkpoint: &CheckpointStatus, out: &mut dyn Write) -> io::Result<()> {
    let bytes = human_space(checkpoint.bytes);
    if checkpoint.state == "discarding" {
        return writeln!(out, "checkpoint: discarding, {bytes} remaining.");
    }
    let time = time::format_date(checkpoint.time);
    writeln!(out, "checkpoint: created {time}, consumes {bytes}")
}

/// Deduplication statistics by reference count.
fn print_dedup(all: &[DedupBucket], out: &mut dyn Write) -> io::Result<()> {
    if all.is_empty() {
        return writeln!(out, "\n dedup: no DDT entries");
    }
    let total = |of: fn(&DedupBucket) -> [u64; 4]| {
        all.iter().map(of).fold([0_u64; 4], |sum, more| {
            std::array::from_fn(|at| sum[at].saturating_add(more[at]))
        })
    };
    let (allocated, referenced) = (total(|sums| sums.allocated), total(|sums| sums.referenced));
    writeln!(out, "\n dedup: DDT entries {}\n", allocated[0])?;
    let mut table = Table::new([Align::Right; 9]);
    let words = |head: [&str; 9]| head.map(str::to_owned);
    table.add_row(words(["bucket", "", "", "", "allocated", "", "", "", "referenced"]));
    let kinds = ["blocks", "LSIZE", "PSIZE", "DSIZE"];
    let head = std::iter::once("refcnt").chain(kinds).chain(kinds);
    table.add_row(head.map(str::to_owned));
    let cells = |[blocks, sizes @ ..]: [u64; 4]| {
        std::iter::once(blocks.to_string()).chain(sizes.map(human_bytes))
    };
    for sums in all {
        let name = std::iter::once(sums.references.to_string());
        table.add_row(name.chain(cells(sums.allocated)).chain(cells(sums.referenced)));
    }
    table.add_row(
        std::iter::once("Total".to_owned()).chain(cells(allocated)).chain(cells(referenced)),
    );
    table.print(out)
}

/// Those vdevs that are to be shown.
fn visible_vdevs<'a>(args: &Args, vdevs: &'a [VdevStatus]) -> impl Iterator<Item = &'a VdevStatus> {
    let only_unwell = args.unhealthy_vdevs_only;
    let is_removed = |vdev: &VdevStatus| vdev.name.starts_with("indirect-");
    vdevs.iter().filter(move |vdev| !is_removed(vdev) && (!only_unwell || !is_well(vdev)))
}

fn is_well(vdev: &VdevStatus) -> bool {
    matches!(&*vdev.state, "ONLINE" | "AVAIL") && error_count(vdev) == 0
}

fn add_vdev(
    rows: &mut Vec<Row>,
    vdev: &VdevStatus,
    (args, scripts): (&Args, &ScriptColumns),
    depth: usize,
) {
    let is_drive = vdev.children.is_empty();
    let of_drive = |count: u64| if is_drive { count.to_string() } else { "-".to_owned() };
    let mut counts = [vdev.read_errors, vdev.write_errors, vdev.checksum_errors]
        .map(|errors| if args.parsable { errors.to_string() } else { human_bytes(errors) })
        .to_vec();
    counts.extend(args.slow.then(|| of_drive(vdev.slow_requests)));
    counts.extend(args.direct.then(|| of_drive(0)));
    counts.extend(scripts.cells(vdev.guid).filter(|_| is_drive));
    let mut notes: Vec<String> = vdev.note.clone().into_iter().collect();
    if args.initialize && is_drive {
        notes.push(format_sweep(vdev.initialize.as_ref(), "initialized"));
    }
    if args.trim && is_drive {
        notes.push(format_sweep(vdev.trim.as_ref(), "trimmed"));
    }
    let (name, state) = (args.repeat.vdev_name(vdev), Some(vdev.state.clone()));
    rows.push(Row { depth, name, state, counts, notes });
    visible_vdevs(args, &vdev.children)
        .for_each(|child| add_vdev(rows, child, (args, scripts), depth + 1));
}

/// How far something has come that goes over a drive, in brackets.
fn format_sweep(sweep: Option<&VdevActivity>, done: &str) -> String {
    let Some(sweep) = sweep else { return format!("(un{done})") };
    let (how, since) = match sweep.state.as_str() {
        "complete" => ("", "completed"),
        "active" => ("", "started"),
        other => (other, "started"),
    };
    let how = if how.is_empty() { String::new() } else { format!(", {how}") };
    format!("({}% {done}{how}, {since} at {})", sweep.percent, time::format_date(sweep.time))
}
