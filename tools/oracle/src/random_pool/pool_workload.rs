//! Changes of a pool: datasets are created, changed and destroyed.

use engine::dataset::DatasetQuery;
use engine::files::{FileType, Reason, Time};
use engine::pool::{NewDataset, Pool};
use posix::{ChangeContext, Credentials, NewInode};
use sim::Random;
use units::ObjectId;

use super::features::Features;
use super::file_workload::FileWorkload;
use super::{POOL, RoundError, random_element};

const COMPRESSION: [&str; 13] = [
    "off",
    "on",
    "lzjb",
    "gzip-1",
    "gzip-6",
    "gzip-9",
    "zle",
    "lz4",
    "zstd",
    "zstd-1",
    "zstd-7",
    "zstd-19",
    "zstd-fast-10",
];
const CHECKSUM: [&str; 8] =
    ["on", "fletcher2", "fletcher4", "sha256", "sha512", "skein", "edonr", "blake3"];
const RECORDSIZE: [&str; 11] =
    ["512", "1K", "4K", "8K", "16K", "32K", "64K", "128K", "256K", "1M", "4M"];
const DNODESIZE: [&str; 7] = ["legacy", "auto", "1k", "2k", "4k", "8k", "16k"];
const DEDUP: [&str; 7] =
    ["on", "sha256", "sha256,verify", "sha512", "skein", "blake3", "edonr,verify"];
/// The choices for a new file system: of each, its percentage, and its values.
const NAME_PROPERTIES: [(u64, &str, &[&str]); 2] = [
    (15, "normalization", &["formC", "formD", "formKC", "formKD"]),
    (15, "casesensitivity", &["insensitive", "mixed"]),
];
/// Quotas of datasets, and of owners in them.
const QUOTAS: [(&str, &str); 10] = [
    ("quota", "60M"),
    ("refquota", "50M"),
    ("reservation", "2M"),
    ("quota", "none"),
    ("userquota@1001", "20M"),
    ("groupquota@100", "30M"),
    ("projectquota@7", "10M"),
    ("userobjquota@1001", "500"),
    ("groupobjquota@4000000001", "300"),
    ("projectobjquota@7", "none"),
];
/// Of each property: the percentage of datasets that have it, and its values.
const PROPERTIES: [(u64, &str, &[&str]); 14] = [
    (15, "dedup", &DEDUP),
    (80, "compression", &COMPRESSION),
    (50, "checksum", &CHECKSUM),
    (60, "recordsize", &RECORDSIZE),
    (25, "copies", &["1", "2", "3"]),
    (60, "xattr", &["sa", "on"]),
    (50, "acltype", &["posix", "off"]),
    (50, "dnodesize", &DNODESIZE),
    (30, "atime", &["on", "off"]),
    (20, "redundant_metadata", &["all", "most", "some", "none"]),
    (20, "logbias", &["latency", "throughput"]),
    (15, "sync", &["always", "disabled"]),
    (10, "snapdir", &["visible"]),
    (10, "org.example:note", &["anything", "something else"]),
];

/// Properties of a dataset.
pub(super) fn random_properties(chance: &mut Random, special: bool) -> Vec<(String, String)> {
    let mut chosen = Vec::new();
    for (percent, name, values) in PROPERTIES {
        if chance.chance_percent(percent) {
            chosen.push((name.to_owned(), random_element(chance, values).to_owned()));
        }
    }
    if special && chance.chance_percent(50) {
        let value = random_element(chance, &["0", "4K", "16K"]);
        chosen.push(("special_small_blocks".to_owned(), value.to_owned()));
    }
    chosen
}

const CIPHERS: [&str; 7] = [
    "on",
    "aes-128-ccm",
    "aes-192-ccm",
    "aes-256-ccm",
    "aes-128-gcm",
    "aes-192-gcm",
    "aes-256-gcm",
];

