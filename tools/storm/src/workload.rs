//! Rows of operations: all the short ones, and long ones from a seed.

use std::fmt;
use std::str::FromStr;

use sim::Random;

use crate::file_state::FileContent;
use crate::model::Model;
use crate::op::{FileOp, Op};

/// A row of operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Workload {
    /// One of all rows of up to three operations, by its number below [`Workload::SHORT_COUNT`].
    Short(u64),
    /// Many operations from a seed, also on datasets.
    Long(u64),
    /// The same, and many on extended attributes.
    Xattrs(u64),
    /// The same, with many operations without log record.
    Unlogged(u64),
    /// The same, and some that make or discard a checkpoint of the pool.
    Checkpoints(u64),
    /// The same, and many that share blocks with other file systems and snapshots.
    Clones(u64),
}

/// Kinds of operations.
const KIND_COUNT: u64 = 15;
/// Those that change files come first; then sync, and fsync.
const SYNC_KIND: u64 = 13;
/// Operations of a long row.
const LONG_LENGTH: usize = 40;
/// Where files may be.
const FILE_NAMES: [&str; 5] = [
    "a",
    "b",
    "c",
    "f",
    "a name that is long enough for no micro entry, \
    as micro tables hold names of up to forty-nine bytes only, so that the table grows fat",
];
/// The names of extended attributes.
const XATTR_NAMES: [&str; 3] = ["user.a", "user.b", "user.c"];
/// The names of datasets and snapshots.
const DATASET_NAMES: [&str; 4] = ["w", "x", "y", "z"];

impl Workload {
    /// How many short ones there are: of one, two and three operations.
    pub const SHORT_COUNT: u64 =
        KIND_COUNT + KIND_COUNT * KIND_COUNT + KIND_COUNT * KIND_COUNT * KIND_COUNT;

    /// The kinds of operations of a short row.
    fn op_kinds(number: u64) -> Vec<u64> {
        let (mut rest, mut length) = (number, 1);
        while rest >= KIND_COUNT.pow(length) && length < 3 {
            rest -= KIND_COUNT.pow(length);
            length += 1;
        }
        (0..length).map(|place| rest / KIND_COUNT.pow(place) % KIND_COUNT).collect()
    }

    /// How many operations there are, the last sync aside.
    pub(crate) fn length(self) -> usize {
        match self {
            Self::Short(number) => Self::op_kinds(number).len(),
            Self::Long(_)
            | Self::Xattrs(_)
            | Self::Unlogged(_)
            | Self::Checkpoints(_)
            | Self::Clones(_) => LONG_LENGTH,
        }
    }

    /// From which number all that is left to chance follows.
    pub(crate) fn seed(self) -> u64 {
        match self {
            Self::Short(number) => number,
            Self::Long(seed) => !seed,
            Self::Xattrs(seed) => !seed ^ 1 << 62,
            Self::Unlogged(seed) => !seed ^ 1 << 61,
            Self::Checkpoints(seed) => !seed ^ 1 << 60,
            Self::Clones(seed) => !seed ^ 1 << 59,
        }
    }

    /// The operation at an index of the list, on the present files.
    pub(crate) fn op(self, place: usize, model: &Model, chance: &mut Random) -> Op {
        let root = model.datasets.keys().next().cloned().unwrap_or_default();
        match self {
            Self::Short(number) => file_op(Self::op_kinds(number)[place], &root, model, chance),
            Self::Xattrs(_) if chance.chance_percent(50) => {
                let sets: Vec<&String> = model.datasets.keys().collect();
                xattr_op(sets[random_index(chance, sets.len())], model, chance)
            }
            Self::Unlogged(_) if chance.chance_percent(30) => {
                let sets: Vec<&String> = model.datasets.keys().collect();
                unlogged_op(sets[random_index(chance, sets.len())], model, chance)
            }
            Self::Clones(_) if chance.chance_percent(35) => clone_op(model, chance),
            Self::Checkpoints(_) if chance.chance_percent(15) => Op::ToggleCheckpoint,
            _ if chance.chance_percent(25) => dataset_op(&root, model, chance),
            _ => {
                let sets: Vec<&String> = model.datasets.keys().collect();
                let set = sets[random_index(chance, sets.len())].clone();
                let kind = if chance.chance_percent(80) {
                    chance.next_below(SYNC_KIND)
                } else {
                    SYNC_KIND + chance.next_below(2)
                };
                file_op(kind, &set, model, chance)
            }
        }
    }
}

fn random_index(chance: &mut Random, count: usize) -> usize {
    usize::try_from(chance.next_below(count.max(1) as u64)).unwrap_or(0)
}

fn random_choice<'a>(chance: &mut Random, of: &[&'a str]) -> Option<&'a str> {
    of.get(random_index(chance, of.len())).copied()
}

