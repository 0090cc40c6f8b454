//! Names of a directory, read a batch at a time.

use crate::{DirEntry, Result};

/// The names that were read last, for one listing at a time.
pub(crate) struct EntryBatch {
    /// The directory cannot change: its names need not be read again from the beginning.
    is_immutable: bool,
    /// The cookie of the first name, if any.
    first_cookie: Option<u64>,
    /// The directory's version before they were read.
    version: u64,
    entries: Vec<DirEntry>,
}

impl EntryBatch {
    /// Without names yet. `stays`: the directory never changes.
    pub(crate) fn new(is_immutable: bool) -> Self {
        Self { is_immutable, first_cookie: None, version: 0, entries: Vec::new() }
    }

    /// Calls `visit` with the names from a cookie on, until it returns false: that name comes
    /// again. `fill` reads those from a cookie on, none at the end. `version` differs from the last
    /// one if the directory was changed since: a client must get no stale name.
    pub(crate) fn visit_from(
        &mut self,
        (cookie, version): (u64, u64),
        fill: &mut dyn FnMut(u64) -> Result<Vec<DirEntry>>,
        visit: &mut dyn FnMut(&DirEntry) -> bool,
    ) -> Result<()> {
        if version != self.version {
            (self.first_cookie, self.version, self.entries) = (None, version, Vec::new());
        }
        let (mut at, mut shown) = (cookie, false);
        loop {
            let first = match self.index_after(at) {
                Some(first) => first,
                None => match fill(at) {
                    Ok(items) => {
                        (self.first_cookie, self.entries) = (Some(at), items);
                        0
                    }
                    // what could be shown was; the next question gets the error
                    Err(_) if shown => return Ok(()),
                    Err(why) => return Err(why),
                },
            };
            let rest = self.entries.get(first..).unwrap_or(&[]);
            if rest.is_empty() {
                return Ok(());
            }
            for item in rest {
                if !visit(item) {
                    return Ok(());
                }
                (at, shown) = (item.next_cookie, true);
            }
        }
    }

    /// Where the item behind a cookie is, if the batch has the place.
    fn index_after(&self, cookie: u64) -> Option<usize> {
        if self.is_immutable && self.first_cookie == Some(cookie) {
            return Some(0);
        }
        let before = self.entries.binary_search_by_key(&cookie, |item| item.next_cookie).ok()?;
        let place = before + 1;
        // behind the last one there may be more
        (place < self.entries.len()).then_some(place)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::EntryBatch;
    use crate::DirEntry;

    #[test]
    fn names_are_reread_only_after_a_change() {
        let filled = Cell::new(0);
        let mut fill = |from: u64| {
            filled.set(filled.get() + 1);
            let item = |next| DirEntry {
                name: vec![filled.get()],
                ino: posix::Ino::new(7),
                kind: posix::FileType::File,
                next_cookie: next,
                needs_lookup: false,
            };
            Ok((from + 1..10).map(item).collect())
        };
        let mut batch = EntryBatch::new(false);
        let mut first = |cookie, version| {
            let mut found = None;
            let visit = &mut |item: &DirEntry| {
                found = Some((item.name[0], item.next_cookie));
                false
            };
            batch.visit_from((cookie, version), &mut fill, visit).unwrap();
            found
        };
        assert_eq!([first(0, 0), first(3, 0)], [Some((1, 1)), Some((1, 4))]);
        assert_eq!([first(4, 1), first(5, 1)], [Some((2, 5)), Some((2, 6))]);
        assert_eq!(first(9, 1), None);
    }
}
