//! Pools that our own engine makes, from a seed, for real OpenZFS to check.
//!
//! A [`Round`] is a random pool: its vdevs, its datasets, and the changes of them and of their
//! files. [`Round::create_pool`] creates it on images in a folder; [`Round::modify_pool`] imports
//! the pool after OpenZFS changed it, and changes it further.

mod features;
mod file_workload;
mod l2arc;
mod pool_spec;
mod pool_workload;

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use engine::pool::{
    CreateOptions, Environment, ImportOptions, MemoryBudget, Pool, create_encrypted, import,
    import_with,
};
use sim::Random;

use features::Features;
use pool_workload::PoolWorkload;

/// The reason why a round failed: the operation, and the engine's error.
pub type RoundError = String;

/// The name of each round's pool.
pub const POOL: &str = "tank";

/// When the first thing happens, in seconds since 1970.
const START_TIME: u64 = 1_700_000_000;

/// A random pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Round {
    /// The seed of all rounds of a run.
    pub seed: u64,
    /// Which of them it is.
    pub number: u64,
}

impl Round {
    /// Whether the power is cut at the end of its first life, instead of an export: every third.
    pub fn has_power_cut(&self) -> bool {
        self.number % 3 == 2
    }

    /// Properties of the pool: three of ten lack features.
    fn feature_properties(self) -> Vec<(String, String)> {
        let mut chance = self.derive_seed(5);
        if chance.chance_percent(30) {
            features::random_restrictions(&mut chance)
        } else {
            Vec::new()
        }
    }

    /// Its name.
    pub fn name(&self) -> String {
        format!("w{}-{}", self.seed, self.number)
    }

    fn derive_seed(self, part: u64) -> Random {
        let mut seed = Random::new(self.seed);
        let mixed = seed.next_u64() ^ self.number.wrapping_mul(0x9e37_79b9) ^ (part << 56);
        Random::new(mixed)
    }

    /// Creates the pool on new images in a folder, and exports it; returns its description.
    pub fn create_pool(&self, folder: &Path) -> Result<String, RoundError> {
        let mut chance = self.derive_seed(1);
        let own = self.feature_properties();
        let wishes =
            CreateOptions::parse(&own, false).map_err(|error| format!("{own:?}: {error}"))?;
        let features = Features::from_options(&wishes);
        let layout = pool_spec::random_spec(&mut chance, &features, folder)?;
        let told_of: Vec<_> = own.iter().map(|(name, value)| format!(", {name}={value}")).collect();
        let about = format!("{}{}", layout.description, told_of.concat());
        let told = |why: &dyn std::fmt::Display| format!("{about}: {why}");
        let made = create_encrypted(
            &layout.new_pool,
            wishes,
            layout.key.as_deref(),
            &environment(&mut chance),
        );
        let mut held = made.map_err(|error| told(&error))?;
        if own.iter().any(|(name, _)| name.starts_with("feature@")) {
            // OpenZFS prints this each time
            std::fs::write(folder.join("fewer"), "").map_err(|error| told(&error))?;
        }
        PoolWorkload::new(&held, &mut chance)
            .and_then(|mut all| all.populate())
            .map_err(|why| told(&why))?;
        if layout.has_l2arc_log {
            held = self.fill_l2arc(held, folder).map_err(|why| told(&why))?;
        }
        if !self.has_power_cut() {
            export_pool(&held, folder).map_err(|why| told(&why))?;
            return Ok(about);
        }
        cut_power(&held, &mut chance, folder).map_err(|why| told(&why))?;
        Ok(format!("{about}, cut"))
    }

    /// Fills the cache drives of a pool, and records in its folder the number of blocks
    /// in their logs.
    fn fill_l2arc(self, mut held: Pool, folder: &Path) -> Result<Pool, RoundError> {
        let mut chance = self.derive_seed(3);
        let world = environment(&mut chance);
        let again = |held: Pool| {
            export_pool(&held, folder)?;
            drop(held);
            import(&[folder.to_owned()], POOL, false, &world)
                .map_err(|error| format!("hold: {error}"))
        };
        // recently written blocks are in memory: only blocks read from drives are offered to the
        // cache
        held = again(held)?;
        PoolWorkload::new(&held, &mut chance)?.read_all_files()?;
        held = again(held)?;
        let path = folder.join(LOG_BLOCKS_FILE);
        let written = std::fs::write(&path, l2arc::l2arc_log_blocks(&held).to_string());
        written.map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(held)
    }

    /// Imports the pool in a folder after a power cut, with the keys of encrypted datasets, and
    /// exports it: its intent logs are replayed.
    pub fn replay_log(&self, folder: &Path) -> Result<(), RoundError> {
        let world = environment(&mut self.derive_seed(4));
        let how = ImportOptions { keys: read_keys(folder), ..ImportOptions::default() };
        let held = import_with(&[folder.to_owned()], POOL, &how, &world);
        let held = held.map_err(|error| format!("hold: {error}"))?;
        match held.datasets().take_replay_failures().first() {
            Some(log) => Err(log.to_string()),
            None => export_pool(&held, folder),
        }
    }

