//! The service of Time Machine: file systems for the backups of Macs, with a snapshot after each finished backup.
//!
//! ```toml
//! [timemachine]
//! settle = 60       # seconds without a change of the list of backups before a snapshot is taken
//! keep_days = 14    # days for which the last snapshot of each day is kept; all are kept for one day
//!
//! [[share]]
//! protocol = "smb"
//! dataset = "tank/timemachine/anna"   # its refquota limits the backups
//! users = "anna"
//! time_machine = true
//! ```
//!
//! The service of SMB serves the shares. This one looks after their snapshots.

use std::sync::Arc;
use std::time::Duration;

use ::samba::{Folder, Programs, UserName, Users};
use api::{
    AddShare, AddTimeMachine, CreateFilesystem, CreateSnapshots, ListTimeMachines, Protocol, Reply,
    RollBackTimeMachine, RollbackDataset, TimeMachine, TimeMachineSnapshot,
};
use engine::pool::Pool;
use parking_lot::Mutex;
use posix::SetAttributes;
use tokio::task::JoinHandle;

use super::{Service, config};
use crate::context::Context;
use crate::events::unix_seconds;
use crate::replica::ReplicaConfig;
use crate::router::Router;
use crate::shares::add_entry;
use crate::shares::entry::{TimeMachineEntry, read_time_machines};
use crate::time_machine::{
    BackupHistory, Progress, TimeMachineConfig, backup_snapshots, last_backup, progress,
    read_histories, snapshot_name, surplus,
};
use crate::{Error, Result};

/// The longest time between two looks at the backups.
const MAX_INTERVAL: Duration = Duration::from_secs(15);
/// The time after a finished backup for which a snapshot waits while clients have files open.
const MAX_OPEN_SECONDS: u64 = 900;
/// Only the user may enter the root directory of the backups.
const ROOT_MODE: u32 = 0o700;

/// The service of Time Machine.
pub(super) struct TimeMachineService {
    context: Arc<Context>,
    /// The problem of each destination at the last look.
    problems: Arc<Mutex<Problems>>,
    task: Mutex<Option<JoinHandle<()>>>,
}

/// Datasets with a sentence: why no snapshot is taken.
type Problems = std::collections::BTreeMap<String, String>;

impl TimeMachineService {
    pub(super) fn new(context: &Arc<Context>) -> Self {
        let task = Mutex::default();
        Self { context: Arc::clone(context), problems: Arc::default(), task }
    }

    fn add(&self, call: &AddTimeMachine) -> Result<Reply<()>> {
        let AddTimeMachine { user, dataset, quota } = call;
        let (uid, gid) = self.system_ids(user)?;
        let pools = &self.context.pools;
        pools.pool_of_dataset(dataset)?;
        if pools.share_facts().iter().any(|it| it.name == *dataset) {
            return Err(Error::refused_error(format!(
                "'{dataset}' exists already: `poolhouse share add smb {dataset} -o users={user} \
                 -o time_machine=true` shares it for backups"
            )));
        }
        let properties = quota.iter().map(|quota| ("refquota".to_owned(), quota.clone())).collect();
        let created = pools.create_filesystem(&CreateFilesystem {
            name: dataset.clone(),
            properties,
            parents: true,
            no_mount: false,
            secret: None,
            dry_run: false,
        })?;
        let (uid, gid, mode) = (Some(uid), Some(gid), Some(ROOT_MODE));
        let set = SetAttributes { uid, gid, mode, ..SetAttributes::default() };
        pools.pool_of_dataset(dataset)?.set_root_attributes(dataset, &set)?;
        let option = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let options = vec![
            option("name", &format!("timemachine-{user}")),
            option("users", user),
            option("time_machine", "true"),
        ];
        let (protocol, dataset) = (Protocol::Smb, dataset.clone());
        let share = AddShare { protocol, dataset, options };
        self.context.config.edit(|document| add_entry(document, &share))?;
        config::reload(&self.context);
        Ok(Reply::with_warnings(created.failed))
    }

    /// The numbers of the system user of a user, and of that user's group.
    fn system_ids(&self, user: &str) -> Result<(u32, u32)> {
        let name = UserName::new(user)?;
        let state_dir = &self.context.state_dir;
        let folder = Folder::create(&state_dir.samba(), &state_dir.samba_run())?;
        let programs = Programs::find()?;
        if !folder.conf().exists() {
            return Err(::samba::Error::NoSuchUser { name: user.to_owned() }.into());
        }
        Ok(Users::new(programs, folder).system_ids(&name)?)
    }

