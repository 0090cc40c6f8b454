//! Receiving streams into an imported pool.
//!
//! The stream goes into a dataset that has no other user: a new head, or a hidden clone of the
//! head's newest snapshot. When the stream has ended and its checksum is right, one txg makes that
//! dataset the head and takes the snapshot. After an earlier failure the hidden dataset is
//! destroyed and the target is unchanged. A resumable receive (-s) keeps the hidden dataset, with
//! the position in the stream.

use std::io::Read;

use dmu::Objset;
use dsl::write::{self, ReceivedSnapshot};
use dsl::{Dataset, DatasetKind, ResumeToken};
use ondisk::feature::Feature;
use ondisk::stream::{Begin, BeginFlags, CryptKeydata, StreamFeatures};
use send::{Redaction, ResumePoint};
use spa::ActivePool;
use units::{Guid, ObjsetId};

use super::accounting::has_feature;
use super::history::record_dataset_event;
use super::receive_checks::{
    check_force, check_redaction, check_replaceable, missing_target, snapshot_part,
};
use super::receive_encryption::UserSecret;
use super::received_properties::PropertyPhase;
use super::stream_input::{BegunStream, StreamInput};
use super::{Pool, ReceiveProperties};
use crate::pool::handles::Streams;
use crate::{Error, Result};

/// Features that a pool must have enabled for streams that have these.
pub(super) const NEEDED_FEATURES: [(u64, &str); 8] = [
    (StreamFeatures::EMBEDDED_DATA, "embedded_data"),
    (StreamFeatures::LZ4, "lz4_compress"),
    (StreamFeatures::ZSTD, "zstd_compress"),
    (StreamFeatures::REDACTED, "redacted_datasets"),
    (StreamFeatures::LARGE_BLOCKS, "large_blocks"),
    (StreamFeatures::LARGE_DNODE, "large_dnode"),
    (StreamFeatures::LONG_NAME, "longname"),
    (StreamFeatures::LARGE_MICROZAP, "large_microzap"),
];

/// The target of a receive.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReceiveRequest {
    /// The file system or volume.
    pub target: String,
    /// The name of the snapshot behind the `@`; none: as it was on the sender.
    pub snapshot: Option<String>,
    /// Changes of the target since its newest snapshot are discarded; a full stream replaces a
    /// target without snapshots (-F).
    pub force: bool,
    /// Nothing is received: only the stream's header is checked (-n).
    pub dry_run: bool,
    /// An interrupted receive keeps its records, so that it can be resumed (-s).
    pub resumable: bool,
    /// Properties of the target.
    pub properties: ReceiveProperties,
    /// The user's key, if the properties make the target an encryption root.
    pub secret: Option<UserSecret>,
}

/// The result of a receive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Received {
    /// The snapshot, by its full name.
    pub snapshot: String,
    /// The target existed before.
    pub is_incremental: bool,
    /// Bytes of the stream.
    pub bytes: u64,
    /// A sentence for each property that could not be set.
    pub warnings: Vec<String>,
}

/// Exchanges the content of a head. The arguments: the hidden dataset with the new content, by its full name,
/// and the exchange.
pub type ExchangeHead<'a> = dyn FnMut(&str, &mut dyn FnMut() -> Result<()>) -> Result<()> + 'a;

/// A receive that was checked and can begin.
pub(super) struct Plan {
    pub(super) target: String,
    pub(super) snapshot: ReceivedSnapshot,
    pub(super) mode: Mode,
    pub(super) begin: Begin,
    /// The dataset with the earlier part of the stream, and the position at which it resumes.
    pub(super) resume: Option<(ObjsetId, ResumeToken)>,
    /// The wrapped key, if the stream is raw.
    pub(super) keydata: Option<CryptKeydata>,
    /// The redaction snapshots of the stream and of its base.
    pub(super) redaction: Redaction,
}

pub(super) enum Mode {
    /// Into a new head.
    Full,
    /// Into a new hidden head, which replaces one without snapshots.
    Replace,
    /// Into a new clone of this snapshot.
    Clone(Box<Dataset>),
    /// Into the head, on top of this snapshot.
    Incremental(Box<Dataset>),
}

impl Mode {
    fn base(&self) -> Option<&Dataset> {
        match self {
            Self::Full | Self::Replace => None,
            Self::Clone(base) | Self::Incremental(base) => Some(base),
        }
    }
}