/// Properties of a new encryption root, and its key.
pub(super) fn random_encryption(chance: &mut Random) -> (Vec<(String, String)>, Vec<u8>) {
    let format = random_element(chance, &["passphrase", "hex", "raw"]);
    let location = random_element(chance, &["prompt", "file:///run/keys/somewhere"]);
    let mut chosen = vec![
        ("encryption".to_owned(), random_element(chance, &CIPHERS).to_owned()),
        ("keyformat".to_owned(), format.to_owned()),
        ("keylocation".to_owned(), location.to_owned()),
    ];
    if format == "passphrase" {
        chosen.push(("pbkdf2iters".to_owned(), "100000".to_owned()));
    }
    let key = fixtures::Key {
        dataset: String::new(),
        format: format.to_owned(),
        secret: current_secret(format),
    };
    (chosen, key.file_content())
}

/// There is one key of each form.
fn current_secret(format: &str) -> String {
    if format == "passphrase" { "correct horse battery".to_owned() } else { "5a0f".repeat(16) }
}

/// The key that some had before: it opens nothing (the guest tries).
fn old_key(format: &str) -> Vec<u8> {
    let phrase = format == "passphrase";
    let secret = if phrase { "wrong horse battery".to_owned() } else { "0b1e".repeat(16) };
    fixtures::Key { dataset: String::new(), format: format.to_owned(), secret }.file_content()
}

/// The keys of a pool, a line each.
pub(super) fn encryption_keys(held: &Pool) -> Result<Vec<fixtures::Key>, RoundError> {
    let roots =
        held.keys().encryption_roots().map_err(|error| format!("encryption roots: {error}"))?;
    let key = |root: engine::EncryptionRoot| {
        let secret = current_secret(&root.format);
        fixtures::Key { dataset: root.name, format: root.format, secret }
    };
    Ok(roots.into_iter().map(key).collect())
}

/// A pool, and its datasets.
pub(super) struct PoolWorkload<'a> {
    pool: &'a Pool,
    random: &'a mut Random,
    features: Features,
    filesystems: Vec<String>,
    volumes: Vec<String>,
    snapshots: Vec<String>,
    /// How many datasets and snapshots were named.
    name_counter: u64,
}

impl<'a> PoolWorkload<'a> {
    /// Of a pool as it is now.
    pub(super) fn new(held: &'a Pool, chance: &'a mut Random) -> Result<Self, RoundError> {
        let named = chance.next_below(1 << 40);
        let (filesystems, volumes, snapshots) = Default::default();
        for key in encryption_keys(held)? {
            let loaded = held.keys().load(&key.dataset, &key.file_content());
            loaded.map_err(|error| format!("load-key {}: {error}", key.dataset))?;
        }
        let features = Features::from_pool(held)?;
        let mut all = Self {
            pool: held,
            random: chance,
            features,
            filesystems,
            volumes,
            snapshots,
            name_counter: named,
        };
        all.refresh_datasets()?;
        Ok(all)
    }

    /// Notes which datasets there are.
    fn refresh_datasets(&mut self) -> Result<(), RoundError> {
        self.filesystems.clear();
        self.volumes.clear();
        self.snapshots.clear();
        let mut wrong = None;
        let mut show = |dataset: engine::dataset::Dataset| match dataset.kind.as_str() {
            "filesystem" => self.filesystems.push(dataset.name),
            "volume" => self.volumes.push(dataset.name),
            "snapshot" => self.snapshots.push(dataset.name),
            _ => {}
        };
        let wanted =
            DatasetQuery { properties: vec!["type".to_owned()], ..DatasetQuery::default() };
        let listed = self.pool.datasets().list(POOL, &wanted, &mut show, &mut |event| {
            wrong = Some(format!("{event:?}"));
        });
        listed.map_err(|error| format!("list: {error}"))?;
        wrong.map_or(Ok(()), Err)
    }

    /// The first life of the pool.
    pub(super) fn populate(&mut self) -> Result<(), RoundError> {
        self.run_file_workload(POOL, 30)?;
        for _ in 0..=self.random.next_below(3) {
            self.create_filesystem()?;
        }
        if self.random.chance_percent(50) {
            self.create_volume()?;
        }
        self.run_steps(2, 12)
    }

