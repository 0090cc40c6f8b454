//! Pools: created, found, imported, exported, destroyed, cleared.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use api::{
    CreatePool, Event, ImportPools, ImportResult, ImportablePool, JobProgress, Mounting,
    PoolReport, Reply, SetVdevProperty,
};
use engine::EncryptionRoot;
use engine::inspect::Facts;
use engine::pool::{
    CreateOptions, ImportOptions, NewPool, Pool, Rewind, RewindProbe, RewindProgress,
    VdevProperties,
};
use engine::summary::PoolSummary;
use parking_lot::Mutex;

use super::cachefile::Cachefile;
use super::importable::to_importable;
use super::mounts::{UnmountOptions, join_altroot};
use super::options::Overrides;
use super::unavailable::UnavailablePool;
use super::{ManagedPool, Pools};
use crate::auth::Caller;
use crate::events::ChangeOptions;
use crate::jobs::JobControl;
use crate::pool_cache::SavedPool;
use crate::{Error, Result};

/// The number of looks whether a closed pool is still in use, and the pause between.
const CLOSE_TRIES: u32 = 100;
const CLOSE_PAUSE: Duration = Duration::from_millis(10);

impl Pools {
    /// The pools of these names; without names all.
    pub(super) fn select_pools(&self, names: &[String]) -> Result<Vec<Arc<ManagedPool>>> {
        if names.is_empty() {
            return Ok(self.imported.lock().values().cloned().collect());
        }
        names.iter().map(|name| self.pool(name)).collect()
    }

    pub(crate) fn set_pool_property(&self, name: &str, property: &str, value: &str) -> Result<()> {
        let pool = self.pool(name)?;
        let _changing = pool.dataset_lock.lock();
        let set = || Ok(pool.handle.properties().set_pool(property, value)?);
        self.set_cachefile(&pool, property, value).unwrap_or_else(set)
    }

    pub(crate) fn vdev_properties(
        &self,
        name: &str,
        vdevs: &[String],
    ) -> Result<Vec<VdevProperties>> {
        Ok(self.pool(name)?.handle.properties().of_vdev(vdevs)?)
    }

    pub(crate) fn set_vdev_property(&self, call: &SetVdevProperty) -> Result<()> {
        let pool = self.writable_pool(&call.name)?;
        let _changing = pool.dataset_lock.lock();
        Ok(pool.handle.properties().set_vdev(&call.vdev, &call.property, &call.value)?)
    }

    /// The status of pools; with `verbose`, the names of damaged files as they are now.
    pub(crate) fn pool_reports(&self, names: &[String], verbose: bool) -> Result<Vec<PoolReport>> {
        let report = |pool: Arc<ManagedPool>| {
            let altroot = pool.altroot.clone();
            PoolReport { status: pool.status(verbose), altroot }
        };
        let mut all = self.unavailable_reports(names);
        let waits = |name: &&String| {
            !self.has_pool(name) && all.iter().any(|one| one.status.name == **name)
        };
        let (_, here): (Vec<&String>, Vec<&String>) = names.iter().partition(waits);
        if names.is_empty() || !here.is_empty() {
            let here: Vec<String> = here.into_iter().cloned().collect();
            all.extend(self.select_pools(&here)?.into_iter().map(report));
        }
        all.sort_by(|one, other| one.status.name.cmp(&other.status.name));
        Ok(all)
    }

