//! Sending snapshots of an imported pool.

use std::io::Write;

use dmu::Objset;
use dsl::Dataset;
use dsl::ResumeToken;
use dsl::write::features;
use ondisk::blkptr::Regular;
use ondisk::dsl::Dataset as DatasetPhys;
use ondisk::feature::Feature;
use ondisk::stream::{CryptKeydata, StreamFeatures};
use send::{FeatureFacts, SendBase, SendSource, StoredBlocks, StreamWriter};
use units::Zbookmark;

use super::Pool;
use super::head_send::sent_name;
use super::send_plan::{SendPlan, SendStep};
use crate::pool::handles::Streams;
use crate::{Error, Result};

/// Snapshots to be sent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "options of a stream, each on its own")]
pub struct SendRequest {
    /// The last snapshot, by its full name, or a file system or volume as it is now. With a resume token it is not needed.
    pub snapshot: String,
    /// The snapshot or bookmark on which the stream is based, by its full name; none: a full stream.
    pub base: Option<String>,
    /// All snapshots between the base and the last one, too (-I).
    pub intermediates: bool,
    /// The file systems and volumes below, too, with their properties (-R).
    pub replicate: bool,
    /// Properties (-p).
    pub properties: bool,
    /// With `replicate`: file systems without the snapshot are left out (-s).
    pub skip_missing: bool,
    /// Blocks above 128 KiB are sent whole (-L).
    pub large_blocks: bool,
    /// Blocks that are stored in their pointers are sent as such (-e).
    pub embedded: bool,
    /// Blocks are sent as they are compressed on disk (-c).
    pub compressed: bool,
    /// Blocks are sent as they are on disk, still encrypted; no key is needed (-w).
    pub raw: bool,
    /// With `replicate`: file systems and volumes that are left out, with all below them (-X).
    pub excluded: Vec<String>,
    /// Properties are sent as they were received (-b).
    pub backup: bool,
    /// The holds of the snapshots are sent, too (-h).
    pub holds: bool,
    /// The redaction bookmark whose blocks are left out, by its name behind the `#` (--redact).
    pub redact: Option<String>,
    /// `snapshot` is a file system or volume with the saved part of an interrupted receive, and that is sent (-S).
    pub saved: bool,
    /// The receive_resume_token of an interrupted stream (-t): the stream resumes there.
    pub resume: Option<String>,
}

impl SendRequest {
    /// The request that a resume token stands for, but for the snapshot, which `plan_send` finds.
    pub(super) fn with_token(&self, token: &ResumeToken) -> Self {
        Self {
            large_blocks: token.large_blocks,
            embedded: token.embedded,
            compressed: token.compressed,
            raw: token.raw,
            ..self.clone()
        }
    }
}

impl Streams<'_> {
    /// Sends snapshots. Returns the bytes of the stream. The snapshots are not destroyed meanwhile.
    pub fn send(self, request: &SendRequest, out: &mut dyn Write) -> Result<u64> {
        let plan = self.pool.streams().plan_send(request)?;
        self.pool.streams().send_planned(&plan, out)
    }

    /// Sends the planned stream. Returns its bytes.
    pub fn send_planned(self, plan: &SendPlan, out: &mut dyn Write) -> Result<u64> {
        let mut writer = StreamWriter::new(out);
        let failed = |error: send::Error| send_error(plan.name(), &error);
        if let Some((begin, list)) = &plan.package {
            writer.begin_package(begin.clone(), list).map_err(failed)?;
        }
        for step in &plan.steps {
            let begun = writer.bytes();
            if let Err(why) = self.pool.send_step(plan, step, &mut writer) {
                // so that a receiver keeps the snapshots before this one, as with OpenZFS
                if plan.package.is_some() && writer.bytes() == begun {
                    writer.end_package().map_err(failed)?;
                }
                return Err(why);
            }
        }
        if plan.package.is_some() {
            writer.end_package().map_err(failed)?;
        }
        Ok(writer.bytes())
    }
}

impl Pool {
    fn send_step(
        &self,
        plan: &SendPlan,
        step: &SendStep,
        writer: &mut StreamWriter<'_>,
    ) -> Result<()> {
        let name = &step.snapshot;
        let dataset =
            self.find_dataset(plan.saved.as_ref().map_or(name, |saved| &saved.dataset))?;
        if plan.saved.is_none() && dataset.guid().get() != step.guid {
            return Err(Error::NoSuchDataset { name: name.clone() });
        }
        let base = step.base.as_deref().map(|base| self.send_base(&dataset, base)).transpose()?;
        let base = if let Some(saved) = &plan.saved {
            saved.base
        } else {
            super::incomplete::check_received(&dataset)?;
            base
        };
        let dsl_failed = |error: dsl::Error| match error {
            dsl::Error::KeyNotLoaded { .. } => Error::Refused {
                what: format!(
                    "cannot send '{name}': source key must be loaded: `zfs load-key {}`, or send it \
                     as it is stored with -w",
                    dataset.dir().path()
                ),
            },
            error => Error::from_dsl_error(name, &error),
        };
        let facts = self.feature_facts(&dataset)?;
        let is_raw = plan.options.raw && facts.encrypted;
        let objset = if is_raw {
            self.raw_objset(&dataset)?
        } else {
            dataset.open_objset().map_err(dsl_failed)?
        };
        let keydata =
            if is_raw { self.keydata(&dataset, &objset, step.base.as_deref())? } else { None };
        let failed = |error: send::Error| send_error(name, &error);
        let redaction = self.redaction(&dataset, step.base.as_deref(), plan.redact.as_deref())?;
        let mut features = send::stream_features(&objset, plan.options, facts).map_err(failed)?;
        if redaction.snaps.is_some() {
            features = features.with(StreamFeatures::REDACTED);
        }
        if is_raw && (redaction.snaps.is_some() || redaction.base_snaps.is_some()) {
            let what = "a raw stream that is redacted, or from a redaction bookmark".to_owned();
            return Err(failed(send::Error::Unsupported { what }));
        }
        let phys = dataset.phys();
        let source = SendSource {
            objset: &objset,
            name: &sent_name(name),
            guid: step.guid,
            is_partial: plan.saved.is_some(),
            creation_time: phys.map_or(0, |phys| phys.creation_time),
            case_insensitive: phys.is_some_and(|phys| phys.flags & DatasetPhys::CASELESS != 0),
            base,
            features,
            resume: plan.resume,
            keydata,
            redaction,
            stored: &BlockReader(self),
        };
        send::send(&source, writer).map_err(failed)
    }

