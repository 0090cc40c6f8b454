//! The service of shares: it keeps the services of all protocols at what the configuration, the properties sharenfs
//! and sharesmb, and the mounts say.
//!
//! It is the last of the services: it starts when the others run and follows changes when file systems are mounted
//! again, and it lets go of datasets before they are unmounted.

use std::collections::BTreeSet;
use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::sync::Arc;
use std::time::Instant;

use api::{
    AddShare, Event, GetShares, ImportShares, ImportedShares, Protocol, RemoveShare, Reply,
    ShareFilesystems, ShareState, ShareStatus, UnshareFilesystems,
};
use engine::dataset::{Effects, has_effect};
use parking_lot::Mutex;
use tokio::task::JoinHandle;
use toml_edit::DocumentMut;

use super::{Service, config};
use crate::config::Config;
use crate::context::Context;
use crate::events::{ChangeOptions, changes_datasets, head_of, takes_away};
use crate::pools::mounts::is_within;
use crate::router::Router;
use crate::shares::client_rates::ClientRates;
use crate::shares::entry::{ShareEntry, read_entries};
use crate::shares::{
    ImportPlan, ReleaseReason, Resolved, SHARE_PROPERTIES, SecretFile, ServerReport, Share,
    ShareProblem, ShareSource, add_entry, check_properties, plan_import, remove_entries,
    rename_datasets, resolve,
};
use crate::{Error, Result, state_file};

/// The service of shares.
pub(super) struct ShareService {
    context: Arc<Context>,
    state: Arc<Mutex<State>>,
    watch: Mutex<Option<JoinHandle<()>>>,
    rates: Mutex<ClientRates>,
}

#[derive(Default)]
struct State {
    resolved: Resolved,
    /// Problems that the servers found.
    server_problems: Vec<ShareProblem>,
    /// File systems that `zfs unshare` named.
    unshared: BTreeSet<String>,
    /// Datasets that changes in progress need.
    released: BTreeSet<String>,
    /// File systems that were unmounted. They are not exported by sharenfs until they are mounted again.
    unmounted: BTreeSet<String>,
}

impl State {
    /// Notes which file systems were unmounted, as far as they still are when the shares are made again.
    fn note_unmounted<'a>(&mut self, events: impl Iterator<Item = &'a Event>) {
        self.unmounted.extend(events.filter_map(|event| match event {
            Event::Unmounted { dataset, .. } => Some(dataset.clone()),
            _ => None,
        }));
    }
}

impl ShareService {
    pub(super) fn new(context: &Arc<Context>) -> Self {
        Self {
            context: Arc::clone(context),
            state: Arc::default(),
            watch: Mutex::default(),
            rates: Mutex::default(),
        }
    }

    fn entries(&self) -> Vec<ShareEntry> {
        read_entries(&self.context.config.current())
    }

    /// Makes the shares again, and gives them to the servers. Returns sentences about those that are not served
    /// since now.
    fn sync(&self) -> Vec<String> {
        sync(&self.context, &mut self.state.lock())
    }

    fn add_share(&self, call: &AddShare) -> Result<Reply<()>> {
        self.context.config.edit(|document| add_entry(document, call))?;
        config::reload(&self.context);
        let is_new = |it: &&ShareState| it.protocol == call.protocol && it.dataset == call.dataset;
        let status = self.status();
        let problems = status.shares.iter().filter(is_new).filter_map(|it| it.problem.clone());
        Ok(Reply::with_warnings(problems.collect()))
    }

    fn import_shares(&self, call: &ImportShares) -> Result<ImportedShares> {
        let facts = self.context.pools.share_facts();
        let directory = self.context.state_dir.chap_secrets();
        let file = (call.format, call.text.as_str());
        let plan = plan_import(file, &facts, &self.entries(), &directory);
        let ImportPlan { calls, secrets, report } = plan;
        if !call.dry_run && !calls.is_empty() {
            secrets.iter().try_for_each(write_secret)?;
            let add = |document: &mut DocumentMut| {
                calls.iter().try_for_each(|call| add_entry(document, call))
            };
            self.context.config.edit(add)?;
            config::reload(&self.context);
        }
        Ok(report)
    }

