//! `poolhouse zpool import`.

use std::io::{self, Write};
use std::path::PathBuf;

use ::daemon::{Ask, Found, ImportPool};

use crate::daemon::Asking;
use crate::outcome::{Done, Failure, Outcome};
use crate::print;
use crate::table::{Align, Table, safe};

/// Where nobody says where to look.
const ANYWHERE: &str = "/dev";

/// Take over a pool that is on drives, or list those that could be
#[derive(clap::Args, Debug)]
#[command(after_help = "Without a pool's name it lists those that are there.

Examples:
  poolhouse zpool import                        which pools are on this machine's disks?
  poolhouse zpool import tank
  poolhouse zpool import -d ~/images -a         all those in images of a folder
  poolhouse zpool import -f tank                its host is gone and did not export it")]
pub(super) struct Args {
    /// All that are found
    #[arg(short = 'a', conflicts_with = "pool")]
    all: bool,
    /// Where to look: a folder, an image file, a disk or a partition; may be repeated
    #[arg(short = 'd', value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// Even if another host had it and did not export it
    #[arg(short = 'f')]
    force: bool,
    /// Mount nothing
    #[arg(short = 'N')]
    unmounted: bool,
    /// What stands before all its mountpoints
    #[arg(short = 'R', value_name = "ROOT")]
    root: Option<PathBuf>,
    /// Its name or number
    pool: Option<String>,
}

pub(super) fn run(args: &Args, asking: &Asking) -> Done {
    let mut paths = Vec::new();
    for path in &args.paths {
        let absolute = std::path::absolute(path);
        paths.push(absolute.map_err(|why| Failure::file(path, &why))?);
    }
    if paths.is_empty() {
        paths.push(ANYWHERE.into());
    }
    if args.pool.is_none() && !args.all {
        return show(&asking.ask::<Vec<Found>>(&Ask::Importable { paths })?, asking);
    }
    let (name, altroot) = (args.pool.clone(), args.root.clone());
    let (force, unmounted) = (args.force, args.unmounted);
    let names: Vec<String> =
        asking.ask(&Ask::ImportPool(ImportPool { paths, name, force, altroot, unmounted }))?;
    if asking.json {
        print::json(&names)?;
    }
    Ok(Outcome::Complete)
}

fn show(found: &[Found], asking: &Asking) -> Done {
    if asking.json {
        print::json(&found)?;
        return Ok(Outcome::Complete);
    }
    let mut out = io::stdout().lock();
    if found.is_empty() {
        writeln!(out, "no pools available to import")?;
    }
    for pool in found {
        describe(pool, &mut out)?;
    }
    Ok(Outcome::Complete)
}

fn describe(pool: &Found, out: &mut dyn Write) -> io::Result<()> {
    writeln!(
        out,
        "   pool: {}\n     id: {}\n  state: {}",
        safe(&pool.name),
        pool.guid,
        pool.health
    )?;
    let advice = match (&pool.reason, pool.state.as_str()) {
        (Some(why), _) => safe(why),
        (None, "active") => {
            let host = pool.host.as_deref().unwrap_or("another host");
            format!(
                "{} had it and did not export it: if that is gone, import it with -f.",
                safe(host)
            )
        }
        (None, "destroyed") => "It was destroyed.".to_owned(),
        _ => "It can be imported by its name or id.".to_owned(),
    };
    writeln!(out, " action: {advice}\n config:\n")?;
    let mut table = Table::new([Align::Left, Align::Left]);
    table.row([pool.name.clone(), pool.health.clone()]);
    for (depth, name, state) in &pool.vdevs {
        table.row([format!("{}{name}", "  ".repeat(*depth)), state.clone()]);
    }
    table.indent(8).print(out)?;
    writeln!(out)
}
