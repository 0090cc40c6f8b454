//! Everything of a pool that can be looked at: opened, listed, walked, read, as far as it goes.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use check::Check;
use device::{Device, Window, partitions};
use dmu::{BlockVisit, Objset, WalkControl};
use dsl::{Dataset, Owners, PoolFacts, Tree};
use fixtures::{Key, hex};
use job::Job;
use ondisk::object_type::Content;
use posix::FileType;
use sha2::{Digest, Sha256};
use spa::{Candidate, Choice, Options, Pool};
use units::{Guid, ObjectId, ObjsetId};
use zap::Zap;
use zil::Records;
use zio::Source;
use zpl::{Fs, Inode};
use zvol::Volume;

use crate::hostile::{Hostile, Plan};

/// What was seen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// The txg as of which the pool was read; 0 if it could not be opened.
    pub txg: u64,
    /// Each dataset, file and volume, and what was found of it.
    pub shown: BTreeMap<String, String>,
    /// What could not be seen, by the dataset; that of the pool itself under an empty name.
    pub faults: BTreeMap<String, Vec<String>>,
    /// There was more than anybody wants to see.
    pub is_cut: bool,
    /// Whether an examination of every block found nothing wrong; none if there was none.
    pub is_clean: Option<bool>,
}

/// What a pool's owner would do to see what is in it.
#[derive(Clone, Debug)]
pub struct Wish {
    /// Which pool; none: the first that is found.
    pub guid: Option<Guid>,
    /// Its keys.
    pub keys: Vec<Key>,
    /// Lies, if there are to be any.
    pub plan: Option<Plan>,
}

/// No fixture has so many files, nor so deep.
const MOST_FILES: usize = 5000;
const DEEPEST: usize = 64;
/// Bytes of content to be read of one pool, and of ranges of data in one file.
const MOST_BYTES: u64 = 96 << 20;
const MOST_RANGES: usize = 2000;
/// Larger files are read by their ranges of data.
const LARGE: u64 = 8 << 20;
const MOST_ENTRIES: usize = 100_000;

/// Looks at everything that can be reached from devices.
pub fn look(devices: &[Arc<dyn Device>], wish: &Wish) -> Seen {
    let mut all = Vec::new();
    for device in devices {
        for part in partitions(&**device) {
            let name = format!("{}-{}", device.name(), part.number);
            let window = Window::new(name, Arc::clone(device), part.start, part.size);
            all.push(Arc::new(window) as Arc<dyn Device>);
        }
        all.push(Arc::clone(device));
    }
    let (found, _) = spa::scan(&all);
    let mut eye = Eye { wish, seen: Seen::default(), left: MOST_BYTES, files: 0 };
    for candidate in &found {
        let wanted = wish.guid.is_none_or(|guid| guid == candidate.guid);
        if !wanted {
            let _ = candidate.open(&Options::default());
            continue;
        }
        match eye.open(candidate) {
            Some(pool) => eye.pool(&pool),
            None => eye.fault("", &"the pool does not open"),
        }
    }
    if found.is_empty() {
        eye.fault("", &"no pool is found");
    }
    eye.seen
}

/// Reads from an offset on; gives how many bytes.
type Read<'a, E> = &'a mut dyn FnMut(u64, &mut [u8]) -> Result<usize, E>;

struct Eye<'a> {
    wish: &'a Wish,
    seen: Seen,
    left: u64,
    files: usize,
}

