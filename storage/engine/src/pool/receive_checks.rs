//! Checks of a stream against its target, in the words of zfs-receive(8).

use dsl::{Dataset, DatasetKind};
use ondisk::stream::{Begin, BeginFlags, StreamFeatures};

use send::Redaction;

use super::Pool;
use super::receive::{ReceiveRequest, Received, receive_error};
use super::stream_input::BegunStream;
use crate::{Error, Result};

impl Pool {
    /// Checks what a dry run checks: the names, and whether the target exists. The base snapshot does not count, as
    /// an earlier stream may bring it.
    pub(super) fn check_receive(
        &self,
        request: &ReceiveRequest,
        begun: &BegunStream,
    ) -> Result<Received> {
        let begin = &begun.begin;
        let part = snapshot_part(request, begin)?;
        self.check_stream_features(&request.target, begin.features)?;
        let found = match self.find_dataset(&request.target) {
            Ok(found) => Some(found),
            Err(Error::NoSuchDataset { .. }) => None,
            Err(why) => return Err(why),
        };
        match &found {
            Some(head) if begin.from_guid == 0 && begun.resume.is_none() => {
                check_replaceable(head, request, begin)?;
            }
            Some(_) => {}
            None if begin.from_guid != 0 && !begin.flags.has(BeginFlags::CLONE) => {
                return Err(missing_target(&request.target));
            }
            None => self.find_parent(&request.target).map(drop)?,
        }
        Ok(Received {
            snapshot: format!("{}@{part}", request.target),
            is_incremental: found.is_some(),
            bytes: 0,
            warnings: Vec::new(),
        })
    }
}

/// The name of the received snapshot behind the `@`.
pub(super) fn snapshot_part(request: &ReceiveRequest, begin: &Begin) -> Result<String> {
    let sent_name = String::from_utf8_lossy(&begin.to_name).into_owned();
    let sent_part = sent_name.split_once('@').map(|(_, part)| part.to_owned());
    let missing =
        || receive_error(&request.target, "the stream does not name a snapshot".to_owned());
    request.snapshot.clone().or(sent_part).ok_or_else(missing)
}

/// Refuses an increment onto a redacted snapshot that would not have the blocks which that lacks: the stream is of the
/// redaction bookmark or of a redacted copy, or it is redacted by some of the same snapshots, or it is of one of the
/// redaction snapshots.
pub(super) fn check_redaction(base: &Dataset, redaction: &Redaction, begin: &Begin) -> Result<()> {
    let name = base.name();
    let failed = |error: dsl::Error| Error::from_dsl_error(&name, &error);
    let Some(known) = base.redaction_snapshots().map_err(failed)? else { return Ok(()) };
    let is_known = |guids: &[u64]| guids.iter().all(|guid| known.contains(guid));
    let fits = match (&redaction.base_snaps, &redaction.snaps) {
        (Some(guids), _) | (None, Some(guids)) => is_known(guids),
        (None, None) => known.contains(&begin.to_guid),
    };
    if fits {
        return Ok(());
    }
    let why = "it is redacted, and the stream does not bring the blocks that it lacks; send from the \
               redaction bookmark, or send one of the redaction snapshots";
    Err(receive_error(&name, why))
}

/// An incremental stream needs its target.
pub(super) fn missing_target(target: &str) -> Error {
    receive_error(
        target,
        format!("destination '{target}' does not exist; an incremental stream needs it"),
    )
}

/// Refuses to replace a head without -F, also by a full stream that resumes.
pub(super) fn check_force(name: &str, request: &ReceiveRequest) -> Result<()> {
    if request.force {
        return Ok(());
    }
    let why = format!("destination '{name}' exists\nmust specify -F to overwrite it");
    Err(receive_error(name, why))
}

/// Refuses a full stream onto a head that it may not replace.
pub(super) fn check_replaceable(
    head: &Dataset,
    request: &ReceiveRequest,
    begin: &Begin,
) -> Result<()> {
    let name = head.name();
    let failed = |error: dsl::Error| Error::from_dsl_error(&name, &error);
    let refused = |why: String| Err(receive_error(&name, why));
    check_force(&name, request)?;
    if let Some(snapshot) = head.snapshots().map_err(failed)?.first() {
        let snapshot = snapshot.name();
        return refused(format!(
            "destination has snapshots (eg. {snapshot})\nmust destroy them to overwrite it"
        ));
    }
    if head.clone_origin().map_err(failed)?.is_some() {
        return refused(format!(
            "destination '{name}' is a clone\nmust destroy it to overwrite it"
        ));
    }
    let is_encrypted = head.key_object().map_err(failed)?.is_some();
    if is_encrypted || begin.features.has(StreamFeatures::RAW) || request.properties.sets_key() {
        return refused(
            "zfs receive -F cannot be used to destroy an encrypted filesystem or overwrite an \
             unencrypted one with an encrypted one"
                .to_owned(),
        );
    }
    check_volume_target(head, begin)
}

/// Refuses a volume in place of a pool's root or of a file system that has others below it.
fn check_volume_target(head: &Dataset, begin: &Begin) -> Result<()> {
    let name = head.name();
    let failed = |error: dsl::Error| Error::from_dsl_error(&name, &error);
    if !begin.is_volume() || head.kind().map_err(failed)? == DatasetKind::Volume {
        return Ok(());
    }
    if !name.contains('/') {
        let why = format!("destination {name} is the root dataset\ncannot overwrite with a ZVOL");
        return Err(receive_error(&name, why));
    }
    let prefix = format!("{name}/");
    let is_below = |path: &str| path.starts_with(&prefix);
    let child = head.tree().heads_matching(&is_below).next().transpose().map_err(failed)?;
    let Some(child) = child else { return Ok(()) };
    let why =
        format!("destination has children (eg. {})\ncannot overwrite with a ZVOL", child.name());
    Err(receive_error(&name, why))
}
