//! The plan of a send: the snapshots in their order, the list of a compound stream, and estimates.

use std::collections::BTreeSet;

use dsl::{Dataset, DatasetKind, DatasetTree, PropertyValue, ResumeToken};
use ondisk::stream::{
    Begin, BeginFlags, Package, PackagedDataset, PackagedValue, StreamFeatures, StreamKind,
};
use send::{ResumePoint, SendOptions};
use units::Txg;

use super::head_send::sent_head;
use super::open_volumes::DatasetHold;
use super::redact::{find_redacted_base, find_redaction_bookmark};
use super::saved_send::SavedReceive;
use super::{Pool, SendRequest};
use crate::pool::handles::Streams;
use crate::{Error, Result};

/// Bytes of a record, and of a block pointer.
const RECORD: u64 = 312;
const POINTER: u64 = 128;
/// Properties about encryption. The receiver has its own.
const KEY_PROPERTIES: [&str; 4] = ["keylocation", "keyformat", "encryption", "pbkdf2iters"];

/// A send that was checked. Its snapshots are not destroyed while this lives.
pub struct SendPlan {
    pub(super) steps: Vec<SendStep>,
    pub(super) package: Option<(Begin, Vec<u8>)>,
    pub(super) options: SendOptions,
    pub(super) resume: Option<ResumePoint>,
    /// The redaction bookmark, by its name behind the `#`.
    pub(super) redact: Option<String>,
    /// The interrupted receive whose saved part is sent.
    pub(super) saved: Option<SavedReceive>,
    pub(super) _holds: Vec<DatasetHold>,
}

/// A snapshot that will be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SendStep {
    /// Its full name.
    pub snapshot: String,
    /// The full name of the snapshot or bookmark that the receiver has; none: a full stream.
    pub base: Option<String>,
    /// The estimated bytes of the stream.
    pub bytes: u64,
    pub(super) guid: u64,
    /// The base is a snapshot of another file system: the origin of a clone.
    pub is_from_origin: bool,
}

impl std::fmt::Debug for SendPlan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SendPlan({:?})", self.steps)
    }
}

impl SendPlan {
    /// The snapshots, in their order.
    pub fn steps(&self) -> &[SendStep] {
        &self.steps
    }

    /// Whether several snapshots or properties may be in the stream.
    pub const fn is_package(&self) -> bool {
        self.package.is_some()
    }

    pub(super) fn name(&self) -> &str {
        self.steps.last().map_or("", |step| &step.snapshot)
    }
}

impl Streams<'_> {
    /// Checks a send and estimates its size.
    pub fn plan_send(self, request: &SendRequest) -> Result<SendPlan> {
        if sends_head(request) && !self.pool.is_read_only() {
            // what was written last is sent as well
            self.pool.sync()?;
        }
        let _pin = self.pool.pin();
        let tree = self.pool.tree()?;
        if let Some(token) = &request.resume {
            return self.pool.plan_resumed_send(&tree, request, token);
        }
        if request.saved {
            return self.pool.plan_saved_send(&tree, request);
        }
        let Some((head, part)) = request.snapshot.split_once('@') else {
            return self.pool.plan_head_send(&tree, request);
        };
        let top = self.pool.find_dataset(head)?;
        let last = self.pool.find_dataset(&request.snapshot)?;
        let (mut steps, mut package) = (Vec::new(), None);
        if request.replicate || request.intermediates || request.properties {
            let list = self.pool.plan_package(&tree, request, (&top, part), &mut steps)?;
            package = Some((package_begin(request), list));
        } else {
            steps.push(self.pool.plan_step(
                &last,
                request.base.as_deref(),
                request.compressed || request.raw,
            )?);
        }
        let holds = self.pool.hold_snapshots(&tree, &steps);
        let options = options(request);
        let redact = request.redact.clone();
        for step in steps.iter().filter(|_| redact.is_some()) {
            let snapshot = self.pool.find_dataset(&step.snapshot)?;
            self.pool.redaction(&snapshot, step.base.as_deref(), redact.as_deref())?;
        }
        Ok(SendPlan { steps, package, options, resume: None, redact, saved: None, _holds: holds })
    }
}

