//! From the configuration and the properties of datasets to the shares of each protocol.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use api::Protocol;

use super::entry::{ShareEntry, ShareFields};
use super::nfs::parse_sharenfs;
use super::smb::parse_sharesmb;
use super::{SHARE_PROPERTIES, Share, ShareProblem, ShareSet, ShareSource};
use crate::events::head_of;

/// A file system or volume of an imported pool, as far as shares concern it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub(crate) struct DatasetFacts {
    /// Its full name.
    pub(crate) name: String,
    /// Whether it is a volume.
    pub(crate) is_volume: bool,
    /// Whether its key is not loaded.
    pub(crate) is_locked: bool,
    /// The property canmount.
    pub(crate) canmount: String,
    /// The property mountpoint below the altroot; none: it is not a path.
    pub(crate) mountpoint: Option<PathBuf>,
    /// The directory on which it is mounted.
    pub(crate) mounted_at: Option<PathBuf>,
    /// Whether it was unmounted since the daemon has started, and not mounted again.
    pub(crate) is_unmounted: bool,
    /// The bytes that its files may use: the lower of refquota and quota; none: it has neither.
    pub(crate) quota: Option<u64>,
    /// Whether its files have NFSv4 ACLs.
    pub(crate) has_nfs4_acls: bool,
    /// The values of [`SHARE_PROPERTIES`], and where they are set.
    pub(crate) shared: [(String, String); 2],
}

/// The shares of all protocols, and those that cannot be served.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Resolved {
    /// The shares.
    pub(crate) set: ShareSet,
    /// The others.
    pub(crate) problems: Vec<ShareProblem>,
}

/// Resolves the shares. `unshared`: file systems whose properties do not count for now (`zfs
/// unshare`). `released`: datasets that a change needs at the moment.
pub(crate) fn resolve(
    entries: &[ShareEntry],
    datasets: &[DatasetFacts],
    unshared: &BTreeSet<String>,
    released: &BTreeSet<String>,
) -> Resolved {
    let mut resolved = Resolved::default();
    for entry in entries.iter().filter(|entry| !released.contains(&entry.dataset)) {
        let head = head_of(&entry.dataset);
        let dataset = datasets.iter().find(|it| it.name == head);
        if let Err((name, sentence)) = resolved.add_entry(entry, dataset) {
            resolved.problems.push(ShareProblem {
                protocol: entry.fields.protocol(),
                dataset: entry.dataset.clone(),
                name,
                source: ShareSource::Config { line: entry.line },
                sentence,
            });
        }
    }
    let is_shared =
        |it: &&DatasetFacts| !unshared.contains(&it.name) && !released.contains(&it.name);
    for dataset in datasets.iter().filter(is_shared) {
        resolved.add_properties(dataset);
    }
    resolved.sort();
    resolved
}

impl Resolved {
    /// Adds the share of an entry, or returns its name, if it is known, and a problem.
    fn add_entry(
        &mut self,
        entry: &ShareEntry,
        dataset: Option<&DatasetFacts>,
    ) -> Result<(), (Option<String>, String)> {
        let name = entry.fields.name().map(str::to_owned);
        let refuse = |sentence: String| (name.clone(), sentence);
        let dataset =
            check_dataset(&entry.dataset, entry.fields.protocol(), dataset).map_err(refuse)?;
        let source = ShareSource::Config { line: entry.line };
        let owner = entry.dataset.as_str();
        match entry.fields.clone() {
            ShareFields::Nfs(fields) => {
                let (path, options) = fields.resolve();
                let path = path.unwrap_or_else(|| nfs_path(dataset));
                // a file system that was never mounted is served: it needs no mount
                if dataset.is_unmounted {
                    return Err((Some(path), not_mounted(owner)));
                }
                push(&mut self.set.nfs, share(dataset, path, options, source))
            }
            ShareFields::Smb(fields) => {
                let (name, options) = fields.resolve(dataset);
                if options.nfs4_acls && !dataset.has_nfs4_acls {
                    let why = format!(
                        "nfs4_acls = true, and its files have no NFSv4 ACLs: `zfs set acltype=nfsv4 {owner}`"
                    );
                    return Err((Some(name), why));
                }
                if dataset.mounted_at.is_none() {
                    return Err((Some(name), not_mounted(owner)));
                }
                push(&mut self.set.smb, share(dataset, name, options, source))
            }
            ShareFields::Iscsi(fields) => {
                let (target, options) = fields.resolve(owner);
                let other = self
                    .set
                    .iscsi
                    .iter()
                    .find(|other| other.name == target && other.options.lun == options.lun);
                if let Some(other) = other {
                    let (lun, other) = (options.lun, &other.dataset);
                    let why = format!("'{other}' is logical unit {lun} of that target already");
                    return Err((Some(target), why));
                }
                self.set.iscsi.push(volume_share(owner, target, options, source));
                Ok(())
            }
            ShareFields::Nbd(fields) => {
                let (name, options) = fields.resolve(owner);
                push(&mut self.set.nbd, volume_share(owner, name, options, source))
            }
            ShareFields::Nvme(fields) => {
                let (nqn, options) = fields.resolve(owner);
                let other = self.set.nvme.iter().find(|other| {
                    other.name == nqn && other.options.namespace == options.namespace
                });
                if let Some(other) = other {
                    let (number, other) = (options.namespace, &other.dataset);
                    let why = format!("'{other}' is namespace {number} of that subsystem already");
                    return Err((Some(nqn), why));
                }
                self.set.nvme.push(volume_share(owner, nqn, options, source));
                Ok(())
            }
        }
    }

