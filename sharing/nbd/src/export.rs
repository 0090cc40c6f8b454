//! Exports: logical units under the names that clients ask for.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;
use lun::{Geometry, Lun};

use crate::wire::MAX_STRING;
use crate::wire::handshake::TransmissionFlags;
use crate::wire::option::BlockSizes;
use crate::{Error, Result};

/// A logical unit under the name that clients ask for.
#[derive(Clone)]
pub struct Export {
    /// The name. Clients that give no name get the only export, if there is one only.
    pub name: String,
    /// A sentence for the user who lists the exports.
    pub description: String,
    /// The networks whose clients may use the export. It is invisible for others; an empty list
    /// admits none.
    pub networks: Vec<IpNet>,
    /// The unit. It is read-only if its geometry says so.
    pub unit: Arc<dyn Lun>,
}

/// The exports of a server, by name.
#[derive(Clone, Default)]
pub(crate) struct ExportTable(BTreeMap<String, Arc<Export>>);

impl ExportTable {
    pub(crate) fn new(exports: Vec<Export>) -> Result<Self> {
        let mut table = BTreeMap::new();
        for export in exports {
            let name = export.name.clone();
            if name.len() > MAX_STRING {
                return Err(Error::LongName { start: name.chars().take(40).collect() });
            }
            if table.insert(name.clone(), Arc::new(export)).is_some() {
                return Err(Error::DuplicateExport { name });
            }
        }
        Ok(Self(table))
    }

    /// The exports that a client at an address may use.
    pub(crate) fn visible_from(&self, address: IpAddr) -> Self {
        let visible = self.0.iter().filter(|(_, export)| export.admits(address));
        Self(visible.map(|(name, export)| (name.clone(), Arc::clone(export))).collect())
    }

    /// The export of a name; of no name, the only export.
    pub(crate) fn find(&self, name: &str) -> Option<&Arc<Export>> {
        match self.0.values().next() {
            Some(only) if name.is_empty() && self.0.len() == 1 => Some(only),
            _ => self.0.get(name),
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<Export>> {
        self.0.values()
    }

    /// Whether an export is still served to a client as it was: the same unit under the same name.
    pub(crate) fn serves(&self, export: &Export, address: IpAddr) -> bool {
        let now = self.0.get(&export.name);
        now.is_some_and(|now| Arc::ptr_eq(&now.unit, &export.unit) && now.admits(address))
    }
}

impl Export {
    fn admits(&self, address: IpAddr) -> bool {
        // a listener of IPv6 shows IPv4 clients by mapped addresses
        let address = address.to_canonical();
        self.networks.iter().any(|network| network.contains(&address))
    }

    pub(crate) fn transmission_flags(&self, is_structured: bool) -> TransmissionFlags {
        type Flags = TransmissionFlags;
        let mut flags = vec![
            Flags::HAS_FLAGS,
            Flags::SEND_FLUSH,
            Flags::SEND_FUA,
            Flags::SEND_CACHE,
            // a flush commits the log of the volume, which all connections share
            Flags::CAN_MULTI_CONN,
        ];
        if self.unit.geometry().is_read_only {
            flags.push(Flags::READ_ONLY);
        } else {
            flags.extend([Flags::SEND_TRIM, Flags::SEND_WRITE_ZEROES, Flags::SEND_FAST_ZERO]);
        }
        if is_structured {
            flags.push(Flags::SEND_DF);
        }
        Flags::union(&flags)
    }

    pub(crate) fn block_sizes(&self, max_request_bytes: u32) -> BlockSizes {
        let Geometry { block_size, physical_block_size, .. } = self.unit.geometry();
        let maximum = max_request_bytes / block_size * block_size;
        // volume blocks have 16 MiB at most, but the maximum may have been set below that
        let preferred = physical_block_size.min(maximum);
        BlockSizes { minimum: block_size, preferred, maximum }
    }
}
