//! `poolhouse zpool status`.

use std::io::{self, Write};

use ::daemon::PoolReport;
use engine::pool::{DedupBucket, PoolStatus, VdevActivity, VdevStatus};

use super::watch::Watch;
use crate::daemon::Asking;
use crate::outcome::{Done, Outcome};
use crate::print;
use crate::table::{Align, Table, safe};
use crate::time;

/// How pools and their drives are
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:
  poolhouse zpool status
  poolhouse zpool status -x       only those that are not well
  poolhouse zpool status -s tank  which drives are slow?
  poolhouse zpool status tank 5   again every five seconds
  poolhouse zpool status --json tank")]
#[expect(clippy::struct_excessive_bools, reason = "switches of a command")]
pub(super) struct Args {
    /// Only pools that are not well
    #[arg(short = 'x')]
    unwell: bool,
    /// Exact numbers, as is done without it
    #[arg(short = 'p')]
    _parsable: bool,
    /// Whole paths of drives, as is done without it
    #[arg(short = 'P')]
    _paths: bool,
    /// All that is known of errors, as is done without it
    #[arg(short = 'v')]
    _verbose: bool,
    /// What deduplication stores, by how often it is referred to, too
    #[arg(short = 'D')]
    dedup: bool,
    /// How many requests of each drive took longer than half a minute, too
    #[arg(short = 's')]
    slow: bool,
    /// Writes whose data changed while they were written, too: none, as all are copied first
    #[arg(short = 'd')]
    direct: bool,
    /// How far writing to all free space of each drive has come, too
    #[arg(short = 'i')]
    initialize: bool,
    /// How far telling each drive which space is free has come, too
    #[arg(short = 't')]
    trim: bool,
    /// Of vdevs only those that are not well
    #[arg(short = 'e')]
    unwell_vdevs: bool,
    #[command(flatten)]
    watch: Watch,
}

pub(super) fn run(args: &Args, asking: &Asking) -> Done {
    args.watch.run(asking, |found, named, _| show(found, named, args, asking))
}

fn show(mut found: Vec<PoolReport>, named: &[String], args: &Args, asking: &Asking) -> Done {
    let any = !found.is_empty();
    if args.unwell {
        found.retain(|pool| !is_well(&pool.status));
    }
    if asking.json {
        print::json(&found)?;
        return Ok(Outcome::Complete);
    }
    let mut out = io::stdout().lock();
    if !any {
        writeln!(out, "no pools available")?;
    } else if let (true, [pool]) = (found.is_empty(), named) {
        writeln!(out, "pool '{}' is healthy", safe(pool))?;
    } else if found.is_empty() {
        writeln!(out, "all pools are healthy")?;
    }
    for (at, pool) in found.iter().enumerate() {
        if at > 0 {
            writeln!(out)?;
        }
        describe(&pool.status, args, &mut out)?;
    }
    Ok(Outcome::Complete)
}

fn is_well(pool: &PoolStatus) -> bool {
    let vdevs = pool.vdevs.iter().chain(&pool.caches);
    let is_whole = pool.state == "ONLINE" && lost_caches(pool) == 0 && !pool.needs_resilver;
    is_whole && vdevs.map(errors).all(|count| count == 0)
}

/// How many drives of the cache are not in use.
fn lost_caches(pool: &PoolStatus) -> usize {
    pool.caches.iter().filter(|cache| cache.state != "ONLINE").count()
}

/// How often something went wrong on a vdev and those below it.
fn errors(vdev: &VdevStatus) -> u64 {
    let own = vdev.read_errors + vdev.write_errors + vdev.checksum_errors;
    vdev.children.iter().map(errors).fold(own, u64::saturating_add)
}