    pub(crate) fn create_pool(self: &Arc<Self>, new: &CreatePool) -> Result<Mounting> {
        let _importing = self.lock_imports()?;
        engine::pool::check_pool_name(&new.name)?;
        let name = new.current_name();
        crate::shares::check_properties(name, &new.filesystem_properties)?;
        self.check_name_unused(name)?;
        let vdevs = new.vdevs.iter().map(super::devices::to_new_vdev);
        let below = NewPool {
            name: name.to_owned(),
            vdevs: vdevs.collect(),
            ashift: new.ashift,
            properties: new.filesystem_properties.clone(),
            force: new.force,
        };
        let (cachefile, properties) = Cachefile::split_from(&new.pool_properties)?;
        let wishes = CreateOptions::parse(&properties, new.no_default_features)?;
        check_mountpoint_empty(new)?;
        if new.dry_run {
            let checked = engine::pool::check_create(&below, &wishes);
            return checked.map(|()| Mounting::default()).map_err(|why| self.in_use_error(why));
        }
        let secret = new.secret.as_ref().map(|secret| secret.0.as_slice());
        let held = engine::pool::create_encrypted(&below, wishes, secret, &self.environment);
        let held = held.map_err(|why| self.in_use_error(why))?;
        if name != new.name {
            held.rename_on_export(&new.name)?;
        }
        self.log.write_line(&format!("pool '{name}' is created"));
        let pool = self.add_pool(held, new.altroot.clone(), cachefile);
        self.save_pools();
        pool.chown_root(name)?;
        let events = [Event::PoolCreated { pool: name.to_owned() }];
        Ok(Mounting { failed: self.events.publish(&events, &ChangeOptions::default()) })
    }

    /// The imported pool that a device belongs to.
    fn pool_of_device(&self, path: &str) -> Option<String> {
        let resolved = |path: &Path| std::fs::canonicalize(path).ok();
        let drive = resolved(Path::new(path))?;
        let pools = self.imported.lock();
        let mut owners = pools.values().filter(|pool| {
            let drives = pool.handle.drives().list();
            drives.iter().any(|own| resolved(own).as_ref() == Some(&drive))
        });
        owners.next().map(|pool| pool.handle.name().to_owned())
    }

    /// Names the imported pool in an error about a device that is in use.
    pub(crate) fn in_use_error(&self, why: engine::Error) -> Error {
        if let engine::Error::InUse { path } | engine::Error::DeviceInPool { path, .. } = &why
            && let Some(pool) = self.pool_of_device(path)
        {
            let what = format!(
                "invalid vdev specification\nuse '-f' to override the following errors:\n{path} is part of \
                 active pool '{pool}'"
            );
            return Error::Reported { message: what, status: why.exit_status() };
        }
        why.into()
    }

    /// Names the imported pool in an error about a pool that was not found, as a device was in use.
    fn not_found_error(&self, wanted: &str, why: engine::Error) -> Error {
        if let engine::Error::InUse { path } = &why
            && let Some(pool) = self.pool_of_device(path)
        {
            return Error::refused_error(format!(
                "there is no pool '{wanted}' to import there; '{path}' is part of pool \
                 '{pool}', which is imported already"
            ));
        }
        why.into()
    }

    /// Refuses the name of an imported pool.
    fn check_not_imported(&self, name: &str) -> Result<()> {
        if self.has_pool(name) {
            return Err(Error::refused_error(format!(
                "cannot create '{name}': pool already exists"
            )));
        }
        Ok(())
    }

    /// Refuses the name of an imported or unavailable pool.
    fn check_name_unused(&self, name: &str) -> Result<()> {
        self.check_not_imported(name)?;
        if self.unavailable.lock().iter().any(|one| one.saved.name == name) {
            return Err(Error::refused_error(format!(
                "a pool '{name}' is unavailable as devices are missing; `zpool export {name}` removes it \
                 from the list"
            )));
        }
        Ok(())
    }

    /// The names and guids of the imported pools.
    pub(crate) fn imported_names(&self) -> Vec<(String, u64)> {
        let pools = self.imported.lock();
        pools.values().map(|pool| (pool.handle.name().to_owned(), pool.handle.guid())).collect()
    }

    /// The drives of the imported pools.
    fn imported_drives(&self) -> Vec<PathBuf> {
        self.imported.lock().values().flat_map(|pool| pool.handle.drives().list()).collect()
    }

    pub(crate) fn find_importable(
        &self,
        paths: &[PathBuf],
        destroyed: bool,
    ) -> Vec<ImportablePool> {
        let found = engine::search(paths).summaries(&engine::OpenOptions::default());
        let here: Vec<u64> = self.imported.lock().values().map(|pool| pool.handle.guid()).collect();
        let wanted = |pool: &&PoolSummary| {
            !here.contains(&pool.guid) && (pool.state == "destroyed") == destroyed
        };
        found.iter().filter(wanted).map(to_importable).collect()
    }