impl Pool {
    fn plan_resumed_send(
        &self,
        tree: &DatasetTree,
        request: &SendRequest,
        token: &str,
    ) -> Result<SendPlan> {
        let failed = |error: dsl::Error| Error::from_dsl_error(token, &error);
        let token = ResumeToken::decode(token).map_err(failed)?;
        // a copy received into this pool has the same guids: the token's own name comes first, and a
        // base must be an earlier snapshot of that one
        let with_guid = |guid: u64| {
            let all = tree.datasets().filter_map(std::result::Result::ok);
            all.filter(move |it| it.guid().get() == guid && it.name().contains(['@', '#']))
        };
        let named = with_guid(token.to_guid).find(|it| it.name() == token.to_name);
        let is_sent = |head: &Dataset| head.guid().get() == token.to_guid && !head.is_snapshot();
        let head = sent_head(&token.to_name).and_then(|head| tree.find(head).ok()).filter(is_sent);
        let named = named.or(head);
        let snapshot = named.or_else(|| with_guid(token.to_guid).find(Dataset::is_snapshot));
        let snapshot = snapshot.ok_or_else(|| {
            let what = format!(
                "cannot resume send: '{}' used in the initial send no longer exists; abort the receive \
                 with `zfs receive -A`",
                token.to_name
            );
            Error::Refused { what }
        })?;
        let redact = match &token.redact_snaps {
            Some(snaps) => Some(find_redaction_bookmark(tree, &snapshot, snaps)?),
            None => None,
        };
        let base = match token.from_guid {
            0 => None,
            guid if token.base_redact_snaps.is_some() => {
                let snaps = token.base_redact_snaps.as_deref().unwrap_or_default();
                Some(find_redacted_base(tree, guid, snaps)?)
            }
            guid => {
                let mut bases = with_guid(guid);
                let usable = bases.find(|it| self.send_base(&snapshot, &it.name()).is_ok());
                Some(usable.ok_or_else(|| {
                    let what = format!(
                        "cannot resume send: incremental source {guid:#x} no longer exists"
                    );
                    Error::Refused { what }
                })?)
            }
        };
        let base = base.as_ref().map(Dataset::name);
        let (base, is_compressed) = (base.as_deref(), token.compressed || token.raw);
        let mut step = if snapshot.is_snapshot() {
            self.plan_step(&snapshot, base, is_compressed)?
        } else {
            self.plan_head_step(&snapshot, base, is_compressed)?
        };
        step.bytes = step.bytes.checked_sub(token.bytes).unwrap_or(RECORD);
        let steps = vec![step];
        Ok(SendPlan {
            package: None,
            options: options(&request.with_token(&token)),
            resume: Some(ResumePoint { object: token.object, offset: token.offset }),
            redact: redact.and_then(|mark| mark.short_name().map(str::to_owned)),
            saved: None,
            _holds: self.hold_snapshots(tree, &steps),
            steps,
        })
    }

    pub(super) fn hold_snapshots(
        &self,
        tree: &DatasetTree,
        steps: &[SendStep],
    ) -> Vec<DatasetHold> {
        let names = steps.iter().flat_map(|step| step.base.iter().chain([&step.snapshot]));
        let ids = names.filter_map(|name| tree.find(name).ok()?.id());
        ids.map(|id| self.0.dataset_holds.hold(id)).collect()
    }

    /// One snapshot of the stream.
    fn plan_step(
        &self,
        snapshot: &Dataset,
        base: Option<&str>,
        is_compressed: bool,
    ) -> Result<SendStep> {
        let name = snapshot.name();
        if !snapshot.is_snapshot() {
            let what = format!("cannot send '{name}': it is not a snapshot (FILESYSTEM@NAME)");
            return Err(Error::Usage { what });
        }
        self.step(snapshot, base, is_compressed)
    }

    /// The same for a snapshot or head that was checked.
    pub(super) fn step(
        &self,
        snapshot: &Dataset,
        base: Option<&str>,
        is_compressed: bool,
    ) -> Result<SendStep> {
        let name = snapshot.name();
        let mut is_from_origin = false;
        let base_dataset = match base {
            Some(base) => {
                is_from_origin = self.send_base(snapshot, base)?.is_origin;
                Some(self.find_dataset(base)?)
            }
            None => None,
        };
        let bytes = estimate(snapshot, base_dataset.as_ref(), is_compressed)
            .map_err(|error| Error::from_dsl_error(&name, &error))?;
        let guid = snapshot.guid().get();
        Ok(SendStep { snapshot: name, base: base.map(str::to_owned), bytes, guid, is_from_origin })
    }

