//! Bringing the copy of a dataset up to date.

use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use api::JobProgress;
use engine::pool::{Bookmark, SendRequest, Snapshot};

use super::{CopyPair, RateLimit, ReplicaTarget, SafeCopy, Throttle, Window};
use crate::cancel::Cancel;
use crate::events::unix_seconds;
use crate::jobs::JobControl;
use crate::{Error, Result};

/// Streams of one dataset in one run: the rest of a cut one, a full one, one from a bookmark, increments.
const MAX_STREAMS: u32 = 8;
/// The interval at which a throttled stream checks for cancellation.
const MAX_PAUSE: Duration = Duration::from_millis(200);
/// Bytes that are written before a throttled stream waits.
const MAX_WRITE: usize = 256 << 10;

/// The interval at which a stream checks whether its window is open.
const WINDOW_INTERVAL: Duration = Duration::from_secs(5);

/// The progress of a replication, and whether it continues.
pub(crate) struct TransferControl {
    done: AtomicU64,
    total: AtomicU64,
    is_cancelled: AtomicBool,
    /// The command that waits for it.
    caller: Cancel,
    /// When it may run; none: until it is done.
    window: Option<Window>,
    /// How often a stream checks whether its window is open.
    window_interval: Duration,
    /// The clock, in seconds since 1970.
    now: fn() -> u64,
}

impl TransferControl {
    pub(crate) fn new(caller: Cancel, window: Option<Window>) -> Self {
        let (done, total, is_cancelled) = Default::default();
        let (window_interval, now) = (WINDOW_INTERVAL, unix_seconds);
        Self { done, total, is_cancelled, caller, window, window_interval, now }
    }

    /// More bytes are to be transferred.
    pub(super) fn expect_bytes(&self, bytes: u64) {
        self.total.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Whether the window has closed since the transfer began.
    pub(super) fn check_window(&self) -> Result<()> {
        match self.window {
            Some(window) if !window.is_open((self.now)()) => Err(Error::refused_error(format!(
                "the window {window} has closed; the transfer resumes when the window opens"
            ))),
            _ => Ok(()),
        }
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        self.is_cancelled.load(Ordering::Acquire) || self.caller.is_cancelled()
    }
}

impl JobControl for TransferControl {
    fn progress(&self) -> JobProgress {
        let (done, total) = (self.done.load(Ordering::Relaxed), self.total.load(Ordering::Relaxed));
        JobProgress { done, total: total.max(done), unit: "bytes".to_owned() }
    }

    fn cancel(&self) {
        self.is_cancelled.store(true, Ordering::Release);
    }
}

/// A stream that is counted, and that ends when the job is cancelled or its window closes.
pub(super) struct CountedWriter<'a> {
    out: &'a mut dyn Write,
    control: &'a TransferControl,
    throttle: Throttle,
    /// When the window was checked.
    checked: Instant,
}

impl<'a> CountedWriter<'a> {
    pub(super) fn new(
        out: &'a mut dyn Write,
        control: &'a TransferControl,
        rate: Option<RateLimit>,
    ) -> Self {
        Self { out, control, throttle: Throttle::new(rate), checked: Instant::now() }
    }

    /// Waits until the stream may continue, or the job is cancelled.
    fn wait(&mut self, bytes: u64) {
        let mut left = self.throttle.delay(bytes, Instant::now());
        while !left.is_zero() && !self.control.is_cancelled() {
            let step = left.min(MAX_PAUSE);
            std::thread::sleep(step);
            left -= step;
        }
    }
}

impl Write for CountedWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.control.is_cancelled() {
            return Err(io::Error::other("the job was cancelled"));
        }
        if self.checked.elapsed() >= self.control.window_interval {
            self.control.check_window().map_err(|why| io::Error::other(why.to_string()))?;
            self.checked = Instant::now();
        }
        let bytes = bytes.get(..MAX_WRITE).unwrap_or(bytes);
        let written = self.out.write(bytes)?;
        self.wait(written as u64);
        self.control.done.fetch_add(written as u64, Ordering::Relaxed);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// The copying of one dataset.
pub(crate) type Transfer<'a> = CopyPair<'a, dyn ReplicaTarget + 'a>;

/// The next stream.
#[derive(Debug, PartialEq, Eq)]
enum Next {
    /// The copy has the newest snapshot.
    Nothing,
    /// A snapshot in full.
    Full(String),
    /// From a snapshot to the newest one, with those between.
    From(String, String),
    /// From a bookmark to the first snapshot after it.
    FromBookmark(String, String),
}

