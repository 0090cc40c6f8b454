//! The blocks that a snapshot refers to.

use std::sync::Arc;

use dmu::{BlockVisit, Objset, WalkControl, WalkOptions};
use ondisk::Blkptr;
use ondisk::blkptr::Regular;
use units::{ObjsetId, Txg, Zbookmark};
use zio::{Source, StoredReader};

use crate::{Error, Manifest, Repository, Result};

/// Calls `visit` with every stored block of an object set, pointers before their children. `since`:
/// only blocks born after that txg. Unreadable blocks go to `failed`, which may end the walk by an
/// error.
pub(crate) fn walk_blocks(
    objset: &Objset,
    since: Txg,
    visit: &mut dyn FnMut(&Regular, Zbookmark) -> Result<()>,
    failed: &mut dyn FnMut(&dmu::Error) -> Result<()>,
) -> Result<()> {
    let mut result = Ok(());
    let options = WalkOptions { born_after: since, ..WalkOptions::default() };
    objset.walk(&options, &mut |zbookmark, shown| {
        let done = match shown {
            BlockVisit::Pointer(Blkptr::Regular(block)) => visit(block, zbookmark),
            BlockVisit::Pointer(_) => Ok(()),
            BlockVisit::Error(why) => failed(why),
        };
        match done {
            Ok(()) => WalkControl::Descend,
            Err(why) => {
                result = Err(why);
                WalkControl::Stop
            }
        }
    });
    result
}

/// A snapshot in a repository, to be walked block by block. Encrypted ones need no key.
pub(crate) struct SnapshotWalk {
    name: String,
    objset: Objset,
    reader: Arc<StoredReader>,
}

impl SnapshotWalk {
    /// Opens a snapshot.
    pub(crate) fn open(repository: &Repository, manifest: &Manifest) -> Result<Self> {
        let name = manifest.name();
        let reader = Arc::new(repository.stored_reader(manifest)?.with_raw_dnodes());
        let source: Arc<dyn Source> = Arc::clone(&reader) as _;
        let objset = open_objset(repository, manifest, source)?;
        Ok(Self { name, objset, reader })
    }

    /// The reader of its blocks.
    pub(crate) fn reader(&self) -> &StoredReader {
        &self.reader
    }

    /// Shows every block born after `since` to `visit`. The first block that cannot be read ends the walk.
    pub(crate) fn walk(
        &self,
        since: Txg,
        visit: &mut dyn FnMut(&Regular, Zbookmark) -> Result<()>,
    ) -> Result<()> {
        let failed =
            |why: &dmu::Error| Err(Error::Block { snapshot: self.name.clone(), why: why.clone() });
        walk_blocks(&self.objset, since, visit, &mut { failed })
    }

    /// The same, but unreadable blocks go to `failed`, and the walk continues.
    pub(crate) fn walk_with(
        &self,
        since: Txg,
        visit: &mut dyn FnMut(&Regular, Zbookmark) -> Result<()>,
        failed: &mut dyn FnMut(&dmu::Error) -> Result<()>,
    ) -> Result<()> {
        walk_blocks(&self.objset, since, visit, failed)
    }
}

/// Opens the object set of a snapshot over a source of its blocks that needs no key.
fn open_objset(
    repository: &Repository,
    manifest: &Manifest,
    source: Arc<dyn Source>,
) -> Result<Objset> {
    let root = manifest.root_pointer();
    let root = root.map_err(|why| damaged_manifest(repository, manifest, why))?;
    Objset::open(source, ObjsetId::new(manifest.objset), &root, None)
        .map_err(|why| Error::Block { snapshot: manifest.name(), why })
}

fn damaged_manifest(repository: &Repository, manifest: &Manifest, why: String) -> Error {
    repository.corrupt(&format!("manifest of {}", manifest.name()), why)
}

impl Repository {
    /// A reader of the blocks of a snapshot. It has no cache of decoded blocks.
    pub fn stored_reader(&self, manifest: &Manifest) -> Result<StoredReader> {
        let salt = manifest.salt().map_err(|why| damaged_manifest(self, manifest, why))?;
        Ok(StoredReader::new(self.blocks(manifest.pool), salt))
    }
}
