//! Beginning a receive: the dataset into which a stream goes, with its first state and its properties.

use dsl::write;
use dsl::{Dataset, DatasetKind, ResumeToken};
use spa::ActivePool;
use units::ObjsetId;
use zio::Key;

use super::datasets::{destroy_on_error, record_encryption, reset_intent_log};
use super::encryption::DatasetEncryption;
use super::receive::{Mode, Plan, ReceiveRequest, receive_error};
use super::receive_encryption::UserSecret;
use super::received_properties::PropertyPhase;
use super::{NewDataset, Pool, ReceiveProperties};
use crate::{Error, Result};

impl Pool {
    /// Creates the dataset into which the stream goes.
    pub(super) fn begin_receive(
        &self,
        plan: &Plan,
        request: &ReceiveRequest,
        warnings: &mut Vec<String>,
    ) -> Result<ObjsetId> {
        let (name, path) = (plan.target.clone(), plan.path());
        let failed = move |error: dsl::Error| receive_error(&name, error);
        let new = BegunDataset {
            state: request.resumable.then(|| plan.first_state()),
            redact_snaps: plan.redaction.snaps.clone(),
            properties: request.properties.clone(),
            target: plan.target.clone(),
            kind: plan.dataset_kind(),
        };
        let resets_log = plan.keydata.is_none();
        let (id, more) = match &plan.mode {
            Mode::Full => {
                let secret = request.secret.as_ref().map(UserSecret::as_bytes);
                self.begin_full_receive(plan, new, secret)?
            }
            Mode::Replace => {
                let (target, part) = (plan.target.clone(), plan.snapshot.name.clone());
                self.run_sync_task(move |active, change| {
                    let id = write::begin_replacing_receive(change, &target, &part);
                    let id = id.map_err(&failed)?;
                    Ok((id, new.set_state(active, change, id)?))
                })?
            }
            Mode::Clone(origin) => {
                let (origin_name, key) = (origin.name(), self.log_key(plan, origin)?);
                self.run_sync_task(move |active, change| {
                    let id = write::begin_clone_receive(change, &path, &origin_name);
                    let id = id.map_err(&failed)?;
                    if resets_log {
                        reset_intent_log(active, change, &path, key)?;
                    }
                    Ok((id, new.finish(active, change, id)?))
                })?
            }
            Mode::Incremental(base) => {
                let (guid, key) = (base.guid(), self.log_key(plan, base)?);
                let (target, part) = (plan.target.clone(), plan.snapshot.name.clone());
                self.run_sync_task(move |active, change| {
                    let id = write::begin_incremental_receive(change, &target, guid, &part);
                    let id = id.map_err(&failed)?;
                    if resets_log {
                        reset_intent_log(active, change, &path, key)?;
                    }
                    Ok((id, new.set_state(active, change, id)?))
                })?
            }
        };
        warnings.extend(more);
        Ok(id)
    }

    /// Creates a new head. It has the key of a raw stream, one of its own, or that of the file system above.
    fn begin_full_receive(
        &self,
        plan: &Plan,
        mut new: BegunDataset,
        secret: Option<&[u8]>,
    ) -> Result<(ObjsetId, Vec<String>)> {
        let path = plan.path();
        let name = plan.target.clone();
        let failed = move |error: dsl::Error| receive_error(&name, error);
        let keydata = plan.keydata.clone();
        let keying = if keydata.is_some() {
            None
        } else {
            let properties = new.properties.take_encryption();
            let mut options = NewDataset { name: plan.target.clone(), properties };
            let keying = self.child_encryption(&mut options, secret)?;
            // the place of the key of an encryption root
            new.properties.set.extend(options.properties);
            keying
        };
        let user = keying.as_ref().and_then(DatasetEncryption::user_key);
        let begun = self.with_opens_blocked(|| {
            self.run_sync_task(move |active, change| {
                let id = write::begin_full_receive(change, &path).map_err(&failed)?;
                let warnings = destroy_on_error(active, change, &new.target, || {
                    record_encryption(change, id, keying.as_ref()).map_err(&failed)?;
                    if let Some(keydata) = &keydata {
                        write::set_received_key(change, &path, id, keydata).map_err(&failed)?;
                    }
                    new.set_all(active, change, id)
                })?;
                Ok((id, warnings))
            })
        })?;
        // the blocks that follow are encrypted with it
        self.store_user_key(&plan.target, user)?;
        Ok(begun)
    }

    /// The key of the base snapshot, with which the intent log of the clone is reset. A raw
    /// stream needs none: it replaces the root block.
    fn log_key(&self, plan: &Plan, base: &Dataset) -> Result<Option<Key>> {
        if plan.keydata.is_some() { Ok(None) } else { self.base_key(base) }
    }

    /// The key of a snapshot that is received on top of.
    fn base_key(&self, base: &Dataset) -> Result<Option<Key>> {
        let name = base.name();
        let failed = |error: dsl::Error| Error::from_dsl_error(&name, &error);
        let key = base.key().map_err(failed)?;
        if key.is_none() && base.key_object().map_err(failed)?.is_some() {
            return Err(crate::keys::locked_error(base));
        }
        debug_assert!(!self.is_read_only(), "a receive is refused on a read-only pool");
        Ok(key)
    }
}

/// The first state of a dataset that is received into.
struct BegunDataset {
    /// Where the stream is, if the receive can be resumed.
    state: Option<ResumeToken>,
    /// The guids of the redaction snapshots; none: the stream is not redacted.
    redact_snaps: Option<Vec<u64>>,
    properties: ReceiveProperties,
    target: String,
    kind: DatasetKind,
}

impl BegunDataset {
    /// Sets the state and the properties of a new file system or volume.
    fn finish(
        &self,
        active: &ActivePool,
        change: &write::SyncTaskContext<'_>,
        id: ObjsetId,
    ) -> Result<Vec<String>> {
        destroy_on_error(active, change, &self.target, || self.set_all(active, change, id))
    }

    fn set_all(
        &self,
        active: &ActivePool,
        change: &write::SyncTaskContext<'_>,
        id: ObjsetId,
    ) -> Result<Vec<String>> {
        self.set_state(active, change, id)?;
        let target = (self.target.as_str(), self.kind);
        self.properties.apply(active, change, target, PropertyPhase::BeforeData)
    }

    /// Sets the state of a hidden dataset. The target gets its properties when the receive ends.
    fn set_state(
        &self,
        _active: &ActivePool,
        change: &write::SyncTaskContext<'_>,
        id: ObjsetId,
    ) -> Result<Vec<String>> {
        let failed = |why: dsl::Error| receive_error(&self.target, why);
        write::set_redaction(change, id, self.redact_snaps.as_deref()).map_err(failed)?;
        if let Some(state) = &self.state {
            write::set_resume_state(change, id, state).map_err(failed)?;
        }
        Ok(Vec::new())
    }
}
