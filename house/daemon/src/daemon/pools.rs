//! Pools: made, found, taken over, given up, destroyed.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use engine::EncryptionRoot;
use engine::inspect::Facts;
use engine::pool::{
    CreateOptions, ImportOptions, NewPool, Pool, PoolProperty, Rewind, RewindProbe,
};
use engine::summary::{PoolSummary, Vdev, VdevState};

use super::Daemon;
use super::mounts::{UnmountOptions, join_altroot, mount_all_pools};
use super::unavailable::UnavailablePool;
use crate::pool_cache::SavedPool;
use crate::{
    CreatePool, Error, ImportPool, ImportResult, ImportablePool, Mounting, PoolReport, Result,
};

impl Daemon {
    /// The pools of these names; none: all.
    fn select_pools(&self, names: &[String]) -> Result<Vec<Arc<super::ManagedPool>>> {
        if names.is_empty() {
            return Ok(self.pools.lock().values().cloned().collect());
        }
        names.iter().map(|name| self.pool(name)).collect()
    }

    pub(super) fn pool_properties(
        &self,
        names: &[String],
    ) -> Result<Vec<(String, Vec<PoolProperty>)>> {
        let all = |pool: Arc<super::ManagedPool>| {
            Ok((pool.handle.name().to_owned(), pool.handle.pool_properties()?))
        };
        self.select_pools(names)?.into_iter().map(all).collect()
    }

    pub(super) fn set_pool_property(&self, name: &str, property: &str, value: &str) -> Result<()> {
        let pool = self.pool(name)?;
        let _changing = pool.dataset_lock.lock();
        Ok(pool.handle.set_pool_property(property, value)?)
    }

