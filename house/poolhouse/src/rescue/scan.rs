//! `poolhouse rescue scan`: what pools are there, and can they be read?

use std::io::{self, Write};

use engine::summary::{AuxiliarySummary, PoolSummary, RewindPoint, Vdev, VdevState};
use units::human_bytes;

use crate::outcome::{CommandResult, Failure, Outcome};
use crate::pool_args::PoolArgs;
use crate::table::{Align, Table, escape_control};
use crate::{print, time};

/// How many states are shown without -v.
const MAX_TXGS_SHOWN: usize = 3;

/// Find pools, and show their state and whether they can be read
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:
  poolhouse rescue scan -d ~/images -d /dev/sdb
  poolhouse rescue scan -d ~/images -v --json")]
pub(crate) struct Args {
    /// Every state that still stands, every feature, every guid
    #[arg(short, long)]
    verbose: bool,
}

/// All findings in JSON form.
#[derive(serde::Serialize)]
struct ScanResult {
    pools: Vec<PoolSummary>,
    /// Spares and caches.
    others: Vec<AuxiliarySummary>,
    /// Files and devices without a label.
    unlabelled: Vec<String>,
    /// The unreadable paths.
    refused: Vec<String>,
}

pub(crate) fn run(args: &Args, common: &PoolArgs) -> CommandResult {
    let search = common.search();
    let found = ScanResult {
        pools: search.summaries(&common.open_options()),
        others: search.auxiliary_devices(),
        unlabelled: search.unlabelled(),
        refused: search.open_errors().iter().map(ToString::to_string).collect(),
    };
    if common.json {
        print::json(&found)?;
    } else {
        let mut out = io::BufWriter::new(io::stdout().lock());
        for (index, pool) in found.pools.iter().enumerate() {
            if index > 0 {
                writeln!(out)?;
            }
            print_pool(&mut out, pool, args.verbose)?;
        }
        print_other_devices(&mut out, &found)?;
        out.flush()?;
        found.refused.iter().for_each(|refused| print::warning(refused));
    }
    match search.no_pool_error() {
        Some(nothing) => Err(Failure::Engine(nothing)),
        None => Ok(Outcome::complete_unless(!found.refused.is_empty())),
    }
}

fn print_pool(out: &mut dyn Write, pool: &PoolSummary, verbose: bool) -> io::Result<()> {
    let mut facts = Table::new([Align::Right, Align::Left]);
    let mut fact = |name: &str, value: String| facts.add_row([format!("{name}:"), value]);
    fact("pool", pool.name.clone());
    fact("guid", pool.guid.to_string());
    fact("state", pool.state.clone() + &host_note(pool));
    fact("txg", format!("{}, written {}", pool.txg, time::format_local(pool.time)));
    fact("size", size_text(pool));
    if pool.version != 5000 {
        fact("version", pool.version.to_string());
    }
    if let Some(comment) = &pool.comment {
        fact("comment", comment.clone());
    }
    match &pool.reason {
        None if pool.has_missing_vdevs => fact("readable", "in part, see the notes".to_owned()),
        None => fact("readable", "yes".to_owned()),
        Some(reason) => fact("readable", format!("no: {reason}")),
    }
    for warning in &pool.warnings {
        fact("note", warning.clone());
    }
    fact("states", txg_text(&pool.uberblocks, verbose));
    if let Some(checkpoint) = &pool.checkpoint {
        let written = time::format_local(checkpoint.time);
        fact("checkpoint", format!("txg {}, written {written}", checkpoint.txg));
    }
    facts.print(out)?;
    print_vdevs(out, pool, verbose)?;
    print_features(out, pool, verbose)?;
    if verbose {
        let mut states = Table::with_header(&[("TXG", Align::Right), ("WRITTEN", Align::Left)]);
        for state in &pool.uberblocks {
            states.add_row([state.txg.to_string(), time::format_local(state.time)]);
        }
        writeln!(out, "\n  states that can be read with --txg:")?;
        states.with_indent(4).print(out)?;
    }
    Ok(())
}

fn host_note(pool: &PoolSummary) -> String {
    pool.host.as_ref().map_or_else(String::new, |host| match pool.state.as_str() {
        "active" => format!(" (never exported; last used by host '{host}')"),
        _ => format!(" (last used by host '{host}')"),
    })
}

fn size_text(pool: &PoolSummary) -> String {
    let size = human_bytes(pool.size);
    match pool.allocated {
        Some(allocated) => format!("{size}, {} allocated", human_bytes(allocated)),
        None => size,
    }
}

fn txg_text(all: &[RewindPoint], verbose: bool) -> String {
    let txgs: Vec<String> = all.iter().map(|state| state.txg.to_string()).collect();
    match all {
        [] => "none".to_owned(),
        [first, .., last] if all.len() > MAX_TXGS_SHOWN && !verbose => {
            let (newest, oldest) = (first.txg, last.txg);
            format!("{} (txg {oldest} to {newest}; -v lists them)", all.len())
        }
        _ => format!("{} (txg {})", all.len(), txgs.join(", ")),
    }
}

