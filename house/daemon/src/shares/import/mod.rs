//! Imports shares of other servers from their configuration files.
//!
//! ```text
//! /etc/exports             NFS of the kernel       exports
//! smb.conf                 Samba                   smb_conf
//! targets.conf             tgt                     targets_conf
//! scst.conf                SCST                    scst
//! saveconfig.json          LIO (targetcli)         lio
//! config.json              nvmet (nvmetcli)        nvmet
//! ```
//!
//! A share is imported only if it admits no more clients and users than before. Otherwise it is
//! skipped, with a sentence about the manual steps.

mod chap;
mod exports;
mod lio;
mod nvmet;
mod scst;
mod smb_conf;
mod targets_conf;

use std::path::{Path, PathBuf};

use api::{AddShare, ImportedShare, ImportedShares, Protocol, ShareFileFormat, SkippedShare};
use toml_edit::DocumentMut;

use self::chap::FoundChap;
pub(crate) use self::chap::SecretFile;
use super::entry::ShareEntry;
use super::{DatasetFacts, add_entry};
use crate::config::Config;
use crate::volume_devices::VOLUME_DEVICES;

/// A share that a file describes.
#[derive(Clone, Debug, PartialEq, Eq)]
struct FoundShare {
    /// Its place in the file, as a user knows it.
    origin: String,
    protocol: Protocol,
    /// The directory or device that it shares.
    path: PathBuf,
    /// Fields of `[[share]]` with their values in TOML.
    options: Vec<(String, String)>,
    /// Options of the other server that do not affect access rights.
    ignored: Vec<String>,
    /// The users of CHAP.
    chap: FoundChap,
}

/// A share that cannot be imported: its place in the file, and a sentence.
type Skipped = (String, String);

/// The shares of a file.
type Found = Vec<Result<FoundShare, Skipped>>;

/// The way to import the shares of a file.
#[derive(Default)]
pub(crate) struct ImportPlan {
    /// The calls that add them.
    pub(crate) calls: Vec<AddShare>,
    /// The files that they need, which are written before.
    pub(crate) secrets: Vec<SecretFile>,
    /// The report to the user.
    pub(crate) report: ImportedShares,
}

/// Plans to import the shares of a file. `entries`: those of the configuration. `secrets`: the directory for secrets.
pub(crate) fn plan_import(
    (format, text): (ShareFileFormat, &str),
    datasets: &[DatasetFacts],
    entries: &[ShareEntry],
    secrets: &Path,
) -> ImportPlan {
    let found = match format {
        ShareFileFormat::Exports => exports::parse(text),
        ShareFileFormat::SmbConf => smb_conf::parse(text),
        ShareFileFormat::TargetsConf => targets_conf::parse(text),
        ShareFileFormat::Scst => scst::parse(text),
        ShareFileFormat::Lio => lio::parse(text),
        ShareFileFormat::Nvmet => nvmet::parse(text),
    };
    let mut plan = ImportPlan::default();
    for found in found {
        let planned = found.and_then(|mut found| {
            let files = chap::add_fields(&mut found, secrets);
            let call = plan_share(&found, datasets).map_err(|why| (found.origin.clone(), why))?;
            let is_known = |protocol: Protocol, dataset: &str| {
                (protocol, dataset) == (call.protocol, call.dataset.as_str())
            };
            let is_shared = entries.iter().any(|it| is_known(it.fields.protocol(), &it.dataset))
                || plan.calls.iter().any(|it| is_known(it.protocol, &it.dataset));
            if is_shared {
                let why = format!("'{}' is shared by {} already", call.dataset, call.protocol);
                return Err((found.origin.clone(), why));
            }
            Ok((call, found, files))
        });
        match planned {
            Ok((call, FoundShare { origin, ignored, .. }, files)) => {
                let AddShare { protocol, dataset, options } = call.clone();
                let added = ImportedShare { origin, protocol, dataset, options, ignored };
                plan.report.added.push(added);
                plan.calls.push(call);
                // units of one target have the same
                let is_new = |file: &SecretFile| !plan.secrets.contains(file);
                let new: Vec<_> = files.into_iter().filter(is_new).collect();
                plan.secrets.extend(new);
            }
            Err((origin, reason)) => plan.report.skipped.push(SkippedShare { origin, reason }),
        }
    }
    plan
}

/// Finds the dataset of a share, and checks its options.
fn plan_share(found: &FoundShare, datasets: &[DatasetFacts]) -> Result<AddShare, String> {
    let dataset = if found.protocol.shares_volumes() {
        volume_of(&found.path, datasets)?
    } else {
        filesystem_of(&found.path, datasets)?
    };
    let (protocol, options) = (found.protocol, found.options.clone());
    let call = AddShare { protocol, dataset, options };
    let mut document = DocumentMut::new();
    add_entry(&mut document, &call)?;
    match Config::parse(&document.to_string()) {
        Ok(_) => Ok(call),
        Err(problems) => {
            Err(problems.into_iter().map(|it| it.sentence).collect::<Vec<_>>().join("; "))
        }
    }
}

/// The file system that is mounted on a directory.
fn filesystem_of(path: &Path, datasets: &[DatasetFacts]) -> Result<String, String> {
    let mounted = |it: &DatasetFacts| it.mounted_at.as_deref() == Some(path);
    if let Some(found) = datasets.iter().find(|it| mounted(it)) {
        return Ok(found.name.clone());
    }
    let around =
        |it: &&DatasetFacts| it.mounted_at.as_deref().is_some_and(|dir| path.starts_with(dir));
    let around = datasets.iter().filter(around).max_by_key(|it| it.mounted_at.clone());
    let path = path.display();
    Err(match around {
        Some(it) => format!(
            "'{path}' is a folder in '{}': only whole file systems are shared. `zfs create` makes one \
             for the folder",
            it.name
        ),
        None => format!("no file system of an imported pool is mounted on '{path}'"),
    })
}

/// The volume of a device.
fn volume_of(path: &Path, datasets: &[DatasetFacts]) -> Result<String, String> {
    let name = path.strip_prefix(VOLUME_DEVICES).ok().and_then(Path::to_str);
    let found = name.and_then(|name| datasets.iter().find(|it| it.is_volume && it.name == name));
    found.map(|it| it.name.clone()).ok_or_else(|| {
        format!(
            "'{}' is not a volume of an imported pool ({VOLUME_DEVICES}/POOL/NAME)",
            path.display()
        )
    })
}

/// A text as a value in TOML.
fn quoted(text: &str) -> String {
    toml_edit::Value::from(text).to_string()
}

/// Texts as a list in TOML.
fn quoted_list<'a>(texts: impl IntoIterator<Item = &'a str>) -> String {
    toml_edit::Value::from(texts.into_iter().collect::<toml_edit::Array>()).to_string()
}

/// A field with its value.
fn field(name: &str, value: impl Into<String>) -> (String, String) {
    (name.to_owned(), value.into())
}

#[cfg(test)]
mod tests;