    pub(super) fn pool_reports(&self, names: &[String]) -> Result<Vec<PoolReport>> {
        let report = |pool: Arc<super::ManagedPool>| PoolReport {
            status: pool.handle.status(),
            altroot: pool.altroot.clone(),
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

    pub(super) fn create_pool(self: &Arc<Self>, new: &CreatePool) -> Result<Mounting> {
        let _moving = self.lock_imports()?;
        engine::pool::check_pool_name(&new.name)?;
        let name = new.temporary_name.as_ref().unwrap_or(&new.name);
        self.check_name_unused(name)?;
        let vdevs = new.vdevs.iter().map(super::drives::to_new_vdev);
        let below = NewPool {
            name: name.clone(),
            vdevs: vdevs.collect(),
            ashift: new.ashift,
            properties: new.filesystem_properties.clone(),
            force: new.force,
        };
        let wishes = CreateOptions::parse(&new.pool_properties, new.no_default_features)?;
        check_mountpoint_empty(new)?;
        let secret = new.secret.as_ref().map(|secret| secret.0.as_slice());
        let held = engine::pool::create_encrypted(&below, wishes, secret, &self.environment);
        let held = held.map_err(|why| self.in_use_error(why))?;
        if name != &new.name {
            held.rename_on_export(&new.name)?;
        }
        self.log.write_line(&format!("pool '{name}' is made"));
        let pool = self.add_pool(held, new.altroot.clone());
        self.save_pools()?;
        pool.chown_root(name)?;
        Ok(Mounting { failed: pool.mount_subtree(name) })
    }

    /// The pool that has a drive.
    fn pool_of_device(&self, path: &str) -> Option<String> {
        let resolved = |path: &Path| std::fs::canonicalize(path).ok();
        let drive = resolved(Path::new(path))?;
        let pools = self.pools.lock();
        let mut owners = pools.values().filter(|pool| {
            let drives = pool.handle.drives();
            drives.iter().any(|own| resolved(own).as_ref() == Some(&drive))
        });
        owners.next().map(|pool| pool.handle.name().to_owned())
    }

    /// Says of a drive that is in use in which pool it is, if that is one of ours.
    pub(super) fn in_use_error(&self, why: engine::Error) -> Error {
        if let engine::Error::InUse { path } | engine::Error::DeviceInPool { path, .. } = &why
            && let Some(pool) = self.pool_of_device(path)
        {
            let what = format!("'{path}' is part of pool '{pool}', which is imported");
            return Error::Reported { message: what, status: why.exit_status() };
        }
        why.into()
    }

    /// Where a pool was looked for, our own drives are no reason why it may not have been found.
    fn not_found_error(&self, wanted: &str, why: engine::Error) -> Error {
        if let engine::Error::InUse { path } = &why
            && let Some(pool) = self.pool_of_device(path)
        {
            return Error::refused_error(format!(
                "there is no pool '{wanted}' to be imported there; '{path}' is part of pool \
                 '{pool}', which is imported already"
            ));
        }
        why.into()
    }

    /// Whether no pool of that name is here.
    fn check_not_imported(&self, name: &str) -> Result<()> {
        if self.has_pool(name) {
            return Err(Error::refused_error(format!("there is a pool '{name}' already")));
        }
        Ok(())
    }

    /// Whether no pool of that name is here or awaited.
    fn check_name_unused(&self, name: &str) -> Result<()> {
        self.check_not_imported(name)?;
        if self.unavailable.lock().iter().any(|one| one.saved.name == name) {
            return Err(Error::refused_error(format!(
                "a pool '{name}' is waited for, whose drives are not all there; `zpool export {name}` \
                 ends that"
            )));
        }
        Ok(())
    }

    /// The names of the pools that are here, with their guids.
    pub(super) fn imported_names(&self) -> Vec<(String, u64)> {
        let pools = self.pools.lock();
        pools.values().map(|pool| (pool.handle.name().to_owned(), pool.handle.guid())).collect()
    }

    pub(super) fn find_importable(
        &self,
        paths: &[PathBuf],
        destroyed: bool,
    ) -> Vec<ImportablePool> {
        let found = engine::search(paths).summaries(&engine::OpenOptions::default());
        let here: Vec<u64> = self.pools.lock().values().map(|pool| pool.handle.guid()).collect();
        let wanted = |pool: &&PoolSummary| {
            !here.contains(&pool.guid) && (pool.state == "destroyed") == destroyed
        };
        found.iter().filter(wanted).map(to_importable).collect()
    }

    /// The encryption roots of the pools that could be imported.
    pub(super) fn list_encryption_roots(
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
            // what is wrong with one is said when it is to be taken over
            let found = engine::pool::encryption_roots(paths, &pool.guid.to_string(), which);
            all.extend(found.unwrap_or_default());
        }
        Ok(all)
    }

    pub(super) fn pool_histories(&self, names: &[String], internal: bool) -> Result<Vec<Facts>> {
        let of = |pool: Arc<super::ManagedPool>| Ok(pool.handle.history(internal)?);
        self.select_pools(names)?.into_iter().map(of).collect()
    }

    /// Gives what came of it, and what the user should know of intent logs.
    pub(super) fn import_pools(
        self: &Arc<Self>,
        import: &ImportPool,
    ) -> Result<(ImportResult, Vec<String>)> {
        let _moving = self.lock_imports()?;
        import.overrides.validate()?;
        CreateOptions::parse(&import.pool_properties, true)?;
        let mut done = ImportResult::default();
        match &import.name {
            Some(wanted) => self.import_pool(wanted, import, &mut done)?,
            None => self.import_all(import, &mut done),
        }
        let pools = done.imported.iter().map(|name| self.pool(name)).collect::<Result<Vec<_>>>()?;
        let warnings = self.log_import_events(&pools);
        if !import.no_mount {
            done.not_mounted = mount_all_pools(&pools, &import.overrides);
        }
        Ok((done, warnings))
    }

    /// Logs what the imports of pools found, such as intent logs that could not be replayed, and gives it
    /// as warnings for the client.
    pub(super) fn log_import_events(&self, pools: &[Arc<super::ManagedPool>]) -> Vec<String> {
        let broken = pools.iter().flat_map(|pool| pool.handle.take_replay_failures());
        let mut told: Vec<String> = broken.map(|log| log.to_string()).collect();
        let events = pools.iter().flat_map(|pool| pool.handle.take_events());
        told.extend(events.map(|event| event.to_string()));
        for what in &told {
            self.log.write_line(what);
        }
        told
    }

    /// Takes over what can be; one that cannot be keeps no other from it.
    fn import_all(self: &Arc<Self>, import: &ImportPool, done: &mut ImportResult) {
        for found in self.find_importable(&import.paths, import.destroyed) {
            if let Err(why) = self.import_pool(&found.guid.to_string(), import, done) {
                done.failures.push(format!("pool '{}' is not imported: {why}", found.name));
            }
        }
    }

    fn import_pool(
        self: &Arc<Self>,
        wanted: &str,
        import: &ImportPool,
        done: &mut ImportResult,
    ) -> Result<()> {
        let new_name = import.new_name.clone();
        self.check_not_imported(new_name.as_deref().unwrap_or(wanted))?;
        let (force, destroyed) = (import.force, import.destroyed);
        let (without_logs, rewind) = (import.allow_missing_logs, import.rewind);
        let judging = Arc::<RewindProbe>::default();
        *self.rewind_probe.lock() = Arc::clone(&judging);
        if import.dry_run {
            let how = ImportOptions {
                force,
                destroyed,
                rewind,
                rewind_probe: judging,
                ..ImportOptions::default()
            };
            let to = engine::pool::preview_rewind(&import.paths, wanted, &how, &self.environment);
            let to = to.map_err(|why| self.not_found_error(wanted, why))?;
            done.rewound.extend(to.map(|to| (wanted.to_owned(), to)));
            return Ok(());
        }
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
            rewind_probe: judging,
            imported_pools: self.imported_names(),
        };
        let held = engine::pool::import_with(&import.paths, wanted, &how, &self.environment);
        let held = held.map_err(|why| self.not_found_error(wanted, why))?;
        let (name, guid) = (held.name().to_owned(), held.guid());
        held.record_import("import");
        // what is only looked at keeps what it has
        for (property, value) in import.pool_properties.iter().filter(|_| !held.is_read_only()) {
            held.set_pool_property(property, value).inspect_err(|_| {
                let _ = held.export();
            })?;
        }
        self.unavailable.lock().retain(|one| one.saved.guid != guid);
        let how = if held.is_read_only() { " read-only" } else { "" };
        self.log.write_line(&format!("pool '{name}' is imported{how}"));
        if let Some(to) = held.rewind_target() {
            self.log.write_line(&format!("pool '{name}' is taken back to txg {}", to.txg));
            done.rewound.push((name.clone(), to));
        }
        self.add_pool(held, import.altroot.clone());
        done.imported.push(name);
        self.save_pools()
    }

