//! Entries of the configuration: `[[share]]`, each with the fields of its protocol.
//!
//! ```toml
//! [[share]]
//! protocol = "nbd"             # nfs, smb, iscsi, nbd or nvme
//! dataset = "tank/disk"        # the file system or volume
//!                              # the other fields are those of the protocol
//! ```

use std::ops::Range;

use api::Protocol;
use serde::de::{DeserializeOwned, IntoDeserializer};
use toml_edit::{Item, Table, Value};

use super::iscsi::IscsiFields;
use super::nbd::NbdFields;
use super::nfs::NfsFields;
use super::nvme::NvmeFields;
use super::smb::SmbFields;
use crate::config::{Config, SectionProblem};
use crate::services;

/// The name of the section.
pub(crate) const SECTION: &str = "share";
/// The fields that all protocols have.
const PROTOCOL: &str = "protocol";
pub(super) const DATASET: &str = "dataset";

/// An entry of the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ShareEntry {
    /// Its dataset.
    pub(crate) dataset: String,
    /// The fields of its protocol.
    pub(crate) fields: ShareFields,
    /// The bytes of the file where it begins.
    span: Option<Range<usize>>,
    /// Its line in the file, counted from 1.
    pub(crate) line: Option<usize>,
}

/// The fields of an entry, by protocol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ShareFields {
    /// NFS.
    Nfs(NfsFields),
    /// SMB.
    Smb(SmbFields),
    /// iSCSI.
    Iscsi(IscsiFields),
    /// NBD.
    Nbd(NbdFields),
    /// NVMe/TCP.
    Nvme(NvmeFields),
}

impl ShareFields {
    /// The protocol.
    pub(crate) const fn protocol(&self) -> Protocol {
        match self {
            Self::Nfs(_) => Protocol::Nfs,
            Self::Smb(_) => Protocol::Smb,
            Self::Iscsi(_) => Protocol::Iscsi,
            Self::Nbd(_) => Protocol::Nbd,
            Self::Nvme(_) => Protocol::Nvme,
        }
    }

    /// The name that clients ask for, if the entry has it.
    pub(super) fn name(&self) -> Option<&str> {
        match self {
            Self::Nfs(fields) => fields.path.as_deref(),
            Self::Smb(fields) => fields.name.as_deref(),
            Self::Iscsi(fields) => fields.target.as_deref(),
            Self::Nbd(fields) => fields.name.as_deref(),
            Self::Nvme(fields) => fields.nqn.as_deref(),
        }
    }

    /// A name that only one entry can have.
    fn unique_name(&self) -> Option<String> {
        match self {
            // a target has several units, a subsystem several namespaces
            Self::Iscsi(_) | Self::Nvme(_) => None,
            // clients do not distinguish upper and lower case
            Self::Smb(fields) => Some(fields.name.as_ref()?.to_lowercase()),
            _ => self.name().map(str::to_owned),
        }
    }
}

/// Checks the section.
pub(crate) fn check(item: &Item) -> Vec<SectionProblem> {
    let mut problems = Vec::new();
    let mut names = Vec::new();
    let Some(tables) = item.as_array_of_tables() else {
        let sentence = "[share]: write [[share]] above each share".to_owned();
        return vec![SectionProblem { span: item.span(), sentence }];
    };
    for table in tables {
        match read_entry(table) {
            Ok(entry) => {
                let Some(name) = entry.fields.unique_name() else { continue };
                let protocol = entry.fields.protocol();
                if names.contains(&(protocol, name.clone())) {
                    let sentence =
                        format!("there are two {protocol} shares with the name '{name}'");
                    problems.push(SectionProblem { span: entry.span, sentence });
                }
                names.push((protocol, name));
            }
            Err(problem) => problems.push(problem),
        }
    }
    problems
}

/// The entries of a configuration, which was checked.
pub(crate) fn read_entries(config: &Config) -> Vec<ShareEntry> {
    let tables = config.item(SECTION).and_then(Item::as_array_of_tables);
    let entries = tables.into_iter().flatten().filter_map(|table| read_entry(table).ok());
    entries.map(|entry| ShareEntry { line: config.line_of(entry.span.as_ref()), ..entry }).collect()
}

/// A destination of Time Machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TimeMachineEntry {
    /// The file system of the backups.
    pub(crate) dataset: String,
    /// The name of the share.
    pub(crate) share: String,
    /// The user whose Mac backs up there.
    pub(crate) user: String,
}

/// The destinations of Time Machine in a configuration, which was checked.
pub(crate) fn read_time_machines(config: &Config) -> Vec<TimeMachineEntry> {
    let entry = |entry: ShareEntry| {
        let ShareFields::Smb(fields) = entry.fields else { return None };
        let user = fields.time_machine_user()?.to_owned();
        let share = fields.share_name(&entry.dataset);
        Some(TimeMachineEntry { dataset: entry.dataset, share, user })
    };
    read_entries(config).into_iter().filter_map(entry).collect()
}

fn read_entry(table: &Table) -> Result<ShareEntry, SectionProblem> {
    let text = |field: &str| {
        let Some(item) = table.get(field) else {
            let sentence = format!("[[share]] needs the field {field}");
            return Err(SectionProblem { span: table.span(), sentence });
        };
        item.as_str().ok_or_else(|| SectionProblem {
            span: item.span(),
            sentence: format!("{field} is a text: {field} = \"...\""),
        })
    };
    let word = text(PROTOCOL)?;
    let protocol = Protocol::from_word(word).filter(|protocol| has_service(*protocol));
    let protocol = protocol.ok_or_else(|| SectionProblem {
        span: table.get(PROTOCOL).and_then(Item::span),
        sentence: format!("\"{word}\" is not a protocol of this version: {}", known_protocols()),
    })?;
    let dataset = text(DATASET)?.to_owned();
    let fields = match protocol {
        Protocol::Nfs => ShareFields::Nfs(read_fields(table, NfsFields::check)?),
        Protocol::Smb => ShareFields::Smb(read_fields(table, SmbFields::check)?),
        Protocol::Iscsi => ShareFields::Iscsi(read_fields(table, IscsiFields::check)?),
        Protocol::Nbd => ShareFields::Nbd(read_fields(table, |_| Ok(()))?),
        Protocol::Nvme => ShareFields::Nvme(read_fields(table, NvmeFields::check)?),
    };
    Ok(ShareEntry { dataset, fields, span: table.span(), line: None })
}

/// Reads the fields that a protocol adds.
fn read_fields<T: DeserializeOwned>(
    table: &Table,
    check: impl Fn(&T) -> Result<(), String>,
) -> Result<T, SectionProblem> {
    let mut own = table.clone();
    own.remove(PROTOCOL);
    own.remove(DATASET);
    let value = Value::InlineTable(own.into_inline_table());
    let fields = T::deserialize(value.into_deserializer()).map_err(|why| SectionProblem {
        span: why.span().or_else(|| table.span()),
        sentence: why.message().to_owned(),
    })?;
    match check(&fields) {
        Ok(()) => Ok(fields),
        Err(sentence) => Err(SectionProblem { span: table.span(), sentence }),
    }
}

/// Whether the daemon has a service of a protocol.
fn has_service(protocol: Protocol) -> bool {
    services::sections().any(|section| section.name == protocol.as_str())
}

fn known_protocols() -> String {
    let known = Protocol::ALL.into_iter().filter(|protocol| has_service(*protocol));
    known.map(|protocol| format!("\"{}\"", protocol.as_str())).collect::<Vec<_>>().join(", ")
}
