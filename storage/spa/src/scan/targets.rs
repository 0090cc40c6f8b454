//! The object sets that a scan walks: found in the MOS, so that datasets without a name are among them.

use std::collections::HashMap;

use dmu::Objset;
use dsl::block_lists;
use ondisk::dnode::Dnode;
use ondisk::dsl::{BptreeEntry, Dataset};
use ondisk::{Blkptr, ObjectType};
use units::{BlockId, Level, ObjectId, ObjsetId, Txg, Zbookmark};

use crate::{Error, PoolDirectory};

/// An object set to walk.
#[derive(Clone, Debug)]
pub(super) struct ScanTarget {
    pub(super) id: ObjsetId,
    pub(super) root: Blkptr,
    /// Blocks born after this txg belong to it; older ones belong to the snapshot before it.
    pub(super) since_txg: Txg,
    /// The bookmark at which the walk begins.
    pub(super) start: Option<Zbookmark>,
    /// Whether it is a head, which has an intent log of its own.
    pub(super) has_log: bool,
}

/// A dataset as the MOS has it.
#[derive(Clone, Debug)]
pub(super) struct ScanDataset {
    root: Blkptr,
    previous: ObjectId,
    pub(super) previous_txg: Txg,
    /// When the snapshot was taken; none for a head.
    pub(super) snapshot_txg: Option<Txg>,
}

impl ScanDataset {
    /// Its object set as a target.
    pub(super) fn target(&self, id: ObjsetId, since_txg: Txg) -> ScanTarget {
        let has_log = self.snapshot_txg.is_none();
        ScanTarget { id, root: self.root.clone(), since_txg, start: None, has_log }
    }

    /// The root of its object set.
    pub(super) const fn root(&self) -> &Blkptr {
        &self.root
    }
}

/// All datasets of a pool.
#[derive(Debug, Default)]
pub(super) struct ScanDatasets {
    by_id: HashMap<ObjsetId, ScanDataset>,
    /// The next snapshot, or the head, and the clones of each snapshot.
    children: HashMap<ObjsetId, Vec<ObjsetId>>,
}

impl ScanDatasets {
    /// Reads them. `lose` gets the error of each that cannot be read.
    pub(super) fn read(mos: &Objset, lose: &mut dyn FnMut(Error)) -> Self {
        let mut datasets = Self::default();
        for object in mos.objects() {
            match object.map_err(Error::from).and_then(|(id, dnode)| read_dataset(id, &dnode)) {
                Ok(Some((id, dataset))) => {
                    let previous = ObjsetId::new(dataset.previous.get());
                    datasets.children.entry(previous).or_default().push(id);
                    datasets.by_id.insert(id, dataset);
                }
                Ok(None) => {}
                Err(error) => lose(error),
            }
        }
        datasets
    }

    pub(super) fn get(&self, id: ObjsetId) -> Option<&ScanDataset> {
        self.by_id.get(&id)
    }

    /// The datasets that may share blocks with one: its snapshots, those of its origins, and all clones of
    /// these.
    pub(super) fn family(&self, id: ObjsetId) -> Vec<ObjsetId> {
        let mut first = id;
        // chains have no loops, but what a drive returns may
        for _ in 0..self.by_id.len() {
            let previous = self.by_id.get(&first).map(|dataset| dataset.previous);
            let previous = previous.map(|previous| ObjsetId::new(previous.get()));
            match previous.filter(|previous| self.has_content(*previous)) {
                Some(previous) => first = previous,
                None => break,
            }
        }
        let mut found = vec![first];
        let mut at = 0;
        while let Some(id) = found.get(at).copied().filter(|_| found.len() <= self.by_id.len()) {
            found.extend_from_slice(self.children(id));
            at += 1;
        }
        found
    }

    /// Whether there is such a dataset, and it is not the empty origin of all file systems.
    fn has_content(&self, id: ObjsetId) -> bool {
        self.by_id.get(&id).is_some_and(|dataset| !dataset.root.is_hole())
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (ObjsetId, &ScanDataset)> {
        self.by_id.iter().map(|(id, dataset)| (*id, dataset))
    }

    /// The datasets that follow a snapshot; those that follow none, if it is the MOS.
    pub(super) fn children(&self, id: ObjsetId) -> &[ObjsetId] {
        self.children.get(&id).map_or(&[], Vec::as_slice)
    }
}

/// The root of a dataset's object set; none if that is no dataset.
pub(crate) fn dataset_root(mos: &Objset, id: ObjsetId) -> Result<Option<Blkptr>, Error> {
    let id = ObjectId::new(id.get());
    Ok(read_dataset(id, mos.object(id)?.dnode())?.map(|(_, dataset)| dataset.root))
}

fn read_dataset(id: ObjectId, dnode: &Dnode) -> Result<Option<(ObjsetId, ScanDataset)>, Error> {
    if dnode.bonus_kind != ObjectType::DSL_DATASET {
        return Ok(None);
    }
    let mut bonus = ondisk::Reader::new("dataset", &dnode.bonus, dnode.order);
    let dataset = Dataset::read(&mut bonus)?;
    let is_snapshot = dataset.next.exists();
    let found = ScanDataset {
        root: dataset.root,
        previous: dataset.previous,
        previous_txg: dataset.previous_txg,
        snapshot_txg: is_snapshot.then_some(dataset.creation_txg),
    };
    Ok(Some((ObjsetId::new(id.get()), found)))
}

/// The trees of destroyed datasets whose blocks are not freed yet: the txg sync thread reads them.
pub(super) fn destroyed_targets(mos: &Objset) -> Result<Vec<ScanTarget>, Error> {
    let directory = PoolDirectory::open(mos.clone())?;
    let Some(list) = directory.lookup_u64("bptree_obj")?.filter(|list| *list != 0) else {
        return Ok(Vec::new());
    };
    let (_, entries) = block_lists::read_bptree(mos, ObjectId::new(list))?;
    let target = |entry: BptreeEntry| {
        let [objset, object, level, block] = entry.resume;
        let level = Level::new(u8::try_from(level).unwrap_or(0));
        let id = ObjsetId::new(objset);
        let zbookmark = Zbookmark::new(id, ObjectId::new(object), level, BlockId::new(block));
        let start = (entry.resume != [0; 4]).then_some(zbookmark);
        ScanTarget { id, root: entry.root, since_txg: entry.birth, start, has_log: false }
    };
    Ok(entries.into_iter().map(target).collect())
}
