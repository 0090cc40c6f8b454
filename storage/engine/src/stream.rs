//! Send streams in files: their contents, without a pool.

use std::collections::BTreeMap;
use std::io::Read;

pub use send::ContentDigest;
use send::{StreamReader, describe_record};

use crate::{Error, Result};

/// Reads a stream to its end and verifies its checksums. Shows each record in a line if `all`, else BEGIN
/// and END records; and in the end how many records of each type there were.
pub fn dump_stream(
    input: &mut dyn Read,
    all: bool,
    show: &mut dyn FnMut(&str) -> std::io::Result<()>,
) -> Result<()> {
    let failed = |why: &dyn std::fmt::Display| Error::Refused { what: why.to_string() };
    let mut reader = StreamReader::new(input);
    let mut counts = BTreeMap::<&str, (u64, u64)>::new();
    while let Some(found) = reader.next_record().map_err(|why| failed(&why))? {
        let name = found.record.name();
        if all || matches!(name, "BEGIN" | "END") {
            show(&describe_record(&found)).map_err(|why| failed(&why))?;
        }
        let (records, bytes) = counts.entry(name).or_default();
        *records += 1;
        *bytes += found.payload.len() as u64;
    }
    if reader.bytes() == 0 {
        return Err(failed(&send::Error::NotAStream));
    }
    let mut summary = String::from("SUMMARY:");
    for (name, (records, bytes)) in counts {
        summary.push_str(&format!("\n\tTotal DRR_{name} records = {records} ({bytes} bytes)"));
    }
    summary.push_str(&format!("\n\tTotal stream length = {}", reader.bytes()));
    show(&summary).map_err(|why| failed(&why))
}

/// The sum of the content of a snapshot's full stream, whose checksums are verified. Two streams of the same snapshot
/// have the same sum.
pub fn content_digest(input: &mut dyn Read) -> Result<ContentDigest> {
    send::content_digest(input).map_err(|why| Error::Refused { what: why.to_string() })
}

/// The full name, on the sender, of the snapshot whose stream a receive_resume_token resumes.
pub fn resume_token_snapshot(token: &str) -> Result<String> {
    let decoded = dsl::ResumeToken::decode(token);
    decoded.map(|token| token.to_name).map_err(|why| Error::from_dsl_error(token, &why))
}

/// The contents of a receive_resume_token.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
#[expect(clippy::struct_excessive_bools, reason = "options of a stream, each on its own")]
pub struct ResumeTokenFacts {
    /// The guid of the base snapshot; 0: the stream is full.
    pub from_guid: u64,
    /// The guid of the snapshot.
    pub to_guid: u64,
    /// The snapshot's full name on the sender.
    pub to_name: String,
    /// The object at which the stream resumes.
    pub object: u64,
    /// The offset in that object, in bytes.
    pub offset: u64,
    /// Bytes of the stream that were received.
    pub bytes: u64,
    /// The stream has large blocks (-L).
    pub large_blocks: bool,
    /// The stream has embedded blocks (-e).
    pub embedded: bool,
    /// The stream has compressed blocks (-c).
    pub compressed: bool,
    /// The stream is raw (-w).
    pub raw: bool,
}

/// Reads a receive_resume_token, of Poolhouse or of OpenZFS.
pub fn resume_token_facts(token: &str) -> Result<ResumeTokenFacts> {
    let decoded = dsl::ResumeToken::decode(token);
    let found = decoded.map_err(|why| Error::from_dsl_error(token, &why))?;
    Ok(ResumeTokenFacts {
        from_guid: found.from_guid,
        to_guid: found.to_guid,
        to_name: found.to_name,
        object: found.object,
        offset: found.offset,
        bytes: found.bytes,
        large_blocks: found.large_blocks,
        embedded: found.embedded,
        compressed: found.compressed,
        raw: found.raw,
    })
}