    /// The base of an incremental stream: an older snapshot or bookmark of the same file system or
    /// volume, or of one that it is a clone of.
    pub(super) fn send_base(&self, dataset: &Dataset, base: &str) -> Result<SendBase> {
        let found = self.find_dataset(base)?;
        let refused = |why: &str| Error::Refused {
            what: format!("cannot send '{}' from '{base}': {why}", dataset.name()),
        };
        let snapshot_txg = found.phys().filter(|_| found.is_snapshot()).map(|it| it.creation_txg);
        let bookmark = found.bookmark_record();
        // the redaction bookmark of this very snapshot is the base of its missing blocks
        let is_own_redaction =
            bookmark.is_some_and(|it| it.redaction.exists() && it.guid == dataset.guid());
        let txg = snapshot_txg.or_else(|| bookmark.map(|it| it.creation_txg));
        let txg = txg.ok_or_else(|| refused("it is neither a snapshot nor a bookmark"))?;
        let failed = |error: dsl::Error| Error::from_dsl_error(base, &error);
        if !is_own_redaction && !is_ancestor(dataset, &found, bookmark.is_none()).map_err(failed)? {
            return Err(refused("it is not an earlier snapshot of the same file system or volume"));
        }
        let is_origin = found.dir().path() != dataset.dir().path();
        Ok(SendBase { guid: found.guid().get(), txg, is_origin })
    }

    /// The wrapped key for the raw stream of an encrypted snapshot.
    fn keydata(
        &self,
        dataset: &Dataset,
        objset: &Objset,
        base: Option<&str>,
    ) -> Result<Option<CryptKeydata>> {
        let failed = |error: dsl::Error| Error::from_dsl_error(&dataset.name(), &error);
        let base = base.map(|base| self.find_dataset(base)).transpose()?;
        let from = base.map_or(Ok(0), |base| base.ivset_guid()).map_err(failed)?;
        dataset.crypt_keydata(objset.header(), from).map_err(failed)
    }

    /// The features that the blocks of a dataset and of its pool use.
    pub(super) fn feature_facts(&self, dataset: &Dataset) -> Result<FeatureFacts> {
        let mos = self.0.spa.synced_mos();
        let is_active = |name: &str| {
            let uses = |feature| features::refcount(&mos, feature).ok().flatten();
            Feature::by_name(name).and_then(uses).is_some_and(|count| count > 0)
        };
        let failed = |error: dsl::Error| Error::from_dsl_error(&dataset.name(), &error);
        let uses = |name: &str| match Feature::by_name(name) {
            Some(feature) => Ok(dataset.zap_field(feature.guid).map_err(failed)?.is_some()),
            None => Ok(false),
        };
        Ok(FeatureFacts {
            pool_embedded_data: is_active("embedded_data"),
            pool_lz4: is_active("lz4_compress"),
            large_blocks: uses("large_blocks")?,
            large_dnode: uses("large_dnode")?,
            zstd: uses("zstd_compress")?,
            long_name: uses("longname")?,
            large_microzap: uses("large_microzap")?,
            encrypted: dataset.key_object().map_err(failed)?.is_some(),
        })
    }
}

/// Whether `base` precedes a snapshot: in its own file system, or as an origin of that, or before one.
/// The snapshot of a bookmark may be destroyed, so only its file system and age count.
fn is_ancestor(dataset: &Dataset, base: &Dataset, is_snapshot: bool) -> dsl::Result<bool> {
    let birth = |of: &Dataset| {
        of.phys()
            .map(|phys| phys.creation_txg)
            .or_else(|| of.bookmark_record().map(|mark| mark.creation_txg))
    };
    let mut at = dataset.clone();
    loop {
        if at.dir().path() == base.dir().path() {
            // a head follows all its snapshots
            if !at.is_snapshot() {
                return Ok(true);
            }
            let is_same = is_snapshot && at.id() == base.id() && at.id() != dataset.id();
            return Ok(is_same || birth(base) < birth(&at));
        }
        // an origin is older than its clone, so that this ends
        let Some(origin) = Dataset::clone_origin(&head_of(&at)?)? else { return Ok(false) };
        at = origin;
    }
}

/// The file system or volume of a snapshot.
fn head_of(snapshot: &Dataset) -> dsl::Result<Dataset> {
    snapshot.tree().find(snapshot.dir().path())
}

/// Reads blocks of a pool as they are stored.
struct BlockReader<'a>(&'a Pool);

impl StoredBlocks for BlockReader<'_> {
    fn read_stored(&self, block: &Regular, zbookmark: Zbookmark) -> send::Result<Vec<u8>> {
        Ok(self.0.0.spa.reader().read_stored(block, zbookmark)?)
    }
}

pub(crate) fn send_error(name: &str, error: &send::Error) -> Error {
    Error::Refused { what: format!("cannot send '{name}': {error}") }
}
