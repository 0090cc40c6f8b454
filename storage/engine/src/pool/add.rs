//! Vdevs that are added to a pool: data, log, special and dedup vdevs, spares and cache devices.
//!
//! All is checked before anything is changed: that the devices are unused and large enough, and
//! that the new vdevs are as redundant as those of the pool. A pool of raidz2 vdevs with an added
//! single drive is lost with that drive, and most such vdevs cannot be removed again.

use std::path::PathBuf;
use std::sync::Arc;

use device::Device;
use ondisk::feature::Feature;
use ondisk::label::{VdevConfig, VdevKind};
use ondisk::version;
use spa::NewTop;
use spa::auxiliary::AuxiliaryDevice;
use spa::vdev_layout::{DeviceSpec, VdevLayout, VdevRole, top_vdev_config};
use units::{Ashift, MinusOrZero};

use super::auxiliary::MIN_DEVICE_SIZE;
use super::create::{NewVdev, describe_drive};
use super::{Pool, vdev_mismatch};
use crate::pool::handles::Vdevs;
use crate::{Error, Result};

/// How vdevs are added.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "switches of a command")]
pub struct AddOptions {
    /// All of the next three.
    pub force: bool,
    /// Use devices with data.
    pub allow_in_use: bool,
    /// Add vdevs with another redundancy than those of the pool.
    pub allow_replication_mismatch: bool,
    /// Add vdevs with another sector size than those of the pool.
    pub allow_ashift_mismatch: bool,
    /// log2 of the sector size; none: that of the pool.
    pub ashift: Option<u64>,
    /// Check only.
    pub dry_run: bool,
}

/// A new vdev with its devices.
type OpenedVdev<'a> = (&'a NewVdev, Vec<Arc<dyn Device>>);

impl Vdevs<'_> {
    /// Adds vdevs to the pool. The data on their devices is lost.
    pub fn add(self, new: &[NewVdev], options: AddOptions) -> Result<()> {
        self.pool.check_writable()?;
        check_named_once(new)?;
        let mut opened = Vec::new();
        for vdev in new {
            let in_use = options.force || options.allow_in_use;
            let open = |path: &PathBuf| self.pool.open_unused_drive(path, in_use);
            opened.push((vdev, vdev.drives.iter().map(open).collect::<Result<Vec<_>>>()?));
        }
        self.pool.add_opened(&opened, options)
    }

    /// Adds vdevs whose devices are open already, in the order of `new`.
    pub fn add_opened(
        self,
        new: &[NewVdev],
        devices: &[Arc<dyn Device>],
        options: AddOptions,
    ) -> Result<()> {
        self.pool.check_writable()?;
        check_named_once(new)?;
        let mut rest = devices.iter().cloned();
        let opened: Vec<OpenedVdev<'_>> = new
            .iter()
            .map(|vdev| (vdev, rest.by_ref().take(vdev.drives.len()).collect()))
            .collect();
        self.pool.add_opened(&opened, options)
    }
}