    /// Adds the shares of a file system's properties. Those of a file system that is not to be mounted do not
    /// count, as with OpenZFS.
    fn add_properties(&mut self, dataset: &DatasetFacts) {
        let is_to_be_mounted = dataset.canmount == "on" || dataset.mounted_at.is_some();
        if dataset.is_volume || dataset.mountpoint.is_none() || !is_to_be_mounted {
            return;
        }
        for (property, (value, set)) in SHARE_PROPERTIES.into_iter().zip(&dataset.shared) {
            let source = ShareSource::Property { name: property, set: set.clone() };
            let (protocol, added) = if property == "sharenfs" {
                (Protocol::Nfs, self.add_sharenfs(dataset, value, source.clone()))
            } else {
                (Protocol::Smb, self.add_sharesmb(dataset, value, source.clone()))
            };
            if let Err((name, sentence)) = added {
                let dataset = dataset.name.clone();
                self.problems.push(ShareProblem { protocol, dataset, name, source, sentence });
            }
        }
    }

    fn add_sharenfs(
        &mut self,
        dataset: &DatasetFacts,
        value: &str,
        source: ShareSource,
    ) -> Result<(), (Option<String>, String)> {
        let path = nfs_path(dataset);
        let options = parse_sharenfs(value)
            .map_err(|why| (Some(path.clone()), format!("sharenfs={value}: {why}")))?;
        let Some(options) = options else { return Ok(()) };
        // as with OpenZFS: what was unmounted is not exported
        if dataset.is_unmounted {
            return Ok(());
        }
        // the configuration has more details about the same path
        if self.set.nfs.iter().any(|other| other.name == path && other.dataset == dataset.name) {
            return Ok(());
        }
        check_dataset(&dataset.name, Protocol::Nfs, Some(dataset))
            .map_err(|why| (Some(path.clone()), why))?;
        push(&mut self.set.nfs, share(dataset, path, options, source))
    }

    fn add_sharesmb(
        &mut self,
        dataset: &DatasetFacts,
        value: &str,
        source: ShareSource,
    ) -> Result<(), (Option<String>, String)> {
        let parsed = parse_sharesmb(dataset, value);
        let parsed = parsed.map_err(|why| (None, format!("sharesmb={value}: {why}")))?;
        let Some((name, options)) = parsed else { return Ok(()) };
        // the configuration has more details about the same file system
        if self.set.smb.iter().any(|other| other.dataset == dataset.name) {
            return Ok(());
        }
        if dataset.mounted_at.is_none() {
            return Err((Some(name), not_mounted(&dataset.name)));
        }
        push(&mut self.set.smb, share(dataset, name, options, source))
    }

    fn sort(&mut self) {
        self.set.nfs.sort_by(|one, other| one.name.cmp(&other.name));
        self.set.smb.sort_by(|one, other| one.name.cmp(&other.name));
        self.set.iscsi.sort_by(|one, other| {
            (&one.name, one.options.lun).cmp(&(&other.name, other.options.lun))
        });
        self.set.nbd.sort_by(|one, other| one.name.cmp(&other.name));
        self.set.nvme.sort_by(|one, other| {
            (&one.name, one.options.namespace).cmp(&(&other.name, other.options.namespace))
        });
    }
}

/// The dataset of a share, if the protocol can serve it.
fn check_dataset<'a>(
    name: &str,
    protocol: Protocol,
    dataset: Option<&'a DatasetFacts>,
) -> Result<&'a DatasetFacts, String> {
    let Some(dataset) = dataset else {
        return Err(format!("'{name}' does not exist, or its pool is not imported"));
    };
    if dataset.is_volume != protocol.shares_volumes() {
        let (is, wants) =
            if dataset.is_volume { ("volume", "file systems") } else { ("file system", "volumes") };
        return Err(format!("'{name}' is a {is}, and {protocol} shares {wants}"));
    }
    if !dataset.is_volume && name.contains('@') {
        return Err(format!(
            "'{name}' is a snapshot of a file system: share the file system, which shows it in \
             .zfs/snapshot"
        ));
    }
    if dataset.is_locked {
        return Err(format!("its key is not loaded: `zfs load-key {}`", dataset.name));
    }
    Ok(dataset)
}

fn not_mounted(dataset: &str) -> String {
    format!("'{dataset}' is not mounted: `zfs mount {dataset}`")
}

/// The path that NFS clients mount if the configuration has none: the mountpoint.
fn nfs_path(dataset: &DatasetFacts) -> String {
    let path = dataset.mountpoint.as_deref().and_then(Path::to_str);
    path.map_or_else(|| format!("/{}", dataset.name), str::to_owned)
}

fn share<O>(dataset: &DatasetFacts, name: String, options: O, source: ShareSource) -> Share<O> {
    let directory = dataset.mounted_at.clone();
    Share { dataset: dataset.name.clone(), name, directory, options, source }
}

fn volume_share<O>(dataset: &str, name: String, options: O, source: ShareSource) -> Share<O> {
    Share { dataset: dataset.to_owned(), name, directory: None, options, source }
}

/// Adds a share, unless another one has its name. Names differ by more than their case, as SMB wants it.
fn push<O>(all: &mut Vec<Share<O>>, share: Share<O>) -> Result<(), (Option<String>, String)> {
    if let Some(other) = all.iter().find(|other| other.name.eq_ignore_ascii_case(&share.name)) {
        let why = format!("'{}' is shared by that name already", other.dataset);
        return Err((Some(share.name), why));
    }
    all.push(share);
    Ok(())
}

#[cfg(test)]
mod tests;
