//! Pools: made, found, taken over, given up, destroyed.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use engine::EncryptionRoot;
use engine::held::{Held, Judging, NewPool, PoolProperty, Rewind, TakeOver, Wishes};
use engine::inspect::Facts;
use engine::summary::{PoolSummary, Vdev, VdevState};

use super::House;
use super::mounts::{Unmount, behind, mount_together};
use super::waiting::Waiting;
use crate::memory::Remembered;
use crate::{CreatePool, Error, Found, ImportPool, Imported, Mounting, PoolReport, Result};

impl House {
    /// The pools of these names; none: all.
    fn named(&self, names: &[String]) -> Result<Vec<Arc<super::Pool>>> {
        if names.is_empty() {
            return Ok(self.pools.lock().values().cloned().collect());
        }
        names.iter().map(|name| self.pool(name)).collect()
    }

    pub(super) fn pool_properties(
        &self,
        names: &[String],
    ) -> Result<Vec<(String, Vec<PoolProperty>)>> {
        let all = |pool: Arc<super::Pool>| {
            Ok((pool.held.name().to_owned(), pool.held.pool_properties()?))
        };
        self.named(names)?.into_iter().map(all).collect()
    }

    pub(super) fn set_pool(&self, name: &str, property: &str, value: &str) -> Result<()> {
        let pool = self.pool(name)?;
        let _changing = pool.changing.lock();
        Ok(pool.held.set_pool_property(property, value)?)
    }

    pub(super) fn reports(&self, names: &[String]) -> Result<Vec<PoolReport>> {
        let report = |pool: Arc<super::Pool>| PoolReport {
            status: pool.held.status(),
            altroot: pool.altroot.clone(),
        };
        let mut all = self.waiting_reports(names);
        let waits =
            |name: &&String| !self.has(name) && all.iter().any(|one| one.status.name == **name);
        let (_, here): (Vec<&String>, Vec<&String>) = names.iter().partition(waits);
        if names.is_empty() || !here.is_empty() {
            let here: Vec<String> = here.into_iter().cloned().collect();
            all.extend(self.named(&here)?.into_iter().map(report));
        }
        all.sort_by(|one, other| one.status.name.cmp(&other.status.name));
        Ok(all)
    }

    pub(super) fn create_pool(self: &Arc<Self>, new: &CreatePool) -> Result<Mounting> {
        let _moving = self.begin_move()?;
        engine::held::check_name(&new.name)?;
        let name = new.called.as_ref().unwrap_or(&new.name);
        self.is_unclaimed(name)?;
        let vdevs = new.vdevs.iter().map(super::drives::vdev);
        let below = NewPool {
            name: name.clone(),
            vdevs: vdevs.collect(),
            ashift: new.ashift,
            properties: new.properties.clone(),
            force: new.force,
        };
        let wishes = Wishes::of(&new.own, new.bare)?;
        is_place_free(new)?;
        let secret = new.secret.as_ref().map(|secret| secret.0.as_slice());
        let held = engine::held::create_keyed(&below, wishes, secret, &self.world);
        let held = held.map_err(|why| self.in_use_here(why))?;
        if name != &new.name {
            held.name_once_exported(&new.name)?;
        }
        self.log.say(&format!("pool '{name}' is made"));
        let pool = self.keep(held, new.altroot.clone());
        self.remember()?;
        pool.belong(name)?;
        Ok(Mounting { failed: pool.mount_below(name) })
    }

    /// The pool that has a drive.
    fn owner_of(&self, path: &str) -> Option<String> {
        let resolved = |path: &Path| std::fs::canonicalize(path).ok();
        let drive = resolved(Path::new(path))?;
        let pools = self.pools.lock();
        let mut owners = pools.values().filter(|pool| {
            let drives = pool.held.drives();
            drives.iter().any(|own| resolved(own).as_ref() == Some(&drive))
        });
        owners.next().map(|pool| pool.held.name().to_owned())
    }

    /// Says of a drive that is in use in which pool it is, if that is one of ours.
    pub(super) fn in_use_here(&self, why: engine::Error) -> Error {
        if let engine::Error::InUse { path } | engine::Error::Taken { path, .. } = &why
            && let Some(pool) = self.owner_of(path)
        {
            let what = format!("'{path}' is part of pool '{pool}', which is imported");
            return Error::Said { what, status: why.status() };
        }
        why.into()
    }

    /// Where a pool was looked for, our own drives are no reason why it may not have been found.
    fn not_there(&self, wanted: &str, why: engine::Error) -> Error {
        if let engine::Error::InUse { path } = &why
            && let Some(pool) = self.owner_of(path)
        {
            return Error::refused(format!(
                "there is no pool '{wanted}' to be imported there; '{path}' is part of pool \
                 '{pool}', which is imported already"
            ));
        }
        why.into()
    }

