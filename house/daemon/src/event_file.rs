//! The file with the latest events, by which they outlast the daemon: one JSON record a line, the oldest first.
//!
//! New records are appended. When the file has twice the records that the daemon keeps, it is written anew. A power cut
//! can lose the last lines, and damaged lines are passed over: nothing depends on old events.

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use api::EventRecord;

use crate::log::Log;
use crate::{Error, Result, state_file};

/// The most bytes of the file that are read: many times the usual size.
const MAX_BYTES: u64 = 64 << 20;

/// The file of a daemon.
pub(crate) struct EventFile {
    path: PathBuf,
    log: Arc<Log>,
    /// The records that the daemon keeps.
    capacity: usize,
    /// Open for appending; none: it could not be opened or written, until it is written anew.
    file: Option<File>,
    /// The lines in it; without a file, the events since the last try.
    lines: usize,
}

impl EventFile {
    /// Reads the latest records of a file, and writes it anew with them.
    pub(crate) fn load(
        path: PathBuf,
        capacity: usize,
        log: Arc<Log>,
    ) -> (Self, VecDeque<EventRecord>) {
        let records = read(&path, capacity).unwrap_or_else(|why| {
            log.write_line(&format!("old events are lost: {why}"));
            VecDeque::new()
        });
        let mut file = Self { path, log, capacity, file: None, lines: 0 };
        file.write_anew(&records);
        (file, records)
    }

    /// Appends records. `kept` gives those that the daemon keeps, with these.
    pub(crate) fn append(
        &mut self,
        added: &VecDeque<EventRecord>,
        kept: impl FnOnce() -> VecDeque<EventRecord>,
    ) {
        if self.lines >= 2 * self.capacity {
            return self.write_anew(&kept());
        }
        self.lines += added.len();
        let Some(file) = self.file.as_mut() else { return };
        if let Err(why) = lines(added).and_then(|lines| file.write_all(&lines)) {
            self.give_up(&Error::file_error(&self.path, &why));
        }
    }

    /// Events are kept in memory as well, so that the daemon works without the file.
    fn give_up(&mut self, why: &Error) {
        self.log.write_line(&format!("events do not outlast the daemon: {why}"));
        // the next try comes when the file would have been full
        (self.file, self.lines) = (None, 0);
    }

    fn write_anew(&mut self, records: &VecDeque<EventRecord>) {
        let written = lines(records)
            .map_err(|why| Error::file_error(&self.path, &why))
            .and_then(|lines| state_file::replace(&self.path, &lines))
            .and_then(|()| open(&self.path));
        match written {
            Ok(file) => (self.file, self.lines) = (Some(file), records.len()),
            Err(why) => self.give_up(&why),
        }
    }
}

fn open(path: &Path) -> Result<File> {
    let opened = OpenOptions::new().append(true).create(true).mode(0o600).open(path);
    opened.map_err(|why| Error::file_error(path, &why))
}

fn lines(records: &VecDeque<EventRecord>) -> std::io::Result<Vec<u8>> {
    let mut lines = Vec::new();
    for record in records {
        serde_json::to_writer(&mut lines, record)?;
        lines.push(b'\n');
    }
    Ok(lines)
}

fn read(path: &Path, capacity: usize) -> Result<VecDeque<EventRecord>> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(why) if why.kind() == std::io::ErrorKind::NotFound => return Ok(VecDeque::new()),
        Err(why) => return Err(Error::file_error(path, &why)),
    };
    let mut records: VecDeque<EventRecord> = VecDeque::new();
    for line in BufReader::new(file.take(MAX_BYTES)).split(b'\n') {
        let line = line.map_err(|why| Error::file_error(path, &why))?;
        // a line is torn, or of another version
        let Ok(record) = serde_json::from_slice::<EventRecord>(&line) else { continue };
        if records.back().is_some_and(|last| last.sequence >= record.sequence) {
            continue;
        }
        if records.len() == capacity {
            records.pop_front();
        }
        records.push_back(record);
    }
    Ok(records)
}
