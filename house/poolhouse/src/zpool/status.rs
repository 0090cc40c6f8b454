//! `poolhouse zpool status`.

use std::io::{self, Write};

use ::daemon::PoolReport;
use engine::held::{PoolStatus, VdevStatus};

use super::watch::Watch;
use crate::daemon::Asking;
use crate::outcome::{Done, Outcome};
use crate::print;
use crate::table::{Align, Table, safe};

/// How pools and their drives are
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:
  poolhouse zpool status
  poolhouse zpool status -x       only those that are not well
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
    /// Of vdevs only those that are not well
    #[arg(short = 'e')]
    unwell_vdevs: bool,
    #[command(flatten)]
    watch: Watch,
}

pub(super) fn run(args: &Args, asking: &Asking) -> Done {
    args.watch.run(asking, |found, _, _| show(found, args, asking))
}

fn show(mut found: Vec<PoolReport>, args: &Args, asking: &Asking) -> Done {
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
    pool.state == "ONLINE" && lost_caches(pool) == 0 && vdevs.map(errors).all(|count| count == 0)
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
    if pool.is_absent() {
        return Ok(());
    }
    writeln!(out, "config:\n")?;
    let mut table = Table::with_head(&[
        ("NAME", Align::Left),
        ("STATE", Align::Left),
        ("READ", Align::Right),
        ("WRITE", Align::Right),
        ("CKSUM", Align::Right),
    ]);
    let zero = || "0".to_owned();
    table.row([pool.name.clone(), pool.state.clone(), zero(), zero(), zero()]);
    for purpose in [None, Some("dedup"), Some("special"), Some("log")] {
        let vdevs: Vec<&VdevStatus> =
            shown(args, &pool.vdevs).filter(|vdev| vdev.purpose.as_deref() == purpose).collect();
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
            table.row([name, state].into_iter().chain((0..3).map(|_| String::new())));
        }
    }
    table.indent(8).print(out)?;
    let wrong: u64 = pool.vdevs.iter().map(errors).fold(0, u64::saturating_add);
    match &pool.scan {
        Some(scan) if scan.errors > 0 => super::scan::lost(scan, out),
        _ if wrong == 0 => writeln!(out, "\nerrors: No known data errors"),
        // there is no log of those that could not be mended yet
        _ => writeln!(
            out,
            "\nerrors: {wrong} on drives; whether all could be mended tells `zpool scrub -w {}`",
            safe(&pool.name)
        ),
    }
}

/// The line above the drives for one purpose.
fn header(table: &mut Table, head: &str) {
    table.row([head.to_owned()].into_iter().chain((0..4).map(|_| String::new())));
}

/// Those vdevs that are to be shown.
fn shown<'a>(args: &Args, vdevs: &'a [VdevStatus]) -> impl Iterator<Item = &'a VdevStatus> {
    let only_unwell = args.unwell_vdevs;
    let is_well =
        |vdev: &VdevStatus| matches!(&*vdev.state, "ONLINE" | "AVAIL") && errors(vdev) == 0;
    vdevs.iter().filter(move |vdev| !only_unwell || !is_well(vdev))
}

fn add(table: &mut Table, vdev: &VdevStatus, args: &Args, depth: usize) {
    let count = |errors: u64| errors.to_string();
    table.row([
        format!("{}{}", "  ".repeat(depth), args.watch.name(vdev)),
        vdev.state.clone(),
        count(vdev.read_errors),
        count(vdev.write_errors),
        count(vdev.checksum_errors),
    ]);
    shown(args, &vdev.children).for_each(|child| add(table, child, args, depth + 1));
}

/// What is wrong, and what to do.
fn advice(pool: &PoolStatus) -> Option<(String, &'static str)> {
    if let (Some(why), true) = (&pool.trouble, pool.is_absent()) {
        let action = "bring the drives back: it is taken over as soon as they are there. Or import \
                      it from elsewhere, or have it forgotten with `zpool export`.";
        return Some((format!("it was here and cannot be taken over: {why}"), action));
    }
    if let Some(why) = &pool.trouble {
        let action = "bring the drives back, and run `zpool clear`.";
        return Some((format!("it takes no more changes: {why}"), action));
    }
    if pool.state != "ONLINE" {
        let what =
            "drives are missing; what is in the pool is there, and bears the loss of fewer more";
        let action = "bring the drives back and import the pool again, or replace them \
                      (`zpool replace`).";
        return Some((what.to_owned(), action));
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