    /// The steps of a compound stream, and its list.
    fn plan_package(
        &self,
        tree: &DatasetTree,
        request: &SendRequest,
        (top, part): (&Dataset, &str),
        steps: &mut Vec<SendStep>,
    ) -> Result<Vec<u8>> {
        let from = request.base.as_deref();
        let range = Range {
            from: from.and_then(|base| base.split_once('@')).map(|(_, part)| part),
            to: part,
            to_txg: self.snapshot_txg(&request.snapshot)?,
            all: request.intermediates || (request.replicate && from.is_none()),
        };
        check_range_base(request, top)?;
        let is_in_package = |path: &str| {
            let below = path.strip_prefix(top.dir().path());
            below
                .is_some_and(|rest| rest.is_empty() || (request.replicate && rest.starts_with('/')))
        };
        let mut heads = Vec::new();
        for head in tree.heads_matching(&is_in_package) {
            let head = head.map_err(|error| Error::from_dsl_error(&top.name(), &error))?;
            if !head.is_inconsistent() {
                heads.push(head);
            }
        }
        let mut package = Package {
            from_snapshot: range.from.filter(|_| range.all || request.replicate).map(str::to_owned),
            to_snapshot: part.to_owned(),
            is_recursive: request.replicate,
            is_raw: request.raw,
            ..Package::default()
        };
        for head in in_origin_order(heads)? {
            let Some(chosen) = choose_snapshots(&head, &range, request)? else { continue };
            // the list includes skipped ones, so that a receiver does not take them for destroyed
            let name = head.name();
            let is_excluded = |above: &String| {
                name.strip_prefix(above.as_str())
                    .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
            };
            if !request.excluded.iter().any(is_excluded) {
                self.push_steps(&head, &chosen, request, &is_in_package, steps)?;
            }
            let failed = |error: dsl::Error| Error::from_dsl_error(&head.name(), &error);
            let listed = packaged(&head, &chosen, (&package, request)).map_err(failed)?;
            package.datasets.push(listed);
        }
        let has_list = request.replicate || request.properties;
        Ok(if has_list { package.encode() } else { Vec::new() })
    }

    fn snapshot_txg(&self, name: &str) -> Result<Txg> {
        let found = self.find_dataset(name)?;
        Ok(found.phys().map_or(Txg::ZERO, |phys| phys.creation_txg))
    }

    fn push_steps(
        &self,
        head: &Dataset,
        chosen: &Chosen,
        request: &SendRequest,
        is_in_package: &dyn Fn(&str) -> bool,
        steps: &mut Vec<SendStep>,
    ) -> Result<()> {
        let failed = |error: dsl::Error| Error::from_dsl_error(&head.name(), &error);
        let own_base = request.base.clone().filter(|_| !request.replicate);
        let mut base = chosen.base.as_ref().map(Dataset::name).or(own_base);
        if base.is_none() {
            let origin = head.clone_origin().map_err(failed)?;
            base = origin.filter(|it| is_in_package(it.dir().path())).map(|it| it.name());
        }
        for snapshot in &chosen.sent {
            steps.push(self.plan_step(
                snapshot,
                base.as_deref(),
                request.compressed || request.raw,
            )?);
            base = Some(snapshot.name());
        }
        Ok(())
    }
}

/// Which snapshots of each file system are sent.
struct Range<'a> {
    /// The part of the base's name behind the `@`.
    from: Option<&'a str>,
    to: &'a str,
    /// The txg of the top file system's last snapshot.
    to_txg: Txg,
    /// Include the snapshots between.
    all: bool,
}

/// Snapshots of a file system.
struct Chosen {
    base: Option<Dataset>,
    sent: Vec<Dataset>,
}