/// Some operation of a kind on a file system; something is made where there is nothing for it.
fn file_op(kind: u64, set: &str, model: &Model, chance: &mut Random) -> Op {
    if kind == SYNC_KIND {
        return Op::Sync;
    }
    if kind > SYNC_KIND {
        return Op::Fsync { dataset: set.to_owned() };
    }
    let tree = model.tree(set);
    let files = tree.paths(|what| matches!(what, FileContent::File(_)));
    let dirs = tree.paths(|what| matches!(what, FileContent::Directory));
    let (file, free) = (random_choice(chance, &files), random_path(&dirs, chance));
    let path = || file.unwrap_or_default().to_owned();
    let seed = chance.next_u64();
    let size = tree.size(&path()) as u64;
    let free = free.filter(|free| !tree.contains(free));
    let act = match (kind, file, free) {
        (1, Some(_), _) => {
            let at = chance.next_below(size + 6000);
            let length = 1 + random_index(chance, 20_000);
            FileOp::Write { path: path(), offset: at, length, seed }
        }
        (2, Some(_), _) => {
            FileOp::Append { path: path(), length: 1 + random_index(chance, 9000), seed }
        }
        (3, Some(_), _) => FileOp::Truncate { path: path(), size: chance.next_below(size + 9000) },
        (4, Some(_), _) => {
            let from = chance.next_below(size + 1);
            FileOp::PunchHole {
                path: path(),
                start: from,
                end: from + 1 + chance.next_below(size + 1),
            }
        }
        (5, _, _) => return rename_op(set, model, chance),
        (6, Some(_), _) => FileOp::Unlink { path: path() },
        (7, _, Some(path)) => FileOp::Mkdir { path },
        (8, _, _) => {
            let empty = |dir: &&&str| !dir.is_empty() && tree.is_empty(dir);
            let empty: Vec<&str> = dirs.iter().filter(empty).copied().collect();
            match random_choice(chance, &empty) {
                Some(path) => FileOp::Rmdir { path: path.to_owned() },
                None => return Op::Sync,
            }
        }
        (9, Some(_), Some(to)) => FileOp::Link { path: path(), to },
        (10, _, Some(path)) => {
            FileOp::Symlink { path, target: "x".repeat(1 + random_index(chance, 100)) }
        }
        (11, Some(_), _) => FileOp::SetAttr {
            path: path(),
            mode: u32::try_from(chance.next_below(0o1000)).unwrap_or(0),
            owner: 1000 + u32::try_from(chance.next_below(3)).unwrap_or(0),
        },
        // enough that whole blocks are written eagerly
        (12, Some(_), _) => {
            let at = chance.next_below(size + 6000);
            let length = 140_000 + random_index(chance, 20_000);
            FileOp::Write { path: path(), offset: at, length, seed }
        }
        (_, _, Some(path)) => FileOp::Create { path },
        _ => return Op::Sync,
    };
    Op::File { dataset: set.to_owned(), op: act }
}

/// An extended attribute is set, or removed. Long ones do not fit with the others of a file.
fn xattr_op(set: &str, model: &Model, chance: &mut Random) -> Op {
    let tree = model.tree(set);
    let all = tree.paths(|what| !matches!(what, FileContent::Symlink(_)));
    let path = random_choice(chance, &all).unwrap_or_default().to_owned();
    let name = random_choice(chance, &XATTR_NAMES).unwrap_or_default().to_owned();
    let goes = tree.has_xattr(&path, &name) && chance.chance_percent(30);
    let most = [100, 20_000, 60_000][random_index(chance, 3)];
    let length = (!goes).then(|| random_index(chance, most));
    let act = FileOp::SetXattr { path, name, length, seed: chance.next_u64() };
    Op::File { dataset: set.to_owned(), op: act }
}

/// An operation without log record: a nameless file gets a name, clones the blocks of another, or
/// gets an attribute without a value.
fn unlogged_op(set: &str, model: &Model, chance: &mut Random) -> Op {
    let tree = model.tree(set);
    let files = tree.paths(|what| matches!(what, FileContent::File(_)));
    let dirs = tree.paths(|what| matches!(what, FileContent::Directory));
    let file = random_choice(chance, &files).map(str::to_owned);
    let free = random_path(&dirs, chance).filter(|free| !tree.contains(free));
    let seed = chance.next_u64();
    let act = match (chance.next_below(3), file, free) {
        (0, _, Some(path)) => {
            FileOp::LinkTmpfile { path, length: random_index(chance, 20_000), seed }
        }
        (1, Some(path), Some(to)) => FileOp::CloneBlocks { path, to },
        (_, Some(path), _) => {
            let name = random_choice(chance, &XATTR_NAMES).unwrap_or_default().to_owned();
            FileOp::SetXattr { path, name, length: Some(0), seed }
        }
        _ => return Op::Sync,
    };
    Op::File { dataset: set.to_owned(), op: act }
}

