//! The end of a window interrupts a transfer, and the next window resumes it.

use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use engine::pool::{Bookmark, SendRequest, Snapshot};
use parking_lot::Mutex;

use super::super::endpoint::WriteStream;
use super::super::{ReplicaSource, ReplicaTarget, SafeCopy, Window};
use super::{Transfer, TransferControl};
use crate::Result;
use crate::cancel::Cancel;

/// The clock of the test, in seconds since 1970.
static NOW: AtomicU64 = AtomicU64::new(0);
const BEGIN: u64 = 1_795_776_479;
const DAY: u64 = 86_400;
const SIZE: usize = 4 << 20;

/// A source with one snapshot of 4 MiB. The clock passes the end of the window in the middle of the first stream.
#[derive(Default)]
struct Source(Mutex<Vec<SendRequest>>);

impl ReplicaSource for Source {
    fn datasets(&self, top: &str, _recursive: bool) -> Result<Vec<String>> {
        Ok(vec![top.to_owned()])
    }

    fn snapshots(&self, _dataset: &str) -> Result<Vec<Snapshot>> {
        Ok(vec![Snapshot { name: "one".to_owned(), id: 1, guid: 7, created: 5, txg: 3 }])
    }

    fn bookmarks(&self, _dataset: &str) -> Result<Vec<Bookmark>> {
        Ok(Vec::new())
    }

    fn is_encrypted(&self, _dataset: &str) -> Result<bool> {
        Ok(false)
    }

    fn is_encryption_root(&self, _dataset: &str) -> Result<bool> {
        Ok(false)
    }

    fn estimate(&self, _request: &SendRequest) -> Result<u64> {
        Ok(SIZE as u64)
    }

    fn send(&self, request: &SendRequest, out: &mut dyn Write) -> Result<()> {
        self.0.lock().push(request.clone());
        for part in vec![7; SIZE].chunks(SIZE / 2) {
            out.write_all(part).map_err(|why| super::super::endpoint::broken_pipe(&why))?;
            NOW.fetch_add(600, Ordering::Relaxed);
        }
        Ok(())
    }

    fn mark(&self, _dataset: &str, _replica: &str, _copy: &SafeCopy) -> Result<()> {
        Ok(())
    }
}

/// A target that keeps the part of an interrupted stream.
#[derive(Default)]
struct Target {
    received: Mutex<Vec<u8>>,
    is_partial: Mutex<bool>,
}

impl ReplicaTarget for Target {
    fn snapshots(&self, _dataset: &str) -> Result<Option<Vec<(String, u64)>>> {
        let is_whole = !self.received.lock().is_empty() && !*self.is_partial.lock();
        Ok(is_whole.then(|| vec![("one".to_owned(), 7)]))
    }

    fn resume_token(&self, _dataset: &str) -> Result<Option<String>> {
        Ok(self.is_partial.lock().then(|| "1-token".to_owned()))
    }

    fn abort_receive(&self, _dataset: &str) -> Result<()> {
        panic!("the part is resumed");
    }

    fn is_raw(&self, _dataset: &str) -> Result<bool> {
        Ok(false)
    }

    fn receive(&self, _dataset: &str, _is_new: bool, send: &mut WriteStream<'_>) -> Result<()> {
        let sent = send(&mut *self.received.lock());
        *self.is_partial.lock() = sent.is_err();
        sent
    }
}

#[test]
fn closed_window_interrupts_and_next_one_resumes() {
    NOW.store(BEGIN, Ordering::Relaxed);
    let window = Window::around(BEGIN, 5).unwrap();
    let mut control = TransferControl::new(Cancel::default(), Some(window));
    control.now = || NOW.load(Ordering::Relaxed);
    control.window_interval = Duration::ZERO;
    let (source, target) = (Source::default(), Target::default());
    let transfer = Transfer {
        source: &source,
        dataset: "tank",
        target: &target,
        copy: "copy",
        control: &control,
        rate: None,
    };
    let why = transfer.run().unwrap_err().to_string();
    assert!(
        why.contains(&format!("the window {window} has closed; the transfer resumes")),
        "{why}"
    );
    assert_eq!(target.received.lock().len(), SIZE / 2);
    // it does not begin again before the window opens
    assert!(transfer.run().unwrap_err().to_string().contains("has closed"));
    assert_eq!(source.0.lock().len(), 1);
    NOW.store(BEGIN + DAY - 600, Ordering::Relaxed);
    assert!(transfer.run().is_err());
    NOW.store(BEGIN + DAY, Ordering::Relaxed);
    // the rest fits into the window
    control_without_end(&source, &target);
}

/// Runs the transfer with a clock that stays within the window.
fn control_without_end(source: &Source, target: &Target) {
    let mut control = TransferControl::new(Cancel::default(), Window::around(BEGIN, 5));
    control.now = || BEGIN + DAY;
    let (dataset, copy, rate) = ("tank", "copy", None);
    let transfer = Transfer { source, dataset, target, copy, control: &control, rate };
    assert_eq!(transfer.run().unwrap().unwrap().guid, 7);
    let sent = source.0.lock();
    assert_eq!(sent.len(), 2);
    assert_eq!(sent[1].resume.as_deref(), Some("1-token"));
}