    /// Takes the pool in a folder over, changes it, and gives it up again.
    pub fn modify_pool(&self, folder: &Path) -> Result<(), RoundError> {
        let mut chance = self.derive_seed(2);
        let world = environment(&mut chance);
        let paths = [folder.to_owned()];
        let held = import(&paths, POOL, false, &world).map_err(|error| format!("hold: {error}"))?;
        let mut history = PoolWorkload::new(&held, &mut chance)?;
        // OpenZFS's log of a cache drive leads to existing blocks, and that is right
        let told = l2arc::l2arc_log_blocks(&held);
        let used = history.read_all_files()?;
        let filled =
            std::fs::read_to_string(folder.join(LOG_BLOCKS_FILE)).is_ok_and(|text| text != "0");
        if filled && (told == 0 || used == 0) {
            return Err(format!("of {told} blocks on the cache drive {used} were used"));
        }
        history.modify()?;
        export_pool(&held, folder)
    }
}

/// The file with the number of blocks in the logs of a pool's cache drives.
const LOG_BLOCKS_FILE: &str = "logged";

/// The images of a pool that continues after the power cut in those of its folder.
pub const UNCUT_DIR: &str = "whole";

/// Cuts the power after the last changes were committed. The content of the drives then stays in
/// the folder; the pool continues elsewhere and is exported, to record the committed state.
fn cut_power(held: &Pool, chance: &mut Random, folder: &Path) -> Result<(), RoundError> {
    let mut history = PoolWorkload::new(held, chance)?;
    history.commit_to_log()?;
    let whole = folder.join(UNCUT_DIR);
    let told = |error: std::io::Error| format!("{}: {error}", whole.display());
    std::fs::create_dir_all(&whole).map_err(told)?;
    let drives = held.drives().list();
    for drive in &drives {
        // the pool has its images open, wherever they are called
        let to = whole.join(drive.file_name().unwrap_or_default());
        std::fs::rename(drive, &to).and_then(|()| copy_sparse(&to, drive)).map_err(told)?;
    }
    let left = std::fs::read_dir(folder).map_err(told)?.flatten().map(|entry| entry.path());
    for drive in left.filter(|path| path.extension().is_some_and(|end| end == "img")) {
        // spares and caches are not part of the committed state
        let to = whole.join(drive.file_name().unwrap_or_default());
        if !to.exists() {
            copy_sparse(&drive, &to).map_err(told)?;
        }
    }
    export_pool(held, &whole)?;
    std::fs::copy(whole.join("keys"), folder.join("keys")).map_err(told)?;
    std::fs::write(folder.join("cut"), "").map_err(told)
}

/// Copies a file, and leaves holes where it has zeros.
fn copy_sparse(from: &Path, to: &Path) -> std::io::Result<()> {
    use std::io::{Read, Seek, SeekFrom, Write};
    let (mut from, mut to) = (std::fs::File::open(from)?, std::fs::File::create(to)?);
    let mut piece = vec![0; 1 << 20];
    loop {
        let length = from.read(&mut piece)?;
        let Some(bytes) = piece.get(..length).filter(|bytes| !bytes.is_empty()) else { break };
        if bytes.iter().all(|byte| *byte == 0) {
            to.seek(SeekFrom::Current(i64::try_from(length).unwrap_or(0)))?;
        } else {
            to.write_all(bytes)?;
        }
    }
    let end = to.stream_position()?;
    to.set_len(end)
}

/// Gives a pool up; its keys are listed in the folder, `DATASET FORMAT SECRET` each.
fn export_pool(held: &Pool, folder: &Path) -> Result<(), RoundError> {
    let line = |key: fixtures::Key| format!("{} {} {}\n", key.dataset, key.format, key.secret);
    let keys: String = pool_workload::encryption_keys(held)?.into_iter().map(line).collect();
    std::fs::write(folder.join("keys"), keys).map_err(|error| format!("keys: {error}"))?;
    held.export().map_err(|error| format!("export: {error}"))
}

/// The keys of a pool's datasets, from the folder's list: the content of their files.
pub(crate) fn read_keys(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let text = std::fs::read_to_string(folder.join("keys")).unwrap_or_default();
    let parts = |line: &str| {
        let mut words = line.splitn(3, ' ').map(str::to_owned);
        let (dataset, format, secret) = (words.next()?, words.next()?, words.next()?);
        let key = fixtures::Key { dataset: dataset.clone(), format, secret };
        Some((dataset, key.file_content()))
    };
    text.lines().filter_map(parts).collect()
}

/// An environment, from a seed.
fn environment(chance: &mut Random) -> Environment {
    let random = Mutex::new(Random::new(chance.next_u64()));
    let clock = Mutex::new(START_TIME);
    Environment {
        random: Arc::new(move |bytes| {
            let mut random = random.lock().unwrap_or_else(PoisonError::into_inner);
            for part in bytes.chunks_mut(8) {
                part.copy_from_slice(&random.next_u64().to_le_bytes()[..part.len()]);
            }
        }),
        now: Arc::new(move || {
            let mut clock = clock.lock().unwrap_or_else(PoisonError::into_inner);
            *clock += 1;
            (*clock, 0)
        }),
        workers: 2,
        max_dirty: 64 << 20,
        cache: MemoryBudget::default(),
        host: (0x1234, "here".to_owned()),
    }
}

/// One of several.
fn random_element<T: Copy>(chance: &mut Random, of: &[T]) -> T {
    let at = chance.next_below(u64::try_from(of.len()).unwrap_or(1));
    of[usize::try_from(at).unwrap_or(0)]
}