    /// Whether no pool of that name is here.
    fn is_free(&self, name: &str) -> Result<()> {
        if self.has(name) {
            return Err(Error::refused(format!("there is a pool '{name}' already")));
        }
        Ok(())
    }

    /// Whether no pool of that name is here or awaited.
    fn is_unclaimed(&self, name: &str) -> Result<()> {
        self.is_free(name)?;
        if self.waiting.lock().iter().any(|one| one.pool.name == name) {
            return Err(Error::refused(format!(
                "a pool '{name}' is waited for, whose drives are not all there; `zpool export {name}` \
                 ends that"
            )));
        }
        Ok(())
    }

    /// The names of the pools that are here, with their guids.
    pub(super) fn names_in_use(&self) -> Vec<(String, u64)> {
        let pools = self.pools.lock();
        pools.values().map(|pool| (pool.held.name().to_owned(), pool.held.guid())).collect()
    }

    pub(super) fn importable(&self, paths: &[PathBuf], destroyed: bool) -> Vec<Found> {
        let found = engine::search(paths).summaries(&engine::OpenOptions::default());
        let here: Vec<u64> = self.pools.lock().values().map(|pool| pool.held.guid()).collect();
        let wanted = |pool: &&PoolSummary| {
            !here.contains(&pool.guid) && (pool.state == "destroyed") == destroyed
        };
        found.iter().filter(wanted).map(describe).collect()
    }

    /// The encryption roots of the pools that could be imported.
    pub(super) fn keys_wanted(
        &self,
        paths: &[PathBuf],
        name: Option<&str>,
        which: (bool, Rewind),
    ) -> Result<Vec<EncryptionRoot>> {
        if let Some(name) = name {
            return Ok(engine::held::encryption_roots(paths, name, which)?);
        }
        let mut all = Vec::new();
        for pool in self.importable(paths, which.0) {
            // what is wrong with one is said when it is to be taken over
            let found = engine::held::encryption_roots(paths, &pool.guid.to_string(), which);
            all.extend(found.unwrap_or_default());
        }
        Ok(all)
    }

    pub(super) fn histories(&self, names: &[String], internal: bool) -> Result<Vec<Facts>> {
        let of = |pool: Arc<super::Pool>| Ok(pool.held.history(internal)?);
        self.named(names)?.into_iter().map(of).collect()
    }

    /// Gives what came of it, and what the user should know of intent logs.
    pub(super) fn import(self: &Arc<Self>, import: &ImportPool) -> Result<(Imported, Vec<String>)> {
        let _moving = self.begin_move()?;
        import.wish.check()?;
        Wishes::of(&import.own, true)?;
        let mut done = Imported::default();
        match &import.name {
            Some(wanted) => self.import_one(wanted, import, &mut done)?,
            None => self.import_all(import, &mut done),
        }
        let pools = done.names.iter().map(|name| self.pool(name)).collect::<Result<Vec<_>>>()?;
        let warnings = self.tell_broken(&pools);
        if !import.unmounted {
            done.not_mounted = mount_together(&pools, &import.wish);
        }
        Ok((done, warnings))
    }

    /// Logs what the imports of pools found, such as intent logs that could not be replayed, and gives it
    /// as warnings for the client.
    pub(super) fn tell_broken(&self, pools: &[Arc<super::Pool>]) -> Vec<String> {
        let broken = pools.iter().flat_map(|pool| pool.held.take_broken_logs());
        let mut told: Vec<String> = broken.map(|log| log.to_string()).collect();
        let events = pools.iter().flat_map(|pool| pool.held.take_events());
        told.extend(events.map(|event| event.to_string()));
        for what in &told {
            self.log.say(what);
        }
        told
    }

    /// Takes over what can be; one that cannot be keeps no other from it.
    fn import_all(self: &Arc<Self>, import: &ImportPool, done: &mut Imported) {
        for found in self.importable(&import.paths, import.destroyed) {
            if let Err(why) = self.import_one(&found.guid.to_string(), import, done) {
                done.refused.push(format!("pool '{}' is not imported: {why}", found.name));
            }
        }
    }