impl Plan {
    /// The dataset into which the stream goes.
    pub(super) fn path(&self) -> String {
        match self.mode {
            Mode::Full | Mode::Clone(_) => self.target.clone(),
            Mode::Replace | Mode::Incremental(_) => hidden_path(&self.target),
        }
    }

    pub(super) fn error(&self, why: impl std::fmt::Display) -> Error {
        receive_error(&self.target, why)
    }

    /// Why the stream could not be applied. Scripts search for zfs(8)'s words about a stream that was cut.
    pub(super) fn stream_error(&self, why: &send::Error) -> Error {
        if !matches!(why, send::Error::Truncated { .. } | send::Error::Checksum { .. }) {
            return self.error(why);
        }
        let kind = if self.begin.from_guid == 0 { "new filesystem" } else { "incremental" };
        Error::Refused {
            what: format!(
                "cannot receive {kind} stream: checksum mismatch or incomplete stream: '{}' is as it \
                 was, because {why}",
                self.target
            ),
        }
    }

    /// The snapshot that the dataset begins with.
    pub(super) fn base(&self) -> Option<&Dataset> {
        self.mode.base()
    }

    const fn has_head(&self) -> bool {
        matches!(self.mode, Mode::Incremental(_) | Mode::Replace)
    }

    pub(super) const fn dataset_kind(&self) -> DatasetKind {
        if self.begin.is_volume() { DatasetKind::Volume } else { DatasetKind::Filesystem }
    }

    /// Where the stream is, before its first record.
    pub(super) fn first_state(&self) -> ResumeToken {
        let has = |feature| self.begin.features.has(feature);
        ResumeToken {
            from_guid: self.begin.from_guid,
            object: 1,
            to_guid: self.begin.to_guid,
            to_name: String::from_utf8_lossy(&self.begin.to_name).into_owned(),
            large_blocks: has(StreamFeatures::LARGE_BLOCKS),
            embedded: has(StreamFeatures::EMBEDDED_DATA),
            compressed: has(StreamFeatures::COMPRESSED),
            raw: has(StreamFeatures::RAW),
            base_redact_snaps: self.redaction.base_snaps.clone(),
            ..ResumeToken::default()
        }
    }
}

fn hidden_path(target: &str) -> String {
    format!("{target}/%recv")
}

pub(super) fn receive_error(target: &str, why: impl std::fmt::Display) -> Error {
    Error::Refused { what: format!("cannot receive into '{target}': {why}") }
}

impl Streams<'_> {
    /// Receives the stream of one snapshot. A stream that is damaged or cut leaves the target as it was.
    pub fn receive(self, request: &ReceiveRequest, input: &mut dyn Read) -> Result<Received> {
        let mut input = StreamInput::open(input)?;
        self.pool.streams().receive_snapshot(request, &mut input, &mut |_, exchange| exchange())
    }

    /// Receives the next snapshot of a stream. A stream that is damaged or cut leaves the target as it was.
    pub fn receive_snapshot(
        self,
        request: &ReceiveRequest,
        input: &mut StreamInput<'_>,
        exchange: &mut ExchangeHead<'_>,
    ) -> Result<Received> {
        self.pool.check_writable()?;
        let begun = input.take_begin()?;
        let first = input.bytes();
        if request.dry_run {
            return self.pool.check_receive(request, &begun);
        }
        let mut plan = self.pool.plan_receive(request, begun)?;
        let mut received = Received {
            snapshot: format!("{}@{}", plan.target, plan.snapshot.name),
            is_incremental: plan.has_head(),
            bytes: 0,
            warnings: Vec::new(),
        };
        let id = match &plan.resume {
            Some((id, _)) => *id,
            None => self.pool.begin_receive(&plan, request, &mut received.warnings)?,
        };
        let Some(_hold) = self.pool.0.dataset_holds.hold_exclusive(id) else {
            return Err(plan.error("another stream is being received into it"));
        };
        let head = if plan.has_head() { self.pool.find_dataset(&plan.target)?.id() } else { None };
        let _head_hold = head.map(|head| self.pool.0.dataset_holds.hold(head));
        let keeps_partial = request.resumable || plan.resume.is_some();
        if keeps_partial && plan.resume.is_none() {
            plan.resume = Some((id, plan.first_state()));
        }
        let done = self.pool.receive_records(&plan, id, &mut input.reader).and_then(|()| {
            self.pool.end_receive(&plan, (id, request), &mut received.warnings, exchange)
        });
        if let Err(why) = done {
            return Err(self.pool.stop_receive(&plan, id, keeps_partial, why));
        }
        received.bytes = input.bytes() - first;
        self.pool.refresh_properties();
        Ok(received)
    }

    /// Destroys the partial state of a resumable receive into `target` (-A).
    pub fn abort_receive(self, target: &str) -> Result<()> {
        for path in [target.to_owned(), hidden_path(target)] {
            let found = self.pool.find_dataset(&path).ok().and_then(|it| it.id());
            if found.is_some_and(|id| self.pool.0.dataset_holds.is_held(id)) {
                return Err(receive_error(target, "a stream is being received into it"));
            }
        }
        let target = target.to_owned();
        self.pool.run_sync_task(move |active, change| {
            write::abort_receive(change, &target)
                .map_err(|why| Error::from_dsl_error(&target, &why))?;
            record_dataset_event(active, change, "receive abort", &target, "");
            Ok(())
        })
    }
}

