//! Mounts that follow changes of datasets.
//!
//! Before a change a file system that has to be unmounted for it is unmounted, or the change is refused; after
//! the change, or if it fails, it is mounted again.

use api::Event;
use engine::dataset::{Dataset, Property};

use super::ManagedPool;
use super::mounts::{SavedMount, UnmountOptions, is_within};
use super::options::Overrides;
use crate::Result;
use crate::events::ChangeOptions;

const ACLTYPE: &str = "acltype";
const SNAPDIR: &str = "snapdir";

/// The effect of a change on mounts, the least first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum MountEffect {
    /// None.
    None,
    /// The mount options change.
    Reconfigure,
    /// It is unmounted for the change; former mounts are mounted again, if allowed.
    Remount,
    /// It is unmounted for the change, and all file systems with canmount=on are mounted after it.
    RemountAll,
}

/// A change of a dataset and its children, as far as it concerns mounts.
struct MountChange<'a> {
    effect: MountEffect,
    /// The dataset before the change.
    from: &'a str,
    /// The dataset after the change.
    to: &'a str,
    /// The properties that change.
    properties: Vec<&'a str>,
}

impl<'a> MountChange<'a> {
    /// The change that events describe; nothing if no mount depends on it. The first event names the
    /// outermost dataset.
    fn from_events(events: &'a [Event], options: &ChangeOptions) -> Option<Self> {
        let mut change: Option<Self> = None;
        let most =
            if options.keep_mounts { MountEffect::Reconfigure } else { MountEffect::RemountAll };
        for event in events {
            match event {
                Event::DatasetRenamed { from, to } if !from.contains('@') => {
                    if options.keep_mounts {
                        return None;
                    }
                    let effect = MountEffect::Remount;
                    return Some(Self { effect, from, to, properties: Vec::new() });
                }
                Event::PropertySet { dataset, property, value } => {
                    let effect = property_effect(property, value.as_deref()).min(most);
                    let none =
                        || Self { effect, from: dataset, to: dataset, properties: Vec::new() };
                    let change = change.get_or_insert_with(none);
                    change.effect = change.effect.max(effect);
                    change.properties.push(property);
                }
                _ => (),
            }
        }
        change.filter(|change| change.effect != MountEffect::None)
    }

    /// Whether the change gives `dataset`, which is in the changed tree, another value of a property.
    fn affects(&self, dataset: &Dataset, property: &str) -> bool {
        let of = |it: &&Property| it.name == property;
        let has_its_own =
            || dataset.properties.iter().find(of).is_some_and(|it| it.source == "local");
        self.properties.contains(&property) && (dataset.name == self.to || !has_its_own())
    }

    fn needs_unmount(&self) -> bool {
        self.effect > MountEffect::Reconfigure
    }
}

/// The effect of a property's new value; none: it is inherited again.
fn property_effect(property: &str, value: Option<&str>) -> MountEffect {
    match (property, value) {
        ("mountpoint", _) => MountEffect::RemountAll,
        // the mount sets whether the kernel checks permissions, and the kernel knows no NFSv4 ACLs
        ("canmount", Some("off")) | (ACLTYPE, None | Some("nfsv4")) => MountEffect::Remount,
        (ACLTYPE, Some(_)) => MountEffect::Reconfigure,
        (SNAPDIR | "readonly" | "exec" | "setuid" | "devices" | "atime", _) => {
            MountEffect::Reconfigure
        }
        _ => MountEffect::None,
    }
}

impl ManagedPool {
    /// Unmounts file systems for changes of this pool. Refused if a program uses one.
    pub(crate) fn prepare_mounts(&self, coming: &[Event], options: &ChangeOptions) -> Result<()> {
        let how = UnmountOptions { force: options.force, keep_dirs: false };
        let mut gone = Vec::new();
        if let Some(change) = MountChange::from_events(coming, options)
            && (change.needs_unmount() || (!options.keep_mounts && self.leaves_nfs4_acls(&change)))
        {
            gone = self.unmount_selected(&|dataset| is_within(dataset, change.from), how)?;
        }
        let mut destroyed = std::collections::HashSet::new();
        for event in coming {
            match event {
                Event::DatasetDestroyed { dataset } => {
                    destroyed.insert(dataset.as_str());
                }
                Event::PoolExported { .. } | Event::PoolDestroyed { .. } => {
                    gone.extend(self.unmount_selected(&|_| true, how)?);
                }
                Event::KeyUnloaded { dataset } => self.check_key_unused(dataset)?,
                _ => (),
            }
        }
        if !destroyed.is_empty() {
            gone.extend(self.unmount_selected(&|dataset| destroyed.contains(dataset), how)?);
        }
        self.prepared_mounts.lock().extend(gone);
        Ok(())
    }

    /// Mounts again what [`Self::prepare_mounts`] unmounted, as the change failed.
    pub(crate) fn abandon_mounts(&self, coming: &[Event]) {
        let gone = std::mem::take(&mut *self.prepared_mounts.lock());
        self.restore_mounts(&gone);
        // a change of several properties may have changed some
        if let Some(change) = MountChange::from_events(coming, &ChangeOptions::default())
            && !change.needs_unmount()
        {
            self.refresh_mounts(&change);
        }
    }