impl Pool {
    fn add_opened(&self, opened: &[OpenedVdev<'_>], options: AddOptions) -> Result<()> {
        if !options.force && !options.allow_replication_mismatch {
            self.check_replication(opened.iter().map(|(vdev, _)| *vdev))?;
            for (vdev, devices) in opened {
                vdev_mismatch::check_vdev(vdev, devices)?;
            }
        }
        let has_tops = opened.iter().any(|(vdev, _)| vdev.role.auxiliary_role().is_none());
        let ashift = self.ashift_of_new(options, has_tops)?;
        let (mut tops, mut auxiliary) = (Vec::new(), Vec::new());
        for (vdev, devices) in opened {
            self.check_role(vdev)?;
            let drives = vdev.drives.iter().zip(devices);
            let drives: Vec<DeviceSpec> = drives.map(describe_drive).collect();
            check_sizes(&drives)?;
            if let Some(role) = vdev.role.auxiliary_role() {
                let with = |(spec, device): (DeviceSpec, &Arc<dyn Device>)| AuxiliaryDevice {
                    role,
                    spec,
                    device: Arc::clone(device),
                };
                auxiliary.extend(drives.into_iter().zip(devices).map(with));
                continue;
            }
            let config = top_vdev_config(vdev.layout, &drives, ashift, vdev.role);
            let config = config.map_err(|error| Error::Usage { what: error.to_string() })?;
            tops.push(NewTop { config, devices: devices.clone() });
        }
        if options.dry_run {
            return Ok(());
        }
        let words = opened.iter().flat_map(|(vdev, _)| &vdev.drives);
        let words: Vec<String> = words.map(|path| path.display().to_string()).collect();
        if !tops.is_empty() {
            self.0.spa.add_tops(tops).map_err(|error| self.explain_error(&error))?;
        }
        if !auxiliary.is_empty() {
            let done = self.0.spa.add_auxiliary(&auxiliary);
            done.map_err(|error| self.explain_error(&error))?;
        }
        self.record_event("vdev add", words.join(" "))
    }

    /// The ashift of new vdevs: a named one, that of the pool's property, or that of its vdevs. A new
    /// top-level vdev must have the ashift that all vdevs for data have; spares and cache devices have none.
    fn ashift_of_new(&self, options: AddOptions, has_tops: bool) -> Result<Ashift> {
        let config = self.0.spa.config();
        let tops = config.tree.iter().flat_map(|root| &root.children);
        let for_data = |top: &&VdevConfig| !top.is_log && top.bias.is_none();
        // holes have none
        let known = |top: &VdevConfig| top.ashift.filter(|ashift| *ashift > 0);
        let of_data: Vec<u64> = tops.filter(for_data).filter_map(known).collect();
        let most = of_data.iter().copied().max().unwrap_or(0);
        let shift = options.ashift.or(self.default_ashift()?).unwrap_or(most);
        let bad = || Error::Usage { what: format!("ashift={shift}: it must be 9 to 16") };
        let ashift = Ashift::new(shift).ok_or_else(bad)?;
        let is_uniform = of_data.iter().all(|other| *other == most);
        let is_allowed = options.force || options.allow_ashift_mismatch;
        if has_tops && is_uniform && most != shift && !is_allowed {
            return Err(mismatch(&format!(
                "adding devices with different physical sector sizes is not allowed: the pool has vdevs \
                 with ashift={most}, and the new vdev would have ashift={shift}"
            )));
        }
        Ok(ashift)
    }

    /// Refuses a vdev for which the pool lacks the version or the feature.
    fn check_role(&self, vdev: &NewVdev) -> Result<()> {
        match vdev.role {
            VdevRole::Spare => self.require_version(version::SPARES, "spare")?,
            VdevRole::Cache => self.require_version(version::CACHE, "cache")?,
            VdevRole::Log => self.require_version(version::LOG_DEVICES, "log")?,
            VdevRole::Special | VdevRole::Dedup => self.require_feature("allocation_classes")?,
            VdevRole::Data => {}
        }
        match vdev.layout {
            VdevLayout::Draid(_) => self.require_feature("draid"),
            VdevLayout::Raidz(2) => self.require_version(version::RAIDZ2, "raidz2"),
            VdevLayout::Raidz(3) => self.require_version(version::RAIDZ3, "raidz3"),
            VdevLayout::Single | VdevLayout::Mirror | VdevLayout::Raidz(_) => Ok(()),
        }
    }

    fn require_feature(&self, name: &str) -> Result<()> {
        let mos = self.0.spa.synced_mos();
        let feature = Feature::by_name(name);
        let enabled = feature.map(|feature| dsl::write::features::refcount(&mos, feature));
        match enabled {
            Some(Ok(Some(_))) => Ok(()),
            Some(Err(error)) => Err(self.explain_error(&error.into())),
            Some(Ok(None)) | None => Err(Error::Refused {
                what: format!(
                    "feature@{name} is not enabled on pool '{}': enable it with `zpool set \
                     feature@{name}=enabled {}`",
                    self.name(),
                    self.name()
                ),
            }),
        }
    }

    /// Refuses new vdevs that are less, or differently, redundant than those of the pool.
    fn check_replication<'a>(&self, new: impl Iterator<Item = &'a NewVdev>) -> Result<()> {
        let config = self.0.spa.config();
        let mut tops = config.tree.iter().flat_map(|root| &root.children);
        let Some(current) = tops.find_map(Replication::of_config) else { return Ok(()) };
        for vdev in
            new.filter(|vdev| vdev.role != VdevRole::Log && vdev.role.auxiliary_role().is_none())
        {
            current.check(Replication::of_new(vdev))?;
        }
        Ok(())
    }
}

/// The replication level of a top-level vdev.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Replication {
    /// "disk", "mirror", "raidz" or "draid".
    kind: &'static str,
    children: usize,
    /// How many of its devices may fail.
    redundancy: usize,
}

