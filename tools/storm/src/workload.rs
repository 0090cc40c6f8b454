//! Rows of operations: all the short ones, and long ones from a seed.

use std::fmt;
use std::str::FromStr;

use sim::Seed;

use crate::model::Model;
use crate::op::{Act, Op};
use crate::seen::What;

/// A row of operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Workload {
    /// One of all rows of up to three operations, by its number below [`Workload::SHORT`].
    Short(u64),
    /// Many operations from a seed, also on datasets.
    Long(u64),
    /// The same, and many on extended attributes.
    Marked(u64),
    /// The same, and many of which no record of a log tells.
    Untold(u64),
}

/// Kinds of operations.
const KINDS: u64 = 15;
/// Those that change files come first; then sync, and fsync.
const SYNC: u64 = 13;
/// Operations of a long row.
const LONG: usize = 40;
/// Where files may be.
const LETTERS: [&str; 5] = [
    "a",
    "b",
    "c",
    "f",
    "a name that is long enough for no micro entry, \
    as micro tables hold names of up to forty-nine bytes only, so that the table grows fat",
];
/// What extended attributes are called.
const MARKS: [&str; 3] = ["user.a", "user.b", "user.c"];
/// What datasets and snapshots are called.
const NAMES: [&str; 4] = ["w", "x", "y", "z"];

impl Workload {
    /// How many short ones there are: of one, two and three operations.
    pub const SHORT: u64 = KINDS + KINDS * KINDS + KINDS * KINDS * KINDS;

    /// The kinds of operations of a short row.
    fn kinds(number: u64) -> Vec<u64> {
        let (mut rest, mut length) = (number, 1);
        while rest >= KINDS.pow(length) && length < 3 {
            rest -= KINDS.pow(length);
            length += 1;
        }
        (0..length).map(|place| rest / KINDS.pow(place) % KINDS).collect()
    }

    /// How many operations there are, the last sync aside.
    pub(crate) fn length(self) -> usize {
        match self {
            Self::Short(number) => Self::kinds(number).len(),
            Self::Long(_) | Self::Marked(_) | Self::Untold(_) => LONG,
        }
    }

    /// From which number all that is left to chance follows.
    pub(crate) fn seed(self) -> u64 {
        match self {
            Self::Short(number) => number,
            Self::Long(seed) => !seed,
            Self::Marked(seed) => !seed ^ 1 << 62,
            Self::Untold(seed) => !seed ^ 1 << 61,
        }
    }

    /// The operation at a place of the row, on what is there then.
    pub(crate) fn op(self, place: usize, model: &Model, chance: &mut Seed) -> Op {
        let root = model.sets.keys().next().cloned().unwrap_or_default();
        match self {
            Self::Short(number) => file_op(Self::kinds(number)[place], &root, model, chance),
            Self::Marked(_) if chance.percent(50) => {
                let sets: Vec<&String> = model.sets.keys().collect();
                mark_op(sets[pick(chance, sets.len())], model, chance)
            }
            Self::Untold(_) if chance.percent(30) => {
                let sets: Vec<&String> = model.sets.keys().collect();
                untold_op(sets[pick(chance, sets.len())], model, chance)
            }
            _ if chance.percent(25) => dataset_op(&root, model, chance),
            _ => {
                let sets: Vec<&String> = model.sets.keys().collect();
                let set = sets[pick(chance, sets.len())].clone();
                let kind =
                    if chance.percent(80) { chance.below(SYNC) } else { SYNC + chance.below(2) };
                file_op(kind, &set, model, chance)
            }
        }
    }
}

fn pick(chance: &mut Seed, count: usize) -> usize {
    usize::try_from(chance.below(count.max(1) as u64)).unwrap_or(0)
}

fn one<'a>(chance: &mut Seed, of: &[&'a str]) -> Option<&'a str> {
    of.get(pick(chance, of.len())).copied()
}

/// Some operation of a kind on a file system; something is made where there is nothing for it.
fn file_op(kind: u64, set: &str, model: &Model, chance: &mut Seed) -> Op {
    if kind == SYNC {
        return Op::Sync;
    }
    if kind > SYNC {
        return Op::Fsync { set: set.to_owned() };
    }
    let tree = model.tree(set);
    let files = tree.paths(|what| matches!(what, What::File(_)));
    let dirs = tree.paths(|what| matches!(what, What::Directory));
    let (file, free) = (one(chance, &files), free_path(&dirs, chance));
    let path = || file.unwrap_or_default().to_owned();
    let seed = chance.next_u64();
    let size = tree.size(&path()) as u64;
    let free = free.filter(|free| !tree.has(free));
    let act = match (kind, file, free) {
        (1, Some(_), _) => {
            let at = chance.below(size + 6000);
            let length = 1 + pick(chance, 20_000);
            Act::Write { path: path(), at, length, seed }
        }
        (2, Some(_), _) => Act::Append { path: path(), length: 1 + pick(chance, 9000), seed },
        (3, Some(_), _) => Act::Truncate { path: path(), size: chance.below(size + 9000) },
        (4, Some(_), _) => {
            let from = chance.below(size + 1);
            Act::Punch { path: path(), from, to: from + 1 + chance.below(size + 1) }
        }
        (5, _, _) => return rename_or_make(set, model, chance),
        (6, Some(_), _) => Act::Unlink { path: path() },
        (7, _, Some(path)) => Act::Mkdir { path },
        (8, _, _) => {
            let empty = |dir: &&&str| !dir.is_empty() && tree.is_empty(dir);
            let empty: Vec<&str> = dirs.iter().filter(empty).copied().collect();
            match one(chance, &empty) {
                Some(path) => Act::Rmdir { path: path.to_owned() },
                None => return Op::Sync,
            }
        }
        (9, Some(_), Some(to)) => Act::Link { path: path(), to },
        (10, _, Some(path)) => Act::Symlink { path, target: "x".repeat(1 + pick(chance, 100)) },
        (11, Some(_), _) => Act::SetAttr {
            path: path(),
            mode: u32::try_from(chance.below(0o1000)).unwrap_or(0),
            owner: 1000 + u32::try_from(chance.below(3)).unwrap_or(0),
        },
        // so much that whole blocks go to the drives before their group is written
        (12, Some(_), _) => {
            let at = chance.below(size + 6000);
            let length = 140_000 + pick(chance, 20_000);
            Act::Write { path: path(), at, length, seed }
        }
        (_, _, Some(path)) => Act::Create { path },
        _ => return Op::Sync,
    };
    Op::File { set: set.to_owned(), act }
}