    /// Of the keys that were given those that are for this pool. One that is wrong is told of, and what it
    /// is for stays locked.
    fn matching_keys(
        &self,
        wanted: &str,
        import: &ImportPool,
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

    pub(super) fn export_pool(self: &Arc<Self>, name: &str, force: bool) -> Result<()> {
        self.remove_pool(name, force, Pool::export)?;
        self.log.write_line(&format!("pool '{name}' is exported"));
        Ok(())
    }

    pub(super) fn destroy_pool(self: &Arc<Self>, name: &str, force: bool) -> Result<()> {
        self.writable_pool(name)?;
        self.remove_pool(name, force, Pool::destroy_pool)?;
        self.log.write_line(&format!("pool '{name}' is destroyed"));
        Ok(())
    }

    /// Leaves a pool for good. It is forgotten first: if the power fails between the two, it is
    /// not taken from whoever has it by then.
    fn remove_pool(
        &self,
        name: &str,
        force: bool,
        way: impl FnOnce(&Pool) -> engine::Result<()>,
    ) -> Result<()> {
        let _moving = self.lock_imports()?;
        let pool = self.pool(name)?;
        if pool.handle.is_suspended() && !force {
            return Err(Error::refused_error(format!(
                "pool '{name}' stands still since drives fail, and what waits to be written would be \
                 lost: mend them and run `zpool clear {name}`, or use -f"
            )));
        }
        let gone = pool.unmount_selected(&|_| true, UnmountOptions { force, keep_dirs: false })?;
        self.pools.lock().remove(name);
        if let Err(why) = self.save_pools() {
            // its threads still have it: it is to be reached by name
            self.pools.lock().insert(name.to_owned(), Arc::clone(&pool));
            pool.restore_mounts(&gone);
            return Err(why);
        }
        let done = pool.close(way);
        if let Err(why) = &done {
            self.log.write_line(&format!("pool '{name}' is left, and {why}"));
        }
        Ok(done?)
    }

    /// Counts the errors of a drive anew, or of all, and has a pool go on that stands still. Where what
    /// was being written cannot be finished, the pool is left and taken over as it was last written,
    /// with what its logs promise.
    pub(super) fn clear_pool(
        self: &Arc<Self>,
        name: &str,
        drive: Option<&str>,
    ) -> Result<Vec<String>> {
        let _moving = self.lock_imports()?;
        let pool = self.pool(name)?;
        let ended = match pool.handle.clear_errors(drive) {
            Ok(()) => {
                self.log.write_line(&format!("pool '{name}' is cleared"));
                // cache drives may have been found again
                self.save_pools()?;
                if pool.handle.needs_resilver() {
                    pool.handle.start_resilver();
                }
                return Ok(Vec::new());
            }
            Err(why) if pool.handle.is_suspended() => return Err(why.into()),
            Err(why @ engine::Error::Usage { .. }) => return Err(why.into()),
            Err(why) => why,
        };
        self.log.write_line(&format!("pool '{name}' is taken over anew: {ended}"));
        let (guid, drives) = (pool.handle.guid(), pool.handle.known_drives());
        // whoever is in it gets errors
        let how = UnmountOptions { force: true, keep_dirs: true };
        let gone = pool.unmount_selected(&|_| true, how).unwrap_or_default();
        self.pools.lock().remove(name);
        let _ = pool.close(Pool::close);
        let altroot = pool.altroot.clone();
        let known = Some(pool.handle.loaded_keys());
        let temporary = pool.handle.has_temporary_name();
        drop(pool);
        let new_name = temporary.then(|| name.to_owned());
        let how =
            ImportOptions { loaded_keys: known, new_name, temporary, ..ImportOptions::default() };
        let taken = engine::pool::import_with(&drives, &guid.to_string(), &how, &self.environment);
        let held = taken.inspect_err(|why| {
            let (drives, altroot) = (drives.clone(), altroot.clone());
            let (name, read_only, rewind) = (name.to_owned(), false, Rewind::No);
            let pool = SavedPool { name, guid, drives, altroot, read_only, temporary, rewind };
            self.unavailable.lock().push(UnavailablePool::new(pool, why));
        })?;
        let pool = self.add_pool(held, altroot);
        self.save_pools()?;
        let mut warnings = pool.restore_mounts(&gone);
        warnings.extend(self.log_import_events(&[pool]));
        let told = format!(
            "pool '{name}' was taken over anew, as it was last written: changes of its last seconds \
             that nobody had asked to be kept (fsync, sync) are lost"
        );
        warnings.push(told);
        Ok(warnings)
    }

    pub(super) fn sync_pools(&self, names: &[String]) -> Result<()> {
        let names = if names.is_empty() {
            self.pools.lock().keys().cloned().collect()
        } else {
            names.to_vec()
        };
        names.iter().try_for_each(|name| Ok(self.pool(name)?.handle.sync()?))
    }
}

/// Whether the folder on which a new pool is to be mounted has nothing in it that would be covered.
fn check_mountpoint_empty(new: &CreatePool) -> Result<()> {
    let said =
        |name: &str| new.filesystem_properties.iter().rfind(|(it, _)| it == name).map(|(_, it)| it);
    let name = new.temporary_name.as_ref().unwrap_or(&new.name);
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

fn to_importable(pool: &PoolSummary) -> ImportablePool {
    let mut vdevs = Vec::new();
    pool.vdevs.iter().for_each(|vdev| push_vdev(&mut vdevs, 1, vdev));
    let healthy = pool.vdevs.iter().all(|vdev| vdev.state == VdevState::Online);
    let gone =
        |vdev: &&Vdev| vdev.state == VdevState::Missing && vdev.class.as_deref() != Some("log");
    let lost: Vec<&str> = pool.vdevs.iter().filter(gone).map(|vdev| vdev.name.as_str()).collect();
    let lost = (!lost.is_empty()).then(|| {
        let all = lost.join(", ");
        format!(
            "whole vdevs are missing ({all}): add their place with -d, or get out what is on the \
                 others, with `poolhouse rescue`"
        )
    });
    let only_read = pool.read_only_reason.as_ref().map(|why| {
        format!("It cannot be changed, as {why}: import it with -o readonly=on to look at it.")
    });
    let health = match (pool.readable && lost.is_none(), healthy) {
        (false, _) => "UNAVAIL",
        (true, true) => "ONLINE",
        (true, false) => "DEGRADED",
    };
    ImportablePool {
        name: pool.name.clone(),
        guid: pool.guid,
        state: pool.state.clone(),
        host: pool.host.clone(),
        health: health.to_owned(),
        reason: pool.reason.clone().or(lost).or(only_read),
        vdevs,
    }
}

fn push_vdev(rows: &mut Vec<(usize, String, String)>, depth: usize, vdev: &Vdev) {
    let state = match vdev.state {
        VdevState::Online => "ONLINE",
        VdevState::Degraded | VdevState::Stale => "DEGRADED",
        VdevState::Missing | VdevState::Truncated => "UNAVAIL",
        VdevState::Removed => "REMOVED",
    };
    rows.push((depth, vdev.name.clone(), state.to_owned()));
    vdev.children.iter().for_each(|child| push_vdev(rows, depth + 1, child));
}