    /// Mounts new file systems after changes of this pool, and mounts the unmounted ones again.
    /// Returns a sentence for each file system that could not be mounted.
    pub(crate) fn follow_changes(&self, events: &[Event], options: &ChangeOptions) -> Vec<String> {
        let mut failed = Vec::new();
        let mut created = Vec::new();
        for event in events {
            match event {
                Event::DatasetRenamed { from, to } if !from.contains('@') => {
                    self.filesystems.rename(from, to);
                    self.rename_mounts(from, to);
                }
                Event::DatasetCreated { dataset } => created.push(dataset.clone()),
                Event::DatasetDestroyed { dataset } => {
                    self.prepared_mounts.lock().retain(|gone| gone.dataset != *dataset);
                }
                Event::PoolExported { .. } | Event::PoolDestroyed { .. } => {
                    self.prepared_mounts.lock().clear();
                }
                _ => (),
            }
        }
        if !created.is_empty() && !options.keep_mounts {
            failed.extend(self.mount_created(&created));
        }
        let Some(change) = MountChange::from_events(events, options) else { return failed };
        let mut gone = std::mem::take(&mut *self.prepared_mounts.lock());
        if change.properties.contains(&ACLTYPE) {
            self.filesystems.drop_caches(&|name| is_within(name, change.to));
        }
        if change.properties.contains(&SNAPDIR) {
            self.filesystems.drop_control_dirs(&|name| is_within(name, change.to));
        }
        if !change.needs_unmount() && gone.is_empty() {
            failed.extend(self.refresh_mounts(&change));
            return failed;
        }
        for one in &mut gone {
            one.dataset = one.dataset.replacen(change.from, change.to, 1);
        }
        failed.extend(self.restore_changed_mounts(&gone, Some(&change)));
        failed
    }

    /// Whether a mounted file system has NFSv4 ACLs, and the change may give it others.
    fn leaves_nfs4_acls(&self, change: &MountChange<'_>) -> bool {
        change.properties.contains(&ACLTYPE)
            && self.filesystems.any_has_nfs4_acls(&|name| is_within(name, change.from))
    }

    /// Mounts former mounts again with their options, if still allowed.
    pub(super) fn restore_mounts(&self, gone: &[SavedMount]) -> Vec<String> {
        if gone.is_empty() { Vec::new() } else { self.restore_changed_mounts(gone, None) }
    }

    fn restore_changed_mounts(
        &self,
        gone: &[SavedMount],
        change: Option<&MountChange<'_>>,
    ) -> Vec<String> {
        self.mount_selected(self.handle.name(), &|dataset| {
            let was = gone.iter().find(|gone| gone.dataset == dataset.name);
            let affects = |property: &str| change.is_some_and(|it| it.affects(dataset, property));
            let overrides = was.map(|gone| gone.overrides.without_changed(affects));
            let is_new = change.is_some_and(|change| {
                change.effect == MountEffect::RemountAll && is_within(&dataset.name, change.to)
            });
            match dataset.property_value("canmount") {
                Some("off") => None,
                Some("on") if is_new => Some(overrides.unwrap_or_default()),
                _ => overrides,
            }
        })
    }

    /// Gives mounted file systems the options that follow from a change, even while they are in use. Returns
    /// a sentence for each failure.
    fn refresh_mounts(&self, change: &MountChange<'_>) -> Vec<String> {
        let found = match self.list_filesystems(change.to, None) {
            Ok(found) => found,
            Err(why) => return vec![why.to_string()],
        };
        self.apply_overrides(&found, &|overrides, dataset| {
            overrides.without_changed(|property| change.affects(dataset, property))
        })
    }
}

#[cfg(test)]
mod tests {
    use api::Event;

    use super::{MountChange, MountEffect};
    use crate::events::ChangeOptions;

    fn set(property: &str, value: Option<&str>) -> Event {
        let (dataset, value) = ("tank/a".to_owned(), value.map(str::to_owned));
        Event::PropertySet { dataset, property: property.to_owned(), value }
    }

    fn effect(events: &[Event], keep_mounts: bool) -> Option<MountEffect> {
        let options = ChangeOptions { keep_mounts, ..ChangeOptions::default() };
        MountChange::from_events(events, &options).map(|change| change.effect)
    }

    #[test]
    fn the_strongest_effect_counts() {
        let (mode, place) = (set("atime", Some("off")), set("mountpoint", None));
        assert_eq!(effect(&[set("compression", Some("zstd"))], false), None);
        assert_eq!(effect(std::slice::from_ref(&mode), false), Some(MountEffect::Reconfigure));
        assert_eq!(effect(&[mode.clone(), place.clone()], false), Some(MountEffect::RemountAll));
        assert_eq!(effect(&[mode, place], true), Some(MountEffect::Reconfigure));
        assert_eq!(effect(&[set("canmount", Some("noauto"))], false), None);
        let rename = |from: &str, to: &str| Event::DatasetRenamed {
            from: from.to_owned(),
            to: to.to_owned(),
        };
        assert_eq!(effect(&[rename("tank/a", "tank/b")], false), Some(MountEffect::Remount));
        assert_eq!(effect(&[rename("tank/a", "tank/b")], true), None);
        assert_eq!(effect(&[rename("tank/a@x", "tank/a@y")], false), None);
    }
}
