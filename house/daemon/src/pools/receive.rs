//! Snapshots received: the bytes of a stream pass through a descriptor of the command.
//!
//! Receiving takes long, so the lock of the datasets is taken only for the exchange of a head and for mounts.
//! New file systems are mounted when the whole stream was received: a mounted one is in use.

use std::collections::HashMap;
use std::io::{BufReader, Read};
use std::time::Instant;

use api::{Event, HealedSnapshot, ReceiveNaming, ReceiveStream, ReceivedSnapshot, ReceivedStream};
use engine::files::IncompleteKind;
use engine::pool::{Healed, Package, ReceiveRequest, Received, StreamHeader, StreamInput};
use fuse::RollbackOutcome;

use super::mounts::{SavedMount, UnmountOptions, is_within};
use super::received_properties::{follow_key_locations, received_properties, received_secret};
use super::streams::BUFFER_SIZE;
use super::{ManagedPool, Pools};
use crate::auth::Caller;
use crate::descriptor::{CancellableFile, fetch};
use crate::events::ChangeOptions;
use crate::{Error, Result};

/// The names of received datasets.
pub(super) struct Naming<'a> {
    /// The file system of the command, and the snapshot behind its `@`.
    target: &'a str,
    part: Option<&'a str>,
    rule: ReceiveNaming,
    /// The top file system of the stream, on the sender.
    top: String,
}

impl<'a> Naming<'a> {
    fn new(call: &'a ReceiveStream, input: &mut StreamInput<'_>) -> Result<Self> {
        let (target, part) = match call.target.split_once('@') {
            Some((target, part)) => (target, Some(part)),
            None => (call.target.as_str(), None),
        };
        if part.is_some() && (!input.has_one_snapshot() || call.naming != ReceiveNaming::Exact) {
            return Err(Error::usage_error(format!(
                "'{}': a stream of several snapshots keeps their names",
                call.target
            )));
        }
        let name = match input.compound_name() {
            Some(name) => Some(name.to_owned()),
            None => input.next_snapshot()?.map(|header| header.name),
        };
        let name = name.unwrap_or_default();
        let top = name.split('@').next().unwrap_or_default().to_owned();
        Ok(Self { target, part, rule: call.naming, top })
    }

    /// The local name of the top file system of the stream.
    pub(super) fn top_target(&self) -> Result<String> {
        self.local_name(&self.top)
    }

    /// The local name of a file system of the sender.
    pub(super) fn local_name(&self, sent: &str) -> Result<String> {
        let outside = || Error::refused_error(format!("'{sent}' is not below '{}'", self.top));
        let rest = sent.strip_prefix(&self.top).ok_or_else(outside)?;
        if !rest.is_empty() && !rest.starts_with('/') {
            return Err(outside());
        }
        let middle = match self.rule {
            ReceiveNaming::Exact => "",
            ReceiveNaming::DropPool => self.top.split_once('/').map_or("", |(_, path)| path),
            ReceiveNaming::LastElement => self.top.rsplit('/').next().unwrap_or_default(),
        };
        let slash = if middle.is_empty() { "" } else { "/" };
        Ok(format!("{}{slash}{middle}{rest}", self.target))
    }
}

impl Pools {
    /// Receives a stream from the command's descriptor, and mounts new file systems.
    pub(crate) fn receive_stream(
        &self,
        call: &ReceiveStream,
        caller: &Caller,
    ) -> Result<ReceivedStream> {
        let file = CancellableFile::new(fetch(&call.descriptor, caller.peer.uid)?, &caller.cancel);
        self.receive_from(call, &mut BufReader::with_capacity(BUFFER_SIZE, file), caller)
    }

    /// Receives a stream.
    pub(crate) fn receive_from(
        &self,
        call: &ReceiveStream,
        stream: &mut dyn Read,
        caller: &Caller,
    ) -> Result<ReceivedStream> {
        let target = call.target.split('@').next().unwrap_or_default();
        let pool = self.pool_of_dataset(target)?;
        let mut input = StreamInput::open(stream)?;
        if call.corrective {
            let done = pool.handle.streams().heal(&call.target, call.dry_run, &mut input)?;
            let Healed { snapshot, examined, damaged, repaired: healed, .. } = done;
            let healed = Some(HealedSnapshot { snapshot, examined, damaged, healed });
            return Ok(ReceivedStream { healed, ..ReceivedStream::default() });
        }
        let naming = Naming::new(call, &mut input)?;
        let is_waiting =
            !call.dry_run && self.follow_package(&pool, call, (&input, &naming), caller)?;
        let moved = input.package().cloned().filter(|_| is_waiting);
        let (mut received, mut new) = (ReceivedStream::default(), Vec::new());
        let places = (&naming, moved);
        let done = self.receive_all(&pool, call, (&mut input, places), (&mut received, &mut new));
        let options = ChangeOptions { keep_mounts: call.no_mount, ..ChangeOptions::default() };
        if !new.is_empty() {
            // also if a later snapshot failed: these file systems are whole
            let follow = |_: &_| self.change(&new, &options, || Ok(()));
            let ((), failed) = self.change_dataset(target, follow)?;
            received.not_mounted.extend(failed);
        }
        done?;
        if !call.dry_run
            && let Some(package) = input.package().cloned()
        {
            follow_encryption_roots(&pool, &package, &naming)?;
            follow_key_locations(&pool, &package, &naming)?;
            if !call.skip_holds {
                place_received_holds(&pool, &package, &naming)?;
            }
        }
        Ok(received)
    }