    /// The workload after OpenZFS had the pool.
    pub(super) fn modify(&mut self) -> Result<(), RoundError> {
        self.run_steps(3, 8)
    }

    /// Reads all files, and gives how many blocks came from cache drives.
    pub(super) fn read_all_files(&self) -> Result<u64, RoundError> {
        super::l2arc::read_all_files(self.pool, &self.filesystems)
    }

    /// The last changes before a power cut: they are in no txg, and all are committed. With
    /// sync=disabled nothing is done.
    pub(super) fn commit_to_log(&mut self) -> Result<(), RoundError> {
        self.refresh_datasets()?;
        let keeps = self.datasets_with_property("sync", |value| value != "disabled")?;
        let (mut filesystems, volumes) = (self.filesystems.clone(), self.volumes.clone());
        filesystems.retain(|name| keeps.contains(name));
        let told = |name: &str, why: &dyn std::fmt::Display| format!("{name}: promise: {why}");
        for name in &filesystems {
            // the first commit waits for a txg, which creates the log
            let fs = self.pool.datasets().filesystem(name).map_err(|error| told(name, &error))?;
            fs.fsync(None).map_err(|error| told(name, &error))?;
            self.run_file_workload(name, 1)?;
            fs.fsync(None).map_err(|error| told(name, &error))?;
        }
        self.pool.sync().map_err(|error| format!("sync: {error}"))?;
        for name in &filesystems {
            let steps = random_element(self.random, &[10, 25, 50]);
            self.run_file_workload(name, steps)?;
            let fs = self.pool.datasets().filesystem(name).map_err(|error| told(name, &error))?;
            fs.fsync(None).map_err(|error| told(name, &error))?;
        }
        for name in volumes.iter().filter(|name| keeps.contains(name)) {
            self.volumes = vec![name.clone()];
            self.write_volume()?;
            let volume = self.pool.volumes().get(name).map_err(|error| told(name, &error))?;
            volume.flush().map_err(|error| told(name, &error))?;
        }
        Ok(())
    }

    /// The datasets with this value of a property.
    fn datasets_with_property(
        &self,
        property: &str,
        fits: impl Fn(&str) -> bool,
    ) -> Result<Vec<String>, RoundError> {
        let mut found = Vec::new();
        let mut show = |dataset: engine::dataset::Dataset| {
            if dataset.property_value(property).is_some_and(&fits) {
                found.push(dataset.name);
            }
        };
        let wanted =
            DatasetQuery { properties: vec![property.to_owned()], ..DatasetQuery::default() };
        let listed = self.pool.datasets().list(POOL, &wanted, &mut show, &mut |_| ());
        listed.map_err(|error| format!("list: {error}")).map(|()| found)
    }

    fn run_steps(&mut self, least: u64, most: u64) -> Result<(), RoundError> {
        for _ in 0..least + self.random.next_below(most - least) {
            self.run_step()?;
            self.refresh_datasets()?;
        }
        Ok(())
    }

    fn run_step(&mut self) -> Result<(), RoundError> {
        let name = self.random_filesystem();
        match self.random.next_below(18) {
            17 => self.clone_across(&name),
            16 => self.inherit_key(&name),
            0..=2 => self.create_snapshots(),
            3 => self.clone_snapshot(),
            4 => self.destroy_snapshot(),
            5 => self.destroy_dataset(),
            6 => self.rename_dataset(),
            7 => self.rollback(&name),
            8 | 9 => self.set_property(&name),
            10 => self.create_filesystem(),
            11 => self.write_volume(),
            12 => self.pool.sync().map_err(|error| format!("sync: {error}")),
            _ => {
                let steps = random_element(self.random, &[15, 30, 60]);
                self.run_file_workload(&name, steps)
            }
        }
    }

    fn random_filesystem(&mut self) -> String {
        random_name(self.random, &self.filesystems).unwrap_or_else(|| POOL.to_owned())
    }

