//! Everything of a pool that can be looked at: opened, listed, walked, read, as far as it goes.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use check::PoolCheck;
use device::{Device, DeviceSlice, partitions};
use dmu::{BlockVisit, Objset, WalkControl};
use dsl::{Dataset, DatasetTree, PoolInfo, SpaceByOwner};
use fixtures::{Key, hex};
use job::Job;
use ondisk::object_type::Content;
use posix::FileType;
use sha2::{Digest, Sha256};
use spa::{Candidate, ImportPoint, Pool, PoolOpenOptions};
use units::{Guid, ObjectId, ObjsetId};
use zap::Zap;
use zil::LogReader;
use zio::Source;
use zpl::{Fs, Inode};
use zvol::Volume;

use crate::hostile::{HostileSource, Plan};

/// The visible content of a pool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PoolContents {
    /// The txg as of which the pool was read; 0 if it could not be opened.
    pub txg: u64,
    /// Each dataset, file and volume, and its content.
    pub items: BTreeMap<String, String>,
    /// Errors by dataset; those of the pool itself under an empty name.
    pub errors: BTreeMap<String, Vec<String>>,
    /// The limit of entries was reached.
    pub is_truncated: bool,
    /// Whether an examination of every block found nothing wrong; none if there was none.
    pub is_clean: Option<bool>,
}

/// Opens a pool and reads its content, like its owner would.
#[derive(Clone, Debug)]
pub struct ReadOptions {
    /// Which pool; none: the first that is found.
    pub guid: Option<Guid>,
    /// Its keys.
    pub keys: Vec<Key>,
    /// Lies, if there are to be any.
    pub plan: Option<Plan>,
}

/// The limit of files and depth; no fixture has as many.
const MAX_FILES: usize = 5000;
const MAX_DEPTH: usize = 64;
/// Bytes of content to be read of one pool, and of ranges of data in one file.
const MAX_BYTES: u64 = 96 << 20;
const MAX_RANGES: usize = 2000;
/// Larger files are read by their ranges of data.
const MAX_WHOLE_FILE: u64 = 8 << 20;
const MAX_ENTRIES: usize = 100_000;

/// Looks at everything that can be reached from devices.
pub fn read_contents(devices: &[Arc<dyn Device>], wish: &ReadOptions) -> PoolContents {
    let mut all = Vec::new();
    for device in devices {
        for part in partitions(&**device) {
            let name = format!("{}-{}", device.name(), part.number);
            let window = DeviceSlice::new(name, Arc::clone(device), part.start, part.size);
            all.push(Arc::new(window) as Arc<dyn Device>);
        }
        all.push(Arc::clone(device));
    }
    let (found, _) = spa::scan_devices(&all);
    let mut eye = ContentsReader {
        options: wish,
        contents: PoolContents::default(),
        bytes_left: MAX_BYTES,
        file_count: 0,
    };
    for candidate in &found {
        let wanted = wish.guid.is_none_or(|guid| guid == candidate.guid);
        if !wanted {
            let _ = candidate.open(&PoolOpenOptions::default());
            continue;
        }
        match eye.open_pool(candidate) {
            Some(pool) => eye.read_pool(&pool),
            None => eye.record_error("", &"the pool does not open"),
        }
    }
    if found.is_empty() {
        eye.record_error("", &"no pool is found");
    }
    eye.contents
}

/// Reads from an offset on; gives how many bytes.
type ReadFn<'a, E> = &'a mut dyn FnMut(u64, &mut [u8]) -> Result<usize, E>;

struct ContentsReader<'a> {
    options: &'a ReadOptions,
    contents: PoolContents,
    bytes_left: u64,
    file_count: usize,
}