    /// Receives all snapshots of a stream. `moved` is the list of a stream with file systems that wait for new parents.
    fn receive_all(
        &self,
        pool: &ManagedPool,
        call: &ReceiveStream,
        (input, (naming, mut moved)): (&mut StreamInput<'_>, (&Naming<'_>, Option<Package>)),
        (received, new): (&mut ReceivedStream, &mut Vec<Event>),
    ) -> Result<()> {
        // the newest snapshot that each target would have after a dry run
        let mut planned: HashMap<String, u64> = HashMap::new();
        while let Some(header) = input.next_snapshot()? {
            let sent = header.name.split('@').next().unwrap_or_default();
            let target = naming.local_name(sent)?;
            let start = Instant::now();
            if let Some(snapshot) = snapshot_with_guid(pool, &target, header.guid) {
                if input.compound_name().is_none() {
                    return Err(Error::refused_error(format!(
                        "cannot receive into '{target}': it has the snapshot already, as '{snapshot}'"
                    )));
                }
                input.skip_snapshot()?;
                let sent = header.name.clone();
                let existed =
                    ReceivedSnapshot { sent, snapshot, existed: true, ..Default::default() };
                received.snapshots.push(existed);
                continue;
            }
            if planned.get(&target) == Some(&header.from_guid) {
                input.skip_snapshot()?;
                planned.insert(target.clone(), header.guid);
                received.snapshots.push(would_receive(header, &target));
                continue;
            }
            if naming.rule == ReceiveNaming::DropPool && !call.dry_run {
                self.create_missing_parents(&target, call.no_mount)?;
            }
            let was_redacted = pool.is_redacted(&target);
            let place = (&header, target.as_str());
            let (done, failed) = self.receive_next(pool, call, (&mut *input, naming), place)?;
            received.warnings.extend(done.warnings);
            received.not_mounted.extend(failed);
            if let Some(package) = moved.take_if(|_| !done.is_incremental)
                && self.follow_renames(pool, &package, naming)?
            {
                moved = Some(package);
            }
            if call.dry_run {
                // also of a single stream: its sender would find a broken pipe
                input.skip_snapshot()?;
                planned.insert(target.clone(), header.guid);
            }
            if !call.dry_run {
                let snapshot = done.snapshot.clone();
                if !done.is_incremental || (was_redacted && !header.is_redacted) {
                    new.push(Event::DatasetCreated { dataset: target.clone() });
                }
                new.push(Event::SnapshotCreated { snapshot });
            }
            received.snapshots.push(ReceivedSnapshot {
                sent: header.name,
                snapshot: done.snapshot,
                is_incremental: header.from_guid != 0,
                existed: false,
                bytes: done.bytes,
                milliseconds: units::narrow(start.elapsed().as_millis()),
            });
        }
        Ok(())
    }

    /// Receives the next snapshot of a stream into a target. Mounts and shares follow its properties; a sentence for each
    /// that could not.
    fn receive_next(
        &self,
        pool: &ManagedPool,
        call: &ReceiveStream,
        (input, naming): (&mut StreamInput<'_>, &Naming<'_>),
        (header, target): (&StreamHeader, &str),
    ) -> Result<(Received, Vec<String>)> {
        let properties = received_properties(call, (&*input, naming), (header, target))?;
        let request = ReceiveRequest {
            target: target.to_owned(),
            snapshot: naming.part.map(str::to_owned),
            force: call.force,
            dry_run: call.dry_run,
            resumable: call.resumable,
            secret: received_secret(call, &properties),
            properties,
        };
        let before = pool.property_values(target).ok().filter(|_| !call.dry_run);
        let mut exchange = |hidden: &str, exchange: &mut dyn FnMut() -> engine::Result<()>| {
            if header.is_redacted {
                return pool.exchange_unmounted(target, exchange);
            }
            pool.exchange_mounted(target, hidden, exchange)
        };
        let done = pool.handle.streams().receive_snapshot(&request, input, &mut exchange)?;
        let Some(before) = before else { return Ok((done, Vec::new())) };
        let options = ChangeOptions { keep_mounts: call.no_mount, ..Default::default() };
        let failed = self.follow_properties(target, &before, &options)?;
        Ok((done, failed))
    }

    /// Creates the file systems above one that is received.
    fn create_missing_parents(&self, target: &str, no_mount: bool) -> Result<()> {
        let options = ChangeOptions { keep_mounts: no_mount, ..ChangeOptions::default() };
        let create = |pool: &_| self.create_parents(pool, target, true, &options);
        self.change_dataset(target, create).map(drop)
    }
}