    /// The encryption roots of pools that could be imported.
    pub(crate) fn list_encryption_roots(
        &self,
        paths: &[PathBuf],
        name: Option<&str>,
        which: (bool, Rewind),
    ) -> Result<Vec<EncryptionRoot>> {
        if let Some(name) = name {
            return Ok(engine::pool::encryption_roots(paths, name, which)?);
        }
        let mut all = Vec::new();
        for pool in self.find_importable(paths, which.0) {
            // an error of one comes again when it is imported
            let found = engine::pool::encryption_roots(paths, &pool.guid.to_string(), which);
            all.extend(found.unwrap_or_default());
        }
        Ok(all)
    }

    pub(crate) fn pool_histories(&self, names: &[String], internal: bool) -> Result<Vec<Facts>> {
        let of = |pool: Arc<ManagedPool>| Ok(pool.handle.history().entries(internal)?);
        self.select_pools(names)?.into_iter().map(of).collect()
    }

    /// Imports pools. Returns warnings about their intent logs, too.
    pub(crate) fn import_pools(
        self: &Arc<Self>,
        import: &ImportPools,
        caller: &Caller,
    ) -> Result<(ImportResult, Vec<String>)> {
        let _importing = self.lock_imports()?;
        import.overrides.validate()?;
        CreateOptions::parse(&Cachefile::split_from(&import.pool_properties)?.1, true)?;
        if import.pool_properties.iter().any(|(name, _)| name == "version") {
            return Err(Error::usage_error("property 'version' can only be set at creation time"));
        }
        let mut done = ImportResult::default();
        match &import.name {
            Some(wanted) => self.import_named(wanted, import, &mut done, caller)?,
            None => self.import_all(import, &mut done),
        }
        let pools = done.imported.iter().map(|name| self.pool(name)).collect::<Result<Vec<_>>>()?;
        let warnings = self.log_import_events(&pools);
        let imported = |pool: &String| Event::PoolImported { pool: pool.clone() };
        let events: Vec<_> = done.imported.iter().map(imported).collect();
        let (keep_mounts, overrides) = (import.no_mount, import.overrides.clone());
        let options = ChangeOptions { force: false, keep_mounts, overrides };
        done.not_mounted = self.events.publish(&events, &options);
        Ok((done, warnings))
    }

    /// Imports a pool. An import that reads all metadata to rewind the pool is a job.
    fn import_named(
        self: &Arc<Self>,
        wanted: &str,
        import: &ImportPools,
        done: &mut ImportResult,
        caller: &Caller,
    ) -> Result<()> {
        let probe = Arc::<RewindProbe>::default();
        *self.rewind_probe.lock() = Arc::clone(&probe);
        let reads_all = matches!(import.rewind, Rewind::Recent | Rewind::Extreme | Rewind::Txg(_));
        let control = Arc::new(ProbeControl { probe: Arc::clone(&probe), ..Default::default() });
        let job = reads_all.then(|| {
            let control = Arc::clone(&control);
            self.jobs.start("rewind", wanted, caller.peer.uid, control)
        });
        let imported = self.import_pool(wanted, import, done, &probe);
        match (job, &imported) {
            (None, _) => (),
            (Some(job), Ok(())) => job.finish(),
            (Some(job), Err(Error::Engine(why @ engine::Error::RewindInterrupted { .. }))) => {
                job.cancelled(why.to_string());
            }
            (Some(job), Err(why)) => job.fail(why.to_string()),
        }
        imported
    }

    /// How far the rewind probe of the running import is.
    pub(crate) fn rewind_progress(&self) -> Option<RewindProgress> {
        self.rewind_probe.lock().progress()
    }

    /// Stops the rewind probe of the running import.
    pub(crate) fn stop_rewind_probe(&self) {
        self.rewind_probe.lock().stop();
    }

