//! `poolhouse zpool status`.

use std::io::{self, Write};

use api::PoolReport;
use engine::pool::{CheckpointStatus, DedupBucket, PoolStatus, VdevActivity, VdevStatus};

use super::advice::status_and_action;
use super::repeat::RepeatArgs;
use crate::daemon::DaemonArgs;
use crate::outcome::{CommandResult, Failure, Outcome};
use crate::print;
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
    /// Exact numbers, as is done without it
    #[arg(short = 'p')]
    _parsable: bool,
    /// Whole paths of drives, as is done without it
    #[arg(short = 'P')]
    _paths: bool,
    /// All that is known of errors, as is done without it
    #[arg(short = 'v')]
    _verbose: bool,
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
    /// Programs for more columns: refused
    #[arg(short = 'c', value_name = "SCRIPT", hide = true)]
    script: Option<String>,
    #[command(flatten)]
    repeat: RepeatArgs,
}

pub(super) fn run(args: &Args, asking: &DaemonArgs) -> CommandResult {
    if args.script.is_some() {
        return Err(Failure::usage("-c is not supported: the daemon runs no scripts for users"));
    }
    args.repeat.run_repeatedly(asking, |found, named, _| print_pools(found, named, args, asking))
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
        print::json(&found)?;
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
        print_pool(&pool.status, args, &mut out)?;
    }
    Ok(Outcome::Complete)
}

pub(super) fn is_healthy(pool: &PoolStatus) -> bool {
    let vdevs = pool.vdevs.iter().chain(&pool.caches);
    let is_whole = pool.state == "ONLINE" && unavailable_caches(pool) == 0 && !pool.needs_resilver;
    is_whole && vdevs.map(error_count).all(|count| count == 0)
}

/// How many drives of the cache are not in use.
pub(super) fn unavailable_caches(pool: &PoolStatus) -> usize {
    pool.caches.iter().filter(|cache| cache.state != "ONLINE").count()
}

/// How often something went wrong on a vdev and those below it.
fn error_count(vdev: &VdevStatus) -> u64 {
    let own = vdev.read_errors + vdev.write_errors + vdev.checksum_errors;
    vdev.children.iter().map(error_count).fold(own, u64::saturating_add)
}

/// The columns of the table of vdevs.
fn table_head(pool: &PoolStatus, args: &Args) -> Vec<(&'static str, Align)> {
    let mut head = vec![
        ("NAME", Align::Left),
        ("STATE", Align::Left),
        ("READ", Align::Right),
        ("WRITE", Align::Right),
        ("CKSUM", Align::Right),
    ];
    head.extend(args.slow.then_some(("SLOW", Align::Right)));
    head.extend(args.direct.then_some(("DIO", Align::Right)));
    let is_noted = args.initialize || args.trim || has_notes(pool);
    head.extend(is_noted.then_some(("", Align::Left)));
    head
}

