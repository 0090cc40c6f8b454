//! How fast a raidz2 of 6 files takes blocks, against a bare loop that computes the same parity
//! and writes the same bytes: `cargo run --release -p vdev --example write [FOLDER]` (a tmpfs).
//!
//! The ways take turns in each round; the medians are printed, in MiB of data a second of this
//! program's time on the processor (other programs' are not counted: `/proc/self/schedstat`).

use std::path::{Path, PathBuf};
use std::sync::Arc;

use device::{Device, File};
use geometry::{Block, Expandable, Raidz};
use units::{Ashift, Guid, Txg, VdevId};
use vdev::{BlockWrite, Leaf, NodeKind, VdevNode, VdevTree};

const DRIVES: u32 = 6;
const PARITY: u32 = 2;
/// Bytes written in each run.
const BYTES_PER_RUN: usize = 256 << 20;
const ROUNDS: usize = 9;
const TXG: Txg = Txg::new(10);
const TOP: VdevId = VdevId::new(0);

/// The figures of one block size.
struct Bench {
    tree: VdevTree,
    raidz: Raidz,
    devices: Vec<Arc<dyn Device>>,
    source: Vec<u8>,
    block_size: usize,
}

impl Bench {
    /// The blocks of a run, one behind the other.
    fn blocks(&self) -> impl Iterator<Item = BlockWrite<'_>> {
        let asize = self.raidz.asize(self.block_size as u64);
        (0..).zip(self.source.chunks_exact(self.block_size)).map(move |(number, data)| BlockWrite {
            vdev: TOP,
            offset: number * asize,
            birth: TXG,
            data,
        })
    }

    fn write_one_by_one(&self) {
        let mut faults = Vec::new();
        for block in self.blocks() {
            let written = self.tree.write(TOP, block.offset, block.data, TXG, &mut faults);
            written.expect("it is written");
        }
    }

    fn write_batched(&self, count: usize) {
        let blocks: Vec<_> = self.blocks().collect();
        let mut faults = Vec::new();
        for some in blocks.chunks(count) {
            for written in self.tree.write_many(some, &mut faults) {
                written.expect("it is written");
            }
        }
    }

    /// The same bytes at the same places, with as little around it as can be.
    fn write_bare(&self) {
        let mut parity = vec![0; self.block_size];
        for BlockWrite { offset, data, .. } in self.blocks() {
            let map = self.raidz.map(Block { offset, size: data.len() }).expect("an address");
            for row in map.rows() {
                let columns: Vec<&[u8]> = row.data().iter().map(|c| &data[c.data()]).collect();
                let mut rows = parity.chunks_exact_mut(row.height());
                let mut outs: Vec<&mut [u8]> = rows.by_ref().take(row.parity().len()).collect();
                simd::parity::generate(&columns, &mut outs);
                let bytes = outs.iter().map(|out| &**out).chain(columns);
                for (column, bytes) in row.columns().iter().zip(bytes) {
                    let device = &self.devices[column.child];
                    device.write_at(column.device_offset(), bytes).expect("it is written");
                }
            }
        }
    }
}

/// Nanoseconds that this thread has had a processor.
fn cpu_nanoseconds() -> u64 {
    let text = std::fs::read_to_string("/proc/self/schedstat").expect("Linux");
    text.split_whitespace().next().and_then(|word| word.parse().ok()).expect("a number")
}

#[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
fn throughput(run: impl FnOnce()) -> f64 {
    let start = cpu_nanoseconds();
    run();
    (BYTES_PER_RUN >> 20) as f64 * 1e9 / (cpu_nanoseconds() - start).max(1) as f64
}

fn median(mut all: Vec<f64>) -> f64 {
    all.sort_unstable_by(f64::total_cmp);
    all[all.len() / 2]
}

fn create_devices(folder: &Path) -> (Vec<PathBuf>, Vec<Arc<dyn Device>>) {
    let paths: Vec<PathBuf> =
        (0..DRIVES).map(|drive| folder.join(format!("vdev-write-{drive}.img"))).collect();
    let device = |path: &PathBuf| {
        // all of it is allocated before the measurement
        std::fs::write(path, vec![1; BYTES_PER_RUN / 2 + (24 << 20)]).expect("a file");
        Arc::new(File::open_exclusive(path).expect("the file")) as Arc<dyn Device>
    };
    let devices = paths.iter().map(device).collect();
    (paths, devices)
}

fn raidz_tree(raidz: Raidz, devices: &[Arc<dyn Device>]) -> VdevTree {
    let leaf = |(device, number): (&Arc<dyn Device>, u64)| {
        let (guid, device) = (Guid::new(number), Some(Arc::clone(device)));
        VdevNode { guid, kind: NodeKind::Leaf(Leaf::new(guid, String::new(), device, TXG).into()) }
    };
    let leaves = devices.iter().zip(1..).map(leaf).collect();
    let kind = NodeKind::Raidz(Box::new(Expandable::from(raidz)), leaves);
    VdevTree::new(vec![VdevNode { guid: Guid::new(100), kind }])
}

fn noise() -> Vec<u8> {
    let byte = |at: u64| (at.wrapping_mul(at) >> 7).to_le_bytes()[0];
    (0..BYTES_PER_RUN as u64).map(byte).collect()
}

fn main() {
    let folder = std::env::args().nth(1).map_or_else(std::env::temp_dir, PathBuf::from);
    let (paths, devices) = create_devices(&folder);
    let ashift = Ashift::new(12).expect("a sector");
    let raidz = Raidz::new(DRIVES, PARITY, ashift).expect("an array");
    println!(
        "{:>8} {:>10} {:>10} {:>10} {:>7} {:>7}",
        "block", "bare", "one", "many", "one", "many"
    );
    for shift in [12, 14, 15, 16, 17, 18, 19, 20] {
        let source = noise();
        let tree = raidz_tree(raidz, &devices);
        let bench = Bench { tree, raidz, devices: devices.clone(), source, block_size: 1 << shift };
        let mut rates: [Vec<f64>; 3] = Default::default();
        for round in 0..=ROUNDS {
            let found = [
                throughput(|| bench.write_bare()),
                throughput(|| bench.write_one_by_one()),
                throughput(|| bench.write_batched(64)),
            ];
            for (all, one) in rates.iter_mut().zip(found).filter(|_| round > 0) {
                all.push(one);
            }
        }
        let [bare, one, many] = rates.map(median);
        let size = (1 << shift) >> 10;
        let (first, second) = (one / bare, many / bare);
        println!("{size:>7}K {bare:>10.0} {one:>10.0} {many:>10.0} {first:>7.2} {second:>7.2}");
    }
    for path in paths {
        let removed = std::fs::remove_file(&path);
        removed.expect("it is removed");
    }
}