fn describe(pool: &PoolStatus, args: &Args, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "  pool: {}\n state: {}", safe(&pool.name), pool.state)?;
    if let Some((status, action)) = advice(pool) {
        writeln!(out, "status: {}\naction: {action}", safe(&status))?;
    }
    if let Some(scan) = &pool.scan {
        super::scan::describe(scan, out)?;
    }
    if pool.is_unavailable() {
        return Ok(());
    }
    writeln!(out, "config:\n")?;
    let mut head = vec![
        ("NAME", Align::Left),
        ("STATE", Align::Left),
        ("READ", Align::Right),
        ("WRITE", Align::Right),
        ("CKSUM", Align::Right),
    ];
    head.extend(args.slow.then_some(("SLOW", Align::Right)));
    head.extend(args.direct.then_some(("DIO", Align::Right)));
    head.extend((args.initialize || args.trim).then_some(("", Align::Left)));
    let mut table = Table::with_head(&head);
    let counts = (0..3 + usize::from(args.slow) + usize::from(args.direct)).map(|_| "0".to_owned());
    table.row([pool.name.clone(), pool.state.clone()].into_iter().chain(counts));
    for purpose in [None, Some("dedup"), Some("special"), Some("log")] {
        let vdevs: Vec<&VdevStatus> =
            shown(args, &pool.vdevs).filter(|vdev| vdev.class.as_deref() == purpose).collect();
        if let Some(purpose) = purpose.filter(|_| !vdevs.is_empty()) {
            let head = if purpose == "log" { "logs" } else { purpose };
            header(&mut table, head);
        }
        for vdev in vdevs {
            add(&mut table, vdev, args, 1);
        }
    }
    if shown(args, &pool.caches).next().is_some() {
        header(&mut table, "cache");
        shown(args, &pool.caches).for_each(|cache| add(&mut table, cache, args, 1));
    }
    if shown(args, &pool.spares).next().is_some() {
        header(&mut table, "spares");
        for spare in shown(args, &pool.spares) {
            let (name, state) = (format!("  {}", args.watch.name(spare)), spare.state.clone());
            table.row([name, state]);
        }
    }
    table.indent(8).print(out)?;
    let wrong: u64 = pool.vdevs.iter().map(errors).fold(0, u64::saturating_add);
    match &pool.scan {
        Some(scan) if scan.errors > 0 => super::scan::lost(scan, out)?,
        _ if wrong == 0 => writeln!(out, "\nerrors: No known data errors")?,
        // there is no log of those that could not be mended yet
        _ => writeln!(
            out,
            "\nerrors: {wrong} on drives; whether all could be mended tells `zpool scrub -w {}`",
            safe(&pool.name)
        )?,
    }
    if args.dedup { deduplicated(&pool.dedup, out) } else { Ok(()) }
}

/// What deduplication stores, by how often it is referred to.
fn deduplicated(all: &[DedupBucket], out: &mut dyn Write) -> io::Result<()> {
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
    table.row(words(["bucket", "", "", "", "allocated", "", "", "", "referenced"]));
    let kinds = ["blocks", "LSIZE", "PSIZE", "DSIZE"];
    let head = std::iter::once("refcnt").chain(kinds).chain(kinds);
    table.row(head.map(str::to_owned));
    let cells = |[blocks, sizes @ ..]: [u64; 4]| {
        std::iter::once(blocks.to_string()).chain(sizes.map(units::human_bytes))
    };
    for sums in all {
        let name = std::iter::once(sums.references.to_string());
        table.row(name.chain(cells(sums.allocated)).chain(cells(sums.referenced)));
    }
    table.row(std::iter::once("Total".to_owned()).chain(cells(allocated)).chain(cells(referenced)));
    table.print(out)
}

/// The line above the drives for one purpose.
fn header(table: &mut Table, head: &str) {
    table.row([head.to_owned()]);
}