/// The snapshots of a file system that are sent; `None` if it is left out.
fn choose_snapshots(
    head: &Dataset,
    range: &Range<'_>,
    request: &SendRequest,
) -> Result<Option<Chosen>> {
    let name = head.name();
    let failed = |error: dsl::Error| Error::from_dsl_error(&name, &error);
    let snapshots = head.snapshots().map_err(failed)?;
    let find = |part: &str| snapshots.iter().position(|it| it.short_name() == Some(part));
    let Some(to) = find(range.to) else {
        // it was made after the snapshot
        let is_newer = head.phys().is_some_and(|phys| phys.creation_txg > range.to_txg);
        if request.skip_missing || is_newer {
            return Ok(None);
        }
        let what = format!(
            "cannot send '{name}@{}': the snapshot does not exist; -s leaves file systems without \
             it out",
            range.to
        );
        return Err(Error::Refused { what });
    };
    let from = range.from.and_then(find);
    if let (Some(at), Some(part)) = (from, range.from)
        && at >= to
    {
        let what = format!(
            "WARNING: could not send {name}@{}:\nincremental source ({name}@{part}) is not earlier than it",
            range.to
        );
        return Err(Error::Refused { what });
    }
    let first = from.map_or(0, |from| from + 1);
    let between = snapshots.get(first..=to).unwrap_or_default();
    let is_sent = |it: &&Dataset| {
        let has_clones = it.phys().is_some_and(|phys| phys.children > 1);
        range.all || it.short_name() == Some(range.to) || (request.replicate && has_clones)
    };
    let base = from.and_then(|from| snapshots.get(from)).cloned();
    Ok(Some(Chosen { base, sent: between.iter().filter(is_sent).cloned().collect() }))
}

pub(super) fn options(request: &SendRequest) -> SendOptions {
    SendOptions {
        large_blocks: request.large_blocks,
        embedded: request.embedded,
        compressed: request.compressed,
        raw: request.raw,
    }
}

/// Whether the stream is of a file system or volume as it is now.
fn sends_head(request: &SendRequest) -> bool {
    match &request.resume {
        Some(token) => {
            let token = ResumeToken::decode(token);
            token.is_ok_and(|token| sent_head(&token.to_name).is_some())
        }
        None => !request.saved && sent_head(&request.snapshot).is_some(),
    }
}

/// The base of a compound stream is a snapshot of the same file system, or with -I the origin of a clone.
fn check_range_base(request: &SendRequest, top: &Dataset) -> Result<()> {
    let Some(base) = &request.base else { return Ok(()) };
    let refused = |why: &str| {
        let what = format!("cannot send '{}' from '{base}': {why}", request.snapshot);
        Err(Error::Refused { what })
    };
    let Some((head, _)) = base.split_once('@') else {
        let is_plain = !request.replicate && !request.intermediates;
        return if is_plain {
            Ok(())
        } else {
            refused("-R and -I need a snapshot, not a bookmark")
        };
    };
    if request.replicate && head != top.name() {
        return refused("it is not an earlier snapshot of the same file system");
    }
    Ok(())
}

/// The file systems in an order in which each clone follows its origin.
fn in_origin_order(heads: Vec<Dataset>) -> Result<Vec<Dataset>> {
    let known: BTreeSet<String> = heads.iter().map(Dataset::name).collect();
    let (mut done, mut ordered) = (BTreeSet::new(), Vec::new());
    let mut left = heads;
    while !left.is_empty() {
        let (mut later, before) = (Vec::new(), ordered.len());
        for head in left {
            let name = head.name();
            let origin = head.clone_origin().map_err(|why| Error::from_dsl_error(&name, &why))?;
            let origin = origin.map(|it| it.dir().path().to_owned());
            let waits = origin.is_some_and(|it| known.contains(&it) && !done.contains(&it));
            if waits {
                later.push(head);
            } else {
                done.insert(name);
                ordered.push(head);
            }
        }
        // clones depend on each other only where the pool is damaged
        if ordered.len() == before {
            ordered.append(&mut later);
        }
        left = later;
    }
    Ok(ordered)
}

fn package_begin(request: &SendRequest) -> Begin {
    let features = StreamFeatures::default();
    Begin {
        kind: StreamKind::Compound,
        features: if request.holds { features.with(StreamFeatures::HOLDS) } else { features },
        creation_time: 0,
        objset_type: 0,
        flags: BeginFlags::default(),
        to_guid: 0,
        from_guid: 0,
        to_name: request.snapshot.as_bytes().to_vec(),
    }
}

