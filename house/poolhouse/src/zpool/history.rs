//! `poolhouse zpool history`.

use std::io::{self, Write};

use api::GetPoolHistory;
use engine::inspect::Facts;

use crate::daemon::DaemonArgs;
use crate::outcome::{CommandResult, Outcome};
use crate::table::escape_control;
use crate::{print, time};

/// Show the commands given to pools
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:
  poolhouse zpool history tank
  poolhouse zpool history -il tank              with user, host and internal events")]
pub(super) struct Args {
    /// Include internal events of the pools
    #[arg(short = 'i')]
    internal: bool,
    /// Include the user and the host
    #[arg(short = 'l')]
    long: bool,
    /// Pools; default: all
    #[arg(value_name = "POOL")]
    pools: Vec<String>,
}

pub(super) fn run(args: &Args, asking: &DaemonArgs) -> CommandResult {
    let ask = GetPoolHistory { names: args.pools.clone(), internal: args.internal };
    let found: Vec<Facts> = asking.request(&ask)?;
    if asking.json {
        print::json(&found)?;
        return Ok(Outcome::Complete);
    }
    let mut out = io::BufWriter::new(io::stdout().lock());
    for (index, pool) in found.iter().enumerate() {
        if index > 0 {
            writeln!(out)?;
        }
        writeln!(
            out,
            "History for '{}':",
            escape_control(pool["pool"].as_str().unwrap_or_default())
        )?;
        for record in pool["records"].as_array().into_iter().flatten() {
            writeln!(out, "{}", format_record(record, args.long))?;
        }
    }
    out.flush()?;
    Ok(Outcome::Complete)
}

/// A record as zpool(8) shows it.
fn format_record(record: &Facts, long: bool) -> String {
    let text = |name: &str| match &record[name] {
        Facts::Null => None,
        Facts::String(text) => Some(escape_control(text)),
        other => Some(other.to_string()),
    };
    let mut line = record["time"].as_u64().map_or_else(|| "-".to_owned(), time::format_zpool);
    if let Some(why) = text("error") {
        return format!("{line} cannot be read: {why}");
    }
    if let Some(txg) = text("txg") {
        line.push_str(&format!(" [txg:{txg}]"));
    }
    for text in ["what", "dataset", "detail"].into_iter().filter_map(text) {
        line.push(' ');
        line.push_str(&text);
    }
    if long {
        let user = record["user"].as_u64().map(|id| match user_name(id) {
            Some(name) => format!("user {id} ({name})"),
            None => format!("user {id}"),
        });
        let zone = text("zone").map(|zone| format!(":{zone}")).unwrap_or_default();
        let host = text("host").map(|host| format!("on {host}{zone}"));
        let who: Vec<String> = user.into_iter().chain(host).collect();
        if !who.is_empty() {
            line.push_str(&format!(" [{}]", who.join(" ")));
        }
    }
    line
}

/// A user's name, if the system knows it.
fn user_name(id: u64) -> Option<String> {
    let table = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    table.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)?.parse() == Ok(id)).then(|| name.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::format_record;

    #[test]
    fn lines_equal_those_of_zpool() {
        let command = json!({"time": 1_795_210_986, "what": "zpool create tank sda", "user": 0,
            "host": "here", "zone": "linux"});
        let shown = format_record(&command, true);
        assert!(shown.ends_with("zpool create tank sda [user 0 (root) on here:linux]"), "{shown}");
        assert!(format_record(&command, false).ends_with(" zpool create tank sda"));
        let event = json!({"time": 1_795_210_986, "txg": 12, "what": "set",
            "dataset": "tank/a (77)", "detail": "atime=0"});
        let shown = format_record(&event, false);
        assert!(shown.ends_with(" [txg:12] set tank/a (77) atime=0"), "{shown}");
    }
}