    fn list(&self) -> Vec<TimeMachine> {
        let entries = read_time_machines(&self.context.config.current());
        let facts = self.context.pools.share_facts();
        let problems = self.problems.lock();
        let state = |entry: TimeMachineEntry| {
            let found = inspect(&self.context, &entry.dataset);
            let problem = match &found {
                Ok(_) => problems.get(&entry.dataset).cloned(),
                Err(why) => Some(why.to_string()),
            };
            let quota = facts.iter().find(|it| it.name == entry.dataset).and_then(|it| it.quota);
            let found = found.unwrap_or_default();
            let TimeMachineEntry { dataset, share, user } = entry;
            let last_backup = last_backup(&found.histories);
            let (used, snapshots) = (found.used, found.snapshots);
            TimeMachine { user, share, dataset, quota, used, last_backup, snapshots, problem }
        };
        entries.into_iter().map(state).collect()
    }

    fn roll_back(&self, call: &RollBackTimeMachine) -> Result<Reply<String>> {
        let entries = read_time_machines(&self.context.config.current());
        let mut own = entries.into_iter().filter(|entry| entry.user == call.user);
        let named = call.snapshot.as_deref();
        let wanted = named.and_then(|name| Some(name.split_once('@')?.0));
        let found: Vec<_> = own.by_ref().map(|entry| entry.dataset).collect();
        let dataset = choose_dataset(&call.user, &found, wanted)?;
        let part = match named.map(|name| name.split_once('@').map_or(name, |(_, part)| part)) {
            Some(part) => part.to_owned(),
            None => self.newest_snapshot(dataset)?,
        };
        let snapshot = format!("{dataset}@{part}");
        let warnings = self.context.pools.rollback_without_clients(&RollbackDataset {
            snapshot: snapshot.clone(),
            destroy_newer: call.destroy_newer,
            destroy_clones: false,
            force: false,
        })?;
        Ok(Reply { value: snapshot, warnings })
    }

    fn newest_snapshot(&self, dataset: &str) -> Result<String> {
        let all = self.context.pools.pool_of_dataset(dataset)?.handle.snapshots().list(dataset)?;
        let newest = backup_snapshots(&all).last().map(|snapshot| snapshot.name.clone());
        newest.ok_or_else(|| {
            Error::refused_error(format!(
                "'{dataset}' has no snapshot of a finished backup: `zfs list -t snapshot {dataset}` \
                 shows its snapshots, one of which can be named"
            ))
        })
    }
}

/// The dataset of a user's backups. `wanted`: the dataset that the caller named.
fn choose_dataset<'a>(user: &str, own: &'a [String], wanted: Option<&str>) -> Result<&'a str> {
    let chosen: Vec<&String> =
        own.iter().filter(|dataset| wanted.is_none_or(|wanted| *dataset == wanted)).collect();
    match (&chosen[..], wanted) {
        ([dataset], _) => Ok(dataset),
        ([], Some(wanted)) => {
            Err(Error::refused_error(format!("'{wanted}' has no backups of user '{user}'")))
        }
        ([], None) => Err(Error::refused_error(format!(
            "user '{user}' has no backups here: `poolhouse timemachine list` shows who has"
        ))),
        (several, _) => Err(Error::refused_error(format!(
            "user '{user}' has several: name the snapshot as FS@NAME, with one of {}",
            several.iter().map(|name| name.as_str()).collect::<Vec<_>>().join(", ")
        ))),
    }
}

impl Service for TimeMachineService {
    fn name(&self) -> &'static str {
        "timemachine"
    }

    fn calls(self: Arc<Self>, router: &mut Router) {
        let own = Arc::clone(&self);
        router.add(move |call: &AddTimeMachine, _| own.add(call));
        let own = Arc::clone(&self);
        router.add(move |_: &ListTimeMachines, _| Ok(own.list()));
        let own = Arc::clone(&self);
        router.add(move |call: &RollBackTimeMachine, _| own.roll_back(call));
    }

    fn start(&self, context: &Arc<Context>) -> Result<()> {
        let (context, problems) = (Arc::clone(context), Arc::clone(&self.problems));
        let task = tokio::spawn(async move {
            loop {
                let TimeMachineConfig { settle, .. } = context.config.current().section(SECTION);
                let pause = Duration::from_secs(settle.max(1)).min(MAX_INTERVAL);
                tokio::time::sleep(pause).await;
                if read_time_machines(&context.config.current()).is_empty() {
                    continue;
                }
                let (context, problems) = (Arc::clone(&context), Arc::clone(&problems));
                let _ = tokio::task::spawn_blocking(move || look(&context, &problems)).await;
            }
        });
        *self.task.lock() = Some(task);
        Ok(())
    }

    fn stop(&self) {
        if let Some(task) = self.task.lock().take() {
            task.abort();
        }
    }
}

/// The name of the section.
pub(super) const SECTION: &str = "timemachine";