    fn remove_share(&self, call: &RemoveShare) -> Result<()> {
        let RemoveShare { protocol, name } = call;
        let entries = self.entries();
        let names = |entry: &&ShareEntry| {
            entry.fields.protocol() == *protocol
                && (entry.dataset == *name || self.share_name(entry).as_ref() == Some(name))
        };
        let dataset = entries.iter().find(names).map(|entry| entry.dataset.clone());
        let Some(dataset) = dataset else { return Err(self.no_such_share(*protocol, name)) };
        let mut removed = 0;
        self.context.config.edit(|document| {
            removed = remove_entries(document, *protocol, name)?;
            if removed == 0 {
                // a name that the entry does not have, but follows from its dataset
                removed = remove_entries(document, *protocol, &dataset)?;
            }
            Ok(())
        })?;
        config::reload(&self.context);
        Ok(())
    }

    /// The name under which an entry is served.
    fn share_name(&self, entry: &ShareEntry) -> Option<String> {
        let source = ShareSource::Config { line: entry.line };
        let protocol = entry.fields.protocol();
        let all = self.status().shares.into_iter();
        let mut own = all.filter(|it| it.protocol == protocol && it.source == source.to_string());
        own.find_map(|it| it.target.or(it.path))
    }

    fn no_such_share(&self, protocol: Protocol, name: &str) -> Error {
        let all = self.status().shares;
        let own = all.iter().find(|it| {
            it.protocol == protocol && (it.dataset == name || it.path.as_deref() == Some(name))
        });
        match own {
            Some(it) => Error::refused_error(format!(
                "'{name}' is shared by a property ({}): `zfs set share{}=off {}`",
                it.source,
                protocol.as_str(),
                it.dataset
            )),
            None => Error::refused_error(format!("there is no {protocol} share '{name}'")),
        }
    }

    fn share_filesystems(&self, call: &ShareFilesystems) -> Result<Reply<()>> {
        if call.names.is_empty() {
            self.state.lock().unshared.clear();
            return Ok(Reply::with_warnings(self.sync()));
        }
        for name in &call.names {
            self.check_has_property(name, "share")?;
            if !self.state.lock().unshared.remove(name) {
                return Err(Error::refused_error(format!(
                    "cannot share '{name}': filesystem already shared"
                )));
            }
        }
        Ok(Reply::with_warnings(self.sync()))
    }

    fn unshare_filesystems(&self, call: &UnshareFilesystems) -> Result<Reply<()>> {
        let facts = self.context.pools.share_facts();
        let mut names = Vec::new();
        if call.names.is_empty() {
            let is_shared = |value: &(String, String)| value.0 != "off";
            let shared = facts.iter().filter(|it| it.shared.iter().any(is_shared));
            names.extend(shared.map(|it| it.name.clone()));
        }
        for name in &call.names {
            let at = |dir: &std::path::Path| dir.as_os_str() == name.as_str();
            let by_mountpoint = facts.iter().find(|it| it.mounted_at.as_deref().is_some_and(at));
            let name = by_mountpoint.map_or(name, |it| &it.name);
            self.check_has_property(name, "unshare")?;
            if self.state.lock().unshared.contains(name) {
                let what = format!("cannot unshare '{name}': not currently shared");
                return Err(Error::refused_error(what));
            }
            names.push(name.clone());
        }
        self.state.lock().unshared.extend(names);
        Ok(Reply::with_warnings(self.sync()))
    }

    /// Refuses a dataset that no property shares.
    fn check_has_property(&self, name: &str, verb: &str) -> Result<()> {
        self.context.pools.pool_of_dataset(name)?;
        let facts = self.context.pools.share_facts();
        let Some(dataset) = facts.iter().find(|it| it.name == name) else {
            return Err(engine::Error::NoSuchDataset { name: name.to_owned() }.into());
        };
        if dataset.shared.iter().any(|(value, _)| value != "off") {
            return Ok(());
        }
        Err(Error::refused_error(format!(
            "cannot {verb} '{name}': legacy share\nuse exports(5) or smb.conf(5) to {verb} this filesystem{}",
            if verb == "share" { ", or set the sharenfs or sharesmb property" } else { "" }
        )))
    }

    fn status(&self) -> ShareStatus {
        let services = self.context.events.services();
        let servers = services.iter().filter_map(|service| service.share_server());
        let reports: Vec<_> = servers.map(|server| (server.protocol(), server.report())).collect();
        let mut found = status(&self.state.lock(), &reports);
        self.rates.lock().update(&mut found.shares, Instant::now());
        found
    }