impl ContentsReader<'_> {
    fn record_error(&mut self, dataset: &str, why: &dyn ToString) {
        self.contents.errors.entry(dataset.to_owned()).or_default().push(why.to_string());
    }

    /// The result, or its error noted.
    fn ok_or_record<T, E: ToString>(&mut self, dataset: &str, result: Result<T, E>) -> Option<T> {
        result.map_err(|why| self.record_error(dataset, &why)).ok()
    }

    fn open_pool(&mut self, candidate: &Candidate) -> Option<Pool> {
        for top in 0..4 {
            if let Some(tree) = candidate.top(units::VdevId::new(top)) {
                let _ = candidate.leaves(tree).count();
            }
        }
        let lie = |source| match self.options.plan {
            Some(plan) if !plan.starts_after_open => {
                Arc::new(HostileSource::new(source, plan)) as Arc<dyn Source>
            }
            _ => source,
        };
        let mut last = None;
        for choice in [ImportPoint::Newest, ImportPoint::Rewind] {
            let options = PoolOpenOptions { import_point: choice, ..PoolOpenOptions::default() };
            match candidate.open_with_source(&options, &lie) {
                Ok(pool) => return Some(pool),
                Err(error) => last = Some(error),
            }
        }
        self.record_error("", &last?);
        None
    }

    fn read_pool(&mut self, pool: &Pool) {
        self.contents.txg = pool.txg().get();
        let _ = self.ok_or_record("", pool.checkpoint());
        let mos = match self.options.plan {
            Some(plan) if plan.starts_after_open => {
                let source = Arc::new(HostileSource::new(pool.source(), plan));
                Objset::open(source, ObjsetId::MOS, &pool.uberblock().root, None)
            }
            _ => Ok(pool.mos().clone()),
        };
        let Some(mos) = self.ok_or_record("", mos) else { return };
        self.read_mos_objects(pool, &mos);
        let facts = PoolInfo { name: pool.name().to_owned(), usable_space: 1 << 30 };
        let Some(tree) = self.ok_or_record("", DatasetTree::open(mos.clone(), facts)) else {
            return;
        };
        for (dir, error) in tree.errors() {
            self.record_error("", &format!("{dir}: {error}"));
        }
        for key in &self.options.keys {
            let unlocked =
                tree.find(&key.dataset).and_then(|d| tree.load_key(&d, &key.file_content()));
            self.ok_or_record("", unlocked);
        }
        for dataset in tree.datasets() {
            if let Some(dataset) = self.ok_or_record("", dataset) {
                self.read_dataset(pool, &mos, &dataset);
            }
        }
        self.contents.is_clean = verify_pool(pool, &tree);
    }

    /// The objects of the pool's own object set: tables, space maps, lists.
    fn read_mos_objects(&mut self, pool: &Pool, mos: &Objset) {
        self.walk_blocks("", mos);
        for top in self.ok_or_record("", pool.vdev_space()).unwrap_or_default() {
            for map in top.space_maps.iter().flatten() {
                let entries = mos.object(*map).map_err(spa::Error::from);
                let _ = entries.and_then(|map| spa::space_map_entries(&map, &mut |_| {}));
            }
        }
        for object in mos.objects().take(MAX_ENTRIES) {
            let Some((id, dnode)) = self.ok_or_record("", object) else { continue };
            let kind = dnode.kind;
            let object = mos.object_with_dnode(id, dnode);
            if kind.content() == Content::Zap {
                self.read_zap("", Zap::open(object));
            } else if kind == ondisk::ObjectType::BPOBJ {
                let _ = dsl::block_lists::walk_bpobj(mos, id, &mut |_| {
                    std::ops::ControlFlow::Continue(())
                });
            } else if object.dnode().max_block.get() < 1000 {
                let mut bytes = vec![0; 100_000];
                let _ = object.read(0, &mut bytes);
            }
        }
    }

    fn read_zap(&mut self, dataset: &str, table: zap::Result<Zap>) {
        let Some(table) = self.ok_or_record(dataset, table) else { return };
        for entry in table.entries().take(MAX_ENTRIES) {
            let Some(entry) = self.ok_or_record(dataset, entry) else { continue };
            let _ = match &entry.key64 {
                Some(words) => table.lookup_key64(words),
                None => table.lookup(&entry.name),
            };
        }
    }

    fn walk_blocks(&mut self, dataset: &str, objset: &Objset) {
        let mut faults = Vec::new();
        let mut left = MAX_ENTRIES;
        objset.walk(&dmu::WalkOptions::default(), &mut |_, found| {
            left = left.saturating_sub(1);
            if let BlockVisit::Error(error) = found
                && faults.len() < 100
            {
                faults.push(error.to_string());
            }
            if left == 0 { WalkControl::Stop } else { WalkControl::Descend }
        });
        for why in faults {
            self.record_error(dataset, &why);
        }
    }

    fn read_dataset(&mut self, pool: &Pool, mos: &Objset, dataset: &Dataset) {
        let name = dataset.name();
        let name = name.as_str();
        self.contents.items.insert(name.to_owned(), "a dataset".to_owned());
        let _ = (dataset.properties(), dataset.holds(), dataset.clones(), dataset.written());
        let _ = (dataset.resume_token(), dataset.key_info(), dataset.clone_origin());
        if dataset.bookmark_record().is_some() {
            let _ = dataset.redaction_list();
            return;
        }
        if let Some(phys) = dataset.phys() {
            let deadlist = phys.deadlist;
            let _ = dsl::block_lists::deadlist_space(mos, deadlist);
            let next =
                &mut |_: dsl::block_lists::ListEntry<'_>| std::ops::ControlFlow::Continue(());
            let _ = dsl::block_lists::walk_deadlist(mos, deadlist, next);
        }
        let Some(objset) = self.ok_or_record(name, dataset.open_objset()) else { return };
        self.walk_blocks(name, &objset);
        let header = objset.header().log.clone();
        let (source, key) = (Arc::clone(objset.source()), objset.key().cloned());
        let mut log = LogReader::new(source, objset.id(), &header, key, pool.txg());
        match objset.header().kind {
            ondisk::objset::Kind::Filesystem => {
                let _ = self.ok_or_record(name, SpaceByOwner::read(&objset));
                let opened = Fs::open(objset, zpl::FsOptions::default(), Some(&mut log));
                let Some((fs, replayed)) = self.ok_or_record(name, opened) else { return };
                if let Some((_, error)) = replayed.failed_record {
                    self.record_error(name, &error);
                }
                self.read_filesystem(name, &fs);
            }
            ondisk::objset::Kind::Volume => {
                let opened = Volume::open(&objset, Some(&mut log));
                let Some((volume, _)) = self.ok_or_record(name, opened) else { return };
                let shown = self.describe_volume(&volume);
                if let Some(shown) = self.ok_or_record(name, shown) {
                    self.contents.items.insert(format!("{name}:"), shown);
                }
            }
            _ => self.record_error(name, &"neither a file system nor a volume"),
        }
    }

    fn read_filesystem(&mut self, name: &str, fs: &Fs) {
        let _ = fs.fuid_domains();
        let unlinked = fs.for_each_unlinked(&mut |id| {
            let _ = fs.attributes(id);
            true
        });
        self.ok_or_record(name, unlinked);
        let Some(root) = self.ok_or_record(name, fs.root()) else { return };
        let mut above = HashSet::new();
        self.read_tree(name, fs, &root, "", &mut above);
    }

    fn read_tree(
        &mut self,
        name: &str,
        fs: &Fs,
        node: &Inode,
        path: &str,
        above: &mut HashSet<ObjectId>,
    ) {
        self.file_count += 1;
        if self.file_count > MAX_FILES || above.len() > MAX_DEPTH {
            self.contents.is_truncated = true;
            return;
        }
        let shown = self.describe_inode(node);
        if let Some(shown) = self.ok_or_record(name, shown) {
            self.contents.items.insert(format!("{name}:/{path}"), shown);
        }
        if node.attributes().kind != FileType::Directory || !above.insert(node.id()) {
            return;
        }
        let mut entries = Vec::new();
        let listed = fs.read_dir(node, None, &mut |entry| {
            entries.push(entry);
            entries.len() < MAX_FILES
        });
        self.ok_or_record(name, listed);
        for entry in entries {
            let shown = String::from_utf8_lossy(&entry.name).into_owned();
            let below = if path.is_empty() { shown } else { format!("{path}/{shown}") };
            let _ = self.ok_or_record(name, fs.lookup(node, &entry.name));
            if let Some(child) = self.ok_or_record(name, fs.inode(entry.object)) {
                self.read_tree(name, fs, &child, &below, above);
            }
        }
        above.remove(&node.id());
    }

    fn describe_inode(&mut self, node: &Inode) -> zpl::Result<String> {
        let a = node.attributes();
        let _ = node.acl();
        let mut out = vec![format!(
            "{} {:?} {:o} {} {} {} {} {:?}",
            node.id(),
            a.kind,
            a.mode,
            a.uid,
            a.gid,
            a.nlink,
            a.size,
            a.mtime
        )];
        match a.kind {
            FileType::Symlink => out.push(format!("-> {:?}", node.read_link()?)),
            FileType::File => out.push(self.describe_content(node)?),
            _ => {}
        }
        for xattr in node.xattrs()? {
            let name = String::from_utf8_lossy(&xattr.name).into_owned();
            let value = node.xattr_value(xattr)?;
            out.push(format!("{name}={}", hex(&Sha256::digest(&value))));
        }
        Ok(out.join(" "))
    }

    /// In the form of the manifests: a digest, or of a large file its ranges of data.
    fn describe_content(&mut self, node: &Inode) -> zpl::Result<String> {
        let size = node.attributes().size;
        let mut read = |at, into: &mut [u8]| node.read(at, into);
        if size <= MAX_WHOLE_FILE {
            return Ok(format!("sha256 {}", self.digest(0..size, &mut read)?));
        }
        let (mut out, mut at) = (Vec::new(), 0);
        for _ in 0..MAX_RANGES {
            let Some(start) = node.next_data(at)? else { return Ok(out.join(" ")) };
            let end = node.next_hole(start)?;
            out.push(format!("{start}-{end} {}", self.digest(start..end, &mut read)?));
            if end <= at {
                break;
            }
            at = end;
        }
        self.contents.is_truncated = true;
        Ok(out.join(" "))
    }

    fn describe_volume(&mut self, volume: &Volume) -> Result<String, zvol::Error> {
        let size = volume.size();
        let mut read = |at, into: &mut [u8]| volume.read(at, into);
        Ok(format!("{size} bytes, sha256 {}", self.digest(0..size, &mut read)?))
    }

    fn digest<E>(&mut self, range: std::ops::Range<u64>, read: ReadFn<'_, E>) -> Result<String, E> {
        let mut sha = Sha256::new();
        let mut buffer = vec![0xaa; 1 << 20];
        let (mut at, end) = (range.start, range.end);
        while at < end {
            let want = usize::try_from(end - at).unwrap_or(usize::MAX).min(buffer.len());
            if self.bytes_left < want as u64 {
                self.contents.is_truncated = true;
                return Ok("cut".to_owned());
            }
            self.bytes_left -= want as u64;
            let count = read(at, &mut buffer[..want])?;
            if count == 0 {
                break;
            }
            sha.update(&buffer[..count]);
            at += count as u64;
        }
        Ok(hex(&sha.finalize()))
    }
}

