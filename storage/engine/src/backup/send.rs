//! Streams out of a repository: a snapshot comes back into a pool by `zfs receive`.
//!
//! The stream is the one that the pool itself would send, byte for byte. Only the blocks that go into the
//! stream are read from the store.

use std::io::Write;
use std::sync::Arc;

use dmu::Objset;
use dsl::{IvsetGuids, KeyFormat, Pbkdf2Params, ResumeToken, UserKeyForm, raw_keydata};
use ondisk::blkptr::Regular;
use ondisk::stream::CryptKeydata;
use repository::{Manifest, SnapshotSummary};
use send::{
    FeatureFacts, ResumePoint, SendBase, SendOptions, SendSource, StoredBlocks, StreamWriter,
};
use units::{ObjsetId, Txg, Zbookmark};
use zio::StoredReader;

use super::BackupRepository;
use crate::pool::send_error;
use crate::{Error, Result};

/// A stream out of a repository.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "options of a stream, each on its own")]
pub struct RepositorySend {
    /// The snapshot, by its full name; a dataset's name is its newest snapshot. With a resume token it is not
    /// needed.
    pub snapshot: String,
    /// The snapshot on which the stream is based, by its full name; none: a full stream.
    pub base: Option<String>,
    /// Blocks above 128 KiB are sent whole (-L).
    pub large_blocks: bool,
    /// Blocks that are stored in their pointers are sent as such (-e).
    pub embedded: bool,
    /// Blocks are sent as they are compressed in the repository (-c).
    pub compressed: bool,
    /// Blocks are sent as they are stored, still encrypted; no key is needed (-w).
    pub raw: bool,
    /// The receive_resume_token of an interrupted stream (-t): the stream resumes there.
    pub resume: Option<String>,
}

/// A stream that was checked.
struct Plan {
    snapshot: SnapshotSummary,
    base: Option<SnapshotSummary>,
    options: SendOptions,
    resume: Option<ResumePoint>,
}

impl BackupRepository {
    /// Sends a snapshot of the repository. Returns the bytes of the stream.
    pub fn send(&self, request: &RepositorySend, out: &mut dyn Write) -> Result<u64> {
        let plan = self.plan_send(request)?;
        let manifest = self.manifest(&plan.snapshot)?;
        let name = manifest.name();
        let reader = self.inner().stored_reader(&manifest).map_err(Error::from_repository_error)?;
        let facts = feature_facts(&manifest).ok_or_else(|| too_old(&name))?;
        let is_raw = plan.options.raw && facts.encrypted;
        let objset = if is_raw {
            raw_objset(&manifest, &reader)?
        } else {
            self.unlocked_objset(&manifest).map_err(|error| explain_locked(error, &name))?
        };
        let failed = |error: send::Error| send_error(&name, &error);
        let features = send::stream_features(&objset, plan.options, facts).map_err(failed)?;
        let keydata =
            if is_raw { self.keydata(&manifest, &objset, plan.base.as_ref())? } else { None };
        let base = plan.base.as_ref().map(|base| SendBase {
            guid: base.guid,
            txg: Txg::new(base.txg),
            is_origin: is_origin(&manifest, base),
        });
        let mut writer = StreamWriter::new(out);
        let source = SendSource {
            objset: &objset,
            name: &name,
            guid: manifest.guid,
            is_partial: false,
            creation_time: manifest.creation,
            case_insensitive: manifest.property("casesensitivity") == Some("insensitive"),
            base,
            features,
            resume: plan.resume,
            keydata,
            redaction: send::Redaction::default(),
            stored: &StoredSnapshot(&reader),
        };
        send::send(&source, &mut writer).map_err(failed)?;
        Ok(writer.bytes())
    }

    fn plan_send(&self, request: &RepositorySend) -> Result<Plan> {
        if let Some(token) = &request.resume {
            return self.plan_resumed_send(token);
        }
        let options = SendOptions {
            large_blocks: request.large_blocks,
            embedded: request.embedded,
            compressed: request.compressed,
            raw: request.raw,
        };
        let snapshot = self.find_snapshot(&request.snapshot)?;
        let base = request.base.as_ref().map(|base| self.find_base(&snapshot, base)).transpose()?;
        Ok(Plan { snapshot, base, options, resume: None })
    }

    fn plan_resumed_send(&self, token: &str) -> Result<Plan> {
        let failed = |error: dsl::Error| Error::from_dsl_error(token, &error);
        let token = ResumeToken::decode(token).map_err(failed)?;
        let find = |guid: u64| {
            let found = self.snapshots().into_iter().find(|it| it.guid == guid);
            found.ok_or_else(|| Error::Refused {
                what: format!(
                    "cannot resume send: the snapshot of '{}' with guid {guid} is not in {}; abort the \
                     receive with `zfs receive -A`",
                    token.to_name,
                    self.location()
                ),
            })
        };
        let base = if token.from_guid == 0 { None } else { Some(find(token.from_guid)?) };
        let options = SendOptions {
            large_blocks: token.large_blocks,
            embedded: token.embedded,
            compressed: token.compressed,
            raw: token.raw,
        };
        let resume = Some(ResumePoint { object: token.object, offset: token.offset });
        Ok(Plan { snapshot: find(token.to_guid)?, base, options, resume })
    }