/// An increment of a dry run, onto a snapshot that the dry run did not receive.
fn would_receive(header: StreamHeader, target: &str) -> ReceivedSnapshot {
    let part = header.name.split_once('@').map_or("", |(_, part)| part);
    ReceivedSnapshot {
        snapshot: format!("{target}@{part}"),
        sent: header.name,
        is_incremental: true,
        ..ReceivedSnapshot::default()
    }
}

/// Makes the file systems of a raw stream encryption roots, or inherit their parents' keys, as on the sender.
fn follow_encryption_roots(
    pool: &ManagedPool,
    package: &Package,
    naming: &Naming<'_>,
) -> Result<()> {
    if !package.is_raw {
        return Ok(());
    }
    // the top of the stream keeps a key of its own
    for dataset in package.datasets.iter().skip(1) {
        let (local, keys) = (naming.local_name(&dataset.name)?, pool.handle.keys());
        let followed = if dataset.is_encryption_root {
            keys.separate_received_key(&local)
        } else {
            keys.inherit_received_key(&local)
        };
        match followed {
            // it was left out of the stream
            Ok(()) | Err(engine::Error::NoSuchDataset { .. }) => {}
            Err(why) => return Err(why.into()),
        }
    }
    Ok(())
}

/// Places the holds of a stream on the snapshots that were received.
fn place_received_holds(pool: &ManagedPool, package: &Package, naming: &Naming<'_>) -> Result<()> {
    for dataset in &package.datasets {
        let local = naming.local_name(&dataset.name)?;
        for (snapshot, holds) in &dataset.holds {
            let name = format!("{local}@{}", naming.part.unwrap_or(snapshot));
            let Ok(there) = pool.handle.snapshots().holds(&name) else { continue };
            for (tag, _) in holds.iter().filter(|(tag, _)| there.iter().all(|it| it.tag != *tag)) {
                pool.handle.snapshots().place_hold(tag, std::slice::from_ref(&name))?;
            }
        }
    }
    Ok(())
}

/// The snapshot of a file system that has a guid; none: it has no such snapshot.
fn snapshot_with_guid(pool: &ManagedPool, filesystem: &str, guid: u64) -> Option<String> {
    let snapshots = pool.handle.snapshots().list(filesystem).ok()?;
    let found = snapshots.into_iter().find(|snapshot| snapshot.guid == guid)?;
    Some(format!("{filesystem}@{}", found.name))
}

impl ManagedPool {
    fn is_redacted(&self, name: &str) -> bool {
        matches!(self.handle.datasets().incomplete_kind(name), Ok(Some(IncompleteKind::Redacted)))
    }

    /// Exchanges the content of a head by one that is redacted. It is unmounted, as redacted blocks cannot be read.
    fn exchange_unmounted(
        &self,
        head: &str,
        exchange: &mut dyn FnMut() -> engine::Result<()>,
    ) -> engine::Result<()> {
        let _changing = self.dataset_lock.lock();
        let gone = self.unmount_target(head)?;
        let done = exchange();
        if done.is_err() {
            self.restore_mounts(&gone);
        }
        done
    }

    /// Unmounts a file system that a stream replaces, and those below it.
    fn unmount_target(&self, head: &str) -> engine::Result<Vec<SavedMount>> {
        let how = UnmountOptions { force: false, keep_dirs: true };
        self.unmount_selected(&|name| is_within(name, head), how).map_err(|busy| {
            let what = format!("cannot receive into '{head}': it is mounted and in use: {busy}");
            engine::Error::Refused { what }
        })
    }

    /// Exchanges the content of a head. A mounted file system stays mounted, and programs keep their open
    /// files.
    fn exchange_mounted(
        &self,
        head: &str,
        hidden: &str,
        exchange: &mut dyn FnMut() -> engine::Result<()>,
    ) -> engine::Result<()> {
        let _changing = self.dataset_lock.lock();
        let Some(handle) = self.rollback_handle(head) else {
            let replaced = self.filesystems.replace_content(head, || Ok(exchange()?));
            return replaced.map_err(|why| match why {
                Error::Engine(why) => why,
                other => engine::Error::Refused { what: other.to_string() },
            });
        };
        let why = match handle.rollback(hidden, &mut *exchange) {
            RollbackOutcome::Done(done, _) => return done,
            RollbackOutcome::NeedsUnmount(why) => why,
        };
        let gone = self
            .unmount_target(head)
            .map_err(|busy| engine::Error::Refused { what: format!("{busy} ({why})") })?;
        let done = exchange();
        self.restore_mounts(&gone);
        done
    }
}
