//! Names that change together: all of them, or none.
//!
//! A change of a name can fail within a transaction (a table that cannot be read, or has no room),
//! and what was changed before it goes to the drives all the same. So what each name was is kept
//! until all have changed. New names come before old ones go: taking out again what has just been put
//! in reads nothing anew.

use ondisk::znode::Time;
use txg::Tx;
use units::ObjectId;

use crate::writer::Writer;
use crate::writer::draft::Draft;
use crate::{Kind, Result, dir};

/// Names that are being changed. The directories that they are in are not stored here.
pub(super) struct Names<'a> {
    writer: &'a Writer,
    tx: &'a Tx,
    now: Time,
    before: Vec<Before>,
}

/// What a name in a directory stood for; `None`: nothing.
struct Before {
    dir: ObjectId,
    name: Vec<u8>,
    word: Option<u64>,
}

impl Writer {
    /// Changes names; where that fails, they are what they were.
    pub(super) fn all_names<T>(
        &self,
        tx: &Tx,
        now: Time,
        change: impl FnOnce(&mut Names<'_>) -> Result<T>,
    ) -> Result<T> {
        let mut names = Names { writer: self, tx, now, before: Vec::new() };
        let done = change(&mut names);
        if done.is_err() {
            names.put_back();
        }
        done
    }
}

impl Names<'_> {
    /// Adds a name to a directory.
    pub(super) fn add(
        &mut self,
        dir: &mut Draft,
        name: &[u8],
        (id, kind): (ObjectId, Kind),
    ) -> Result<()> {
        self.writer.add_name(self.tx, dir, (name, id, kind), self.now)?;
        self.before.push(Before { dir: dir.id(), name: name.to_vec(), word: None });
        Ok(())
    }

    /// Takes a name, as it is stored, out of a directory.
    pub(super) fn take(&mut self, dir: &mut Draft, name: &[u8], kind: Kind) -> Result<()> {
        let word = self.writer.table(dir.id())?.lookup_u64(name)?;
        self.writer.take_name(self.tx, dir, (name, kind), self.now)?;
        self.before.push(Before { dir: dir.id(), name: name.to_vec(), word });
        Ok(())
    }

    /// Gives a name, as it is stored, to another file.
    pub(super) fn turn(
        &mut self,
        dir: &mut Draft,
        name: &[u8],
        was: Kind,
        (id, kind): (ObjectId, Kind),
    ) -> Result<()> {
        let table = self.writer.table(dir.id())?;
        let old = table.lookup_u64(name)?;
        table.update_u64(self.tx, name, dir::join(id, kind, self.writer.fs.master().version))?;
        self.before.push(Before { dir: dir.id(), name: name.to_vec(), word: old });
        dir.count_directory(kind, 1);
        dir.count_directory(was, -1);
        dir.sheet.touch_content(self.now);
        Ok(())
    }

    /// Gives a name that may be spelled otherwise from now on to another file.
    pub(super) fn turn_as(
        &mut self,
        dir: &mut Draft,
        (stored, name): (&[u8], &[u8]),
        was: Kind,
        to: (ObjectId, Kind),
    ) -> Result<()> {
        if stored == name {
            return self.turn(dir, name, was, to);
        }
        self.add(dir, name, to)?;
        self.take(dir, stored, was)
    }

    fn put_back(self) {
        for Before { dir, name, word } in self.before.into_iter().rev() {
            // what fails here was there, and could be changed, a moment ago
            let _ = self.writer.table(dir).and_then(|table| {
                match word {
                    Some(word) => table.update_u64(self.tx, &name, word)?,
                    None => drop(table.remove(self.tx, &name)?),
                }
                Ok(())
            });
        }
    }
}