    fn next_name(&mut self, letter: char) -> String {
        self.name_counter += 1;
        format!("{letter}{:x}", self.name_counter)
    }

    fn run_file_workload(&mut self, name: &str, steps: u64) -> Result<(), RoundError> {
        let fs =
            self.pool.datasets().filesystem(name).map_err(|error| format!("{name}: {error}"))?;
        let done = FileWorkload::new(fs, self.random).and_then(|mut churn| churn.run_steps(steps));
        done.map_err(|why| format!("{name}: {why}"))
    }

    /// Has a new file share blocks of a file of any file system or snapshot.
    fn clone_across(&mut self, target: &str) -> Result<(), RoundError> {
        let sources: Vec<_> = self.filesystems.iter().chain(&self.snapshots).cloned().collect();
        let Some(source) = random_name(self.random, &sources) else { return Ok(()) };
        let files = self
            .pool
            .datasets()
            .filesystem(target)
            .map_err(|error| format!("{target}: {error}"))?;
        let reader = if source.contains('@') {
            let opened = self.pool.datasets().synced_reader(&source);
            // a snapshot of a volume has no files
            let Ok(reader) = opened else { return Ok(()) };
            reader
        } else {
            let opened = self.pool.datasets().filesystem(&source);
            opened.map_err(|error| format!("{source}: {error}"))?.reader().clone()
        };
        let name = self.next_name('c');
        let now = Time { seconds: 1_700_000_000, nanoseconds: 0 };
        let caller = ChangeContext { credentials: Credentials::ROOT, now };
        let clone = || -> engine::files::Result<()> {
            let entries = reader.read_dir_sorted(&reader.root()?)?;
            let Some(entry) = entries.iter().find(|it| it.kind == FileType::File) else {
                return Ok(());
            };
            let content = reader.file(entry.ino)?.content();
            let root = ObjectId::new(files.reader().root_object());
            let new = files.create(&caller, root, name.as_bytes(), &NewInode::default())?;
            let (from, to) = ((&content, 0), (ObjectId::new(new.ino()), 0));
            files.clone_content(&caller, from, to, content.size()).map(drop)
        };
        match clone() {
            Ok(()) => Ok(()),
            // a quota may be used up, or the file system be read-only
            Err(why) if why.reason() != Reason::Unreadable => Ok(()),
            Err(why) => Err(format!("clone of {source} to {target}: {why}")),
        }
    }

    fn create_filesystem(&mut self) -> Result<(), RoundError> {
        let name = format!("{}/{}", self.random_filesystem(), self.next_name('d'));
        let (mut properties, mut secret) = (random_properties(self.random, false), None);
        for (percent, name, values) in NAME_PROPERTIES {
            if self.random.chance_percent(percent) {
                properties.push((name.to_owned(), random_element(self.random, values).to_owned()));
            }
        }
        if self.random.chance_percent(25) && self.features.is_enabled("encryption") {
            let (more, key) = random_encryption(self.random);
            properties.extend(more);
            secret = Some(key);
        }
        self.features.retain_allowed(&mut properties);
        let new = NewDataset { name: name.clone(), properties };
        let first = self.initial_key(&new, secret);
        let made = self.pool.datasets().create_filesystem_with(&new, first.as_deref());
        made.map_err(|error| format!("create {new:?}: {error}"))?;
        self.replace_old_key(&new, first.as_deref())?;
        self.filesystems.push(name.clone());
        let steps = random_element(self.random, &[15, 30, 60]);
        self.run_file_workload(&name, steps)
    }

