//! Concurrent changes: no deadlock, and every synced txg is consistent.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use posix::{FileType, NewInode, RenameMode, RenameRequest, WriteOffset, XattrMode};
use units::ObjectId;
use zpl::WriteSettings;

use crate::consistency;
use crate::test_fs::{TestFs, credentials};

const NAMES: [&[u8]; 4] = [b"a", b"b", b"c", b"d"];

/// Numbers that look random, the same for a seed.
struct Random(u64);

impl Random {
    fn below(&mut self, most: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        usize::try_from(self.0 >> 33).expect("31 bits") % most
    }

    fn name(&mut self) -> &'static [u8] {
        NAMES[self.below(NAMES.len())]
    }
}

fn random_directory(pool: &TestFs, draw: &mut Random) -> ObjectId {
    let fs = pool.writer.fs();
    let mut at = fs.master().root;
    for _ in 0..draw.below(3) {
        let Ok(node) = fs.inode(at) else { break };
        match fs.lookup(&node, draw.name()) {
            Ok(Some(found)) if found.attributes().kind == FileType::Directory => at = found.id(),
            _ => break,
        }
    }
    at
}

fn run_operations(pool: &TestFs, seed: u64) {
    let (mut draw, writer) = (Random(seed), &pool.writer);
    for step in 0..400 {
        let who = credentials(step);
        let (dir, name) = (random_directory(pool, &mut draw), draw.name());
        // most of these are refused, as others were there first
        match draw.below(9) {
            0 => {
                let new = NewInode { kind: FileType::Directory, ..NewInode::default() };
                drop(writer.create(&who, dir, name, &new));
            }
            1 => drop(writer.rmdir(&who, dir, name)),
            2 => drop(writer.unlink(&who, dir, name)),
            3 | 4 => {
                let kinds = [RenameMode::Replace, RenameMode::Exchange, RenameMode::Whiteout];
                let (to_dir, to) = (random_directory(pool, &mut draw), draw.name());
                let how = RenameRequest {
                    from_dir: dir,
                    from_name: name,
                    to_dir,
                    to_name: to,
                    mode: kinds[draw.below(3)],
                };
                drop(writer.rename(&who, &how));
            }
            5 => {
                let Ok(made) = writer.create(&who, dir, name, &NewInode::default()) else {
                    continue;
                };
                if writer.hold_file(made.id).is_err() {
                    continue;
                }
                drop(writer.unlink(&who, dir, name));
                writer.write(&who, made.id, WriteOffset::End, b"held").expect("it is held");
                writer.release_file(made.id).expect("release");
            }
            _ => {
                let Ok(made) = writer.create(&who, dir, name, &NewInode::default()) else {
                    continue;
                };
                drop(writer.write(&who, made.id, WriteOffset::At(3000), &[1; 3000]));
                let value = [2; 500];
                drop(writer.set_xattr(&who, made.id, b"user.x", Some(&value), XattrMode::Any));
                drop(writer.link(&who, made.id, dir, draw.name()));
            }
        }
    }
}

#[test]
fn many_at_once() {
    for xattr_sa in [true, false] {
        let pool =
            TestFs::new(WriteSettings { record_size: 1024, xattr_sa, ..WriteSettings::default() });
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            let workers: Vec<_> = (0..4)
                .map(|seed| {
                    scope.spawn({
                        let pool = &pool;
                        move || run_operations(pool, seed)
                    })
                })
                .collect();
            let syncing = scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    // the state after a crash at any time
                    consistency::check_consistency(&pool.reopen_read_only());
                }
            });
            let results: Vec<_> = workers.into_iter().map(thread::ScopedJoinHandle::join).collect();
            done.store(true, Ordering::Relaxed);
            syncing.join().expect("the synced state is consistent");
            for result in results {
                result.expect("no worker fails");
            }
        });
        consistency::check_consistency(&pool.reopen_read_only());
    }
}

#[test]
fn fallocate_keeps_concurrent_appends() {
    const ROUNDS: u64 = 2000;
    let pool = TestFs::new(WriteSettings::default());
    let (writer, who) = (&pool.writer, credentials(2));
    let root = writer.fs().master().root;
    let file = writer.create(&who, root, b"log", &NewInode::default()).expect("made").id;
    let size = || writer.fs().attributes(file).expect("attributes").size;
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                writer.extend(&who, file, size() + 1).expect("extend");
            }
        });
        let mut cut = 0;
        for _ in 0..ROUNDS {
            let end = writer.write(&who, file, WriteOffset::End, &[1; 600]).expect("write");
            cut += u64::from(size() < end);
        }
        done.store(true, Ordering::Relaxed);
        assert_eq!(cut, 0, "times that what was appended was not there");
    });
}
