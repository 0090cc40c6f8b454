//! Files of a small pool that several threads overwrite faster than freed space can be used again.

use engine::pool::VdevLayout;
use posix::{NewInode, WriteOffset};
use sim::Random;
use units::ObjectId;

use crate::test_pool::{TempDir, check_pool, credentials, environment, new_pool};

const BLOCK: u64 = 8 << 10;
const FILE_BLOCKS: u64 = 1024;
const THREADS: u64 = 6;
const WRITES: u64 = 1500;

#[test]
fn overwriters_find_space_in_a_small_pool() {
    // dirty data may be almost as large as the pool
    let folder = TempDir::new("overwriters", 1, 80 << 20);
    let mut new = new_pool(&folder, VdevLayout::Single, 1);
    new.properties =
        [("compression", "off"), ("recordsize", "8K")].map(|(a, b)| (a.into(), b.into())).to_vec();
    let pool = engine::pool::create(&new, &environment()).unwrap();
    let fs = pool.datasets().filesystem("tank").unwrap();
    let root = ObjectId::new(fs.reader().root_object());
    // the file itself is not kept: it would hold the pool
    let file = fs.create(&credentials(), root, b"file", &NewInode::default()).unwrap().ino();
    let file = ObjectId::new(file);
    for block in 0..FILE_BLOCKS {
        fs.write(&credentials(), file, WriteOffset::At(block * BLOCK), &[1; 8192]).unwrap();
    }
    pool.sync().unwrap();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let fs = fs.clone();
            scope.spawn(move || {
                let mut random = Random::new(thread);
                for _ in 0..WRITES {
                    let at = WriteOffset::At(random.next_below(FILE_BLOCKS) * BLOCK);
                    fs.write(&credentials(), file, at, &[2; 8192]).expect("there is space");
                }
            });
        }
    });
    drop(fs);
    pool.export().unwrap();
    drop(pool);
    assert_eq!(check_pool(&folder, "tank"), Vec::<String>::new());
}