/// An extended attribute is set, or removed. Long ones have no room with the others of a file.
fn mark_op(set: &str, model: &Model, chance: &mut Seed) -> Op {
    let tree = model.tree(set);
    let all = tree.paths(|what| !matches!(what, What::Link(_)));
    let path = one(chance, &all).unwrap_or_default().to_owned();
    let name = one(chance, &MARKS).unwrap_or_default().to_owned();
    let goes = tree.has_attribute(&path, &name) && chance.percent(30);
    let most = [100, 20_000, 60_000][pick(chance, 3)];
    let length = (!goes).then(|| pick(chance, most));
    let act = Act::SetXattr { path, name, length, seed: chance.next_u64() };
    Op::File { set: set.to_owned(), act }
}

/// Something is done of which no record of a log tells: a file that had no name gets one, shares the
/// blocks of another, or gets an attribute without a value.
fn untold_op(set: &str, model: &Model, chance: &mut Seed) -> Op {
    let tree = model.tree(set);
    let files = tree.paths(|what| matches!(what, What::File(_)));
    let dirs = tree.paths(|what| matches!(what, What::Directory));
    let file = one(chance, &files).map(str::to_owned);
    let free = free_path(&dirs, chance).filter(|free| !tree.has(free));
    let seed = chance.next_u64();
    let act = match (chance.below(3), file, free) {
        (0, _, Some(path)) => Act::Name { path, length: pick(chance, 20_000), seed },
        (1, Some(path), Some(to)) => Act::Share { path, to },
        (_, Some(path), _) => {
            let name = one(chance, &MARKS).unwrap_or_default().to_owned();
            Act::SetXattr { path, name, length: Some(0), seed }
        }
        _ => return Op::Sync,
    };
    Op::File { set: set.to_owned(), act }
}

fn free_path(dirs: &[&str], chance: &mut Seed) -> Option<String> {
    let dir = one(chance, dirs)?;
    let name = one(chance, &LETTERS)?;
    Some(if dir.is_empty() { name.to_owned() } else { format!("{dir}/{name}") })
}

/// A file or a directory gets another name, which may be one that is taken.
fn rename_or_make(set: &str, model: &Model, chance: &mut Seed) -> Op {
    let tree = model.tree(set);
    let all = tree.paths(|_| true);
    let from = one(chance, &all).unwrap_or_default().to_owned();
    let dirs = tree.paths(|what| matches!(what, What::Directory));
    let to = free_path(&dirs, chance).unwrap_or_default();
    let set = set.to_owned();
    let within = to == from || to.starts_with(&format!("{from}/"));
    let fits = match (tree.is_directory(&from), tree.has(&to)) {
        (_, false) => true,
        (false, true) => !tree.is_directory(&to),
        (true, true) => tree.is_directory(&to) && tree.is_empty(&to),
    };
    if from.is_empty() || within || !fits {
        return Op::Sync;
    }
    Op::File { set, act: Act::Rename { from, to } }
}

/// Some operation on datasets.
fn dataset_op(root: &str, model: &Model, chance: &mut Seed) -> Op {
    let sets: Vec<&str> = model.sets.keys().map(String::as_str).collect();
    let set = one(chance, &sets).unwrap_or(root).to_owned();
    let known = &model.sets[&set];
    let name = one(chance, &NAMES).unwrap_or_default();
    let new = format!("{root}/{}", one(chance, &NAMES).unwrap_or_default());
    let snapshots: Vec<&str> = known.snapshots.iter().map(|(name, _)| name.as_str()).collect();
    let old = one(chance, &snapshots);
    let is_new = !model.sets.contains_key(&new);
    match (chance.below(6), old) {
        (0, _) if is_new => Op::NewSet { set: new },
        (1, Some(old)) if is_new => Op::Clone { set, name: old.to_owned(), new },
        (2, None) if set != root => Op::DestroySet { set },
        (3, Some(old)) if !model.has_clones(&format!("{set}@{old}")) => {
            Op::DestroySnapshot { set, name: old.to_owned() }
        }
        (4, Some(_)) => Op::Rollback { set },
        _ if !snapshots.contains(&name) => Op::Snapshot { set, name: name.to_owned() },
        _ => Op::Sync,
    }
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Short(number) => write!(f, "e{number}"),
            Self::Long(seed) => write!(f, "r{seed}"),
            Self::Marked(seed) => write!(f, "x{seed}"),
            Self::Untold(seed) => write!(f, "u{seed}"),
        }
    }
}

impl FromStr for Workload {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bad = || format!("'{text}' is no workload");
        let (kind, number) = text.split_at_checked(1).ok_or_else(bad)?;
        let number = number.parse().map_err(|_| bad())?;
        match kind {
            "e" => Ok(Self::Short(number)),
            "r" => Ok(Self::Long(number)),
            "x" => Ok(Self::Marked(number)),
            "u" => Ok(Self::Untold(number)),
            _ => Err(bad()),
        }
    }
}