fn print_vdevs(out: &mut dyn Write, pool: &PoolSummary, verbose: bool) -> io::Result<()> {
    let mut head = vec![("VDEV", Align::Left), ("STATE", Align::Left), ("SIZE", Align::Right)];
    head.push(("FOUND AT", Align::Left));
    if verbose {
        head.extend([("GUID", Align::Right), ("KNOWN AS", Align::Left)]);
    }
    let mut table = Table::with_header(&head);
    let is_extra = |vdev: &&Vdev| vdev.class.is_some();
    for vdev in pool.vdevs.iter().filter(|vdev| !is_extra(vdev)) {
        add_vdev(&mut table, vdev, 0, verbose);
    }
    for class in ["special", "dedup", "log"] {
        let of = pool.vdevs.iter().filter(|vdev| vdev.class.as_deref() == Some(class));
        add_vdev_group(&mut table, class, of, verbose);
    }
    add_vdev_group(&mut table, "spares", pool.spares.iter(), verbose);
    add_vdev_group(&mut table, "cache", pool.caches.iter(), verbose);
    writeln!(out)?;
    table.with_indent(2).print(out)?;
    for former in &pool.former_devices {
        writeln!(out, "  {}: was part of the pool once, and no longer is", escape_control(former))?;
    }
    Ok(())
}

fn add_vdev_group<'a>(
    table: &mut Table,
    name: &str,
    vdevs: impl Iterator<Item = &'a Vdev>,
    verbose: bool,
) {
    let mut vdevs = vdevs.peekable();
    if vdevs.peek().is_some() {
        table.add_row([name.to_owned()]);
    }
    vdevs.for_each(|vdev| add_vdev(table, vdev, 1, verbose));
}

fn add_vdev(table: &mut Table, vdev: &Vdev, depth: usize, verbose: bool) {
    let synced = vdev.synced.map_or_else(String::new, |txg| format!(" (txg {txg})"));
    let place = match (&vdev.found, &vdev.path, vdev.state) {
        (Some(found), _, _) => found.clone(),
        (None, Some(path), VdevState::Missing) => format!("- (was {path})"),
        _ => String::new(),
    };
    let mut row = vec![
        format!("{}{}", "  ".repeat(depth), vdev.name),
        format!("{}{synced}", vdev.state),
        vdev.size.map_or_else(String::new, human_bytes),
        place,
    ];
    if verbose {
        row.extend([vdev.guid.to_string(), vdev.path.clone().unwrap_or_default()]);
    }
    table.add_row(row);
    vdev.children.iter().for_each(|child| add_vdev(table, child, depth + 1, verbose));
}

fn print_features(out: &mut dyn Write, pool: &PoolSummary, verbose: bool) -> io::Result<()> {
    if pool.features.is_empty() {
        return Ok(());
    }
    if !verbose {
        let used = pool.features.iter().filter(|feature| feature.uses > 0);
        let names: Vec<String> = used.map(|feature| escape_control(&feature.name)).collect();
        writeln!(out)?;
        for (index, line) in wrap_words(&names, 84).iter().enumerate() {
            writeln!(out, "  {:<9} {line}", if index == 0 { "features:" } else { "" })?;
        }
        return Ok(());
    }
    let mut table = Table::with_header(&[
        ("FEATURE", Align::Left),
        ("USES", Align::Right),
        ("FOR READING", Align::Left),
        ("GUID", Align::Left),
    ]);
    for feature in &pool.features {
        let wanted = match (feature.known, feature.read_only_compatible) {
            (true, false) => "needed",
            (true, true) => "not needed",
            (false, false) => "needed, and not known",
            (false, true) => "not known, and not needed",
        };
        let (uses, guid) = (feature.uses.to_string(), feature.guid.clone());
        table.add_row([feature.name.clone(), uses, wanted.to_owned(), guid]);
    }
    writeln!(out)?;
    table.with_indent(2).print(out)
}

/// Words in lines.
fn wrap_words(words: &[String], width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in words {
        let fits = |line: &String| line.is_empty() || line.len() + word.len() + 2 <= width;
        match lines.last_mut() {
            Some(line) if fits(line) => {
                *line += if line.is_empty() { "" } else { ", " };
                *line += word;
            }
            _ => lines.push(word.clone()),
        }
    }
    lines
}

fn print_other_devices(out: &mut dyn Write, found: &ScanResult) -> io::Result<()> {
    let listed = |guid: u64| {
        let of =
            |pool: &PoolSummary| pool.spares.iter().chain(&pool.caches).any(|v| v.guid == guid);
        found.pools.iter().any(of)
    };
    let homeless: Vec<_> = found.others.iter().filter(|other| !listed(other.guid)).collect();
    if !homeless.is_empty() || !found.unlabelled.is_empty() {
        writeln!(out)?;
    }
    for other in homeless {
        writeln!(
            out,
            "{}: a {} of a pool that is not here",
            escape_control(&other.path),
            other.kind
        )?;
    }
    for path in &found.unlabelled {
        writeln!(out, "{}: has no ZFS label", escape_control(path))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::wrap_words;

    #[test]
    fn words_are_wrapped_at_the_width() {
        let words = ["ab", "cd", "ef"].map(str::to_owned);
        assert_eq!(wrap_words(&words, 6), ["ab, cd", "ef"]);
    }
}
