//! `poolhouse events` and `poolhouse zpool events`.

use std::io::{self, Write};

use api::{EventPage, EventRecord, ListEvents};
use serde_json::Value;

use crate::daemon::DaemonArgs;
use crate::outcome::{CommandResult, Failure, Outcome};
use crate::table::escape_control;
use crate::{print, time};

/// How long the daemon may wait for an event before it replies, in seconds.
const WAIT: u64 = 30;

/// Show what happened to pools, datasets, mounts and devices
#[derive(clap::Args, Debug)]
#[command(
    after_help = "The daemon keeps the latest 4096 events, also when it starts again. With --json an event is a line.

Examples:
  poolhouse events
  poolhouse events --follow
  poolhouse events --json | jq 'select(.kind == \"pool_suspended\")'"
)]
pub(crate) struct Events {
    #[command(flatten)]
    daemon: DaemonArgs,
    #[command(flatten)]
    follow: FollowArgs,
}

/// The options of both commands.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct FollowArgs {
    /// Wait for more events, until Ctrl-C
    #[arg(short = 'f', long)]
    follow: bool,
}

impl Events {
    /// Runs the command.
    pub(crate) fn run(&self) -> CommandResult {
        show(&self.follow, &self.daemon, |_| true)
    }
}

/// Prints the events that are chosen.
pub(crate) fn show(
    args: &FollowArgs,
    daemon: &DaemonArgs,
    chosen: impl Fn(&EventRecord) -> bool,
) -> CommandResult {
    let mut page = daemon.request(&ListEvents { after: None, wait: 0 })?;
    loop {
        print_page(&page, daemon.json, &chosen)?;
        if !args.follow {
            return Ok(Outcome::Complete);
        }
        page = daemon.request(&ListEvents { after: Some(page.last), wait: WAIT })?;
        if page.missed {
            print::warning(&"some events came too fast and are not shown");
        }
    }
}

fn print_page(
    page: &EventPage,
    json: bool,
    chosen: &dyn Fn(&EventRecord) -> bool,
) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    for record in page.events.iter().filter(|record| chosen(record)) {
        if json {
            writeln!(out, "{}", serde_json::to_string(record)?)?;
        } else {
            writeln!(out, "{}", format_event(record)?)?;
        }
    }
    out.flush()?;
    Ok(())
}

/// An event as a line: time, kind, and its fields.
fn format_event(record: &EventRecord) -> Result<String, Failure> {
    let mut line = time::format_zpool(record.time);
    line.push_str("  ");
    line.push_str(&record.event.kind());
    let Value::Object(fields) = serde_json::to_value(&record.event)? else { return Ok(line) };
    for (name, value) in fields.iter().filter(|(name, _)| *name != "kind") {
        let value = match value {
            Value::Null => continue,
            Value::String(text) => escape_control(text),
            other => other.to_string(),
        };
        line.push_str(&format!("  {name}={value}"));
    }
    Ok(line)
}

#[cfg(test)]
mod tests {
    use api::{Event, EventRecord};

    use super::format_event;

    #[test]
    fn an_event_is_one_line() {
        let event = Event::PropertySet {
            dataset: "tank/a\nb".to_owned(),
            property: "atime".to_owned(),
            value: None,
        };
        let record = EventRecord { sequence: 1, time: 1_795_210_986, event };
        let line = format_event(&record).unwrap_or_default();
        assert!(line.contains("  property_set  dataset=tank/a"), "{line}");
        assert!(line.ends_with("  property=atime") && !line.contains('\n'), "{line}");
    }
}