/// A file system in the list of a compound stream.
fn packaged(
    head: &Dataset,
    chosen: &Chosen,
    (package, request): (&Package, &SendRequest),
) -> dsl::Result<PackagedDataset> {
    let parent = head.dir().parent().map(|dir| dir.path().to_owned());
    let parent = package.datasets.iter().find(|it| Some(&it.name) == parent.as_ref());
    let from = package.from_snapshot.as_ref();
    // of a full stream, the guid of the parent's last snapshot
    let wanted = from.unwrap_or(&package.to_snapshot);
    let parent_from = parent.and_then(|parent| {
        parent.snapshots.iter().find(|(name, _)| name == wanted).map(|(_, guid)| *guid)
    });
    let values = |dataset: &Dataset| -> dsl::Result<Vec<(String, PackagedValue)>> {
        let all = if request.backup {
            dataset.received_properties()?
        } else {
            dataset.local_properties()?
        };
        // a raw stream has the sender's keylocation
        let is_sent =
            |name: &str| !KEY_PROPERTIES.contains(&name) || (request.raw && name == "keylocation");
        let all = all.into_iter().filter(|(name, _)| is_sent(name));
        Ok(all.map(|(name, value)| (name, packaged_value(value))).collect())
    };
    let base = chosen.base.iter().filter(|_| from.is_some());
    let listed: Vec<&Dataset> = base.chain(&chosen.sent).collect();
    let part = |it: &Dataset| it.short_name().unwrap_or_default().to_owned();
    let mut snapshot_properties = Vec::new();
    for snapshot in &listed {
        snapshot_properties.push((part(snapshot), values(snapshot)?));
    }
    let mut holds = Vec::new();
    for snapshot in listed.iter().filter(|_| request.holds) {
        let found = snapshot.holds()?.into_iter();
        holds.push((part(snapshot), found.map(|hold| (hold.tag, hold.time)).collect()));
    }
    let root = head.key_info()?.map(|facts| facts.encryption_root);
    Ok(PackagedDataset {
        guid: head.guid().get(),
        name: head.name(),
        parent_from_snapshot: parent_from.unwrap_or(0),
        origin: head.clone_origin()?.map(|origin| origin.guid().get()),
        is_encryption_root: root == Some(head.dir().id()),
        properties: values(head)?,
        snapshots: listed.iter().map(|it| (part(it), it.guid().get())).collect(),
        snapshot_properties,
        holds,
    })
}

fn packaged_value(value: PropertyValue) -> PackagedValue {
    match value {
        PropertyValue::Number(number) => PackagedValue::Number(number),
        PropertyValue::Text(text) => PackagedValue::Text(text),
    }
}

/// The estimated bytes of a stream, as OpenZFS estimates them: the written data, less the indirect blocks,
/// plus a record for each block, and BEGIN and END.
pub(super) fn estimate(
    snapshot: &Dataset,
    base: Option<&Dataset>,
    is_compressed: bool,
) -> dsl::Result<u64> {
    let Some(phys) = snapshot.phys() else { return Ok(0) };
    let whole = [phys.referenced, phys.compressed, phys.uncompressed];
    let written = match base {
        None => whole,
        Some(base) => match (base.phys(), base.bookmark_record()) {
            (Some(before), _) => snapshot.space_written_since(before)?,
            (None, Some(mark)) => snapshot.space_written_since_bookmark(mark)?.unwrap_or(whole),
            (None, None) => whole,
        },
    };
    let [_, compressed, uncompressed] = written;
    let bytes = if is_compressed { compressed } else { uncompressed };
    let records = uncompressed.checked_div(record_size(snapshot)?).unwrap_or(0);
    let overhead = RECORD.wrapping_sub(POINTER).wrapping_mul(records);
    Ok(bytes.wrapping_add(overhead).wrapping_add(RECORD.wrapping_mul(2)))
}

/// The bytes of a block of new files. Of volumes OpenZFS estimates with the default block size.
fn record_size(snapshot: &Dataset) -> dsl::Result<u64> {
    const DEFAULT: u64 = 128 << 10;
    const VOLUME_DEFAULT: u64 = 16 << 10;
    let head = snapshot.tree().find(snapshot.dir().path())?;
    if head.kind()? == DatasetKind::Volume {
        return Ok(VOLUME_DEFAULT);
    }
    let property = head.property("recordsize")?;
    Ok(property.and_then(|property| property.value.parse().ok()).unwrap_or(DEFAULT))
}