    /// Logs what imports found, such as intent logs that could not be replayed, and returns it as warnings.
    pub(crate) fn log_import_events(&self, pools: &[Arc<ManagedPool>]) -> Vec<String> {
        let broken = pools.iter().flat_map(|pool| pool.handle.datasets().take_replay_failures());
        let mut told: Vec<String> = broken.map(|log| log.to_string()).collect();
        let events = pools.iter().flat_map(|pool| pool.handle.take_events());
        told.extend(events.map(|event| event.to_string()));
        for what in &told {
            self.log.write_line(what);
        }
        told
    }

    /// Imports all pools that can be imported.
    fn import_all(self: &Arc<Self>, import: &ImportPools, done: &mut ImportResult) {
        for found in self.find_importable(&import.paths, import.destroyed) {
            let (guid, probe) = (found.guid.to_string(), Arc::default());
            if let Err(why) = self.import_pool(&guid, import, done, &probe) {
                done.failures.push(format!("pool '{}' is not imported: {why}", found.name));
            }
        }
    }

    fn import_pool(
        self: &Arc<Self>,
        wanted: &str,
        import: &ImportPools,
        done: &mut ImportResult,
        probe: &Arc<RewindProbe>,
    ) -> Result<()> {
        let new_name = import.new_name.clone();
        self.check_not_imported(new_name.as_deref().unwrap_or(wanted))?;
        let (force, destroyed) = (import.force, import.destroyed);
        let (without_logs, rewind) = (import.allow_missing_logs, import.rewind);
        if import.dry_run {
            let how = ImportOptions {
                force,
                destroyed,
                new_name,
                read_only: import.read_only,
                rewind,
                rewind_probe: Arc::clone(probe),
                imported_pools: self.imported_names(),
                foreign_drives: self.imported_drives(),
                ..ImportOptions::default()
            };
            let to = engine::pool::preview_rewind(&import.paths, wanted, &how, &self.environment);
            let to = to.map_err(|why| self.not_found_error(wanted, why))?;
            done.rewound.extend(to.map(|to| (wanted.to_owned(), to)));
            return Ok(());
        }
        let (cachefile, properties) = Cachefile::split_from(&import.pool_properties)?;
        let keys = self.matching_keys(wanted, import, done)?;
        let read_only = import.read_only;
        let (known, temporary) = (None, import.temporary);
        let how = ImportOptions {
            force,
            destroyed,
            new_name,
            temporary,
            keys,
            loaded_keys: known,
            allow_missing_logs: without_logs,
            read_only,
            rewind,
            rewind_probe: Arc::clone(probe),
            imported_pools: self.imported_names(),
            foreign_drives: self.imported_drives(),
        };
        let held = engine::pool::import_with(&import.paths, wanted, &how, &self.environment);
        let held = held.map_err(|why| self.not_found_error(wanted, why))?;
        let (name, guid) = (held.name().to_owned(), held.guid());
        held.history().record_import("import");
        // a pool that is imported read-only keeps its properties
        for (property, value) in properties.iter().filter(|_| !held.is_read_only()) {
            held.properties().set_pool(property, value).inspect_err(|_| {
                let _ = held.export();
            })?;
        }
        self.unavailable.lock().retain(|one| one.saved.guid != guid);
        let how = if held.is_read_only() { " read-only" } else { "" };
        self.log.write_line(&format!("pool '{name}' is imported{how}"));
        if let Some(to) = held.rewind_target() {
            self.log.write_line(&format!("pool '{name}' is rewound to txg {}", to.txg));
            done.rewound.push((name.clone(), to));
        }
        self.add_pool(held, import.altroot.clone(), cachefile);
        done.imported.push(name);
        self.save_pools();
        Ok(())
    }

    /// The keys of a call that fit this pool. A wrong one is a failure in the result, and its datasets stay
    /// locked.
    fn matching_keys(
        &self,
        wanted: &str,
        import: &ImportPools,
        done: &mut ImportResult,
    ) -> Result<Vec<(String, Vec<u8>)>> {
        if import.keys.is_empty() {
            return Ok(Vec::new());
        }
        let which = (import.destroyed, import.rewind);
        let given = import.keys.iter().map(|(root, secret)| (root.clone(), secret.0.clone()));
        let tried = engine::pool::try_keys(&import.paths, wanted, which, given);
        let tried = tried.map_err(|why| self.not_found_error(wanted, why))?;
        done.failures.extend(tried.errors.iter().map(ToString::to_string));
        Ok(tried.valid)
    }