/// A new file shares the blocks of a file of any file system or snapshot.
fn clone_op(model: &Model, chance: &mut Random) -> Op {
    let sources: Vec<_> = model.all_trees().into_iter().collect();
    let (source, tree) = &sources[random_index(chance, sources.len())];
    let sets: Vec<&String> = model.datasets.keys().collect();
    let set = sets[random_index(chance, sets.len())];
    let files = tree.paths(|what| matches!(what, FileContent::File(_)));
    let target = model.tree(set);
    let dirs = target.paths(|what| matches!(what, FileContent::Directory));
    let free = random_path(&dirs, chance).filter(|free| !target.contains(free));
    let (Some(path), Some(to), true) = (random_choice(chance, &files), free, source != set) else {
        return Op::Sync;
    };
    let content = tree.content(path);
    let op = FileOp::CloneFrom { source: source.clone(), path: path.to_owned(), to, content };
    Op::File { dataset: set.clone(), op }
}

fn random_path(dirs: &[&str], chance: &mut Random) -> Option<String> {
    let dir = random_choice(chance, dirs)?;
    let name = random_choice(chance, &FILE_NAMES)?;
    Some(if dir.is_empty() { name.to_owned() } else { format!("{dir}/{name}") })
}

/// A file or a directory gets another name, which may be one that is taken.
fn rename_op(set: &str, model: &Model, chance: &mut Random) -> Op {
    let tree = model.tree(set);
    let all = tree.paths(|_| true);
    let from = random_choice(chance, &all).unwrap_or_default().to_owned();
    let dirs = tree.paths(|what| matches!(what, FileContent::Directory));
    let to = random_path(&dirs, chance).unwrap_or_default();
    let set = set.to_owned();
    let within = to == from || to.starts_with(&format!("{from}/"));
    let fits = match (tree.is_directory(&from), tree.contains(&to)) {
        (_, false) => true,
        (false, true) => !tree.is_directory(&to),
        (true, true) => tree.is_directory(&to) && tree.is_empty(&to),
    };
    if from.is_empty() || within || !fits {
        return Op::Sync;
    }
    Op::File { dataset: set, op: FileOp::Rename { from, to } }
}

/// Some operation on datasets.
fn dataset_op(root: &str, model: &Model, chance: &mut Random) -> Op {
    let sets: Vec<&str> = model.datasets.keys().map(String::as_str).collect();
    let set = random_choice(chance, &sets).unwrap_or(root).to_owned();
    let known = &model.datasets[&set];
    let name = random_choice(chance, &DATASET_NAMES).unwrap_or_default();
    let new = format!("{root}/{}", random_choice(chance, &DATASET_NAMES).unwrap_or_default());
    let snapshots: Vec<&str> = known.snapshots.iter().map(|(name, _)| name.as_str()).collect();
    let old = random_choice(chance, &snapshots);
    let is_new = !model.datasets.contains_key(&new);
    match (chance.next_below(6), old) {
        (0, _) if is_new => Op::CreateDataset { dataset: new },
        (1, Some(old)) if is_new => {
            Op::Clone { dataset: set, snapshot: old.to_owned(), target: new }
        }
        (2, None) if set != root => Op::DestroyDataset { dataset: set },
        (3, Some(old)) if !model.has_clones(&format!("{set}@{old}")) => {
            Op::DestroySnapshot { dataset: set, name: old.to_owned() }
        }
        (4, Some(_)) => Op::Rollback { dataset: set },
        _ if !snapshots.contains(&name) => Op::Snapshot { dataset: set, name: name.to_owned() },
        _ => Op::Sync,
    }
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Short(number) => write!(f, "e{number}"),
            Self::Long(seed) => write!(f, "r{seed}"),
            Self::Xattrs(seed) => write!(f, "x{seed}"),
            Self::Unlogged(seed) => write!(f, "u{seed}"),
            Self::Checkpoints(seed) => write!(f, "k{seed}"),
            Self::Clones(seed) => write!(f, "c{seed}"),
        }
    }
}

impl FromStr for Workload {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bad = || format!("'{text}' is not a workload");
        let (kind, number) = text.split_at_checked(1).ok_or_else(bad)?;
        let number = number.parse().map_err(|_| bad())?;
        match kind {
            "e" => Ok(Self::Short(number)),
            "r" => Ok(Self::Long(number)),
            "x" => Ok(Self::Xattrs(number)),
            "u" => Ok(Self::Unlogged(number)),
            "k" => Ok(Self::Checkpoints(number)),
            "c" => Ok(Self::Clones(number)),
            _ => Err(bad()),
        }
    }
}