    /// The datasets that coming changes need, and why.
    fn needed(&self, coming: &[Event]) -> Vec<(ReleaseReason, BTreeSet<String>)> {
        let set = &self.state.lock().resolved.set;
        let mut all: BTreeSet<&str> = BTreeSet::new();
        all.extend(set.nfs.iter().map(|share| share.dataset.as_str()));
        all.extend(set.smb.iter().map(|share| share.dataset.as_str()));
        all.extend(set.iscsi.iter().map(|share| share.dataset.as_str()));
        all.extend(set.nbd.iter().map(|share| share.dataset.as_str()));
        all.extend(set.nvme.iter().map(|share| share.dataset.as_str()));
        let (mut unmount, mut close) = (BTreeSet::new(), BTreeSet::new());
        for name in all {
            match coming
                .iter()
                .filter_map(|event| release_reason(event, name))
                .max_by_key(|it| *it == ReleaseReason::Close)
            {
                Some(ReleaseReason::Unmount) => _ = unmount.insert(name.to_owned()),
                Some(ReleaseReason::Close) => _ = close.insert(name.to_owned()),
                None => (),
            }
        }
        [(ReleaseReason::Unmount, unmount), (ReleaseReason::Close, close)]
            .into_iter()
            .filter(|(_, names)| !names.is_empty())
            .collect()
    }

    /// Has all servers let go of the datasets that coming changes need.
    fn release(&self, coming: &[Event], force: bool) -> Result<()> {
        for (reason, names) in self.needed(coming) {
            for service in self.context.events.services() {
                if let Some(server) = service.share_server() {
                    server.release(&|name| names.contains(name), reason, force)?;
                }
            }
            self.state.lock().released.extend(names);
        }
        Ok(())
    }

    /// Datasets of a pool may be shared again.
    fn end_release(&self, events: &[Event]) {
        let pools: BTreeSet<&str> = events.iter().filter_map(Event::pool).collect();
        let mut state = self.state.lock();
        state.released.retain(|name| !pools.contains(api::pool_of(name)));
    }

    /// Entries of the configuration follow renamed datasets. Returns a sentence if that is not possible.
    fn follow_rename(&self, from: &str, to: &str) -> Option<String> {
        let is_renamed = |name: &str| is_within(head_of(name), from);
        if !self.entries().iter().any(|entry| is_renamed(&entry.dataset)) {
            return None;
        }
        let renamed = |name: &str| is_renamed(name).then(|| name.replacen(from, to, 1));
        let edited =
            self.context.config.edit(|document| rename_datasets(document, renamed).map(drop));
        config::reload(&self.context);
        edited.err().map(|why| {
            format!("the shares of '{from}' in the configuration keep its old name: {why}")
        })
    }
}

impl Service for ShareService {
    fn name(&self) -> &'static str {
        "shares"
    }

    fn calls(self: Arc<Self>, router: &mut Router) {
        let own = Arc::clone(&self);
        router.add(move |_: &GetShares, _| Ok(own.status()));
        let own = Arc::clone(&self);
        router.add(move |call: &AddShare, _| own.add_share(call));
        let own = Arc::clone(&self);
        router.add(move |call: &RemoveShare, _| own.remove_share(call));
        let own = Arc::clone(&self);
        router.add(move |call: &ImportShares, _| own.import_shares(call));
        let own = Arc::clone(&self);
        router.add(move |call: &ShareFilesystems, _| own.share_filesystems(call));
        let own = Arc::clone(&self);
        router.add(move |call: &UnshareFilesystems, _| own.unshare_filesystems(call));
    }

    fn start(&self, context: &Arc<Context>) -> Result<()> {
        for why in self.sync() {
            context.log.write_line(&why);
        }
        let (context, state) = (Arc::clone(context), Arc::clone(&self.state));
        *self.watch.lock() = Some(tokio::spawn(follow_recorded(context, state)));
        Ok(())
    }

    fn configure(&self, _config: &Config) -> Result<()> {
        for why in self.sync() {
            self.context.log.write_line(&why);
        }
        Ok(())
    }

    fn prepare(&self, coming: &[Event], options: &ChangeOptions) -> Result<()> {
        for event in coming {
            if let Event::PropertySet { dataset, property, value: Some(value) } = event {
                check_properties(dataset, &[(property.clone(), value.clone())])?;
            }
        }
        let released = self.release(coming, options.force);
        if released.is_err() {
            // another server let go of some of them
            self.abandon(coming);
        }
        released
    }

    fn abandon(&self, coming: &[Event]) {
        self.end_release(coming);
        self.state.lock().note_unmounted(coming.iter());
        for why in self.sync() {
            self.context.log.write_line(&why);
        }
    }

    fn on_events(&self, events: &[Event], _options: &ChangeOptions) -> Vec<String> {
        self.end_release(events);
        let mut failed = Vec::new();
        for event in events {
            match event {
                Event::DatasetRenamed { from, to } if !from.contains('@') => {
                    failed.extend(self.follow_rename(from, to));
                }
                Event::PropertySet { dataset, property, .. }
                    if SHARE_PROPERTIES.contains(&property.as_str()) =>
                {
                    let mut state = self.state.lock();
                    state.unshared.retain(|name| !is_within(name, dataset));
                }
                _ => (),
            }
        }
        if events.iter().any(is_relevant) {
            failed.extend(self.sync());
        }
        failed
    }

    fn stop(&self) {
        if let Some(watch) = self.watch.lock().take() {
            watch.abort();
        }
    }
}

