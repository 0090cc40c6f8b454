//! Send streams in files: what is in them, without a pool.

use std::collections::BTreeMap;
use std::io::Read;

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

/// The full name, on the sender, of the snapshot whose stream a receive_resume_token goes on with.
pub fn resume_token_snapshot(token: &str) -> Result<String> {
    let decoded = dsl::ResumeToken::decode(token);
    decoded.map(|token| token.to_name).map_err(|why| Error::from_dsl_error(token, &why))
}