impl Replication {
    /// That of a vdev of the pool; none of a log, or of one without devices.
    fn of_config(top: &VdevConfig) -> Option<Self> {
        let children = top.children.len();
        let parity = units::to_usize(top.nparity.unwrap_or(1));
        let (kind, redundancy) = match top.kind {
            _ if top.is_log => return None,
            VdevKind::Mirror => ("mirror", children.minus_or_zero(1)),
            VdevKind::Raidz => ("raidz", parity),
            VdevKind::Draid => ("draid", parity),
            VdevKind::Disk | VdevKind::File | VdevKind::Replacing | VdevKind::Spare => ("disk", 0),
            _ => return None,
        };
        Some(Self { kind, children: children.max(1), redundancy })
    }

    fn of_new(vdev: &NewVdev) -> Self {
        let children = vdev.drives.len();
        let parity = |parity: u32| units::to_usize(parity);
        let (kind, redundancy) = match vdev.layout {
            VdevLayout::Single => ("disk", 0),
            VdevLayout::Mirror => ("mirror", children.minus_or_zero(1)),
            VdevLayout::Raidz(level) => ("raidz", parity(level)),
            VdevLayout::Draid(shape) => ("draid", parity(shape.parity)),
        };
        Self { kind, children, redundancy }
    }

    fn check(self, new: Self) -> Result<()> {
        let (old_kind, new_kind) = (self.kind, new.kind);
        let is_either = |kind: &str| matches!(kind, "mirror" | "raidz");
        if old_kind != new_kind && !(is_either(old_kind) && is_either(new_kind)) {
            return Err(mismatch(&format!(
                "mismatched replication level: pool uses {old_kind} and new vdev is {new_kind}"
            )));
        }
        if self.redundancy != new.redundancy {
            let (old, new) = (self.redundancy, new.redundancy);
            return Err(mismatch(&format!(
                "mismatched replication level: pool and new vdev with different redundancy, \
                 {old_kind} and {new_kind} vdevs, {old} vs. {new}"
            )));
        }
        if old_kind == new_kind && self.children != new.children && old_kind != "disk" {
            return Err(mismatch(&format!(
                "mismatched replication level: pool uses {}-way {old_kind} and new vdev uses \
                 {}-way {new_kind}",
                self.children, new.children
            )));
        }
        Ok(())
    }
}

fn mismatch(what: &str) -> Error {
    Error::Usage {
        what: format!(
            "invalid vdev specification\nuse '-f' to override the following errors:\n{what}"
        ),
    }
}

fn check_named_once(new: &[NewVdev]) -> Result<()> {
    let mut seen = std::collections::BTreeSet::new();
    for path in new.iter().flat_map(|vdev| &vdev.drives) {
        let real = std::fs::canonicalize(path).unwrap_or_else(|_| path.clone());
        if !seen.insert(real) {
            let what = format!("'{}' is named twice", path.display());
            return Err(Error::Usage { what });
        }
    }
    Ok(())
}

fn check_sizes(drives: &[DeviceSpec]) -> Result<()> {
    let small = drives.iter().find(|drive| drive.size < MIN_DEVICE_SIZE);
    small.map_or(Ok(()), |small| {
        let what = format!("'{}' is too small: a drive has 64 MiB at least", small.path);
        Err(Error::Usage { what })
    })
}

#[cfg(test)]
mod tests {
    use super::Replication;

    #[test]
    fn unlike_vdevs_need_force() {
        let of = |kind, children, redundancy| Replication { kind, children, redundancy };
        let refused = |old: Replication, new| old.check(new).unwrap_err().to_string();
        let (raidz2, mirror) = (of("raidz", 6, 2), of("mirror", 2, 1));
        assert!(raidz2.check(raidz2).is_ok() && mirror.check(mirror).is_ok());
        assert!(refused(raidz2, of("disk", 1, 0)).contains("pool uses raidz and new vdev is disk"));
        assert!(refused(raidz2, mirror).contains("raidz and mirror vdevs, 2 vs. 1"));
        assert!(raidz2.check(of("mirror", 3, 2)).is_ok());
        assert!(refused(raidz2, of("raidz", 5, 2)).contains("6-way raidz and new vdev uses 5-way"));
        assert!(of("disk", 1, 0).check(of("disk", 1, 0)).is_ok());
    }
}
