//! Files that are changed through shared mappings, written, cut and copied in mixes that come from a seed,
//! and compared with the same files on the system's own file system. It takes /dev/fuse.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{FallocateFlags, OFlags, SeekFrom, copy_file_range, fallocate, seek};
use rustix::io::Errno;

use crate::client;
use crate::mapping::Mapping;
use crate::mounted_fixture::can_mount;
use crate::mounted_pool::{MountedPool, Random};

/// Files of a seed, and steps that are done to them.
const FILE_COUNT: u64 = 3;
const STEP_COUNT: usize = 40;
/// The size of the largest files, in bytes.
const MAX_FILE_SIZE: u64 = 200_000;

/// One of the two trees, with the mappings that stay.
struct TestTree {
    dir: PathBuf,
    mappings: Vec<(u64, Mapping)>,
}

/// A step, which is done to both sides.
#[derive(Debug)]
enum Step {
    Write { file: u64, at: u64, bytes: Vec<u8>, opens_for_read: bool },
    Append { file: u64, bytes: Vec<u8> },
    Map { file: u64, at: u64, bytes: Vec<u8>, end: MappingEnd },
    WriteMapped { at: u64, bytes: Vec<u8>, mapping: u64 },
    Unmap,
    Punch { file: u64, at: u64, length: u64 },
    Truncate { file: u64, size: u64 },
    CopyRange { from: u64, to: u64, at: u64, length: u64 },
    CopySparse { from: u64, to: u64 },
}

/// The operation on a mapping after it was written.
#[derive(Clone, Copy, Debug)]
enum MappingEnd {
    Keep,
    Sync,
    Unmap,
}

fn to_usize(number: u64) -> usize {
    usize::try_from(number).unwrap()
}

impl Step {
    fn random(dice: &mut Random) -> Self {
        let (file, at) = (dice.next_below(FILE_COUNT), dice.next_below(MAX_FILE_SIZE));
        let length =
            if dice.next_below(3) == 0 { dice.next_below(60_000) } else { dice.next_below(6000) }
                + 1;
        let fill = u8::try_from(dice.next_below(255) + 1).unwrap();
        let bytes = vec![fill; to_usize(length)];
        match dice.next_below(12) {
            0 | 1 => Self::Write { file, at, bytes, opens_for_read: dice.next_below(2) == 0 },
            2 => Self::Append { file, bytes },
            3..=5 => {
                let end = [MappingEnd::Keep, MappingEnd::Sync, MappingEnd::Unmap]
                    [to_usize(dice.next_below(3))];
                Self::Map { file, at, bytes, end }
            }
            6 => Self::WriteMapped { at, bytes, mapping: dice.next_below(8) },
            7 => Self::Unmap,
            8 => Self::Punch { file, at, length: length * 4 },
            9 => Self::Truncate { file, size: at },
            10 => Self::CopyRange {
                from: file,
                to: dice.next_below(FILE_COUNT),
                at,
                length: length * 4,
            },
            _ => Self::CopySparse { from: file, to: dice.next_below(FILE_COUNT) },
        }
    }
}

impl TestTree {
    fn new(dir: PathBuf) -> Self {
        fs::create_dir(&dir).unwrap();
        let side = Self { dir, mappings: Vec::new() };
        for file in 0..FILE_COUNT {
            File::create(side.path(file)).unwrap().set_len(MAX_FILE_SIZE / 2 * file).unwrap();
        }
        side
    }

    fn path(&self, file: u64) -> PathBuf {
        self.dir.join(format!("f{file}"))
    }

    fn open(&self, file: u64) -> File {
        OpenOptions::new().read(true).write(true).open(self.path(file)).unwrap()
    }

    fn size(&self, file: u64) -> u64 {
        fs::metadata(self.path(file)).unwrap().len()
    }

    /// Writes those bytes to a mapping that the file has; beyond its end there is nothing to be changed.
    fn write_mapped(&mut self, which: usize, at: u64, bytes: &[u8]) {
        let Some((file, _)) = self.mappings.get(which) else { return };
        let size = self.size(*file);
        let (_, mapping) = &mut self.mappings[which];
        let end = size.min(mapping.length()).min(at + bytes.len() as u64);
        if let Some(length) = end.checked_sub(at) {
            mapping.write(to_usize(at), &bytes[..to_usize(length)]);
        }
    }

