//! The result of a copy, as text and as JSON.

use std::io;
use std::path::Path;

use serde_json::{Value, json};

use super::copy::BadRange;
use super::ls::human_size;

/// A file that could not be read in full.
#[derive(Debug)]
pub(crate) struct DamagedFile {
    /// Where it is in the pool.
    pub(crate) path: String,
    /// Where the rest of it is now.
    pub(crate) dest: String,
    /// The missing part.
    pub(crate) bad_ranges: Vec<BadRange>,
}

/// The result of a copy.
#[derive(Debug, Default)]
pub(crate) struct CopyReport {
    /// Files of any kind that were made.
    pub(crate) copied: u64,
    /// Bytes that were written.
    pub(crate) bytes: u64,
    /// Files that were there and complete.
    pub(crate) skipped: u64,
    /// Files that an earlier run had begun.
    pub(crate) resumed: u64,
    /// Files that could not be read in full.
    pub(crate) damaged: Vec<DamagedFile>,
    /// Files that were not made, and why.
    pub(crate) failed: Vec<(String, String)>,
    /// The metadata that could not be kept: kind, count, first reason.
    pub(crate) lost_attributes: Vec<(&'static str, u64, String)>,
    /// Owners were not kept, because only root may set them.
    pub(crate) owners_skipped: bool,
    /// It was stopped before the end.
    pub(crate) interrupted: bool,
}

/// The most damaged files and ranges that are printed; the report's file has all.
const MAX_PRINTED: usize = 50;

impl CopyReport {
    /// Whether anything is missing.
    pub(crate) fn has_failures(&self) -> bool {
        !self.damaged.is_empty() || !self.failed.is_empty()
    }

    /// Prints it on standard error.
    pub(crate) fn print(&self) {
        let mut text = format!("copied {} files, {}B", self.copied, human_size(self.bytes));
        if self.skipped > 0 {
            text += &format!("; skipped {} that are complete", self.skipped);
        }
        if self.resumed > 0 {
            text += &format!("; resumed {}", self.resumed);
        }
        if !self.damaged.is_empty() {
            text += &format!("; {} could not be read in full", self.damaged.len());
        }
        if !self.failed.is_empty() {
            text += &format!("; {} could not be copied", self.failed.len());
        }
        text.push('\n');
        if self.owners_skipped {
            text += "owners were not kept: only root may give files to others\n";
        }
        for (what, count, why) in &self.lost_attributes {
            text += &format!("{what} were not kept, {count} times: {why}\n");
        }
        for damaged in self.damaged.iter().take(MAX_PRINTED) {
            text += &format!("not in full: {}\n", damaged.path);
            for bad in damaged.bad_ranges.iter().take(MAX_PRINTED) {
                text += &format!(
                    "  bytes {} to {} are missing: {}\n",
                    bad.start,
                    bad.end - 1,
                    bad.reason
                );
            }
            if damaged.bad_ranges.len() > MAX_PRINTED {
                text += &format!("  and {} ranges more\n", damaged.bad_ranges.len() - MAX_PRINTED);
            }
        }
        if self.damaged.len() > MAX_PRINTED {
            text +=
                &format!("and {} files more (--report FILE)\n", self.damaged.len() - MAX_PRINTED);
        }
        eprint!("{text}");
    }

    /// Writes it as JSON.
    pub(crate) fn write_json(&self, path: &Path) -> io::Result<()> {
        let range = |bad: &BadRange| json!({"start": bad.start, "end": bad.end, "why": bad.reason});
        let damaged = |each: &DamagedFile| {
            let ranges: Vec<Value> = each.bad_ranges.iter().map(range).collect();
            json!({"path": each.path, "dest": each.dest, "ranges": ranges})
        };
        let failed = |(path, why): &(String, String)| json!({"path": path, "why": why});
        let kept = |(what, count, why): &(&str, u64, String)| json!({"what": what, "count": count, "why": why});
        let report = json!({
            "copied": self.copied,
            "bytes": self.bytes,
            "skipped": self.skipped,
            "resumed": self.resumed,
            "stopped": self.interrupted,
            "owners_left_out": self.owners_skipped,
            "damaged": self.damaged.iter().map(damaged).collect::<Vec<_>>(),
            "failed": self.failed.iter().map(failed).collect::<Vec<_>>(),
            "not_kept": self.lost_attributes.iter().map(kept).collect::<Vec<_>>(),
        });
        std::fs::write(path, format!("{report:#}\n"))
    }
}
