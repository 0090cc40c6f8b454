//! The test of a copy: its newest snapshot is read back and compared with the source's.
//!
//! Both sides send the snapshot in full. The sums of both streams' contents must be equal. So the copy can be read, can be
//! sent, and has what the source has. Nothing is written.

use std::io::{BufReader, BufWriter, Write as _};
use std::thread;

use api::TestedCopy;
use engine::pool::SendRequest;
use engine::stream::{ContentDigest, content_digest};

use super::endpoint::BUFFER_SIZE;
use super::transfer::CountedWriter;
use super::{CopyPair, ReplicaSource};
use crate::{Error, Result};

/// The test of the copy of one dataset. The copy is read, so its side is a source as well.
pub(crate) type RestoreTest<'a> = CopyPair<'a, dyn ReplicaSource + 'a>;

/// The result of a test.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum TestResult {
    /// The copy has what the source has.
    Equal(TestedCopy),
    /// The copy of this snapshot differs.
    Different(String),
    /// The source has no snapshot, so there is nothing to compare.
    Nothing,
}

impl RestoreTest<'_> {
    /// Compares the newest snapshot that both sides have.
    pub(crate) fn run(&self) -> Result<TestResult> {
        self.control.check_window()?;
        let here = self.source.snapshots(self.dataset)?;
        if here.is_empty() {
            return Ok(TestResult::Nothing);
        }
        let there = self.target.snapshots(self.copy)?;
        let is_common = |guid: u64| there.iter().find(|it| it.guid == guid);
        let pair = here.iter().rev().find_map(|it| Some((it, is_common(it.guid)?)));
        let Some((ours, theirs)) = pair else {
            return Err(Error::refused_error(format!(
                "cannot test '{}': it has no snapshot in common with '{}'",
                self.copy, self.dataset
            )));
        };
        let is_raw =
            self.source.is_encrypted(self.dataset)? && self.target.is_encryption_root(self.copy)?;
        let sum = |side: &dyn ReplicaSource, snapshot: String| {
            let request =
                SendRequest { snapshot, large_blocks: true, raw: is_raw, ..SendRequest::default() };
            self.digest(side, &request)
        };
        let expected = sum(self.source, format!("{}@{}", self.dataset, ours.name))?;
        let found = sum(self.target, format!("{}@{}", self.copy, theirs.name))?;
        // the counts of bytes differ where one side has larger blocks, which end in zeros
        if (expected.sum, expected.to_guid) != (found.sum, found.to_guid) {
            return Ok(TestResult::Different(theirs.name.clone()));
        }
        Ok(TestResult::Equal(TestedCopy {
            source: self.dataset.to_owned(),
            target: self.copy.to_owned(),
            snapshot: Some(theirs.name.clone()),
            bytes: found.bytes,
        }))
    }

    /// The sum of a stream's content.
    fn digest(&self, side: &dyn ReplicaSource, request: &SendRequest) -> Result<ContentDigest> {
        self.control.expect_bytes(side.estimate(request)?);
        let failed = |why: std::io::Error| {
            Error::refused_error(format!("cannot read '{}': {why}", request.snapshot))
        };
        let (from, to) = std::io::pipe().map_err(failed)?;
        let mut input = BufReader::with_capacity(BUFFER_SIZE, from);
        let mut buffered = BufWriter::with_capacity(BUFFER_SIZE, to);
        let (sent, read) = thread::scope(|scope| {
            let reader = scope.spawn(move || content_digest(&mut input));
            let mut out = CountedWriter::new(&mut buffered, self.control, self.rate);
            let sent = side.send(request, &mut out).and_then(|()| out.flush().map_err(failed));
            drop(buffered.into_parts());
            (sent, reader.join().unwrap_or_else(|_| Err(panicked())))
        });
        match (sent, read) {
            (Ok(()), read) => Ok(read?),
            // the sender's pipe breaks when the reader fails
            (Err(why), Err(first)) if why.to_string().contains("Broken pipe") => Err(first.into()),
            (Err(why), _) => Err(why),
        }
    }
}

fn panicked() -> engine::Error {
    engine::Error::Refused { what: "the reader of the stream failed".to_owned() }
}