    /// Does a step; returns the number of copied bytes, or its error.
    fn apply_step(&mut self, step: &Step) -> io::Result<u64> {
        match step {
            Step::Write { file, at, bytes, opens_for_read: reads } => {
                let open = OpenOptions::new().read(*reads).write(true).open(self.path(*file))?;
                open.write_all_at(bytes, *at)?;
            }
            Step::Append { file, bytes } => {
                OpenOptions::new().append(true).open(self.path(*file))?.write_all(bytes)?;
            }
            Step::Map { file, at, bytes, end } => self.map_and_write(*file, *at, bytes, *end)?,
            Step::WriteMapped { at, bytes, mapping: which } => {
                self.write_mapped(to_usize(*which), *at, bytes);
            }
            Step::Unmap if self.mappings.is_empty() => {}
            Step::Unmap => drop(self.mappings.remove(0)),
            Step::Punch { file, at, length } => {
                let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                fallocate(self.open(*file), flags, *at, *length)?;
            }
            Step::Truncate { file, size } => self.open(*file).set_len(*size)?,
            Step::CopyRange { from, to, at, length } => {
                let (from, to) = (File::open(self.path(*from))?, self.open(*to));
                let (mut source, mut target) = (*at, *at / 2);
                let length = to_usize(*length);
                let copied =
                    copy_file_range(&from, Some(&mut source), &to, Some(&mut target), length)?;
                return Ok(copied as u64);
            }
            Step::CopySparse { from, to } if from == to => {}
            Step::CopySparse { from, to } => copy_sparse(&self.path(*from), &self.path(*to))?,
        }
        Ok(0)
    }

    fn map_and_write(
        &mut self,
        file: u64,
        at: u64,
        bytes: &[u8],
        end: MappingEnd,
    ) -> io::Result<()> {
        let size = self.size(file);
        if size == 0 {
            return Ok(());
        }
        // the descriptor is closed at once: the mapping alone keeps the file open
        let mapping = Mapping::new(&self.open(file), to_usize(size))?;
        self.mappings.push((file, mapping));
        let last = self.mappings.len() - 1;
        self.write_mapped(last, at, bytes);
        match end {
            MappingEnd::Keep => {}
            MappingEnd::Sync => self.mappings[last].1.sync()?,
            MappingEnd::Unmap => drop(self.mappings.pop()),
        }
        Ok(())
    }
}

/// Copies a file as cp(1) does: data where SEEK_DATA finds it, and holes elsewhere.
fn copy_sparse(from: &Path, to: &Path) -> io::Result<()> {
    let (from, to) = (File::open(from)?, File::create(to)?);
    let size = from.metadata()?.len();
    let mut at = 0;
    loop {
        at = match seek(&from, SeekFrom::Data(at)) {
            Ok(at) => at,
            Err(Errno::NXIO) => break,
            Err(why) => return Err(why.into()),
        };
        let end = seek(&from, SeekFrom::Hole(at))?;
        let mut bytes = vec![0; to_usize(end - at)];
        from.read_exact_at(&mut bytes, at)?;
        to.write_all_at(&bytes, at)?;
        at = end;
    }
    to.set_len(size)
}

/// The content that a program with direct reads gets.
fn read_direct(path: &Path) -> io::Result<Vec<u8>> {
    let flags = OFlags::DIRECT.bits().cast_signed();
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    let mut bytes = vec![0; to_usize(file.metadata()?.len())];
    file.read_exact_at(&mut bytes, 0)?;
    Ok(bytes)
}

fn assert_same(ours: &TestTree, model: &TestTree, seed: u64, after: &str) {
    for file in 0..FILE_COUNT {
        let wanted = fs::read(model.path(file)).unwrap();
        let read = fs::read(ours.path(file)).unwrap();
        let copy = ours.dir.join("copy");
        copy_sparse(&ours.path(file), &copy).unwrap();
        let ways = [("read", read), ("direct", read_direct(&ours.path(file)).unwrap())];
        for (way, found) in ways.into_iter().chain([("copied", fs::read(&copy).unwrap())]) {
            let differs = found.iter().zip(&wanted).position(|(one, other)| one != other);
            assert_eq!(
                (differs, found.len()),
                (None, wanted.len()),
                "seed {seed}, file {file}, {way}, after {after}"
            );
        }
    }
}