    /// The base of an increment. Only the chain of bases in the head proves that a snapshot descends from
    /// another: a rollback may have destroyed an older one of the same name.
    fn find_base(&self, snapshot: &SnapshotSummary, name: &str) -> Result<SnapshotSummary> {
        let wanted = self.find_snapshot(name)?;
        let all = self.snapshots();
        let mut at = snapshot.clone();
        while let Some(guid) = at.base {
            let older =
                |it: &&SnapshotSummary| it.guid == guid && it.pool == at.pool && it.txg < at.txg;
            // each step goes to an older txg, so that this ends
            let Some(base) = all.iter().find(older).cloned() else { break };
            if base.guid == wanted.guid {
                return Ok(base);
            }
            at = base;
        }
        let (snapshot, location) = (snapshot.name(), self.location());
        Err(Error::Refused {
            what: format!(
                "cannot send '{snapshot}' from '{name}': it is not an earlier snapshot from which \
                 '{snapshot}' descends in {location}; without -i the whole snapshot is sent"
            ),
        })
    }

    /// The wrapped key for a raw stream.
    fn keydata(
        &self,
        manifest: &Manifest,
        objset: &Objset,
        base: Option<&SnapshotSummary>,
    ) -> Result<Option<CryptKeydata>> {
        let Some(key) = &manifest.key else { return Ok(None) };
        let name = manifest.name();
        let unreadable = |why: String| {
            let subject = format!("the manifest of '{name}'");
            Error::Unreadable { subject, why }
        };
        let ivset = |of: &Manifest| of.key.as_ref().and_then(|key| key.ivset_guid);
        let from = match base {
            Some(base) => ivset(&self.manifest(base)?).ok_or_else(|| too_old(&base.name()))?,
            None => 0,
        };
        let ivsets = IvsetGuids { to: ivset(manifest).ok_or_else(|| too_old(&name))?, from };
        let user_key = UserKeyForm {
            format: KeyFormat::from_name(&key.format),
            stretching: Pbkdf2Params { salt: key.pbkdf2_salt, iterations: key.pbkdf2_iterations },
        };
        let wrapped = key.wrapped().map_err(unreadable)?;
        let keydata = raw_keydata(&wrapped, objset.header(), user_key, ivsets);
        keydata.map(Some).map_err(|why| unreadable(why.to_string()))
    }
}

/// The object set of an encrypted snapshot, read without its key.
fn raw_objset(manifest: &Manifest, reader: &StoredReader) -> Result<Objset> {
    let unreadable = |why: String| Error::Unreadable { subject: manifest.name(), why };
    let root = manifest.root_pointer().map_err(unreadable)?;
    let source = Arc::new(reader.with_raw_dnodes());
    Objset::open(source, ObjsetId::new(manifest.objset), &root, None)
        .map_err(|why| unreadable(why.to_string()))
}

/// Whether a base is of the file system that the snapshot's one is a clone of.
fn is_origin(manifest: &Manifest, base: &SnapshotSummary) -> bool {
    manifest.origin == Some(base.guid)
        || (manifest.origin.is_some() && base.dataset != manifest.dataset)
}

fn too_old(name: &str) -> Error {
    Error::Unsupported {
        what: format!(
            "'{name}' was backed up by an older version, which did not record what a stream needs; \
             `poolhouse backup restore` copies its files, and newer snapshots can be sent"
        ),
    }
}

fn explain_locked(error: Error, name: &str) -> Error {
    let Error::Locked { root, .. } = error else { return error };
    Error::Refused {
        what: format!(
            "cannot send '{name}': it is encrypted; send it raw with -w, which needs no key, or give the \
             key with --key {root}=FILE"
        ),
    }
}

/// Reads blocks of a snapshot as they are stored.
struct StoredSnapshot<'a>(&'a StoredReader);

impl StoredBlocks for StoredSnapshot<'_> {
    fn read_stored(&self, block: &Regular, zbookmark: Zbookmark) -> send::Result<Vec<u8>> {
        Ok(self.0.read_stored(block, zbookmark)?)
    }
}

/// A feature by its short name, and whether it is in use.
type FeatureField = (&'static str, fn(&mut FeatureFacts) -> &mut bool);

const FEATURES: [FeatureField; 7] = [
    ("embedded_data", |facts| &mut facts.pool_embedded_data),
    ("lz4_compress", |facts| &mut facts.pool_lz4),
    ("large_blocks", |facts| &mut facts.large_blocks),
    ("large_dnode", |facts| &mut facts.large_dnode),
    ("zstd_compress", |facts| &mut facts.zstd),
    ("longname", |facts| &mut facts.long_name),
    ("large_microzap", |facts| &mut facts.large_microzap),
];

/// The features in use, by their short names, as a manifest holds them.
pub(crate) fn feature_names(mut facts: FeatureFacts) -> Vec<String> {
    let used = FEATURES.iter().filter(|(_, field)| *field(&mut facts));
    used.map(|(name, _)| (*name).to_owned()).collect()
}

/// The features in use as of a manifest; none: an older version made it and did not list them.
fn feature_facts(manifest: &Manifest) -> Option<FeatureFacts> {
    let names = manifest.features.as_ref()?;
    let mut facts = FeatureFacts { encrypted: manifest.key.is_some(), ..FeatureFacts::default() };
    for (name, field) in FEATURES {
        *field(&mut facts) = names.iter().any(|it| it == name);
    }
    Some(facts)
}