impl Transfer<'_> {
    /// Brings the copy up to date. Returns the newest snapshot that the copy has; `None`: the source has no
    /// snapshot.
    pub(crate) fn run(&self) -> Result<Option<SafeCopy>> {
        for _ in 0..MAX_STREAMS {
            self.control.check_window()?;
            if self.resume()? {
                continue;
            }
            let snapshots = self.source.snapshots(self.dataset)?;
            let Some(newest) = snapshots.last() else { return Ok(None) };
            let there = self.target.snapshots(self.copy)?;
            let is_new = there.is_none();
            let bookmarks = self.source.bookmarks(self.dataset)?;
            let next = next_stream(&snapshots, &bookmarks, (self.copy, there.as_deref()));
            let (to, base) = match next.map_err(|why| self.error(&why))? {
                Next::Nothing => return Ok(Some(safe_copy(newest))),
                Next::Full(to) => (to, None),
                Next::From(base, to) => (to, Some(format!("{}@{base}", self.dataset))),
                Next::FromBookmark(base, to) => (to, Some(format!("{}#{base}", self.dataset))),
            };
            let request = SendRequest {
                snapshot: format!("{}@{to}", self.dataset),
                intermediates: base.as_ref().is_some_and(|base| base.contains('@')),
                base,
                large_blocks: true,
                embedded: true,
                compressed: true,
                raw: self.is_raw(is_new)?,
                ..SendRequest::default()
            };
            let bytes = self.source.estimate(&request)?;
            self.send(&request, (bytes, is_new))?;
        }
        Err(self.error("its snapshots change faster than they can be sent"))
    }

    /// Resumes an interrupted stream; false: there is none.
    fn resume(&self) -> Result<bool> {
        let Some(token) = self.target.resume_token(self.copy)? else { return Ok(false) };
        let snapshot = format!("{}@", self.dataset);
        let request = SendRequest { snapshot, resume: Some(token), ..SendRequest::default() };
        let bytes = match self.source.estimate(&request) {
            Ok(bytes) => bytes,
            // a snapshot that was destroyed since cannot be sent on
            Err(why) if why.to_string().contains("no longer exists") => {
                self.target.abort_receive(self.copy)?;
                return Ok(true);
            }
            Err(why) => return Err(why),
        };
        self.send(&request, (bytes, false)).map(|()| true)
    }

    /// Whether the copy is to stay encrypted as the source is: a new one, or one that began so.
    fn is_raw(&self, is_new: bool) -> Result<bool> {
        let is_encrypted = self.source.is_encrypted(self.dataset)?;
        Ok(is_encrypted && (is_new || self.target.is_raw(self.copy)?))
    }

    fn send(&self, request: &SendRequest, (bytes, is_new): (u64, bool)) -> Result<()> {
        self.control.expect_bytes(bytes);
        self.target.receive(self.copy, is_new, &mut |out| {
            self.source.send(request, &mut CountedWriter::new(out, self.control, self.rate))
        })
    }

    fn error(&self, why: &str) -> Error {
        Error::refused_error(format!(
            "cannot replicate '{}' to '{}': {why}",
            self.dataset, self.copy
        ))
    }
}

fn safe_copy(snapshot: &Snapshot) -> SafeCopy {
    let Snapshot { name, guid, created, txg, .. } = snapshot.clone();
    SafeCopy { snapshot: name, guid, txg, created }
}

/// The next stream for a copy with these snapshots, the oldest first.
fn next_stream(
    snapshots: &[Snapshot],
    bookmarks: &[Bookmark],
    (copy, there): (&str, Option<&[(String, u64)]>),
) -> std::result::Result<Next, String> {
    let (Some(oldest), Some(newest)) = (snapshots.first(), snapshots.last()) else {
        return Ok(Next::Nothing);
    };
    let Some(there) = there else { return Ok(Next::Full(oldest.name.clone())) };
    let Some((last, guid)) = there.last() else {
        return Err(
            "the target exists and has no snapshots; destroy it, or choose another".to_owned()
        );
    };
    if newest.guid == *guid {
        return Ok(Next::Nothing);
    }
    if let Some(base) = snapshots.iter().find(|it| it.guid == *guid) {
        return Ok(Next::From(base.name.clone(), newest.name.clone()));
    }
    if let Some(mark) = bookmarks.iter().find(|it| it.guid == *guid) {
        let after = snapshots.iter().find(|it| it.txg > mark.txg);
        return Ok(after
            .map_or(Next::Nothing, |it| Next::FromBookmark(mark.name.clone(), it.name.clone())));
    }
    let is_common = |(_, guid): &&(String, u64)| snapshots.iter().any(|it| it.guid == *guid);
    Err(match there.iter().rev().find(is_common) {
        Some((common, _)) => format!(
            "the target has snapshots that the source does not have, such as '@{last}'; give them up \
             there with `zfs rollback -r {copy}@{common}`"
        ),
        None => "the target has no snapshot in common with the source".to_owned(),
    })
}

#[cfg(test)]
mod window_tests;

#[cfg(test)]
mod tests {
    use engine::pool::{Bookmark, Snapshot};

    use super::{Next, next_stream};

    fn snapshot(number: u64) -> Snapshot {
        let name = number.to_string();
        Snapshot { name, id: number, guid: number, created: number, txg: number }
    }

    #[test]
    fn next_stream_begins_at_the_common_snapshot() {
        let here: Vec<_> = (2..6).map(snapshot).collect();
        let mark = Bookmark { name: "one".to_owned(), guid: 1, txg: 1 };
        let next = |there: Option<&[u64]>| {
            let there: Option<Vec<_>> =
                there.map(|all| all.iter().map(|guid| (guid.to_string(), *guid)).collect());
            next_stream(&here, std::slice::from_ref(&mark), ("copy", there.as_deref()))
        };
        let word = |text: &str| text.to_owned();
        assert_eq!(next(None), Ok(Next::Full(word("2"))));
        assert_eq!(next(Some(&[2, 3])), Ok(Next::From(word("3"), word("5"))));
        assert_eq!(next(Some(&[1])), Ok(Next::FromBookmark(word("one"), word("2"))));
        assert_eq!(next(Some(&[4, 5])), Ok(Next::Nothing));
        assert!(next(Some(&[])).unwrap_err().contains("has no snapshots"));
        assert!(next(Some(&[3, 9])).unwrap_err().contains("rollback -r"));
        assert!(next(Some(&[8, 9])).unwrap_err().contains("no snapshot in common"));
        assert_eq!(next_stream(&[], &[], ("copy", None)), Ok(Next::Nothing));
    }
}