/// Makes the shares again when file systems were mounted or unmounted by themselves.
async fn follow_recorded(context: Arc<Context>, state: Arc<Mutex<State>>) {
    let mut seen = context.events.after(None).last;
    loop {
        context.events.wait(seen).await;
        let page = context.events.after(Some(seen));
        if page.last == seen {
            return; // the daemon ends
        }
        seen = page.last;
        let is_mount =
            |event: &Event| matches!(event, Event::Mounted { .. } | Event::Unmounted { .. });
        if page.missed || page.events.iter().any(|record| is_mount(&record.event)) {
            state.lock().note_unmounted(page.events.iter().map(|record| &record.event));
            let (context, state) = (Arc::clone(&context), Arc::clone(&state));
            let work = move || {
                for why in sync(&context, &mut state.lock()) {
                    context.log.write_line(&why);
                }
            };
            let _ = tokio::task::spawn_blocking(work).await;
        }
    }
}

fn sync(context: &Context, state: &mut State) -> Vec<String> {
    let entries = read_entries(&context.config.current());
    let mut facts = context.pools.share_facts();
    let is_mounted = |name: &str| facts.iter().all(|it| it.name != name || it.mounted_at.is_some());
    state.unmounted.retain(|name| !is_mounted(name));
    for dataset in &mut facts {
        dataset.is_unmounted = state.unmounted.contains(&dataset.name);
    }
    let resolved = resolve(&entries, &facts, &state.unshared, &state.released);
    let mut problems = Vec::new();
    for service in context.events.services() {
        if let Some(server) = service.share_server() {
            problems.extend(server.set_shares(&resolved.set));
        }
    }
    let known = |problem: &&ShareProblem| {
        let before = state.resolved.problems.iter().chain(&state.server_problems);
        !before.into_iter().any(|old| old.sentence == problem.sentence)
    };
    let new = resolved.problems.iter().chain(&problems).filter(known).map(describe).collect();
    (state.resolved, state.server_problems) = (resolved, problems);
    new
}

fn describe(problem: &ShareProblem) -> String {
    let ShareProblem { protocol, dataset, source, sentence, .. } = problem;
    format!("the {protocol} share of '{dataset}' ({source}) is not served: {sentence}")
}

/// Whether shares may be others after an event.
fn is_relevant(event: &Event) -> bool {
    match event {
        Event::PropertySet { property, .. } => has_effect(property, Effects::SHARE),
        Event::SnapshotDestroyed { .. } | Event::Mounted { .. } => true,
        other => changes_datasets(other),
    }
}

/// Why an event needs a shared dataset, if it does.
fn release_reason(event: &Event, shared: &str) -> Option<ReleaseReason> {
    let is_below = |name: &str| is_within(head_of(shared), name);
    match event {
        event if takes_away(event, shared) => Some(ReleaseReason::Close),
        Event::Unmounted { dataset, .. } | Event::DatasetRolledBack { dataset, .. }
            if shared == dataset =>
        {
            Some(ReleaseReason::Unmount)
        }
        Event::DatasetRenamed { from, .. } if is_below(from) => Some(ReleaseReason::Unmount),
        Event::PropertySet { dataset, property, .. }
            if ["mountpoint", "canmount"].contains(&property.as_str()) && is_below(dataset) =>
        {
            Some(ReleaseReason::Unmount)
        }
        _ => None,
    }
}

