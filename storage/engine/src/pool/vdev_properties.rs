//! Properties of vdevs (vdevprops(7)): figures of a vdev, its comment, and properties of users' own.
//!
//! The comment and users' properties are texts in the vdev's ZAP: the root's, which pools with the feature
//! `vdev_zaps_v2` have, a top-level vdev's, or a leaf's. Settings that change how the pool works are in
//! [`super::vdev_settings`]. The path of a vdev is shown and cannot be set here.

use ondisk::label::{VdevConfig, VdevKind};
use serde::{Deserialize, Serialize};
use units::{MinusOrZero, ObjectId};
use zap::{Zap, ZapValue};

use super::history::record_pool_event;
use super::properties::check_user_property;
use super::status::VdevStatus;
use super::vdev_settings::{ALLOCATING, VdevSetting};
use super::{DriveIoStats, Pool, PoolProperty, RequestStats};
use crate::pool::handles::Properties;
use crate::summary::vdev_name;
use crate::{Error, Result};

const COMMENT: &str = "comment";
/// The longest comment of a vdev, in bytes.
const MAX_COMMENT_LEN: usize = 8191;
/// The words for all vdevs of a pool, and for its root vdev.
const ALL_VDEVS: &str = "all-vdevs";
const ROOT: [&str; 2] = ["root", "root-0"];
/// A vdev and its properties.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VdevProperties {
    /// Its name: a path, "raidz2-0", or "root-0" of the root.
    pub vdev: String,
    /// Its properties in the order of zpool(8), then those of users' own.
    pub properties: Vec<PoolProperty>,
}

impl Properties<'_> {
    /// The properties of vdevs: paths, guids, names such as "raidz2-0", "root", or "all-vdevs".
    pub fn of_vdev(self, vdevs: &[String]) -> Result<Vec<VdevProperties>> {
        let root = self.pool.root_config()?;
        let mut found = Vec::new();
        for word in vdevs {
            if word == ALL_VDEVS {
                found.extend(root.walk());
            } else {
                found.push(self.pool.find_vdev(&root, word)?);
            }
        }
        let top_level = self.pool.status().vdevs;
        let drives = self.pool.drives().io_stats().drives;
        found
            .into_iter()
            .map(|vdev| self.pool.properties_of(&root, vdev, &top_level, &drives))
            .collect()
    }

    /// Sets a setting of a vdev, its comment or a property of a user's own. An empty text removes the entry.
    pub fn set_vdev(self, vdev: &str, name: &str, value: &str) -> Result<()> {
        let setting = VdevSetting::parse(name, value).transpose()?;
        if setting.is_none() {
            check_vdev_property(name, value)?;
        }
        let root = self.pool.root_config()?;
        let config = self.pool.find_vdev(&root, vdev)?;
        let entry = match setting {
            Some(VdevSetting::Allocating(is_on)) => {
                return self.pool.set_allocating(&root, config, is_on);
            }
            Some(VdevSetting::Number(_, number)) => Some(ZapValue::from_u64(number)),
            None if value.is_empty() => None,
            None => Some(ZapValue::new(1, [value.as_bytes(), &[0]].concat())),
        };
        let guid = config.guid;
        let Some(table) = vdev_zap(config) else {
            let what = format!(
                "'{vdev}' of pool '{}' has no table for properties: the root vdev needs the feature \
                 vdev_zaps_v2 when the pool is created",
                self.pool.name()
            );
            return Err(Error::Refused { what });
        };
        let (pool, name, value) = (self.pool.name().to_owned(), name.to_owned(), value.to_owned());
        self.pool.run_sync_task(move |active, change| {
            let damaged = |why: &dyn std::fmt::Display| Error::DamagedPool {
                pool: pool.clone(),
                why: why.to_string(),
            };
            let object = change.mos.object(table).map_err(|why| damaged(&why))?;
            let table = Zap::open(object).map_err(|why| damaged(&why))?;
            let done = match entry {
                None => table.remove(change.tx, name.as_bytes()).map(drop),
                Some(entry) => table.update(change.tx, name.as_bytes(), &entry),
            };
            done.map_err(|why| damaged(&why))?;
            let detail = format!("vdev_guid={}: {name}={value}", guid.get());
            record_pool_event(active, change, "vdev set", &detail);
            Ok(())
        })
    }
}

