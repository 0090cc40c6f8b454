//! The daemon's log: one line an entry, with the time.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;

use jiff::Timestamp;
use parking_lot::Mutex;

use crate::{Error, Result, StateDir};

/// The daemon's log.
#[derive(Debug)]
pub(crate) struct Log {
    file: Mutex<File>,
    /// The daemon runs on a terminal.
    echo_to_stderr: bool,
}

impl Log {
    pub(crate) fn open(place: &StateDir, echoes: bool) -> Result<Self> {
        let path = place.log();
        let file = OpenOptions::new().create(true).append(true).mode(0o600).open(&path);
        let file = file.map_err(|why| Error::file_error(&path, &why))?;
        Ok(Self { file: Mutex::new(file), echo_to_stderr: echoes })
    }

    pub(crate) fn write_line(&self, what: &str) {
        // one entry is one line, even with names that come from disks
        let what: String = what.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        let now = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ");
        let line = format!("{now} {what}\n");
        // an error here has nowhere to go
        let _ = self.file.lock().write_all(line.as_bytes());
        if self.echo_to_stderr {
            let _ = std::io::stderr().lock().write_all(line.as_bytes());
        }
    }
}