    fn create_volume(&mut self) -> Result<(), RoundError> {
        let name = format!("{}/{}", self.random_filesystem(), self.next_name('v'));
        let mut properties = Vec::new();
        for (name, values) in [("compression", &COMPRESSION[..]), ("checksum", &CHECKSUM)] {
            properties.push((name.to_owned(), random_element(self.random, values).to_owned()));
        }
        let mut secret = None;
        if self.random.chance_percent(25) && self.features.is_enabled("encryption") {
            let (more, key) = random_encryption(self.random);
            properties.extend(more);
            secret = Some(key);
        }
        self.features.retain_allowed(&mut properties);
        let new = NewDataset { name: name.clone(), properties };
        let first = self.initial_key(&new, secret);
        let block = random_element(self.random, &[4096, 8192, 16384, 32768, 131_072]);
        let (size, sparse) =
            (random_element(self.random, &[1, 2, 5]) << 20, self.random.chance_percent(40));
        let made = self.pool.volumes().create_with(&new, (size, block), sparse, first.as_deref());
        made.map_err(|error| format!("create {new:?} of {size} in {block}: {error}"))?;
        self.replace_old_key(&new, first.as_deref())?;
        self.volumes.push(name);
        self.write_volume()
    }

    /// The key with which an encryption root is made: some are made with the old one.
    fn initial_key(&mut self, new: &NewDataset, key: Option<Vec<u8>>) -> Option<Vec<u8>> {
        let key = key?;
        let format = new.properties.iter().find(|(name, _)| name == "keyformat");
        match format.filter(|_| self.random.chance_percent(50)) {
            Some((_, format)) => Some(old_key(format)),
            None => Some(key),
        }
    }

    /// One that was made with the old key gets another, maybe of another form.
    fn replace_old_key(
        &mut self,
        new: &NewDataset,
        first: Option<&[u8]>,
    ) -> Result<(), RoundError> {
        let old = ["passphrase", "hex", "raw"].iter().any(|form| first == Some(&*old_key(form)));
        if !old {
            return Ok(());
        }
        let format = random_element(self.random, &["passphrase", "hex", "raw"]);
        let mut properties = vec![("keyformat".to_owned(), format.to_owned())];
        if format == "passphrase" {
            properties.push(("pbkdf2iters".to_owned(), "100000".to_owned()));
        }
        let key = fixtures::Key {
            dataset: String::new(),
            format: format.to_owned(),
            secret: current_secret(format),
        };
        let done = self.pool.keys().change(&new.name, &properties, &key.file_content());
        done.map_err(|error| format!("change-key {}: {error}", new.name))
    }

    /// Encryption roots below an encrypted parent may inherit its key.
    fn inherit_key(&mut self, name: &str) -> Result<(), RoundError> {
        ignore_refusal(&format!("change-key -i {name}"), self.pool.keys().inherit(name))
    }

    /// Random writes to a volume.
    fn write_volume(&mut self) -> Result<(), RoundError> {
        let Some(name) = random_name(self.random, &self.volumes) else { return Ok(()) };
        let volume = self.pool.volumes().get(&name).map_err(|error| format!("{name}: {error}"))?;
        for _ in 0..20 {
            let at = self.random.next_below(volume.size() / 512) * 512;
            let most = usize::try_from(volume.size() - at).unwrap_or(0);
            let length = random_element(self.random, &[512, 4096, 10240, 70656]).min(most);
            let bytes = super::file_workload::random_content(self.random, length);
            let done = if self.random.chance_percent(15) {
                volume.discard(at..at + u64::try_from(length).unwrap_or(0))
            } else {
                volume.write(at, &bytes)
            };
            // small pools keep half of their space back
            let full = [Reason::NoSpace, Reason::OverQuota];
            if let Err(error) = done
                && !full.contains(&error.reason())
            {
                return Err(format!("{name}: {error}"));
            }
        }
        if self.random.chance_percent(30) {
            volume.flush().map_err(|error| format!("{name}: flush: {error}"))?;
        }
        Ok(())
    }

    fn create_snapshots(&mut self) -> Result<(), RoundError> {
        let part = self.next_name('s');
        let mut of = vec![self.random_filesystem()];
        if self.random.chance_percent(30) {
            of.extend(self.volumes.first().cloned());
        }
        let names: Vec<String> = of.iter().map(|name| format!("{name}@{part}")).collect();
        let done = self.pool.snapshots().create(&names);
        done.map_err(|error| format!("snapshot {names:?}: {error}"))?;
        self.run_file_workload(&of[0], 15)
    }