impl Pool {
    fn plan_receive(&self, request: &ReceiveRequest, begun: BegunStream) -> Result<Plan> {
        let BegunStream { begin, resume: point, keydata, redaction } = begun;
        let target = request.target.clone();
        let refused = |why: String| receive_error(&target, why);
        let part = snapshot_part(request, &begin)?;
        self.check_stream_features(&target, begin.features)?;
        let existing = match self.find_dataset(&target) {
            Ok(found) => Some(found),
            Err(Error::NoSuchDataset { .. }) => None,
            Err(why) => return Err(why),
        };
        let resume = match point {
            Some(point) => Some(self.find_partial(&target, &begin, point)?),
            None => None,
        };
        let is_partial = existing.as_ref().is_some_and(Dataset::is_inconsistent);
        let existing = existing.filter(|_| !is_partial || resume.is_none());
        let mode = match (existing, begin.from_guid) {
            (Some(head), _) if is_partial => return Err(partial_error(&head)),
            (None, 0) => Mode::Full,
            (Some(head), 0) if resume.is_some() => {
                check_force(&head.name(), request)?;
                Mode::Replace
            }
            (Some(head), 0) => {
                check_replaceable(&head, request, &begin)?;
                Mode::Replace
            }
            (Some(head), guid) => self.plan_incremental(&head, Guid::new(guid), request, &begin)?,
            (None, guid) if begin.flags.has(BeginFlags::CLONE) => self.plan_clone(&target, guid)?,
            (None, _) => return Err(missing_target(&target)),
        };
        if matches!(mode, Mode::Full | Mode::Clone(_)) {
            self.find_parent(&target)?;
        }
        if let Some(base) = mode.base() {
            check_redaction(base, &redaction, &begin)?;
        }
        let form = (&mode, resume.is_some(), keydata.is_some());
        self.check_key_properties(request, form)?;
        if let Some(keydata) = &keydata {
            self.check_raw_stream(keydata, mode.base()).map_err(refused)?;
        }
        let snapshot = ReceivedSnapshot {
            name: part,
            guid: Guid::new(begin.to_guid),
            creation_time: begin.creation_time,
            ivset_guid: keydata.as_ref().map_or(0, |keydata| keydata.to_ivset_guid),
        };
        Ok(Plan { target, snapshot, mode, begin, resume, keydata, redaction })
    }

    /// Refuses a stream for which the pool lacks a feature.
    pub(super) fn check_stream_features(
        &self,
        target: &str,
        features: StreamFeatures,
    ) -> Result<()> {
        let mos = self.0.spa.synced_mos();
        let needed = NEEDED_FEATURES.into_iter().filter(|(bit, _)| features.has(*bit));
        for (_, feature) in needed {
            if !has_feature(&mos, feature) {
                let why = format!(
                    "the stream requires feature@{feature}, which is not enabled on this pool"
                );
                return Err(receive_error(target, why));
            }
        }
        Ok(())
    }