impl Pool {
    /// Has new blocks go to a top-level vdev, or to the others only.
    fn set_allocating(&self, root: &VdevConfig, vdev: &VdevConfig, is_on: bool) -> Result<()> {
        let name = self.shown_name(root, vdev);
        let refuse =
            |why: &str| Error::Refused { what: format!("cannot set property for '{name}': {why}") };
        if !root.children.iter().any(|top| top.guid == vdev.guid) || vdev.is_log {
            return Err(refuse("only a top-level vdev for data has 'allocating'"));
        }
        self.check_writable()?;
        self.0.spa.set_allocating(vdev.id, is_on).map_err(|error| match error {
            spa::Error::Removal(_) | spa::Error::DeviceChange(_) | spa::Error::Checkpoint(_) => {
                refuse(&error.to_string())
            }
            other => self.explain_error(&other),
        })
    }

    fn root_config(&self) -> Result<VdevConfig> {
        let missing = || Error::DamagedPool {
            pool: self.name().to_owned(),
            why: "its configuration has no vdevs".to_owned(),
        };
        self.0.spa.config().tree.ok_or_else(missing)
    }

    fn find_vdev<'a>(&self, root: &'a VdevConfig, word: &str) -> Result<&'a VdevConfig> {
        if ROOT.contains(&word) {
            return Ok(root);
        }
        let is_it = |vdev: &&VdevConfig| {
            vdev.guid.get().to_string() == word
                || vdev_name(vdev) == word
                || self.leaf_path(vdev).as_deref() == Some(word)
        };
        let no_vdev =
            || Error::Refused { what: format!("no such vdev '{word}' in pool '{}'", self.name()) };
        root.walk().skip(1).find(is_it).ok_or_else(no_vdev)
    }

    /// log2 of the sectors of the top-level vdev that a drive or vdev belongs to.
    pub(super) fn ashift_of(&self, word: &str) -> Result<Option<u64>> {
        let root = self.root_config()?;
        let guid = self.find_vdev(&root, word)?.guid;
        let is_in = |top: &&VdevConfig| top.walk().any(|vdev| vdev.guid == guid);
        Ok(root.children.iter().find(is_in).and_then(|top| top.ashift))
    }

    /// The present path of a drive.
    fn leaf_path(&self, vdev: &VdevConfig) -> Option<String> {
        let leaf = self.0.spa.tree().leaf(vdev.guid);
        let here = leaf.and_then(|leaf| leaf.device().map(|device| device.name().to_owned()));
        here.or_else(|| vdev.path.clone())
    }

    fn shown_name(&self, root: &VdevConfig, vdev: &VdevConfig) -> String {
        if vdev.guid == root.guid {
            return ROOT[1].to_owned();
        }
        self.leaf_path(vdev).unwrap_or_else(|| vdev_name(vdev))
    }

    fn properties_of(
        &self,
        root: &VdevConfig,
        vdev: &VdevConfig,
        top_level: &[VdevStatus],
        drives: &[DriveIoStats],
    ) -> Result<VdevProperties> {
        let texts = self.vdev_texts(vdev)?;
        let mut all = self.identity_properties(root, vdev, top_level);
        let comment = texts.iter().find(|(name, _)| name == COMMENT);
        all.insert(9, text_property(COMMENT, comment.map(|(_, text)| text.as_str())));
        all.extend(error_properties(vdev, top_level));
        all.extend(request_properties(vdev, drives));
        all.extend(self.setting_properties(root, vdev)?);
        // a disk tells by its answer to the first request only
        let trim = if vdev.kind == VdevKind::File { "on" } else { "-" };
        all.push(fact("trim_support", trim));
        let slow = sum_counts(vdev, top_level, |leaf| leaf.slow_requests);
        all.extend([fact("trim_errors", "0"), fact("slow_ios", &slow)]);
        let own = texts.iter().filter(|(name, _)| name.contains(':'));
        all.extend(own.map(|(name, text)| text_property(name, Some(text))));
        Ok(VdevProperties { vdev: self.shown_name(root, vdev), properties: all })
    }

    /// The texts in a vdev's ZAP.
    fn vdev_texts(&self, vdev: &VdevConfig) -> Result<Vec<(String, String)>> {
        let Some(table) = vdev_zap(vdev) else { return Ok(Vec::new()) };
        let damaged = |why: &dyn std::fmt::Display| Error::DamagedPool {
            pool: self.name().to_owned(),
            why: why.to_string(),
        };
        let object = self.0.spa.synced_mos().object(table).map_err(|why| damaged(&why))?;
        let table = Zap::open(object).map_err(|why| damaged(&why))?;
        let mut texts = Vec::new();
        for entry in table.entries() {
            let entry = entry.map_err(|why| damaged(&why))?;
            if let Some(text) = entry.value.as_str() {
                let name = String::from_utf8_lossy(&entry.name).into_owned();
                texts.push((name, text.to_owned()));
            }
        }
        texts.sort();
        Ok(texts)
    }

    /// Space, place and name, in the order of zpool(8), without the comment.
    fn identity_properties(
        &self,
        root: &VdevConfig,
        vdev: &VdevConfig,
        top_level: &[VdevStatus],
    ) -> Vec<PoolProperty> {
        let is_root = vdev.guid == root.guid;
        let tops = || top_level.iter().filter(|top| is_root || top.guid == vdev.guid.get());
        let (size, allocated) =
            (tops().map(|top| top.size).sum::<u64>(), tops().map(|top| top.allocated).sum::<u64>());
        let expandable = tops().map(|top| top.expandable).sum::<u64>();
        let shown_expandable = if expandable > 0 { expandable.to_string() } else { "-".to_owned() };
        let status = find_status(top_level, vdev.guid.get());
        let state = status.map_or_else(|| self.root_state(is_root), |found| found.state.clone());
        let fragmentation = if is_root {
            self.0.spa.fragmentation(None).ok().flatten()
        } else {
            status.and_then(|found| found.fragmentation)
        };
        let full = if size == 0 { 0 } else { u128::from(allocated) * 100 / u128::from(size) };
        let parent =
            root.walk().find(|above| above.children.iter().any(|child| child.guid == vdev.guid));
        let names: Vec<_> =
            vdev.children.iter().map(|child| self.shown_name(root, child)).collect();
        vec![
            fact("capacity", &full.to_string()),
            fact("state", &state),
            fact("guid", &vdev.guid.get().to_string()),
            fact("asize", &number(vdev.asize.or_else(|| self.0.spa.leaf_space(vdev.guid)))),
            fact("psize", &status.map_or(0, |found| found.physical_size).to_string()),
            fact("ashift", &number(vdev.ashift)),
            fact("size", &size.to_string()),
            fact("free", &size.minus_or_zero(allocated).to_string()),
            fact("allocated", &allocated.to_string()),
            fact("expandsize", &shown_expandable),
            fact("fragmentation", &fragmentation.map_or("-".to_owned(), |share| share.to_string())),
            fact("bootsize", "0"),
            fact("parity", &number(vdev.nparity)),
            fact("path", self.leaf_path(vdev).as_deref().unwrap_or("-")),
            fact("devid", vdev.devid.as_deref().unwrap_or("-")),
            fact("physpath", vdev.phys_path.as_deref().unwrap_or("-")),
            fact("encpath", vdev.enclosure_path.as_deref().unwrap_or("-")),
            fact("fru", "-"),
            fact("parent", &parent.map_or("-".to_owned(), |above| self.shown_name(root, above))),
            fact(
                "children",
                if names.is_empty() { "-".to_owned() } else { names.join(",") }.as_str(),
            ),
            fact("numchildren", &names.len().to_string()),
        ]
    }

    fn setting_properties(
        &self,
        root: &VdevConfig,
        vdev: &VdevConfig,
    ) -> Result<Vec<PoolProperty>> {
        let on_off = |is_on: bool| if is_on { "on" } else { "off" };
        let is_top = root.children.iter().any(|top| top.guid == vdev.guid);
        let allocating = if vdev.guid == root.guid {
            setting(ALLOCATING, "on")
        } else if is_top && !vdev.is_log {
            let source = if vdev.non_allocating { "local" } else { "default" };
            let value = on_off(!vdev.non_allocating);
            PoolProperty { source: source.to_owned(), ..fact(ALLOCATING, value) }
        } else {
            fact(ALLOCATING, "-")
        };
        let mut all = vec![fact("removing", on_off(vdev.removing)), allocating];
        let mut numbers = self.number_settings(vdev)?;
        // `zpool get all` shows the expansion of a raidz before the thresholds of slow requests
        let slow = numbers.split_off(numbers.len() - 2);
        all.extend(numbers);
        if vdev.kind == VdevKind::Raidz {
            all.push(fact("raidz_expanding", on_off(vdev.raidz_expanding)));
        }
        all.extend(slow);
        Ok(all)
    }

    fn root_state(&self, is_root: bool) -> String {
        if is_root { self.status().state } else { "-".to_owned() }
    }
}