    fn import_one(
        self: &Arc<Self>,
        wanted: &str,
        import: &ImportPool,
        done: &mut Imported,
    ) -> Result<()> {
        let new_name = import.new_name.clone();
        self.is_free(new_name.as_deref().unwrap_or(wanted))?;
        let (force, destroyed) = (import.force, import.destroyed);
        let (without_logs, rewind) = (import.without_logs, import.rewind);
        let judging = Arc::<Judging>::default();
        *self.judging.lock() = Arc::clone(&judging);
        if import.dry {
            let how = TakeOver { force, destroyed, rewind, judging, ..TakeOver::default() };
            let to = engine::held::would_rewind(&import.paths, wanted, &how, &self.world);
            let to = to.map_err(|why| self.not_there(wanted, why))?;
            done.rewound.extend(to.map(|to| (wanted.to_owned(), to)));
            return Ok(());
        }
        let keys = self.keys_for(wanted, import, done)?;
        let read_only = import.read_only;
        let (known, temporary) = (None, import.temporary);
        let how = TakeOver {
            force,
            destroyed,
            new_name,
            temporary,
            keys,
            known,
            without_logs,
            read_only,
            rewind,
            judging,
            others: self.names_in_use(),
        };
        let held = engine::held::hold_as(&import.paths, wanted, &how, &self.world);
        let held = held.map_err(|why| self.not_there(wanted, why))?;
        let (name, guid) = (held.name().to_owned(), held.guid());
        held.note_taken("import");
        // what is only looked at keeps what it has
        for (property, value) in import.own.iter().filter(|_| !held.is_read_only()) {
            held.set_pool_property(property, value).inspect_err(|_| {
                let _ = held.export();
            })?;
        }
        self.waiting.lock().retain(|one| one.pool.guid != guid);
        let how = if held.is_read_only() { " read-only" } else { "" };
        self.log.say(&format!("pool '{name}' is imported{how}"));
        if let Some(to) = held.rewound() {
            self.log.say(&format!("pool '{name}' is taken back to txg {}", to.txg));
            done.rewound.push((name.clone(), to));
        }
        self.keep(held, import.altroot.clone());
        done.names.push(name);
        self.remember()
    }

    /// Of the keys that were given those that are for this pool. One that is wrong is told of, and what it
    /// is for stays locked.
    fn keys_for(
        &self,
        wanted: &str,
        import: &ImportPool,
        done: &mut Imported,
    ) -> Result<Vec<(String, Vec<u8>)>> {
        if import.keys.is_empty() {
            return Ok(Vec::new());
        }
        let which = (import.destroyed, import.rewind);
        let given = import.keys.iter().map(|(root, secret)| (root.clone(), secret.0.clone()));
        let tried = engine::held::try_keys(&import.paths, wanted, which, given);
        let tried = tried.map_err(|why| self.not_there(wanted, why))?;
        done.refused.extend(tried.refused.iter().map(ToString::to_string));
        Ok(tried.fit)
    }

    pub(super) fn export(self: &Arc<Self>, name: &str, force: bool) -> Result<()> {
        self.part_with(name, force, Held::export)?;
        self.log.say(&format!("pool '{name}' is exported"));
        Ok(())
    }

    pub(super) fn destroy_pool(self: &Arc<Self>, name: &str, force: bool) -> Result<()> {
        self.pool_to_change(name)?;
        self.part_with(name, force, Held::destroy_pool)?;
        self.log.say(&format!("pool '{name}' is destroyed"));
        Ok(())
    }

    /// Leaves a pool for good. It is forgotten first: if the power fails between the two, it is
    /// not taken from whoever has it by then.
    fn part_with(
        &self,
        name: &str,
        force: bool,
        way: impl FnOnce(&Held) -> engine::Result<()>,
    ) -> Result<()> {
        let _moving = self.begin_move()?;
        let pool = self.pool(name)?;
        if pool.held.is_standing_still() && !force {
            return Err(Error::refused(format!(
                "pool '{name}' stands still since drives fail, and what waits to be written would be \
                 lost: mend them and run `zpool clear {name}`, or use -f"
            )));
        }
        let gone = pool.unmount(&|_| true, Unmount { force, keeps_folders: false })?;
        self.pools.lock().remove(name);
        if let Err(why) = self.remember() {
            // its threads still have it: it is to be reached by name
            self.pools.lock().insert(name.to_owned(), Arc::clone(&pool));
            pool.mount_again(&gone);
            return Err(why);
        }
        let done = pool.end(way);
        if let Err(why) = &done {
            self.log.say(&format!("pool '{name}' is left, and {why}"));
        }
        Ok(done?)
    }