/// Those vdevs that are to be shown.
fn shown<'a>(args: &Args, vdevs: &'a [VdevStatus]) -> impl Iterator<Item = &'a VdevStatus> {
    let only_unwell = args.unwell_vdevs;
    let is_well =
        |vdev: &VdevStatus| matches!(&*vdev.state, "ONLINE" | "AVAIL") && errors(vdev) == 0;
    vdevs.iter().filter(move |vdev| !only_unwell || !is_well(vdev))
}

fn add(table: &mut Table, vdev: &VdevStatus, args: &Args, depth: usize) {
    let mut row =
        vec![format!("{}{}", "  ".repeat(depth), args.watch.name(vdev)), vdev.state.clone()];
    let counts = [vdev.read_errors, vdev.write_errors, vdev.checksum_errors];
    row.extend(counts.map(|errors| errors.to_string()));
    row.extend(args.slow.then(|| vdev.slow_requests.to_string()));
    row.extend(args.direct.then(|| "0".to_owned()));
    let mut notes = Vec::new();
    if args.initialize && vdev.children.is_empty() {
        notes.push(progress(vdev.initialize.as_ref(), "initialized"));
    }
    if args.trim && vdev.children.is_empty() {
        notes.push(progress(vdev.trim.as_ref(), "trimmed"));
    }
    row.extend((!notes.is_empty()).then(|| notes.join("  ")));
    table.row(row);
    shown(args, &vdev.children).for_each(|child| add(table, child, args, depth + 1));
}

/// How far something has come that goes over a drive, in brackets.
fn progress(sweep: Option<&VdevActivity>, done: &str) -> String {
    let Some(sweep) = sweep else { return format!("(un{done})") };
    let (how, since) = match sweep.state.as_str() {
        "complete" => ("", "completed"),
        "active" => ("", "started"),
        other => (other, "started"),
    };
    let how = if how.is_empty() { String::new() } else { format!(", {how}") };
    format!("({}% {done}{how}, {since} at {})", sweep.percent, time::date(sweep.time))
}

/// Whether a vdev, or one below it, is in that state.
fn has(vdev: &VdevStatus, state: &str) -> bool {
    vdev.state == state || vdev.children.iter().any(|child| has(child, state))
}

/// What is wrong, and what to do.
fn advice(pool: &PoolStatus) -> Option<(String, &'static str)> {
    if let (Some(why), true) = (&pool.error, pool.is_unavailable()) {
        let action = "bring the drives back: it is taken over as soon as they are there. Or import \
                      it from elsewhere, or have it forgotten with `zpool export`.";
        return Some((format!("it was here and cannot be taken over: {why}"), action));
    }
    if let Some(why) = &pool.error {
        let action = "bring the drives back, and run `zpool clear`.";
        return Some((format!("it takes no more changes: {why}"), action));
    }
    if pool.state != "ONLINE" {
        let (what, action) = if pool.vdevs.iter().any(|vdev| has(vdev, "FAULTED")) {
            (
                "drives cannot be written",
                "replace them (`zpool replace`), or mend what they hang on and run `zpool clear`.",
            )
        } else {
            (
                "drives are missing",
                "bring the drives back, which are used again within seconds, or replace them \
                 (`zpool replace`).",
            )
        };
        let what =
            format!("{what}; what is in the pool is there, and bears the loss of fewer more");
        return Some((what, action));
    }
    let mends = pool.scan.as_ref().is_some_and(|scan| scan.state == "scanning");
    if pool.needs_resilver && !mends {
        let what = "drives lack some of what the others have, as they failed when it was written";
        return Some((what.to_owned(), "run `zpool clear`, which has them resilvered."));
    }
    let lost = lost_caches(pool);
    if lost > 0 {
        let what = format!("{lost} of the cache drives cannot be used; nothing is lost by that");
        let action = "bring it back and run `zpool clear`, or remove it with `zpool remove`.";
        return Some((what, action));
    }
    (!is_well(pool)).then(|| {
        let what = "drives gave errors or wrong data, which were mended from the others";
        (what.to_owned(), "if the counts grow, replace the drive.")
    })
}
