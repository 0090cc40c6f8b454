//! Receiving raw streams: the dataset stays encrypted, and its key is not needed.
//!
//! The stream brings the key closed with the user's key, the MAC of the object set, and every block as it is
//! stored. A later stream must be of the same key, and of the same set of nonces as the newest snapshot.

use std::sync::Arc;

use dmu::{NewObject, Objset, RawShape};
use dsl::Dataset;
use ondisk::ObjectType;
use ondisk::objset::{Flags, Kind, LogHeader};
use ondisk::stream::{CryptKeydata, MetaShape};
use spa::{OpenDataset, StorageSettings};
use units::{BlockId, ObjsetId};
use zio::Source;

use super::Pool;
use super::accounting::has_feature;
use super::receive::Plan;
use crate::Result;
use crate::pool::handles::Keys;

/// Bytes of a block of dnodes.
const DNODE_BLOCK: u32 = 16 << 10;
/// The tallest array of dnodes.
const MAX_META_LEVELS: u8 = 6;

impl Pool {
    /// Refuses a raw stream that cannot be received on top of `base`.
    pub(super) fn check_raw_stream(
        &self,
        keydata: &CryptKeydata,
        base: Option<&Dataset>,
    ) -> std::result::Result<(), String> {
        if !has_feature(&self.0.spa.synced_mos(), "encryption") {
            return Err(
                "the stream requires feature@encryption, which is not enabled on this pool"
                    .to_owned(),
            );
        }
        dsl::wrapped_key_of(keydata).map_err(|why| why.to_string())?;
        let is_passphrase = keydata.key_format == dsl::KeyFormat::Passphrase.code();
        let has_stretching = keydata.iterations != 0 && keydata.salt != 0;
        if dsl::KeyFormat::from_code(keydata.key_format).is_none()
            || is_passphrase != has_stretching
        {
            return Err("the stream is damaged: the format of its key is unknown".to_owned());
        }
        check_meta_shape(&keydata.meta)?;
        let Some(base) = base else { return Ok(()) };
        let facts = base.key_info().map_err(|why| why.to_string())?;
        let Some(facts) = facts else {
            let why = "cannot perform raw receive on top of existing unencrypted dataset";
            return Err(why.to_owned());
        };
        if facts.guid != keydata.guid {
            return Err("the stream was encrypted with another key".to_owned());
        }
        let ivset = base.ivset_guid().map_err(|why| why.to_string())?;
        if ivset == 0 || ivset != keydata.from_ivset_guid {
            return Err(format!(
                "the stream does not match '{}', which was received without -w or changed since; send a \
                 full raw stream to a new file system",
                base.name()
            ));
        }
        Ok(())
    }

    /// The content of the dataset of a raw receive, and its initial state.
    pub(super) fn open_raw_received(
        &self,
        plan: &Plan,
        id: ObjsetId,
        (keydata, stored): (&CryptKeydata, StorageSettings),
    ) -> Result<(Arc<OpenDataset>, Option<Objset>)> {
        let spa = &self.0.spa;
        let path = plan.path();
        let stored = StorageSettings { key: None, keyless: true, ..stored };
        let dataset = self.find_dataset(&path)?;
        let phys = dataset.phys().ok_or_else(|| plan.error("it has no content"))?;
        let source: Arc<dyn Source> = Arc::new(spa.reader().with_raw_dnodes());
        let kind = match plan.dataset_kind() {
            dsl::DatasetKind::Volume => Kind::Volume,
            _ => Kind::Filesystem,
        };
        let open = |id, root: &ondisk::Blkptr| {
            let opened = Objset::open(Arc::clone(&source), id, root, None);
            opened.map_err(|why| plan.error(why))
        };
        let objset = if phys.root == ondisk::Blkptr::EMPTY {
            Objset::new_empty_raw(Arc::clone(&source), id, kind, &meta_object(&keydata.meta))
        } else {
            let found = open(id, &phys.root)?.with_raw_mode(true);
            if !fits_shape(&found, &keydata.meta) {
                return Err(plan.error("the stream has an array of dnodes of another shape"));
            }
            found.to_writable()
        };
        let base = plan.base().map(|base| match (base.id(), base.phys()) {
            (Some(id), Some(phys)) => open(id, &phys.root).map(|it| it.with_raw_mode(true)),
            _ => Err(plan.error("its base is not a snapshot")),
        });
        let base = base.transpose()?;
        if base.as_ref().is_some_and(|base| base.header().kind != kind) {
            return Err(plan.error("the stream is of another kind of dataset"));
        }
        let set = spa.open_dataset(objset, stored);
        let tx = spa.begin_tx().map_err(|why| self.explain_error(&why))?;
        let (meta, portable_mac) = (keydata.meta, keydata.portable_mac);
        set.edit_header(&tx, move |header| {
            header.portable_mac = portable_mac;
            // space is counted again when the key is loaded
            header.local_mac = [0; 32];
            header.flags = Flags::default();
            header.log = LogHeader::default();
            if let Some(dnode) = &mut header.meta {
                dnode.checksum = meta.checksum;
                dnode.compression = meta.compression;
                dnode.max_block = BlockId::new(meta.max_block);
            }
        });
        Ok((set, base))
    }
}

impl Keys<'_> {
    /// Makes a received head an encryption root, as on the sender. Its key is not needed: the stream brought it.
    pub fn separate_received_key(self, name: &str) -> Result<()> {
        let name = name.to_owned();
        self.pool.run_sync_task(move |_, change| {
            dsl::write::separate_received_key(change, &name)
                .map_err(|why| crate::Error::from_dsl_error(&name, &why))
        })?;
        self.pool.refresh_properties();
        Ok(())
    }

    /// Makes a received head use its parent's key, as on the sender.
    pub fn inherit_received_key(self, name: &str) -> Result<()> {
        let name = name.to_owned();
        self.pool.run_sync_task(move |_, change| {
            dsl::write::inherit_received_key(change, &name)
                .map_err(|why| crate::Error::from_dsl_error(&name, &why))
        })?;
        self.pool.refresh_properties();
        Ok(())
    }
}

fn check_meta_shape(meta: &MetaShape) -> std::result::Result<(), String> {
    let is_known = meta.block_size == DNODE_BLOCK
        && meta.pointer_count == ondisk::dnode::Dnode::MAX_POINTERS
        && (1..=MAX_META_LEVELS).contains(&meta.levels)
        && (12..=17).contains(&meta.indirect_shift);
    if is_known {
        return Ok(());
    }
    Err("the stream is damaged: its array of dnodes has an unknown shape".to_owned())
}

/// The array of dnodes while nothing is in it.
fn meta_object(meta: &MetaShape) -> NewObject {
    NewObject {
        indirect_shift: meta.indirect_shift,
        checksum: meta.checksum,
        compression: meta.compression,
        shape: Some(RawShape {
            levels: meta.levels,
            pointers: meta.pointer_count,
            max_block: meta.max_block,
            bonus_tail: Vec::new(),
        }),
        ..NewObject::new(ObjectType::DNODE, meta.block_size)
    }
}

fn fits_shape(objset: &Objset, meta: &MetaShape) -> bool {
    objset.header().meta.as_ref().is_some_and(|dnode| {
        dnode.levels == meta.levels
            && dnode.block_size == meta.block_size
            && dnode.indirect_shift == meta.indirect_shift
            && dnode.pointers.len() == usize::from(meta.pointer_count)
    })
}