/// The steps of a seed, done to both trees.
fn compare(ours: &Path, model: &Path, seed: u64) {
    let dice = &mut Random(seed);
    let name = format!("s{seed}");
    let (mut ours, mut model) = (TestTree::new(ours.join(&name)), TestTree::new(model.join(&name)));
    for number in 0..STEP_COUNT {
        let step = Step::random(dice);
        let done = [ours.apply_step(&step), model.apply_step(&step)];
        let done = done.map(|done| done.map_err(|why| why.raw_os_error()));
        assert_eq!(done[0], done[1], "seed {seed}, step {number}");
        if number % 4 == 3 {
            assert_same(&ours, &model, seed, &format!("step {number}"));
        }
    }
    (ours.mappings, model.mappings) = (Vec::new(), Vec::new());
    assert_same(&ours, &model, seed, "all mappings went");
    fs::remove_dir_all(&ours.dir).unwrap();
    fs::remove_dir_all(&model.dir).unwrap();
}

/// The steps of many seeds, in a program of their own.
fn compare_seeds(name: &str, seeds: std::ops::Range<u64>, limit: Duration) {
    if !can_mount() {
        return;
    }
    let place = MountedPool::create(name);
    let (ours, model) = (place.mountpoint(), place.model_dir());
    let output = place.output();
    let words = [ours.to_str().unwrap(), model.to_str().unwrap()];
    let seeds = [seeds.start.to_string(), seeds.end.to_string()];
    let words = [words[0], words[1], &seeds[0], &seeds[1]];
    client::run_test("mapped::client_compares_seeds", &words, limit, &output);
    place.export_and_verify();
}

#[test]
#[ignore = "a program that other tests of this file start"]
fn client_compares_seeds() {
    let Some(words) = client::arguments() else { return };
    let [ours, model, first, last] = &words[..] else { panic!("{words:?}") };
    for seed in first.parse().unwrap()..last.parse().unwrap() {
        compare(ours.as_ref(), model.as_ref(), seed);
    }
}

#[test]
fn mapped_writes_are_seen_and_copied() {
    compare_seeds("mapped", 0..40, Duration::from_mins(2));
}

#[test]
#[ignore = "takes minutes"]
fn mapped_writes_are_visible_and_copied() {
    compare_seeds("mapped-long", 1000..2000, Duration::from_mins(20));
}

#[test]
#[ignore = "a program that another test starts"]
fn client_finds_mapped_bytes() {
    let Some(words) = client::arguments() else { return };
    let path = Path::new(&words[0]);
    File::create(path).unwrap().set_len(8 << 20).unwrap();
    let open = OpenOptions::new().read(true).write(true).clone();
    let other = File::open(path).unwrap();
    // no program may change it: its holes are known
    assert_eq!(seek(&other, SeekFrom::Data(0)), Err(Errno::NXIO));
    assert_eq!(seek(&other, SeekFrom::Hole(0)), Ok(0));
    let mut mapping = Mapping::new(&open.open(path).unwrap(), 8 << 20).unwrap();
    mapping.write(5 << 20, b"data");
    // the file's end is right, and the range before it may have data
    assert_eq!(seek(&other, SeekFrom::Data(3 << 20)), Ok(3 << 20));
    assert_eq!(seek(&other, SeekFrom::Hole(3 << 20)), Ok(8 << 20));
    assert_eq!(seek(&other, SeekFrom::Data(8 << 20)), Err(Errno::NXIO));
    assert_eq!(seek(&other, SeekFrom::Hole(8 << 20)), Err(Errno::NXIO));
    drop(mapping);
    // RELEASE comes some time after the mapping has gone, but the page was written out before
    let mut found = seek(&other, SeekFrom::Data(0)).unwrap();
    while found == 0 {
        std::thread::yield_now();
        found = seek(&other, SeekFrom::Data(0)).unwrap();
    }
    assert!((4 << 20..=5 << 20).contains(&found), "{found}");
}

#[test]
fn holes_are_reported_only_for_unmapped_files() {
    if !can_mount() {
        return;
    }
    let place = MountedPool::create("holes");
    let path = place.mountpoint().join("file");
    let words = [path.to_str().unwrap()];
    let limit = Duration::from_mins(1);
    client::run_test("mapped::client_finds_mapped_bytes", &words, limit, &place.output());
    place.export_and_verify();
}
