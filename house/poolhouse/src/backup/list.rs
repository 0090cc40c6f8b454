//! `poolhouse backup list`: the snapshots in a repository.

use std::io;

use engine::backup::SnapshotSummary;
use serde_json::json;
use units::human_bytes;

use super::RepositoryArgs;
use crate::outcome::{CommandResult, Outcome};
use crate::table::{Align, Table};
use crate::{print, time};

/// List the snapshots in a repository
#[derive(clap::Args, Debug)]
#[command(
    after_help = "REFER is the data that a snapshot references; ADDED is the data that its backup added to the repository.

Examples:
  poolhouse backup list file:///mnt/usb/backup
  poolhouse backup list --json file:///mnt/usb/backup tank/home"
)]
pub(super) struct Args {
    #[command(flatten)]
    repository: RepositoryArgs,
    /// This dataset and those below only
    dataset: Option<String>,
    /// Print facts as JSON, properties too
    #[arg(short = 'j', long)]
    json: bool,
}

impl Args {
    pub(super) fn run(&self) -> CommandResult {
        let repository = self.repository.open()?;
        let is_wanted = |snapshot: &SnapshotSummary| {
            let Some(dataset) = &self.dataset else { return true };
            let rest = snapshot.dataset.strip_prefix(dataset.as_str());
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        let snapshots: Vec<_> = repository.snapshots().into_iter().filter(is_wanted).collect();
        if self.json {
            let mut listed = Vec::new();
            for snapshot in &snapshots {
                listed.push(json!({
                    "name": snapshot.name(),
                    "guid": snapshot.guid.to_string(),
                    "pool_guid": snapshot.pool.to_string(),
                    "createtxg": snapshot.txg,
                    "creation": snapshot.creation,
                    "type": if snapshot.volume { "volume" } else { "filesystem" },
                    "encrypted": snapshot.encrypted,
                    "referenced": snapshot.referenced,
                    "added": snapshot.added,
                    "properties": repository.snapshot_properties(snapshot)?,
                }));
            }
            let stored = repository.stored_bytes();
            let (id, location) = (repository.id(), repository.location());
            print::json(&json!({
                "id": id, "location": location, "stored": stored, "snapshots": listed
            }))?;
            return Ok(Outcome::Complete);
        }
        let mut table = Table::with_header(&[
            ("NAME", Align::Left),
            ("CREATION", Align::Left),
            ("REFER", Align::Right),
            ("ADDED", Align::Right),
            ("ENCRYPTED", Align::Left),
        ]);
        for snapshot in &snapshots {
            table.add_row([
                snapshot.name(),
                time::format_minutes(snapshot.creation),
                human_bytes(snapshot.referenced),
                human_bytes(snapshot.added),
                if snapshot.encrypted { "yes" } else { "no" }.to_owned(),
            ]);
        }
        table.print(&mut io::stdout().lock())?;
        Ok(Outcome::Complete)
    }
}
