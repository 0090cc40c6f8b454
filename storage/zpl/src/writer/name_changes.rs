//! Names that change together: all of them, or none.
//!
//! A change of a name can fail within a transaction (a table is unreadable, or has no space), and
//! the earlier changes of the transaction reach the drives all the same. So the old entries are
//! kept until all changes are done. New names are added before old ones are removed: undoing an
//! addition reads nothing from the drives.

use posix::{FileType, Time};
use txg::Tx;
use units::ObjectId;

use crate::writer::FsWriter;
use crate::writer::pending_file::PendingFile;
use crate::{Result, dir};

/// Names that are being changed. The directories that they are in are not stored here.
pub(super) struct NameChanges<'a> {
    writer: &'a FsWriter,
    tx: &'a Tx,
    now: Time,
    undo_list: Vec<PreviousEntry>,
}

/// The old entry of a name in a directory; `None`: it did not exist.
struct PreviousEntry {
    dir: ObjectId,
    name: Vec<u8>,
    dirent: Option<u64>,
}

impl FsWriter {
    /// Changes names; after an error all have their old entries again.
    pub(super) fn change_names<T>(
        &self,
        tx: &Tx,
        now: Time,
        change: impl FnOnce(&mut NameChanges<'_>) -> Result<T>,
    ) -> Result<T> {
        let mut names = NameChanges { writer: self, tx, now, undo_list: Vec::new() };
        let done = change(&mut names);
        if done.is_err() {
            names.roll_back();
        }
        done
    }
}

impl NameChanges<'_> {
    /// Adds a name to a directory.
    pub(super) fn add(
        &mut self,
        dir: &mut PendingFile,
        name: &[u8],
        (id, kind): (ObjectId, FileType),
    ) -> Result<()> {
        self.writer.add_dir_entry(self.tx, dir, (name, id, kind), self.now)?;
        self.undo_list.push(PreviousEntry { dir: dir.id(), name: name.to_vec(), dirent: None });
        Ok(())
    }

    /// Takes a name, as it is stored, out of a directory.
    pub(super) fn remove(
        &mut self,
        dir: &mut PendingFile,
        name: &[u8],
        kind: FileType,
    ) -> Result<()> {
        let word = self.writer.open_zap(dir.id())?.lookup_u64(name)?;
        self.writer.remove_dir_entry(self.tx, dir, (name, kind), self.now)?;
        self.undo_list.push(PreviousEntry { dir: dir.id(), name: name.to_vec(), dirent: word });
        Ok(())
    }

    /// Gives a name, as it is stored, to another file.
    pub(super) fn replace(
        &mut self,
        dir: &mut PendingFile,
        name: &[u8],
        was: FileType,
        (id, kind): (ObjectId, FileType),
    ) -> Result<()> {
        let table = self.writer.open_zap(dir.id())?;
        let old = table.lookup_u64(name)?;
        table.update_u64(
            self.tx,
            name,
            dir::encode_dirent(id, kind, self.writer.fs.master().version),
        )?;
        self.undo_list.push(PreviousEntry { dir: dir.id(), name: name.to_vec(), dirent: old });
        dir.adjust_dir_links(kind, 1);
        dir.adjust_dir_links(was, -1);
        dir.sa.touch_mtime(self.now);
        Ok(())
    }

    /// Gives a name that may be spelled otherwise from now on to another file.
    pub(super) fn replace_respelled(
        &mut self,
        dir: &mut PendingFile,
        (stored, name): (&[u8], &[u8]),
        was: FileType,
        to: (ObjectId, FileType),
    ) -> Result<()> {
        if stored == name {
            return self.replace(dir, name, was, to);
        }
        self.add(dir, name, to)?;
        self.remove(dir, stored, was)
    }

    fn roll_back(self) {
        for PreviousEntry { dir, name, dirent: word } in self.undo_list.into_iter().rev() {
            // this fails only if a part that could be changed a moment ago cannot be changed now
            let _ = self.writer.open_zap(dir).and_then(|table| {
                match word {
                    Some(word) => table.update_u64(self.tx, &name, word)?,
                    None => drop(table.remove(self.tx, &name)?),
                }
                Ok(())
            });
        }
    }
}