    /// Counts the errors of a drive anew, or of all, and has a pool go on that stands still. Where what
    /// was being written cannot be finished, the pool is left and taken over as it was last written,
    /// with what its logs promise.
    pub(super) fn clear(self: &Arc<Self>, name: &str, drive: Option<&str>) -> Result<Vec<String>> {
        let _moving = self.begin_move()?;
        let pool = self.pool(name)?;
        let ended = match pool.held.clear(drive) {
            Ok(()) => {
                self.log.say(&format!("pool '{name}' is cleared"));
                // cache drives may have been found again
                self.remember()?;
                if pool.held.wants_resilver() {
                    pool.held.start_resilver();
                }
                return Ok(Vec::new());
            }
            Err(why) if pool.held.is_standing_still() => return Err(why.into()),
            Err(why @ engine::Error::Usage { .. }) => return Err(why.into()),
            Err(why) => why,
        };
        self.log.say(&format!("pool '{name}' is taken over anew: {ended}"));
        let (guid, drives) = (pool.held.guid(), pool.held.known_drives());
        // whoever is in it gets errors
        let how = Unmount { force: true, keeps_folders: true };
        let gone = pool.unmount(&|_| true, how).unwrap_or_default();
        self.pools.lock().remove(name);
        let _ = pool.end(Held::release);
        let altroot = pool.altroot.clone();
        let known = Some(pool.held.known_keys());
        let temporary = pool.held.is_name_temporary();
        drop(pool);
        let new_name = temporary.then(|| name.to_owned());
        let how = TakeOver { known, new_name, temporary, ..TakeOver::default() };
        let taken = engine::held::hold_as(&drives, &guid.to_string(), &how, &self.world);
        let held = taken.inspect_err(|why| {
            let (drives, altroot) = (drives.clone(), altroot.clone());
            let (name, read_only, rewind) = (name.to_owned(), false, Rewind::No);
            let pool = Remembered { name, guid, drives, altroot, read_only, temporary, rewind };
            self.waiting.lock().push(Waiting::new(pool, why));
        })?;
        let pool = self.keep(held, altroot);
        self.remember()?;
        let mut warnings = pool.mount_again(&gone);
        warnings.extend(self.tell_broken(&[pool]));
        let told = format!(
            "pool '{name}' was taken over anew, as it was last written: changes of its last seconds \
             that nobody had asked to be kept (fsync, sync) are lost"
        );
        warnings.push(told);
        Ok(warnings)
    }

    pub(super) fn sync(&self, names: &[String]) -> Result<()> {
        let names = if names.is_empty() {
            self.pools.lock().keys().cloned().collect()
        } else {
            names.to_vec()
        };
        names.iter().try_for_each(|name| Ok(self.pool(name)?.held.sync()?))
    }
}

/// Whether the folder on which a new pool is to be mounted has nothing in it that would be covered.
fn is_place_free(new: &CreatePool) -> Result<()> {
    let said = |name: &str| new.properties.iter().rfind(|(it, _)| it == name).map(|(_, it)| it);
    let name = new.called.as_ref().unwrap_or(&new.name);
    let point = said("mountpoint").cloned().unwrap_or_else(|| format!("/{name}"));
    let mounts = said("canmount").is_none_or(|word| word == "on");
    let dir = behind(new.altroot.as_deref(), &point).filter(|_| mounts);
    let Some(dir) = dir else { return Ok(()) };
    let has_something = std::fs::read_dir(&dir).is_ok_and(|mut all| all.next().is_some());
    if has_something {
        return Err(Error::refused(format!(
            "'{}', on which it would be mounted, is not empty: -m names another folder",
            dir.display()
        )));
    }
    Ok(())
}

fn describe(pool: &PoolSummary) -> Found {
    let mut vdevs = Vec::new();
    pool.vdevs.iter().for_each(|vdev| add(&mut vdevs, 1, vdev));
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
    let only_read = pool.only_read.as_ref().map(|why| {
        format!("It cannot be changed, as {why}: import it with -o readonly=on to look at it.")
    });
    let health = match (pool.readable && lost.is_none(), healthy) {
        (false, _) => "UNAVAIL",
        (true, true) => "ONLINE",
        (true, false) => "DEGRADED",
    };
    Found {
        name: pool.name.clone(),
        guid: pool.guid,
        state: pool.state.clone(),
        host: pool.host.clone(),
        health: health.to_owned(),
        reason: pool.reason.clone().or(lost).or(only_read),
        vdevs,
    }
}

fn add(rows: &mut Vec<(usize, String, String)>, depth: usize, vdev: &Vdev) {
    let state = match vdev.state {
        VdevState::Online => "ONLINE",
        VdevState::Degraded | VdevState::Stale => "DEGRADED",
        VdevState::Missing | VdevState::Truncated => "UNAVAIL",
        VdevState::Removed => "REMOVED",
    };
    rows.push((depth, vdev.name.clone(), state.to_owned()));
    vdev.children.iter().for_each(|child| add(rows, depth + 1, child));
}