    /// The dataset that has the first part of a stream that was cut.
    fn find_partial(
        &self,
        target: &str,
        begin: &Begin,
        point: ResumePoint,
    ) -> Result<(ObjsetId, ResumeToken)> {
        for path in [hidden_path(target), target.to_owned()] {
            let Ok(found) = self.find_dataset(&path) else { continue };
            let state = found.resume_state();
            let state = state.map_err(|error| Error::from_dsl_error(&path, &error))?;
            let (Some(state), Some(id)) = (state, found.id()) else { continue };
            let known = (state.to_guid, state.from_guid, state.object, state.offset);
            if known != (begin.to_guid, begin.from_guid, point.object, point.offset) {
                let why = "the stream does not continue where the last one was interrupted; send it with the present receive_resume_token of the file system";
                return Err(receive_error(target, why));
            }
            return Ok((id, state));
        }
        Err(receive_error(target, "it does not have any resumable receive state"))
    }

    fn plan_clone(&self, target: &str, guid: u64) -> Result<Mode> {
        let _pin = self.pin();
        for dataset in self.tree()?.datasets() {
            let Ok(dataset) = dataset else { continue };
            if dataset.is_snapshot() && dataset.guid().get() == guid {
                return Ok(Mode::Clone(Box::new(dataset)));
            }
        }
        Err(receive_error(target, "the stream is of a clone, and its origin is not in this pool"))
    }

    fn plan_incremental(
        &self,
        head: &Dataset,
        guid: Guid,
        request: &ReceiveRequest,
        begin: &Begin,
    ) -> Result<Mode> {
        let name = head.name();
        let failed = |error: dsl::Error| Error::from_dsl_error(&name, &error);
        if head.is_inconsistent() {
            return Err(partial_error(head));
        }
        if head.is_snapshot() || head.id().is_none() {
            return Err(receive_error(&name, "it is neither a file system nor a volume"));
        }
        let snapshots = head.snapshots().map_err(failed)?;
        let Some(newest) = snapshots.last().filter(|newest| newest.guid() == guid) else {
            let known = snapshots.iter().find(|snapshot| snapshot.guid() == guid);
            let why = match known {
                Some(base) => format!(
                    "the stream is based on '{}', and there are newer snapshots; destroy them first: \
                     `zfs rollback -r {}`",
                    base.name(),
                    base.name()
                ),
                None => "its newest snapshot is not the one that the stream is based on".to_owned(),
            };
            return Err(receive_error(&name, why));
        };
        let large_blocks = Feature::by_name("large_blocks");
        let has_large_blocks = match large_blocks {
            Some(feature) => newest.zap_field(feature.guid).map_err(failed)?.is_some(),
            None => false,
        };
        if has_large_blocks && !begin.features.has(StreamFeatures::LARGE_BLOCKS) {
            let why = "it has large blocks, and the stream has none; send with -L";
            return Err(receive_error(&name, why));
        }
        if !request.force && self.is_modified_since(head, newest)? {
            let why = "it was modified since its newest snapshot; -F gives those changes up";
            return Err(receive_error(&name, why));
        }
        Ok(Mode::Incremental(Box::new(newest.clone())))
    }

    /// Whether files of a head changed since its newest snapshot. Its intent log does not count.
    fn is_modified_since(&self, head: &Dataset, newest: &Dataset) -> Result<bool> {
        self.sync()?;
        let name = head.name();
        let failed = |error: dsl::Error| Error::from_dsl_error(&name, &error);
        let head = self.find_dataset(&name)?;
        let [now, then] = [&head, newest].map(|it| it.objset(None));
        let (now, then) = (now.map_err(failed)?, then.map_err(failed)?);
        Ok(now.header().meta != then.header().meta)
    }

    /// Makes the received dataset the head, with its snapshot, in one txg.
    fn end_receive(
        &self,
        plan: &Plan,
        (id, request): (ObjsetId, &ReceiveRequest),
        warnings: &mut Vec<String>,
        exchange: &mut ExchangeHead<'_>,
    ) -> Result<()> {
        if !plan.has_head() {
            let (name, received) = (plan.target.clone(), plan.snapshot.clone());
            let (properties, kind) = (request.properties.clone(), plan.dataset_kind());
            let more = self.run_sync_task(move |active, change| {
                write::end_full_receive(change, &name, &received)
                    .map_err(|why| receive_error(&name, why))?;
                active.close_dataset(id);
                record_received(active, change, &name, &received);
                let (target, phase) = ((name.as_str(), kind), PropertyPhase::AfterData);
                let mut warnings = properties.apply(active, change, target, phase)?;
                let snapshot = format!("{name}@{}", received.name);
                warnings.extend(properties.apply_to_snapshot(change, &snapshot));
                Ok(warnings)
            })?;
            warnings.extend(more);
            return Ok(());
        }
        exchange(&plan.path(), &mut || {
            warnings.extend(self.exchange_head(plan, id, request)?);
            Ok(())
        })
    }