/// All shares with their servers' reports.
fn status(state: &State, reports: &[(Protocol, ServerReport)]) -> ShareStatus {
    let report = |protocol| reports.iter().find(|(of, _)| *of == protocol).map(|(_, it)| it);
    let mut shares = Vec::new();
    let set = &state.resolved.set;
    for share in &set.nfs {
        let read_only = share.options.rules.iter().all(|rule| rule.read_only);
        shares.push(share_state(Protocol::Nfs, share, read_only, report(Protocol::Nfs)));
    }
    for share in &set.smb {
        let read_only = share.options.read_only;
        shares.push(share_state(Protocol::Smb, share, read_only, report(Protocol::Smb)));
    }
    for share in &set.iscsi {
        let read_only = share.options.read_only || share.dataset.contains('@');
        shares.push(share_state(Protocol::Iscsi, share, read_only, report(Protocol::Iscsi)));
    }
    for share in &set.nbd {
        let read_only = share.options.read_only || share.dataset.contains('@');
        shares.push(share_state(Protocol::Nbd, share, read_only, report(Protocol::Nbd)));
    }
    for share in &set.nvme {
        let read_only = share.options.read_only || share.dataset.contains('@');
        shares.push(share_state(Protocol::Nvme, share, read_only, report(Protocol::Nvme)));
    }
    for problem in &state.server_problems {
        let failed = shares.iter_mut().find(|it| {
            it.protocol == problem.protocol
                && it.dataset == problem.dataset
                && it.source == problem.source.to_string()
        });
        if let Some(share) = failed {
            share.problem = Some(problem.sentence.clone());
            (share.address, share.port) = (None, None);
        }
    }
    shares.extend(state.resolved.problems.iter().map(problem_state));
    shares
        .sort_by(|one, other| (one.protocol, &one.dataset).cmp(&(other.protocol, &other.dataset)));
    let notes = reports.iter().filter_map(|(_, report)| report.note.clone()).collect();
    ShareStatus { shares, notes }
}

fn share_state<O>(
    protocol: Protocol,
    share: &Share<O>,
    read_only: bool,
    report: Option<&ServerReport>,
) -> ShareState {
    let address = report.and_then(|report| report.listening.first());
    let clients = report.into_iter().flat_map(|report| &report.clients);
    let own = clients.filter(|(name, _)| *name == share.name);
    let problem = match (report, address) {
        (None, _) => Some(format!("this version has no {protocol} service")),
        (Some(report), None) => Some(report.problem.clone().unwrap_or_else(|| closed(protocol))),
        (Some(_), Some(_)) => None,
    };
    let name = Some(share.name.clone());
    let (target, path) = if protocol.shares_volumes() { (name, None) } else { (None, name) };
    ShareState {
        protocol,
        dataset: share.dataset.clone(),
        target,
        path,
        address: address.map(|address| address.ip().to_string()),
        port: address.map(std::net::SocketAddr::port),
        read_only,
        source: share.source.to_string(),
        problem,
        clients: own.map(|(_, client)| client.clone()).collect(),
        log_waits: report.and_then(|report| {
            let own = report.log_waits.iter().find(|(dataset, _)| *dataset == share.dataset);
            own.map(|(_, count)| *count)
        }),
    }
}

fn problem_state(problem: &ShareProblem) -> ShareState {
    let name = problem.name.clone();
    let (target, path) =
        if problem.protocol.shares_volumes() { (name, None) } else { (None, name) };
    ShareState {
        protocol: problem.protocol,
        dataset: problem.dataset.clone(),
        target,
        path,
        address: None,
        port: None,
        read_only: false,
        source: problem.source.to_string(),
        problem: Some(problem.sentence.clone()),
        clients: Vec::new(),
        log_waits: None,
    }
}

/// The sentence about a service without addresses.
fn closed(protocol: Protocol) -> String {
    let (section, port) = (protocol.as_str(), protocol.usual_port());
    format!(
        "{protocol} listens nowhere: `poolhouse config set {section}.listen {port}` opens it to this \
         machine, `poolhouse config set {section}.listen 0.0.0.0:{port}` to every network"
    )
}

/// Writes a secret of an imported share to its file, for the daemon's user alone.
fn write_secret(file: &SecretFile) -> Result<()> {
    let failed = |why: std::io::Error| Error::file_error(&file.path, &why);
    if let Some(directory) = file.path.parent() {
        DirBuilder::new().recursive(true).mode(0o700).create(directory).map_err(failed)?;
    }
    state_file::replace(&file.path, file.secret.as_bytes())
}