fn print_pool(pool: &PoolStatus, args: &Args, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "  pool: {}\n state: {}", escape_control(&pool.name), pool.state)?;
    if let Some((status, action)) = status_and_action(pool) {
        let status: Vec<String> = status.split("\n\t").map(escape_control).collect();
        writeln!(out, "status: {}\naction: {action}", status.join("\n\t"))?;
    }
    if let Some(scan) = &pool.scan {
        super::scan::print_scan(scan, out)?;
    }
    if let Some(expansion) = &pool.expansion {
        super::expansion::print_expansion(expansion, out)?;
    }
    if pool.is_unavailable() {
        return Ok(());
    }
    if let Some(checkpoint) = &pool.checkpoint {
        print_checkpoint(checkpoint, out)?;
    }
    writeln!(out, "config:\n")?;
    let head = table_head(pool, args);
    let mut table = Table::with_header(&head);
    let counts = (0..3 + usize::from(args.slow) + usize::from(args.direct)).map(|_| "0".to_owned());
    table.add_row([pool.name.clone(), pool.state.clone()].into_iter().chain(counts));
    for purpose in [None, Some("dedup"), Some("special"), Some("log")] {
        let vdevs: Vec<&VdevStatus> = visible_vdevs(args, &pool.vdevs)
            .filter(|vdev| vdev.class.as_deref() == purpose)
            .collect();
        if let Some(purpose) = purpose.filter(|_| !vdevs.is_empty()) {
            let head = if purpose == "log" { "logs" } else { purpose };
            add_header(&mut table, head);
        }
        for vdev in vdevs {
            add_vdev(&mut table, vdev, args, 1);
        }
    }
    if visible_vdevs(args, &pool.caches).next().is_some() {
        add_header(&mut table, "cache");
        visible_vdevs(args, &pool.caches).for_each(|cache| add_vdev(&mut table, cache, args, 1));
    }
    if visible_vdevs(args, &pool.spares).next().is_some() {
        add_header(&mut table, "spares");
        for spare in visible_vdevs(args, &pool.spares) {
            let (name, state) =
                (format!("  {}", args.repeat.vdev_name(spare)), spare.state.clone());
            let blanks = (3..head.len()).map(|_| String::new());
            let note = spare.note.iter().flat_map(|note| blanks.clone().chain([note.clone()]));
            table.add_row([name, state].into_iter().chain(note));
        }
    }
    table.with_indent(8).print(out)?;
    let wrong: u64 = pool.vdevs.iter().map(error_count).fold(0, u64::saturating_add);
    match &pool.scan {
        Some(scan) if scan.errors > 0 => super::scan::print_damaged(scan, out)?,
        _ if wrong == 0 => writeln!(out, "\nerrors: No known data errors")?,
        // there is no list of blocks that are not repaired yet
        _ => writeln!(
            out,
            "\nerrors: {wrong} on drives; `zpool scrub -w {}` shows whether all could be repaired",
            escape_control(&pool.name)
        )?,
    }
    if args.dedup { print_dedup(&pool.dedup, out) } else { Ok(()) }
}

/// The line about the checkpoint.
fn print_checkpoint(checkpoint: &CheckpointStatus, out: &mut dyn Write) -> io::Result<()> {
    let bytes = units::human_bytes(checkpoint.bytes);
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
        std::iter::once(blocks.to_string()).chain(sizes.map(units::human_bytes))
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

/// Whether there are words behind the row of a vdev or a spare.
fn has_notes(pool: &PoolStatus) -> bool {
    fn is_noted(vdev: &VdevStatus) -> bool {
        vdev.note.is_some() || vdev.children.iter().any(is_noted)
    }
    pool.vdevs.iter().chain(&pool.spares).any(is_noted)
}

/// The line above the drives for one purpose.
fn add_header(table: &mut Table, head: &str) {
    table.add_row([head.to_owned()]);
}

/// The vdevs to show.
fn visible_vdevs<'a>(args: &Args, vdevs: &'a [VdevStatus]) -> impl Iterator<Item = &'a VdevStatus> {
    let only_unwell = args.unhealthy_vdevs_only;
    let is_well =
        |vdev: &VdevStatus| matches!(&*vdev.state, "ONLINE" | "AVAIL") && error_count(vdev) == 0;
    vdevs.iter().filter(move |vdev| !only_unwell || !is_well(vdev))
}

fn add_vdev(table: &mut Table, vdev: &VdevStatus, args: &Args, depth: usize) {
    let mut row =
        vec![format!("{}{}", "  ".repeat(depth), args.repeat.vdev_name(vdev)), vdev.state.clone()];
    let counts = [vdev.read_errors, vdev.write_errors, vdev.checksum_errors];
    row.extend(counts.map(|errors| errors.to_string()));
    row.extend(args.slow.then(|| vdev.slow_requests.to_string()));
    row.extend(args.direct.then(|| "0".to_owned()));
    let mut notes: Vec<String> = vdev.note.clone().into_iter().collect();
    if args.initialize && vdev.children.is_empty() {
        notes.push(format_sweep(vdev.initialize.as_ref(), "initialized"));
    }
    if args.trim && vdev.children.is_empty() {
        notes.push(format_sweep(vdev.trim.as_ref(), "trimmed"));
    }
    row.extend((!notes.is_empty()).then(|| notes.join("  ")));
    table.add_row(row);
    visible_vdevs(args, &vdev.children).for_each(|child| add_vdev(table, child, args, depth + 1));
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