/// The table of a vdev's properties.
pub(super) fn vdev_zap(vdev: &VdevConfig) -> Option<ObjectId> {
    vdev.root_zap.or(vdev.top_zap).or(vdev.leaf_zap)
}

/// Refuses a name that cannot be set, and a value that OpenZFS does not take.
fn check_vdev_property(name: &str, value: &str) -> Result<()> {
    let usage = |what: String| Err(Error::Usage { what });
    match name {
        COMMENT if value.len() > MAX_COMMENT_LEN => {
            usage(format!("comment: it has {} bytes, of {MAX_COMMENT_LEN} at most", value.len()))
        }
        COMMENT => Ok(()),
        name if name.contains(':') => check_user_property(name, value),
        "path" => {
            usage("'path' of vdevs cannot be set: the pool follows a drive by itself".to_owned())
        }
        name => usage(format!("invalid vdev property '{name}', or it is readonly")),
    }
}

fn fact(name: &str, value: &str) -> PoolProperty {
    PoolProperty { name: name.to_owned(), value: value.to_owned(), source: "-".to_owned() }
}

fn setting(name: &str, value: &str) -> PoolProperty {
    PoolProperty { source: "default".to_owned(), ..fact(name, value) }
}

fn text_property(name: &str, text: Option<&str>) -> PoolProperty {
    let source = if text.is_some() { "local" } else { "default" };
    PoolProperty { source: source.to_owned(), ..fact(name, text.unwrap_or("-")) }
}

