//! What happens to a pool: datasets come, change and go.

use engine::dataset::DatasetQuery;
use engine::files::Reason;
use engine::pool::{NewDataset, Pool};
use sim::Seed;

use super::features::Features;
use super::files::Churn;
use super::{POOL, Trouble, one};

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
/// What is chosen when a file system is made: of each, in how many of a hundred cases, and values.
const NAMING: [(u64, &str, &[&str]); 2] = [
    (15, "normalization", &["formC", "formD", "formKC", "formKD"]),
    (15, "casesensitivity", &["insensitive", "mixed"]),
];
/// What datasets may take, and what owners may in them.
const LIMITS: [(&str, &str); 10] = [
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
/// Of each: in how many of a hundred cases a dataset has it, and its values.
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
pub(super) fn properties(chance: &mut Seed, special: bool) -> Vec<(String, String)> {
    let mut chosen = Vec::new();
    for (percent, name, values) in PROPERTIES {
        if chance.percent(percent) {
            chosen.push((name.to_owned(), one(chance, values).to_owned()));
        }
    }
    if special && chance.percent(50) {
        let value = one(chance, &["0", "4K", "16K"]);
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
pub(super) fn encryption(chance: &mut Seed) -> (Vec<(String, String)>, Vec<u8>) {
    let format = one(chance, &["passphrase", "hex", "raw"]);
    let location = one(chance, &["prompt", "file:///run/keys/somewhere"]);
    let mut chosen = vec![
        ("encryption".to_owned(), one(chance, &CIPHERS).to_owned()),
        ("keyformat".to_owned(), format.to_owned()),
        ("keylocation".to_owned(), location.to_owned()),
    ];
    if format == "passphrase" {
        chosen.push(("pbkdf2iters".to_owned(), "100000".to_owned()));
    }
    let key =
        fixtures::Key { dataset: String::new(), format: format.to_owned(), secret: secret(format) };
    (chosen, key.file_content())
}

/// There is one key of each form.
fn secret(format: &str) -> String {
    if format == "passphrase" { "correct horse battery".to_owned() } else { "5a0f".repeat(16) }
}

/// The key that some had before: it opens nothing (the guest tries).
fn old_key(format: &str) -> Vec<u8> {
    let phrase = format == "passphrase";
    let secret = if phrase { "wrong horse battery".to_owned() } else { "0b1e".repeat(16) };
    fixtures::Key { dataset: String::new(), format: format.to_owned(), secret }.file_content()
}

/// The keys of a pool, a line each.
pub(super) fn keys(held: &Pool) -> Result<Vec<fixtures::Key>, Trouble> {
    let roots = held.encryption_roots().map_err(|error| format!("encryption roots: {error}"))?;
    let key = |root: engine::EncryptionRoot| {
        let secret = secret(&root.format);
        fixtures::Key { dataset: root.name, format: root.format, secret }
    };
    Ok(roots.into_iter().map(key).collect())
}

/// A pool, and what is in it.
pub(super) struct History<'a> {
    held: &'a Pool,
    chance: &'a mut Seed,
    features: Features,
    filesystems: Vec<String>,
    volumes: Vec<String>,
    snapshots: Vec<String>,
    /// How many datasets and snapshots were named.
    named: u64,
}

impl<'a> History<'a> {
    /// Of a pool as it is now.
    pub(super) fn of(held: &'a Pool, chance: &'a mut Seed) -> Result<Self, Trouble> {
        let named = chance.below(1 << 40);
        let (filesystems, volumes, snapshots) = Default::default();
        for key in keys(held)? {
            let loaded = held.load_key(&key.dataset, &key.file_content());
            loaded.map_err(|error| format!("load-key {}: {error}", key.dataset))?;
        }
        let features = Features::of(held)?;
        let mut all = Self { held, chance, features, filesystems, volumes, snapshots, named };
        all.look()?;
        Ok(all)
    }

    /// Notes which datasets there are.
    fn look(&mut self) -> Result<(), Trouble> {
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
        let listed = self.held.list_datasets(POOL, &wanted, &mut show, &mut |event| {
            wrong = Some(format!("{event:?}"));
        });
        listed.map_err(|error| format!("list: {error}"))?;
        wrong.map_or(Ok(()), Err)
    }

    /// The first life of the pool.
    pub(super) fn begin(&mut self) -> Result<(), Trouble> {
        self.churn(POOL, 30)?;
        for _ in 0..=self.chance.below(3) {
            self.new_filesystem()?;
        }
        if self.chance.percent(50) {
            self.new_volume()?;
        }
        self.steps(2, 12)
    }

    /// What comes after others had the pool.
    pub(super) fn go_on(&mut self) -> Result<(), Trouble> {
        self.steps(3, 8)
    }

    /// Reads all files, and gives how many blocks came from cache drives.
    pub(super) fn read_all(&self) -> Result<u64, Trouble> {
        super::cached::read_all(self.held, &self.filesystems)
    }

    /// The end of a life that is cut short: what is done now is in no group, and all of it is
    /// promised. Where nobody keeps promises (sync=disabled) nothing is done.
    pub(super) fn promise(&mut self) -> Result<(), Trouble> {
        self.look()?;
        let keeps = self.with("sync", |value| value != "disabled")?;
        let (mut filesystems, volumes) = (self.filesystems.clone(), self.volumes.clone());
        filesystems.retain(|name| keeps.contains(name));
        let told = |name: &str, why: &dyn std::fmt::Display| format!("{name}: promise: {why}");
        for name in &filesystems {
            // the first promise takes a group, in which the log comes to be
            let fs = self.held.filesystem(name).map_err(|error| told(name, &error))?;
            fs.fsync(None).map_err(|error| told(name, &error))?;
            self.churn(name, 1)?;
            fs.fsync(None).map_err(|error| told(name, &error))?;
        }
        self.held.sync().map_err(|error| format!("sync: {error}"))?;
        for name in &filesystems {
            let steps = one(self.chance, &[10, 25, 50]);
            self.churn(name, steps)?;
            let fs = self.held.filesystem(name).map_err(|error| told(name, &error))?;
            fs.fsync(None).map_err(|error| told(name, &error))?;
        }
        for name in volumes.iter().filter(|name| keeps.contains(name)) {
            self.volumes = vec![name.clone()];
            self.scribble()?;
            let volume = self.held.volume(name).map_err(|error| told(name, &error))?;
            volume.flush().map_err(|error| told(name, &error))?;
        }
        Ok(())
    }

    /// The datasets of which a property has such a value.
    fn with(&self, property: &str, fits: impl Fn(&str) -> bool) -> Result<Vec<String>, Trouble> {
        let mut found = Vec::new();
        let mut show = |dataset: engine::dataset::Dataset| {
            if dataset.property_value(property).is_some_and(&fits) {
                found.push(dataset.name);
            }
        };
        let wanted =
            DatasetQuery { properties: vec![property.to_owned()], ..DatasetQuery::default() };
        let listed = self.held.list_datasets(POOL, &wanted, &mut show, &mut |_| ());
        listed.map_err(|error| format!("list: {error}")).map(|()| found)
    }

    fn steps(&mut self, least: u64, most: u64) -> Result<(), Trouble> {
        for _ in 0..least + self.chance.below(most - least) {
            self.step()?;
            self.look()?;
        }
        Ok(())
    }

    fn step(&mut self) -> Result<(), Trouble> {
        let name = self.filesystem();
        match self.chance.below(17) {
            16 => self.inherit_key(&name),
            0..=2 => self.snapshot(),
            3 => self.clone_one(),
            4 => self.destroy_snapshot(),
            5 => self.destroy_one(),
            6 => self.rename_one(),
            7 => self.rollback(&name),
            8 | 9 => self.set(&name),
            10 => self.new_filesystem(),
            11 => self.scribble(),
            12 => self.held.sync().map_err(|error| format!("sync: {error}")),
            _ => {
                let steps = one(self.chance, &[15, 30, 60]);
                self.churn(&name, steps)
            }
        }
    }

    fn filesystem(&mut self) -> String {
        pick(self.chance, &self.filesystems).unwrap_or_else(|| POOL.to_owned())
    }

    fn name(&mut self, letter: char) -> String {
        self.named += 1;
        format!("{letter}{:x}", self.named)
    }

    fn churn(&mut self, name: &str, steps: u64) -> Result<(), Trouble> {
        let fs = self.held.filesystem(name).map_err(|error| format!("{name}: {error}"))?;
        let done = Churn::of(fs, self.chance).and_then(|mut churn| churn.steps(steps));
        done.map_err(|why| format!("{name}: {why}"))
    }

    fn new_filesystem(&mut self) -> Result<(), Trouble> {
        let name = format!("{}/{}", self.filesystem(), self.name('d'));
        let (mut properties, mut secret) = (properties(self.chance, false), None);
        for (percent, name, values) in NAMING {
            if self.chance.percent(percent) {
                properties.push((name.to_owned(), one(self.chance, values).to_owned()));
            }
        }
        if self.chance.percent(25) && self.features.have("encryption") {
            let (more, key) = encryption(self.chance);
            properties.extend(more);
            secret = Some(key);
        }
        self.features.keep_allowed(&mut properties);
        let new = NewDataset { name: name.clone(), properties };
        let first = self.first_key(&new, secret);
        let made = self.held.create_filesystem_with(&new, first.as_deref());
        made.map_err(|error| format!("create {new:?}: {error}"))?;
        self.rekey(&new, first.as_deref())?;
        self.filesystems.push(name.clone());
        let steps = one(self.chance, &[15, 30, 60]);
        self.churn(&name, steps)
    }

    fn new_volume(&mut self) -> Result<(), Trouble> {
        let name = format!("{}/{}", self.filesystem(), self.name('v'));
        let mut properties = Vec::new();
        for (name, values) in [("compression", &COMPRESSION[..]), ("checksum", &CHECKSUM)] {
            properties.push((name.to_owned(), one(self.chance, values).to_owned()));
        }
        let mut secret = None;
        if self.chance.percent(25) && self.features.have("encryption") {
            let (more, key) = encryption(self.chance);
            properties.extend(more);
            secret = Some(key);
        }
        self.features.keep_allowed(&mut properties);
        let new = NewDataset { name: name.clone(), properties };
        let first = self.first_key(&new, secret);
        let block = one(self.chance, &[4096, 8192, 16384, 32768, 131_072]);
        let (size, sparse) = (one(self.chance, &[1, 2, 5]) << 20, self.chance.percent(40));
        let made = self.held.create_volume_with(&new, (size, block), sparse, first.as_deref());
        made.map_err(|error| format!("create {new:?} of {size} in {block}: {error}"))?;
        self.rekey(&new, first.as_deref())?;
        self.volumes.push(name);
        self.scribble()
    }

    /// The key with which an encryption root is made: some are made with the old one.
    fn first_key(&mut self, new: &NewDataset, key: Option<Vec<u8>>) -> Option<Vec<u8>> {
        let key = key?;
        let format = new.properties.iter().find(|(name, _)| name == "keyformat");
        match format.filter(|_| self.chance.percent(50)) {
            Some((_, format)) => Some(old_key(format)),
            None => Some(key),
        }
    }

    /// One that was made with the old key gets another, maybe of another form.
    fn rekey(&mut self, new: &NewDataset, first: Option<&[u8]>) -> Result<(), Trouble> {
        let old = ["passphrase", "hex", "raw"].iter().any(|form| first == Some(&*old_key(form)));
        if !old {
            return Ok(());
        }
        let format = one(self.chance, &["passphrase", "hex", "raw"]);
        let mut properties = vec![("keyformat".to_owned(), format.to_owned())];
        if format == "passphrase" {
            properties.push(("pbkdf2iters".to_owned(), "100000".to_owned()));
        }
        let key = fixtures::Key {
            dataset: String::new(),
            format: format.to_owned(),
            secret: secret(format),
        };
        let done = self.held.change_key(&new.name, &properties, &key.file_content());
        done.map_err(|error| format!("change-key {}: {error}", new.name))
    }

    /// Those that have a key of their own below others that are encrypted may lose it.
    fn inherit_key(&mut self, name: &str) -> Result<(), Trouble> {
        refused_or_done(&format!("change-key -i {name}"), self.held.inherit_key(name))
    }

    /// Random writes to a volume.
    fn scribble(&mut self) -> Result<(), Trouble> {
        let Some(name) = pick(self.chance, &self.volumes) else { return Ok(()) };
        let volume = self.held.volume(&name).map_err(|error| format!("{name}: {error}"))?;
        for _ in 0..20 {
            let at = self.chance.below(volume.size() / 512) * 512;
            let most = usize::try_from(volume.size() - at).unwrap_or(0);
            let length = one(self.chance, &[512, 4096, 10240, 70656]).min(most);
            let bytes = super::files::bytes(self.chance, length);
            let done = if self.chance.percent(15) {
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
        if self.chance.percent(30) {
            volume.flush().map_err(|error| format!("{name}: flush: {error}"))?;
        }
        Ok(())
    }

    fn snapshot(&mut self) -> Result<(), Trouble> {
        let part = self.name('s');
        let mut of = vec![self.filesystem()];
        if self.chance.percent(30) {
            of.extend(self.volumes.first().cloned());
        }
        let names: Vec<String> = of.iter().map(|name| format!("{name}@{part}")).collect();
        let done = self.held.create_snapshots(&names);
        done.map_err(|error| format!("snapshot {names:?}: {error}"))?;
        self.churn(&of[0], 15)
    }

    fn clone_one(&mut self) -> Result<(), Trouble> {
        let of_files = |name: &&String| {
            let set = name.split('@').next().unwrap_or_default();
            self.filesystems.iter().any(|known| known == set)
        };
        let those: Vec<String> = self.snapshots.iter().filter(of_files).cloned().collect();
        let Some(snapshot) = pick(self.chance, &those) else { return Ok(()) };
        let name = format!("{}/{}", self.filesystem(), self.name('c'));
        let mut properties = properties(self.chance, false);
        self.features.keep_allowed(&mut properties);
        let new = NewDataset { name: name.clone(), properties };
        let done = self.held.clone_snapshot(&snapshot, &new);
        done.map_err(|error| format!("clone {snapshot} {new:?}: {error}"))?;
        self.churn(&name, 20)?;
        if self.chance.percent(40) {
            // where two encryption roots would change places it is refused
            refused_or_done(&format!("promote {name}"), self.held.promote_clone(&name))?;
            self.churn(&name, 10)?;
        }
        Ok(())
    }

    /// Of a snapshot that has clones this is refused.
    fn destroy_snapshot(&mut self) -> Result<(), Trouble> {
        let Some(name) = pick(self.chance, &self.snapshots) else { return Ok(()) };
        refused_or_done(&format!("destroy {name}"), self.held.destroy(&name))
    }

    /// A dataset that has children or snapshots stays.
    fn destroy_one(&mut self) -> Result<(), Trouble> {
        let all: Vec<String> = self.filesystems.iter().chain(&self.volumes).cloned().collect();
        let Some(name) = pick(self.chance, &all).filter(|name| name != POOL) else { return Ok(()) };
        refused_or_done(&format!("destroy {name}"), self.held.destroy(&name))
    }

    fn rename_one(&mut self) -> Result<(), Trouble> {
        let (from, below) = (self.filesystem(), self.filesystem());
        if from == POOL || below == from || below.starts_with(&format!("{from}/")) {
            return Ok(());
        }
        let to = format!("{below}/{}", self.name('r'));
        let done = self.held.rename_dataset(&from, &to, false);
        refused_or_done(&format!("rename {from} {to}"), done)
    }

    fn rollback(&mut self, name: &str) -> Result<(), Trouble> {
        refused_or_done(&format!("rollback {name}"), self.held.rollback_dataset(name))
    }

    fn set(&mut self, name: &str) -> Result<(), Trouble> {
        let (property, value) = if self.chance.percent(40) {
            one(self.chance, &LIMITS)
        } else {
            let (_, property, values) = one(self.chance, &PROPERTIES);
            (property, one(self.chance, values))
        };
        let done = self.held.set_property(name, property, value);
        refused_or_done(&format!("set {property}={value} {name}"), done)?;
        if self.chance.percent(20) {
            let done = self.held.inherit_property(name, "compression");
            refused_or_done(&format!("inherit compression {name}"), done)?;
        }
        self.churn(name, 20)
    }
}

fn pick(chance: &mut Seed, of: &[String]) -> Option<String> {
    let count = u64::try_from(of.len()).ok().filter(|count| *count > 0)?;
    of.get(usize::try_from(chance.below(count)).ok()?).cloned()
}

/// What users may not do is refused; anything else is trouble.
fn refused_or_done(what: &str, done: engine::Result<()>) -> Result<(), Trouble> {
    use engine::Error::{DamagedPool, Suspended, Unreadable};
    match done {
        Err(error @ (DamagedPool { .. } | Suspended { .. } | Unreadable { .. })) => {
            Err(format!("{what}: {error}"))
        }
        _ => Ok(()),
    }
}