    /// Exchanges a head with the hidden dataset that was received. Without -F a head is refused that was
    /// changed since its newest snapshot.
    fn exchange_head(
        &self,
        plan: &Plan,
        id: ObjsetId,
        request: &ReceiveRequest,
    ) -> Result<Vec<String>> {
        let (name, received, kind) =
            (plan.target.clone(), plan.snapshot.clone(), plan.dataset_kind());
        let (force, properties) = (request.force, request.properties.clone());
        let keydata = plan.keydata.clone();
        let (heads, base) = ([name.clone()], plan.base().and_then(Dataset::id));
        self.run_retiring_task(&heads, move |active, change| {
            let fails = |error: dsl::Error| receive_error(&name, error);
            let head = write::head_id(change, &name).map_err(fails)?;
            if let Some(base) = base.filter(|_| !force)
                && differs(active, change, head, base)?
            {
                let why = "it was modified while the stream was being received";
                return Err(receive_error(&name, why));
            }
            write::end_incremental_receive(change, &name, &received).map_err(fails)?;
            if let Some(keydata) = &keydata {
                write::update_received_key(change, &name, keydata).map_err(fails)?;
            }
            active.close_dataset(id);
            active.close_dataset(head);
            record_received(active, change, &name, &received);
            let (target, phase) = ((name.as_str(), kind), PropertyPhase::Existing);
            let mut warnings = properties.apply(active, change, target, phase)?;
            let snapshot = format!("{name}@{}", received.name);
            warnings.extend(properties.apply_to_snapshot(change, &snapshot));
            Ok(warnings)
        })
    }

    /// Ends a receive that failed: keeps the partial state, or destroys it. Returns the error for
    /// the user.
    fn stop_receive(&self, plan: &Plan, id: ObjsetId, keeps_partial: bool, why: Error) -> Error {
        if !keeps_partial {
            self.abandon_receive(plan, id);
            return why;
        }
        // the position is written with the data; without this sync more is sent again
        let _ = self.sync();
        self.0.spa.close_dataset(id);
        let token = self.find_dataset(&plan.target).and_then(|target| {
            target.resume_token().map_err(|why| Error::from_dsl_error(&plan.target, &why))
        });
        let Ok(Some(token)) = token else { return why };
        Error::Refused {
            what: format!(
                "{why}.\nPartially received snapshot is saved.\nA resuming stream can be generated on \
                 the sending system by running:\n    zfs send -t {token}"
            ),
        }
    }

    /// Destroys a partial receive. If that fails too, the next import does it.
    fn abandon_receive(&self, plan: &Plan, id: ObjsetId) {
        self.0.spa.close_dataset(id);
        let path = plan.path();
        // the error that ended the receive is told
        let _ = self.run_destroying_task(move |_, change| {
            write::destroy_partial_receive(change, &path)
                .map_err(|why| Error::from_dsl_error(&path, &why))
        });
    }
}

fn partial_error(head: &Dataset) -> Error {
    let name = head.name();
    let why = match head.resume_state() {
        Ok(Some(_)) => {
            "destination contains partially-complete state from \"zfs receive -s\": resume it with \
             its receive_resume_token, or abort it with `zfs receive -A`"
        }
        _ => "another stream is being received into it",
    };
    receive_error(&name, why)
}

/// Whether the objects of a head differ from those of a snapshot, as of the syncing txg. Intent
/// logs do not count.
fn differs(
    active: &ActivePool,
    change: &write::SyncTaskContext<'_>,
    head: ObjsetId,
    snapshot: ObjsetId,
) -> Result<bool> {
    let meta = |id: ObjsetId| {
        let refused = |why: String| Error::Refused { what: why };
        let root = change.dataset_root(id).map_err(|why| refused(why.to_string()))?;
        let objset = Objset::open(active.source(), id, &root, None);
        Ok::<_, Error>(objset.map_err(|why| refused(why.to_string()))?.header().meta.clone())
    };
    Ok(meta(head)? != meta(snapshot)?)
}

fn record_received(
    active: &ActivePool,
    change: &write::SyncTaskContext<'_>,
    name: &str,
    received: &ReceivedSnapshot,
) {
    record_dataset_event(active, change, "receive", name, &format!("snap={}", received.name));
}