fn number(value: Option<u64>) -> String {
    value.map_or_else(|| "0".to_owned(), |value| value.to_string())
}

/// A vdev's status among those of the top-level vdevs and below.
fn find_status(all: &[VdevStatus], guid: u64) -> Option<&VdevStatus> {
    all.iter().find_map(|status| {
        if status.guid == guid { Some(status) } else { find_status(&status.children, guid) }
    })
}

/// A count of a drive; of other vdevs the sum of their drives.
fn sum_counts(
    vdev: &VdevConfig,
    top_level: &[VdevStatus],
    count: impl Fn(&VdevStatus) -> u64,
) -> String {
    let statuses = vdev.leaves().filter_map(|leaf| find_status(top_level, leaf.guid.get()));
    statuses.map(count).sum::<u64>().to_string()
}

fn error_properties(vdev: &VdevConfig, top_level: &[VdevStatus]) -> Vec<PoolProperty> {
    vec![
        fact("read_errors", &sum_counts(vdev, top_level, |leaf| leaf.read_errors)),
        fact("write_errors", &sum_counts(vdev, top_level, |leaf| leaf.write_errors)),
        fact("checksum_errors", &sum_counts(vdev, top_level, |leaf| leaf.checksum_errors)),
        fact("initialize_errors", "0"),
    ]
}

/// The requests and bytes of a vdev's drives. OpenZFS counts null, free and claim requests in the kernel; there are
/// none of these here.
fn request_properties(vdev: &VdevConfig, drives: &[DriveIoStats]) -> Vec<PoolProperty> {
    let guids: Vec<u64> = vdev.leaves().map(|leaf| leaf.guid.get()).collect();
    let own: Vec<_> = drives.iter().filter(|drive| guids.contains(&drive.guid)).collect();
    let sum = |of: &dyn Fn(&DriveIoStats) -> u64| {
        own.iter().map(|drive| of(drive)).sum::<u64>().to_string()
    };
    let mut all = Vec::new();
    for (unit, of) in [
        ("ops", (|stats: &RequestStats| stats.requests) as fn(&RequestStats) -> u64),
        ("bytes", |stats: &RequestStats| stats.bytes),
    ] {
        all.push(fact(&format!("null_{unit}"), "0"));
        all.push(fact(&format!("read_{unit}"), &sum(&|drive| of(&drive.read))));
        all.push(fact(&format!("write_{unit}"), &sum(&|drive| of(&drive.write))));
        all.push(fact(&format!("free_{unit}"), "0"));
        all.push(fact(&format!("claim_{unit}"), "0"));
        all.push(fact(&format!("trim_{unit}"), &sum(&|drive| of(&drive.trim))));
    }
    all
}