impl Eye<'_> {
    fn fault(&mut self, dataset: &str, why: &dyn ToString) {
        self.seen.faults.entry(dataset.to_owned()).or_default().push(why.to_string());
    }

    /// The result, or its error noted.
    fn noted<T, E: ToString>(&mut self, dataset: &str, result: Result<T, E>) -> Option<T> {
        result.map_err(|why| self.fault(dataset, &why)).ok()
    }

    fn open(&mut self, candidate: &Candidate) -> Option<Pool> {
        for top in 0..4 {
            if let Some(tree) = candidate.top(units::VdevId::new(top)) {
                let _ = candidate.leaves(tree).count();
            }
        }
        let lie = |source| match self.wish.plan {
            Some(plan) if !plan.late => Arc::new(Hostile::new(source, plan)) as Arc<dyn Source>,
            _ => source,
        };
        let mut last = None;
        for choice in [Choice::Newest, Choice::Rewind] {
            let options = Options { choice, ..Options::default() };
            match candidate.open_through(&options, &lie) {
                Ok(pool) => return Some(pool),
                Err(why) => last = Some(why),
            }
        }
        self.fault("", &last?);
        None
    }

    fn pool(&mut self, pool: &Pool) {
        self.seen.txg = pool.txg().get();
        let _ = self.noted("", pool.checkpoint());
        let mos = match self.wish.plan {
            Some(plan) if plan.late => {
                let source = Arc::new(Hostile::new(pool.source(), plan));
                Objset::open(source, ObjsetId::MOS, &pool.uberblock().root, None)
            }
            _ => Ok(pool.mos().clone()),
        };
        let Some(mos) = self.noted("", mos) else { return };
        self.own_objects(pool, &mos);
        let facts = PoolFacts { name: pool.name().to_owned(), usable: 1 << 30 };
        let Some(tree) = self.noted("", Tree::open(mos.clone(), facts)) else { return };
        for (dir, why) in tree.faults() {
            self.fault("", &format!("{dir}: {why}"));
        }
        for key in &self.wish.keys {
            let unlocked =
                tree.find(&key.dataset).and_then(|d| tree.unlock(&d, &key.file_content()));
            self.noted("", unlocked);
        }
        for dataset in tree.datasets() {
            if let Some(dataset) = self.noted("", dataset) {
                self.dataset(pool, &mos, &dataset);
            }
        }
        self.seen.is_clean = examine(pool, &tree);
    }

    /// The objects of the pool's own object set: tables, space maps, lists.
    fn own_objects(&mut self, pool: &Pool, mos: &Objset) {
        self.walk("", mos);
        for top in self.noted("", pool.space()).unwrap_or_default() {
            for map in top.maps.iter().flatten() {
                let entries = mos.object(*map).map_err(spa::Error::from);
                let _ = entries.and_then(|map| spa::space_map_entries(&map, &mut |_| {}));
            }
        }
        for object in mos.objects().take(MOST_ENTRIES) {
            let Some((id, dnode)) = self.noted("", object) else { continue };
            let kind = dnode.kind;
            let object = mos.object_with_dnode(id, dnode);
            if kind.content() == Content::Zap {
                self.table("", Zap::open(object));
            } else if kind == ondisk::ObjectType::BPOBJ {
                let _ =
                    dsl::lists::walk_bpobj(mos, id, &mut |_| std::ops::ControlFlow::Continue(()));
            } else if object.dnode().max_block.get() < 1000 {
                let mut bytes = vec![0; 100_000];
                let _ = object.read(0, &mut bytes);
            }
        }
    }

    fn table(&mut self, dataset: &str, table: zap::Result<Zap>) {
        let Some(table) = self.noted(dataset, table) else { return };
        for entry in table.entries().take(MOST_ENTRIES) {
            let Some(entry) = self.noted(dataset, entry) else { continue };
            let _ = match &entry.key64 {
                Some(words) => table.lookup_key64(words),
                None => table.lookup(&entry.name),
            };
        }
    }

    fn walk(&mut self, dataset: &str, objset: &Objset) {
        let mut faults = Vec::new();
        let mut left = MOST_ENTRIES;
        objset.walk(&dmu::WalkOptions::default(), &mut |_, found| {
            left = left.saturating_sub(1);
            if let BlockVisit::Error(why) = found
                && faults.len() < 100
            {
                faults.push(why.to_string());
            }
            if left == 0 { WalkControl::Stop } else { WalkControl::Descend }
        });
        for why in faults {
            self.fault(dataset, &why);
        }
    }

    fn dataset(&mut self, pool: &Pool, mos: &Objset, dataset: &Dataset) {
        let name = dataset.name();
        let name = name.as_str();
        self.seen.shown.insert(name.to_owned(), "a dataset".to_owned());
        let _ = (dataset.properties(), dataset.holds(), dataset.clones(), dataset.written());
        let _ = (dataset.resume_token(), dataset.key_facts(), dataset.clone_origin());
        if dataset.bookmark_record().is_some() {
            let _ = dataset.redaction_list();
            return;
        }
        if let Some(phys) = dataset.phys() {
            let deadlist = phys.deadlist;
            let _ = dsl::lists::deadlist_bytes(mos, deadlist);
            let next = &mut |_: dsl::lists::Listed<'_>| std::ops::ControlFlow::Continue(());
            let _ = dsl::lists::walk_deadlist(mos, deadlist, next);
        }
        let Some(objset) = self.noted(name, dataset.open()) else { return };
        self.walk(name, &objset);
        let header = objset.header().log.clone();
        let (source, key) = (Arc::clone(objset.source()), objset.key().cloned());
        let mut log = Records::new(source, objset.id(), &header, key, pool.txg());
        match objset.header().kind {
            ondisk::objset::Kind::Filesystem => {
                let _ = self.noted(name, Owners::read(&objset));
                let opened = Fs::open(objset, zpl::FsOptions::default(), Some(&mut log));
                let Some((fs, replayed)) = self.noted(name, opened) else { return };
                if let Some((_, why)) = replayed.failed_record {
                    self.fault(name, &why);
                }
                self.files(name, &fs);
            }
            ondisk::objset::Kind::Volume => {
                let opened = Volume::open(&objset, Some(&mut log));
                let Some((volume, _)) = self.noted(name, opened) else { return };
                let shown = self.volume(&volume);
                if let Some(shown) = self.noted(name, shown) {
                    self.seen.shown.insert(format!("{name}:"), shown);
                }
            }
            _ => self.fault(name, &"neither a file system nor a volume"),
        }
    }

    fn files(&mut self, name: &str, fs: &Fs) {
        let _ = fs.fuid_domains();
        let unlinked = fs.for_each_unlinked(&mut |id| {
            let _ = fs.attributes(id);
            true
        });
        self.noted(name, unlinked);
        let Some(root) = self.noted(name, fs.root()) else { return };
        let mut above = HashSet::new();
        self.tree(name, fs, &root, "", &mut above);
    }

    fn tree(
        &mut self,
        name: &str,
        fs: &Fs,
        node: &Inode,
        path: &str,
        above: &mut HashSet<ObjectId>,
    ) {
        self.files += 1;
        if self.files > MOST_FILES || above.len() > DEEPEST {
            self.seen.is_cut = true;
            return;
        }
        let shown = self.describe(node);
        if let Some(shown) = self.noted(name, shown) {
            self.seen.shown.insert(format!("{name}:/{path}"), shown);
        }
        if node.attributes().kind != FileType::Directory || !above.insert(node.id()) {
            return;
        }
        let mut entries = Vec::new();
        let listed = fs.read_dir(node, None, &mut |entry| {
            entries.push(entry);
            entries.len() < MOST_FILES
        });
        self.noted(name, listed);
        for entry in entries {
            let shown = String::from_utf8_lossy(&entry.name).into_owned();
            let below = if path.is_empty() { shown } else { format!("{path}/{shown}") };
            let _ = self.noted(name, fs.lookup(node, &entry.name));
            if let Some(child) = self.noted(name, fs.inode(entry.object)) {
                self.tree(name, fs, &child, &below, above);
            }
        }
        above.remove(&node.id());
    }

    fn describe(&mut self, node: &Inode) -> zpl::Result<String> {
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
            FileType::File => out.push(self.content(node)?),
            _ => {}
        }
        for xattr in node.xattrs()? {
            let name = String::from_utf8_lossy(&xattr.name).into_owned();
            let value = node.xattr_value(xattr)?;
            out.push(format!("{name}={}", hex(&Sha256::digest(&value))));
        }
        Ok(out.join(" "))
    }

    /// As the manifests have it: a digest, or of a large file its ranges of data.
    fn content(&mut self, node: &Inode) -> zpl::Result<String> {
        let size = node.attributes().size;
        let mut read = |at, into: &mut [u8]| node.read(at, into);
        if size <= LARGE {
            return Ok(format!("sha256 {}", self.digest(0..size, &mut read)?));
        }
        let (mut out, mut at) = (Vec::new(), 0);
        for _ in 0..MOST_RANGES {
            let Some(start) = node.next_data(at)? else { return Ok(out.join(" ")) };
            let end = node.next_hole(start)?;
            out.push(format!("{start}-{end} {}", self.digest(start..end, &mut read)?));
            if end <= at {
                break;
            }
            at = end;
        }
        self.seen.is_cut = true;
        Ok(out.join(" "))
    }

    fn volume(&mut self, volume: &Volume) -> Result<String, zvol::Error> {
        let size = volume.size();
        let mut read = |at, into: &mut [u8]| volume.read(at, into);
        Ok(format!("{size} bytes, sha256 {}", self.digest(0..size, &mut read)?))
    }

    fn digest<E>(&mut self, range: std::ops::Range<u64>, read: Read<'_, E>) -> Result<String, E> {
        let mut sha = Sha256::new();
        let mut buffer = vec![0xaa; 1 << 20];
        let (mut at, end) = (range.start, range.end);
        while at < end {
            let want = usize::try_from(end - at).unwrap_or(usize::MAX).min(buffer.len());
            if self.left < want as u64 {
                self.seen.is_cut = true;
                return Ok("cut".to_owned());
            }
            self.left -= want as u64;
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
fn examine(pool: &Pool, tree: &Tree) -> Option<bool> {
    let check = Check::new(pool, Arc::new(Job::default())).ok()?;
    loop {
        check.work();
        if !check.next_round() {
            break;
        }
    }
    Some(check.report(Some(tree), Duration::ZERO, 1).is_clean())
}

/// What a look shows wrongly, without an error: a line each. A look at an older txg is none, nor
/// one that stopped early.
pub fn lies(honest: &Seen, other: &Seen) -> Vec<String> {
    if other.txg != honest.txg || other.is_cut || honest.is_cut {
        return Vec::new();
    }
    let mut out = Vec::new();
    for (what, shown) in &other.shown {
        if honest.shown.get(what) != Some(shown) {
            let truth = honest.shown.get(what).map_or("nothing", String::as_str);
            out.push(format!("{what}: {shown} instead of {truth}"));
        }
    }
    for what in honest.shown.keys().filter(|what| !other.shown.contains_key(*what)) {
        let dataset = what.split(':').next().unwrap_or_default();
        let told = other.faults.contains_key(dataset) || other.faults.contains_key("");
        if !told {
            out.push(format!("{what}: left out without an error"));
        }
    }
    if !other.faults.is_empty() && other.is_clean == Some(true) {
        out.push(format!("an examination finds nothing wrong, in spite of {:?}", other.faults));
    }
    out
}