/// Examines every block of a pool.
fn verify_pool(pool: &Pool, tree: &DatasetTree) -> Option<bool> {
    let check = PoolCheck::new(pool, Arc::new(Job::default())).ok()?;
    loop {
        check.run_worker();
        if !check.start_next_round() {
            break;
        }
    }
    Some(check.report(Some(tree), Duration::ZERO, 1).is_clean())
}

/// Wrong content that is shown without an error, a line each. A read of an older txg is not
/// compared, nor one that stopped early.
pub fn silent_corruptions(honest: &PoolContents, other: &PoolContents) -> Vec<String> {
    if other.txg != honest.txg || other.is_truncated || honest.is_truncated {
        return Vec::new();
    }
    let mut out = Vec::new();
    for (what, shown) in &other.items {
        if honest.items.get(what) != Some(shown) {
            let truth = honest.items.get(what).map_or("nothing", String::as_str);
            out.push(format!("{what}: {shown} instead of {truth}"));
        }
    }
    for what in honest.items.keys().filter(|what| !other.items.contains_key(*what)) {
        let dataset = what.split(':').next().unwrap_or_default();
        let told = other.errors.contains_key(dataset) || other.errors.contains_key("");
        if !told {
            out.push(format!("{what}: left out without an error"));
        }
    }
    if !other.errors.is_empty() && other.is_clean == Some(true) {
        out.push(format!("an examination finds nothing wrong, in spite of {:?}", other.errors));
    }
    out
}
