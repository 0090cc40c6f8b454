//! A file system that is taken back to a snapshot of it while it is in use: what whoever keeps what
//! he was told must ask for again, and how the rest goes on.

use std::collections::BTreeMap;

use engine::files::{Files, Sort, Unlike};

use super::{HEAD, Live};
use crate::number::Node;
use crate::{Error, Result};

/// Something that is another than it was.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Changed {
    /// A file of any kind, or one that is no more.
    Node(u64),
    /// What a name names, if anything.
    Name {
        /// The directory's number.
        dir: u64,
        /// The name.
        name: Vec<u8>,
    },
}

impl Live {
    /// What will be another when the file system is what `snapshot`, one of its own by its full name,
    /// has. Nobody may change it meanwhile.
    ///
    /// # Errors
    ///
    /// What cannot be read, and [`Error::Reborn`].
    pub fn unlike(&self, snapshot: &str) -> Result<Vec<Changed>> {
        let held = &self.0.held;
        held.sync()?;
        let (now, then) = (held.still_files(&self.0.dataset)?, held.still_files(snapshot)?);
        let mut changed = Vec::new();
        for one in now.unlike(&then)? {
            add(&mut changed, [&now, &then], one)?;
        }
        Ok(changed)
    }

    /// Opens the file system anew after it was taken back to a snapshot; gives whether it was. Nobody may
    /// ask for anything meanwhile, and what is open must be opened [again](super::Open::again).
    pub fn open_again(&self) -> Result<bool> {
        if !self.0.files().is_ended() {
            return Ok(false);
        }
        let files = self.0.held.files(&self.0.dataset)?;
        let mut here = self.0.files.write();
        // what a program still has open of a file that is no more must not become another
        files.number_after(&here);
        *here = files;
        Ok(true)
    }
}

fn add(changed: &mut Vec<Changed>, both: [&Files; 2], one: Unlike) -> Result<()> {
    let [before, after] = [0, 1].map(|at| Side { files: both[at], id: one.id, sort: one.kind[at] });
    if let (Some(was), Some(will_be)) = (before.generation()?, after.generation()?)
        && was != will_be
    {
        return Err(Error::Reborn { number: one.id });
    }
    let Some(number) = Node::File(HEAD, one.id).number() else { return Ok(()) };
    changed.push(Changed::Node(number));
    let (before, after) = (before.names()?, after.names()?);
    let gone = before.iter().filter(|(name, id)| after.get(*name) != Some(*id));
    let new = after.iter().filter(|(name, _)| !before.contains_key(*name));
    let names = gone.chain(new).map(|(name, _)| name.clone());
    changed.extend(names.map(|name| Changed::Name { dir: number, name }));
    Ok(())
}

/// An object of one of two file systems.
struct Side<'a> {
    files: &'a Files,
    id: u64,
    sort: Sort,
}

impl Side<'_> {
    /// Which of the files that may have had its number it is; none: it is no file.
    fn generation(&self) -> Result<Option<u64>> {
        if self.sort == Sort::None {
            return Ok(None);
        }
        Ok(Some(self.files.facts(self.id)?.generation))
    }

    /// What names in it name, if it is a directory.
    fn names(&self) -> Result<BTreeMap<Vec<u8>, u64>> {
        let mut names = BTreeMap::new();
        if self.sort == Sort::Directory {
            let dir = self.files.file(self.id)?;
            self.files.list(&dir, &mut |name| {
                names.insert(name.name, name.id);
                true
            })?;
        }
        Ok(names)
    }
}