    fn clone_snapshot(&mut self) -> Result<(), RoundError> {
        let of_files = |name: &&String| {
            let set = name.split('@').next().unwrap_or_default();
            self.filesystems.iter().any(|known| known == set)
        };
        let those: Vec<String> = self.snapshots.iter().filter(of_files).cloned().collect();
        let Some(snapshot) = random_name(self.random, &those) else { return Ok(()) };
        let name = format!("{}/{}", self.random_filesystem(), self.next_name('c'));
        let mut properties = random_properties(self.random, false);
        self.features.retain_allowed(&mut properties);
        let new = NewDataset { name: name.clone(), properties };
        let done = self.pool.snapshots().clone_snapshot(&snapshot, &new);
        done.map_err(|error| format!("clone {snapshot} {new:?}: {error}"))?;
        self.run_file_workload(&name, 20)?;
        if self.random.chance_percent(40) {
            // where two encryption roots would change places it is refused
            ignore_refusal(&format!("promote {name}"), self.pool.datasets().promote(&name))?;
            self.run_file_workload(&name, 10)?;
        }
        Ok(())
    }

    /// Of a snapshot that has clones this is refused.
    fn destroy_snapshot(&mut self) -> Result<(), RoundError> {
        let Some(name) = random_name(self.random, &self.snapshots) else { return Ok(()) };
        ignore_refusal(&format!("destroy {name}"), self.pool.datasets().destroy(&name))
    }

    /// A dataset that has children or snapshots stays.
    fn destroy_dataset(&mut self) -> Result<(), RoundError> {
        let all: Vec<String> = self.filesystems.iter().chain(&self.volumes).cloned().collect();
        let Some(name) = random_name(self.random, &all).filter(|name| name != POOL) else {
            return Ok(());
        };
        ignore_refusal(&format!("destroy {name}"), self.pool.datasets().destroy(&name))
    }

    fn rename_dataset(&mut self) -> Result<(), RoundError> {
        let (from, below) = (self.random_filesystem(), self.random_filesystem());
        if from == POOL || below == from || below.starts_with(&format!("{from}/")) {
            return Ok(());
        }
        let to = format!("{below}/{}", self.next_name('r'));
        let done = self.pool.datasets().rename(&from, &to, false);
        ignore_refusal(&format!("rename {from} {to}"), done)
    }

    fn rollback(&mut self, name: &str) -> Result<(), RoundError> {
        ignore_refusal(&format!("rollback {name}"), self.pool.snapshots().rollback(name))
    }

    fn set_property(&mut self, name: &str) -> Result<(), RoundError> {
        let (property, value) = if self.random.chance_percent(40) {
            random_element(self.random, &QUOTAS)
        } else {
            let (_, property, values) = random_element(self.random, &PROPERTIES);
            (property, random_element(self.random, values))
        };
        let done = self.pool.properties().set(name, property, value);
        ignore_refusal(&format!("set {property}={value} {name}"), done)?;
        if self.random.chance_percent(20) {
            let done = self.pool.properties().inherit(name, "compression");
            ignore_refusal(&format!("inherit compression {name}"), done)?;
        }
        self.run_file_workload(name, 20)
    }
}

fn random_name(chance: &mut Random, of: &[String]) -> Option<String> {
    let count = u64::try_from(of.len()).ok().filter(|count| *count > 0)?;
    of.get(usize::try_from(chance.next_below(count)).ok()?).cloned()
}

/// Operations forbidden for users are refused; any other error is a failure.
fn ignore_refusal(what: &str, done: engine::Result<()>) -> Result<(), RoundError> {
    use engine::Error::{DamagedPool, Suspended, Unreadable};
    match done {
        Err(error @ (DamagedPool { .. } | Suspended { .. } | Unreadable { .. })) => {
            Err(format!("{what}: {error}"))
        }
        _ => Ok(()),
    }
}