/// Takes a snapshot of each destination with a finished backup, and destroys surplus ones.
fn look(context: &Context, problems: &Mutex<Problems>) {
    let config = context.config.current();
    let mut found = Problems::new();
    for TimeMachineEntry { dataset, share, .. } in read_time_machines(&config) {
        let looked = follow_backups(context, &dataset, &share, &config.section(SECTION));
        if let Err(why) = looked {
            found.insert(dataset, why.to_string());
        }
    }
    let mut problems = problems.lock();
    for (dataset, why) in found.iter().filter(|(dataset, why)| problems.get(*dataset) != Some(why))
    {
        context.log.write_line(&format!("backups of Time Machine in '{dataset}': {why}"));
    }
    *problems = found;
}

fn follow_backups(
    context: &Context,
    dataset: &str,
    share: &str,
    config: &TimeMachineConfig,
) -> Result<()> {
    let pool = context.pools.pool_of_dataset(dataset)?;
    if pool.handle.is_read_only() || pool.handle.is_suspended() {
        return Ok(());
    }
    let snapshots = pool.handle.snapshots().list(dataset)?;
    let newest = backup_snapshots(&snapshots).last().copied();
    let before = match newest {
        Some(newest) => histories_of(&pool.handle, &format!("{dataset}@{}", newest.name))?,
        None => Vec::new(),
    };
    let current = histories_of(&pool.handle, dataset)?;
    let now = unix_seconds();
    let Progress::Finished { at } = progress(&current, &before, now, config.settle) else {
        return Ok(());
    };
    let age = now.checked_sub(at);
    if age.is_some_and(|age| age < MAX_OPEN_SECONDS) && has_open_files(context, share) {
        return Ok(());
    }
    let Some(part) = snapshot_name(at) else { return Ok(()) };
    let names = vec![format!("{dataset}@{part}")];
    let create = CreateSnapshots { names, recursive: false, properties: Vec::new() };
    context.pools.create_snapshots(&create)?;
    context.log.write_line(&format!("took '{dataset}@{part}' after a finished backup"));
    prune(context, dataset, (now, config.keep_days))
}

/// The histories of the disk images in a file system or snapshot, as of the last txg.
fn histories_of(pool: &Pool, name: &str) -> Result<Vec<BackupHistory>> {
    let found = read_histories(&pool.datasets().synced_reader(name)?);
    found.map_err(|why| Error::refused_error(format!("'{name}' cannot be read: {why}")))
}

/// Whether clients of an SMB share have files open. Samba shows that to root only.
fn has_open_files(context: &Context, share: &str) -> bool {
    context.events.services().iter().filter_map(|service| service.share_server()).any(|server| {
        server.protocol() == Protocol::Smb
            && server
                .report()
                .clients
                .iter()
                .any(|(name, client)| name == share && client.open.is_some_and(|open| open > 0))
    })
}

/// Destroys surplus snapshots. Those with holds, and those that a replica does not have yet, stay.
fn prune(context: &Context, dataset: &str, (now, keep_days): (u64, u64)) -> Result<()> {
    let replicas: Vec<ReplicaConfig> = context.config.current().section("replica");
    let safe = context.replicas.replicated_txg(&replicas, dataset, now);
    let pool = context.pools.pool_of_dataset(dataset)?;
    for snapshot in surplus(&pool.handle.snapshots().list(dataset)?, now, keep_days) {
        let name = format!("{dataset}@{}", snapshot.name);
        let is_needed = safe.is_some_and(|safe| snapshot.txg > safe);
        if is_needed || !pool.handle.snapshots().holds(&name)?.is_empty() {
            continue;
        }
        context.pools.destroy_snapshot(&name)?;
    }
    Ok(())
}

/// The backups of a dataset.
#[derive(Default)]
struct Backups {
    histories: Vec<BackupHistory>,
    used: u64,
    snapshots: Vec<TimeMachineSnapshot>,
}

fn inspect(context: &Context, dataset: &str) -> Result<Backups> {
    let pool = context.pools.pool_of_dataset(dataset)?;
    let all = pool.handle.snapshots().list(dataset)?;
    let snapshot = |snapshot: &engine::pool::Snapshot| TimeMachineSnapshot {
        name: snapshot.name.clone(),
        created: snapshot.created,
    };
    Ok(Backups {
        histories: histories_of(&pool.handle, dataset)?,
        used: pool.handle.datasets().space(dataset).referenced,
        snapshots: backup_snapshots(&all).into_iter().map(snapshot).collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::choose_dataset;

    #[test]
    fn user_with_several_datasets_must_name_one() {
        let own = ["tank/a", "tank/b"].map(str::to_owned);
        assert_eq!(choose_dataset("anna", &own[..1], None).unwrap(), "tank/a");
        assert_eq!(choose_dataset("anna", &own, Some("tank/b")).unwrap(), "tank/b");
        let why = |own: &[String], wanted| choose_dataset("anna", own, wanted).unwrap_err();
        assert!(why(&own, None).to_string().contains("tank/a, tank/b"));
        assert!(why(&own, Some("tank/c")).to_string().contains("'tank/c' has no backups"));
        assert!(why(&[], None).to_string().contains("user 'anna' has no backups"));
    }
}
