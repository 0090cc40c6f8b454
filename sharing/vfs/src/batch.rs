//! Names of a directory, read a batch at a time.

use crate::{Item, Result};

/// The names that were read last. It is for one who lists at a time.
pub(crate) struct Batch {
    /// The directory cannot change: what was read need not be read again from its beginning.
    stays: bool,
    /// The cookie of the first name, if any was asked for.
    from: Option<u64>,
    items: Vec<Item>,
}

impl Batch {
    /// Without names yet. `stays`: the directory never changes.
    pub(crate) fn new(stays: bool) -> Self {
        Self { stays, from: None, items: Vec::new() }
    }

    /// Shows the names from a cookie on to `visit`, until it says false: such a name comes again.
    /// `fill` reads those from a cookie on, none at the end.
    pub(crate) fn show(
        &mut self,
        cookie: u64,
        fill: &mut dyn FnMut(u64) -> Result<Vec<Item>>,
        visit: &mut dyn FnMut(&Item) -> bool,
    ) -> Result<()> {
        let (mut at, mut shown) = (cookie, false);
        loop {
            let first = match self.place_of(at) {
                Some(first) => first,
                None => match fill(at) {
                    Ok(items) => {
                        (self.from, self.items) = (Some(at), items);
                        0
                    }
                    // what could be shown was; the next question gets the error
                    Err(_) if shown => return Ok(()),
                    Err(why) => return Err(why),
                },
            };
            let rest = self.items.get(first..).unwrap_or(&[]);
            if rest.is_empty() {
                return Ok(());
            }
            for item in rest {
                if !visit(item) {
                    return Ok(());
                }
                (at, shown) = (item.next, true);
            }
        }
    }

    /// Where the item behind a cookie is, if the batch has the place.
    fn place_of(&self, cookie: u64) -> Option<usize> {
        if self.stays && self.from == Some(cookie) {
            return Some(0);
        }
        let before = self.items.binary_search_by_key(&cookie, |item| item.next).ok()?;
        let place = before.saturating_add(1);
        // behind the last one there may be more
        (place < self.items.len()).then_some(place)
    }
}