    pub(crate) fn export_pool(self: &Arc<Self>, name: &str, force: bool) -> Result<Reply<()>> {
        if let Some(forgotten) = self.forget_unavailable(name) {
            return forgotten.map(Reply::from);
        }
        let coming = Event::PoolExported { pool: name.to_owned() };
        let warnings = self.remove_pool(name, &coming, force, Pool::export)?;
        self.log.write_line(&format!("pool '{name}' is exported"));
        Ok(Reply::with_warnings(warnings))
    }

    pub(crate) fn destroy_pool(self: &Arc<Self>, name: &str, force: bool) -> Result<Reply<()>> {
        if self.pool(name)?.handle.is_read_only() {
            // as with OpenZFS, it is closed, and its drives are left alone
            let Reply { value, mut warnings } = self.export_pool(name, force)?;
            warnings.push(format!(
                "pool '{name}' was imported read-only: it is exported, and not destroyed"
            ));
            return Ok(Reply { value, warnings });
        }
        let coming = Event::PoolDestroyed { pool: name.to_owned() };
        let warnings = self.remove_pool(name, &coming, force, Pool::destroy_pool)?;
        self.log.write_line(&format!("pool '{name}' is destroyed"));
        Ok(Reply::with_warnings(warnings))
    }

    /// Exports or destroys a pool. It leaves the list of pools first: if the power fails between the two,
    /// this host does not take it from the host that imported it meanwhile. Returns warnings.
    fn remove_pool(
        &self,
        name: &str,
        coming: &Event,
        force: bool,
        way: impl FnOnce(&Pool) -> engine::Result<()>,
    ) -> Result<Vec<String>> {
        let _importing = self.lock_imports()?;
        let pool = self.pool(name)?;
        if pool.handle.is_suspended() && !force {
            return Err(Error::refused_error(format!(
                "pool '{name}' is suspended, and changes that are not written would be lost: repair its \
                 devices and run `zpool clear {name}`, or use -f"
            )));
        }
        let options = ChangeOptions { force, ..ChangeOptions::default() };
        let coming = std::slice::from_ref(coming);
        self.prepare_changes(coming, &options)?;
        self.imported.lock().remove(name);
        self.save_pools();
        // changes that were not written before the suspension are lost, as -f implies
        let was_suspended = pool.handle.is_suspended();
        let done = pool.close(way);
        wait_until_unused(&pool);
        self.events.publish(coming, &options);
        if let Err(why) = &done {
            self.log.write_line(&format!("pool '{name}' is closed, and {why}"));
        }
        match done {
            Err(why) if was_suspended => Ok(vec![format!(
                "pool '{name}' was suspended, and changes that were not written are lost: {why}"
            )]),
            done => Ok(done.map(|()| Vec::new())?),
        }
    }

