//! How fast each backend is: `cargo run --release -p simd --example bench [seconds-per-row]`.
//!
//! One row of 8 data columns of 16 KiB (a block of 128 KiB), warm. Prints GB/s: bytes of DATA in
//! the block (131072) over the time of one call, regardless of the parity bytes, as the median and
//! the best of several slices of time. Names are those of `raidz_test -B`: `gen_*` computes those
//! parity rows; `rec_*` rebuilds the first one, two or three data columns from the named rows.

use std::hint::black_box;
use std::time::{Duration, Instant};

use simd::{Backend, parity};

const COLUMNS: usize = 8;
const COLUMN: usize = 16 * 1024;
const PAGE: usize = 4096;
const SLICES: u32 = 41;

fn main() {
    let seconds = std::env::args().nth(1).and_then(|s| s.parse().ok()).unwrap_or(0.25);
    let slice = Duration::from_secs_f64(seconds) / SLICES;
    println!(
        "# best backend here: {}; GB/s of data, {COLUMNS} columns of {COLUMN}",
        simd::backend()
    );
    let block: Vec<u8> =
        (0..COLUMNS as u64 * COLUMN as u64).map(|i| ((i * i) >> 7).to_le_bytes()[0] | 1).collect();
    let mut buffer = Buffer::new(block.len());
    let bytes = buffer.bytes();
    bytes.copy_from_slice(&block);
    let block = &*bytes;
    let columns: Vec<&[u8]> = block.chunks(COLUMN).collect();
    for backend in Backend::ALL.into_iter().filter(|backend| backend.is_available()) {
        let report = |name: &str, work: &mut dyn FnMut()| {
            let (median, best) = measure_rates(slice, work);
            println!("{:12} {name:10} {median:9.2} {best:9.2}", backend.name());
        };
        let mut buffers: [_; parity::MAX_ROWS] = std::array::from_fn(|_| Buffer::new(COLUMN));
        let mut rows = buffers.each_mut().map(Buffer::bytes);
        for (count, name) in [(1, "gen_p"), (2, "gen_pq"), (3, "gen_pqr")] {
            let rows = &mut rows[..count];
            report(name, &mut || backend.generate(black_box(&columns), black_box(rows)));
        }
        bench_rebuilds(backend, &columns, &rows.map(|row| &*row), &report);
        report("fletcher4", &mut || {
            black_box(backend.fletcher4(black_box(block), false));
        });
        report("fletcher4s", &mut || {
            black_box(backend.fletcher4(black_box(block), true));
        });
        report("fletcher2", &mut || {
            black_box(backend.fletcher2(black_box(block), false));
        });
        let mut buffer = Buffer::new(block.len());
        let target = buffer.bytes();
        report("xor", &mut || backend.xor(black_box(target), black_box(block)));
        target.fill(0);
        report("is_zero", &mut || {
            black_box(backend.is_zero(black_box(target)));
        });
    }
}

/// Bytes that begin at a page, as those of `raidz_test` do. All pages were touched before.
struct Buffer {
    bytes: Vec<u8>,
    length: usize,
}

impl Buffer {
    fn new(length: usize) -> Self {
        Self { bytes: vec![1; length + PAGE], length }
    }

    fn bytes(&mut self) -> &mut [u8] {
        let start = self.bytes.as_ptr().align_offset(PAGE);
        &mut self.bytes[start..][..self.length]
    }
}

fn bench_rebuilds(
    backend: Backend,
    columns: &[&[u8]],
    rows: &[&[u8]],
    report: &dyn Fn(&str, &mut dyn FnMut()),
) {
    let cases: [(&str, &[usize]); 7] = [
        ("rec_p", &[0]),
        ("rec_q", &[1]),
        ("rec_r", &[2]),
        ("rec_pq", &[0, 1]),
        ("rec_pr", &[0, 2]),
        ("rec_qr", &[1, 2]),
        ("rec_pqr", &[0, 1, 2]),
    ];
    for (name, used) in cases {
        let missing: Vec<usize> = (0..used.len()).collect();
        let parity: Vec<Option<&[u8]>> =
            (0..rows.len()).map(|row| used.contains(&row).then_some(rows[row])).collect();
        let data: Vec<Option<&[u8]>> =
            (0..COLUMNS).map(|i| (i >= used.len()).then_some(columns[i])).collect();
        let mut buffers: Vec<_> = used.iter().map(|_| Buffer::new(COLUMN)).collect();
        let mut out: Vec<&mut [u8]> = buffers.iter_mut().map(Buffer::bytes).collect();
        report(name, &mut || {
            let result = backend.rebuild(3, black_box(&data), &parity, &missing, &mut out);
            black_box(result).expect("enough parity");
        });
        for (out, column) in out.iter().zip(columns) {
            assert!(out == column, "{name} rebuilt other bytes");
        }
    }
}

/// Bytes of data a nanosecond, that is GB/s: the median and the best slice of time.
fn measure_rates(slice: Duration, work: &mut dyn FnMut()) -> (f64, f64) {
    work();
    let mut rates: Vec<f64> = Vec::new();
    for _ in 0..SLICES {
        let (start, mut calls) = (Instant::now(), 0u32);
        let elapsed = loop {
            (0..8).for_each(|_| work());
            calls += 8;
            let elapsed = start.elapsed();
            if elapsed >= slice {
                break elapsed;
            }
        };
        rates.push(f64::from(calls) * 131_072.0 / elapsed.as_secs_f64() / 1e9);
    }
    rates.sort_by(f64::total_cmp);
    (rates[rates.len() / 2], rates[rates.len() - 1])
}
