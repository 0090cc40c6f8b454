//! Changes after which a head is no more what it was: it is destroyed, taken back, or called
//! otherwise. Nobody opens one while such a change is made, and who has one open that is no more
//! gets errors from then on.

use std::collections::HashMap;

use dsl::write::{self, Change};
use spa::Owned;

use super::Held;
use super::history::{id_of, note_of};
use crate::{Error, Result};

impl Held {
    /// Has a change made that may end these heads; it lets go of those that it ends, in its group. Until
    /// then their
    /// logs are not written on, as those of heads that are no more could not be freed.
    pub(super) fn change_ending<T: Send + 'static>(
        &self,
        heads: &[String],
        work: impl FnOnce(&Owned, &Change<'_>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let (mut files, mut volumes) = (self.0.files.lock(), self.0.volumes.lock());
        let mut sets = Vec::new();
        let mut heads = heads.iter().filter(|name| !name.contains(['@', '#'])).peekable();
        if heads.peek().is_some() {
            let _pin = self.pin();
            let tree = self.tree()?;
            for name in heads {
                let id = tree.find(name).ok().and_then(|dataset| dataset.id());
                if let Some(set) = id.and_then(|id| self.0.owned.set(id)) {
                    set.pause_log(true);
                    sets.push((name, set));
                }
            }
        }
        let done = self.change(work);
        for (name, set) in sets {
            if set.is_retired() {
                files.remove(name);
                volumes.remove(name);
            } else {
                set.pause_log(false);
            }
        }
        done
    }

    /// Has something made, which nobody can open before this returns.
    pub(super) fn make_unseen<T>(&self, make: impl FnOnce() -> Result<T>) -> Result<T> {
        let _nobody = (self.0.files.lock(), self.0.volumes.lock());
        make()
    }

    /// Gives a head, and so all below it, another name. What is open stays so.
    pub(super) fn rename_head(&self, from: &str, to: &str) -> Result<()> {
        self.above(to)?;
        let (mut files, mut volumes) = (self.0.files.lock(), self.0.volumes.lock());
        let (old, new) = (from.to_owned(), to.to_owned());
        self.change(move |owned, change| {
            let id = id_of(change, &old);
            write::rename(change, &old, &new).map_err(|error| Error::of_dataset(&old, &error))?;
            note_of(owned, change, "rename", (&old, id), &format!("-> {new}"));
            Ok(())
        })?;
        let moved = |name: &str| {
            let rest = name.strip_prefix(from)?;
            (rest.is_empty() || rest.starts_with('/')).then(|| format!("{to}{rest}"))
        };
        name_anew(&mut files, &moved);
        name_anew(&mut volumes, &moved);
        drop((files, volumes));
        // they inherit from others now
        self.refresh();
        Ok(())
    }

    /// Writes out what waits of a head, and lets go of it.
    pub(super) fn close(&self, name: &str) -> Result<()> {
        self.close_while(|close| close(name))
    }

    /// Has work done that lets go of heads. Nobody opens one meanwhile.
    pub(super) fn close_while<T>(
        &self,
        work: impl FnOnce(&mut dyn FnMut(&str) -> Result<()>) -> Result<T>,
    ) -> Result<T> {
        let (mut files, mut volumes) = (self.0.files.lock(), self.0.volumes.lock());
        work(&mut |name| {
            files.remove(name);
            volumes.remove(name);
            self.let_go(name)
        })
    }

    fn let_go(&self, name: &str) -> Result<()> {
        let id = self.find(name)?.id();
        let Some(set) = id.and_then(|id| self.0.owned.set(id)) else { return Ok(()) };
        set.retire();
        let done = self.sync();
        if let Some(id) = id {
            self.0.owned.forget(id);
        }
        done
    }
}

/// What is open goes by other names.
fn name_anew<T>(open: &mut HashMap<String, T>, moved: &dyn Fn(&str) -> Option<String>) {
    let all = std::mem::take(open).into_iter();
    open.extend(all.map(|(name, one)| (moved(&name).unwrap_or(name), one)));
}