    /// Resets the error counters of a device, or of all, and resumes a suspended pool. If the txg that was being
    /// written cannot be finished, the pool is closed and imported at its last txg, and its logs are replayed.
    pub(crate) fn clear_pool(
        self: &Arc<Self>,
        name: &str,
        drive: Option<&str>,
    ) -> Result<Vec<String>> {
        let _importing = self.lock_imports()?;
        let pool = self.writable_pool(name)?;
        let ended = match pool.handle.clear_errors(drive) {
            Ok(()) => {
                self.log.write_line(&format!("pool '{name}' is cleared"));
                self.events.record(&[Event::PoolCleared { pool: name.to_owned() }]);
                // cache devices may have been found again
                self.save_pools();
                if pool.handle.scans().needs_resilver() {
                    pool.handle.scans().start_resilver();
                }
                return Ok(Vec::new());
            }
            Err(why) if pool.handle.is_suspended() => return Err(why.into()),
            Err(why @ engine::Error::Usage { .. }) => return Err(why.into()),
            Err(why) => why,
        };
        self.log.write_line(&format!("pool '{name}' is imported again: {ended}"));
        let (guid, drives) = (pool.handle.guid(), pool.handle.drives().known());
        // programs that have files open get errors
        let how = UnmountOptions { force: true, keep_dirs: true };
        let gone = pool.unmount_selected(&|_| true, how).unwrap_or_default();
        self.imported.lock().remove(name);
        let _ = pool.close(Pool::close);
        let (altroot, cachefile) = (pool.altroot.clone(), pool.cachefile.lock().clone());
        let known = Some(pool.handle.keys().loaded());
        let temporary = pool.handle.has_temporary_name();
        wait_until_unused(&pool);
        drop(pool);
        let new_name = temporary.then(|| name.to_owned());
        let how =
            ImportOptions { loaded_keys: known, new_name, temporary, ..ImportOptions::default() };
        let taken = engine::pool::import_with(&drives, &guid.to_string(), &how, &self.environment);
        let held = taken.inspect_err(|why| {
            let (drives, altroot) = (drives.clone(), altroot.clone());
            let cachefile = cachefile.clone();
            let pool = SavedPool {
                name: name.to_owned(),
                guid,
                drives,
                altroot,
                cachefile,
                read_only: false,
                temporary,
                rewind: Rewind::No,
            };
            self.unavailable.lock().push(UnavailablePool::new(pool, why));
        })?;
        let pool = self.add_pool(held, altroot, cachefile);
        self.events.record(&[Event::PoolCleared { pool: name.to_owned() }]);
        self.save_pools();
        let mut warnings = pool.restore_mounts(&gone);
        warnings.extend(self.log_import_events(&[pool]));
        // servers open their file systems again
        let options = ChangeOptions { keep_mounts: true, ..ChangeOptions::default() };
        let imported = Event::PoolImported { pool: name.to_owned() };
        warnings.extend(self.events.publish(&[imported], &options));
        let told = format!(
            "pool '{name}' was imported anew at its last txg: changes of its last seconds that no \
             program had synced (fsync, sync) are lost"
        );
        warnings.push(told);
        Ok(warnings)
    }

    pub(crate) fn sync_pools(&self, names: &[String]) -> Result<()> {
        let names = if names.is_empty() {
            self.imported.lock().keys().cloned().collect()
        } else {
            names.to_vec()
        };
        names.iter().try_for_each(|name| Ok(self.pool(name)?.handle.scans().sync_with_errors()?))
    }
}

/// Waits a moment for calls that still read a closed pool: they keep its devices open.
pub(super) fn wait_until_unused(pool: &Arc<ManagedPool>) {
    for _ in 0..CLOSE_TRIES {
        if Arc::strong_count(pool) == 1 {
            return;
        }
        std::thread::sleep(CLOSE_PAUSE);
    }
}

/// The rewind probe as the work of a job. The bytes of a probe that ended stay as they were last seen.
#[derive(Default)]
struct ProbeControl {
    probe: Arc<RewindProbe>,
    last: Mutex<JobProgress>,
}

impl JobControl for ProbeControl {
    fn progress(&self) -> JobProgress {
        let mut last = self.last.lock();
        "bytes".clone_into(&mut last.unit);
        if let Some(now) = self.probe.progress() {
            (last.done, last.total) = (now.bytes_done, now.bytes_total);
        }
        last.clone()
    }

    fn cancel(&self) {
        self.probe.stop();
    }
}

/// Refuses a new pool whose mountpoint is a directory that is not empty.
fn check_mountpoint_empty(new: &CreatePool) -> Result<()> {
    let said =
        |name: &str| new.filesystem_properties.iter().rfind(|(it, _)| it == name).map(|(_, it)| it);
    let name = new.current_name();
    let point = said("mountpoint").cloned().unwrap_or_else(|| format!("/{name}"));
    let mounts = said("canmount").is_none_or(|word| word == "on");
    let dir = join_altroot(new.altroot.as_deref(), &point).filter(|_| mounts);
    let Some(dir) = dir else { return Ok(()) };
    let has_something = std::fs::read_dir(&dir).is_ok_and(|mut all| all.next().is_some());
    if has_something {
        return Err(Error::refused_error(format!(
            "'{}', on which it would be mounted, is not empty: -m names another folder",
            dir.display()
        )));
    }
    Ok(())
}
