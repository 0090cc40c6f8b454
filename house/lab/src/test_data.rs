//! The written data: incompressible and without duplicates, or zeros.
//!
//! Each writer has its own random bytes, generated once. Before every write each 4 KiB of them get
//! eight fresh bytes, so that no block is a duplicate (no deduplication uses smaller blocks).
//! Adjacent bytes come from different places, so that nothing can be compressed.
//!
//! A drive of 2 GB/s is near the speed of memory, and the measurement must not be limited by
//! memory. With fresh bytes in every sector, and 32 MiB of them in no processor cache, writing 1
//! MiB at a time was a third slower. So long blocks repeat three blocks' length of bytes. Only a
//! compressor with a larger window could find the repetition.

/// The alignment of direct I/O buffers.
pub(crate) const ALIGNMENT: usize = 4096;
/// Random bytes of all writers of short blocks together, and of one at least.
const TOTAL_BUFFER_SIZE: usize = 8 << 20;
const MIN_BUFFER_SIZE: usize = 256 << 10;
/// Where long blocks begin, and how many of them a writer's bytes are.
const LONG_BLOCK_SIZE: usize = 64 << 10;
const LONG_BLOCK_COUNT: usize = 3;

/// Numbers that look random; the same ones for the same seed.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    /// From a seed; near seeds give unrelated data.
    pub(crate) fn new(seed: u64) -> Self {
        let mut near = Self(seed);
        Self(near.next_u64())
    }

    /// The next 64 bits (splitmix64).
    pub(crate) fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `end`, which is not 0.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        let wide = u128::from(self.next_u64()) * u128::from(end);
        u64::try_from(wide >> 64).unwrap_or(0)
    }
}

/// Memory that begins at a multiple of 4096, as direct I/O wants it.
#[derive(Debug)]
pub(crate) struct AlignedBuffer {
    bytes: Vec<u8>,
    start: usize,
    length: usize,
}

impl AlignedBuffer {
    /// This many zeros.
    pub(crate) fn new(length: usize) -> Self {
        let bytes = vec![0; length + ALIGNMENT];
        let start = bytes.as_ptr().align_offset(ALIGNMENT);
        assert!(start < ALIGNMENT, "bytes can be aligned to anything");
        Self { bytes, start, length }
    }

    /// The bytes.
    pub(crate) fn as_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..self.start + self.length]
    }
}

/// A writer's source of content.
#[derive(Debug)]
pub(crate) struct TestData {
    buffer: AlignedBuffer,
    random: Random,
    /// Where the next block is taken.
    position: usize,
    zeros: bool,
}

impl TestData {
    /// For one of `writers` that write blocks of `block` bytes at the same time.
    pub(crate) fn new(seed: u64, block: usize, writers: usize, zeros: bool) -> Self {
        let length = if block < LONG_BLOCK_SIZE {
            (TOTAL_BUFFER_SIZE / writers.max(1)).max(MIN_BUFFER_SIZE)
        } else {
            LONG_BLOCK_COUNT * block
        };
        let length = length.next_multiple_of(ALIGNMENT);
        let mut buffer = AlignedBuffer::new(if zeros { block } else { length });
        let mut random = Random::new(seed);
        if !zeros {
            for word in buffer.as_mut().chunks_exact_mut(8) {
                word.copy_from_slice(&random.next_u64().to_le_bytes());
            }
        }
        Self { buffer, random, position: 0, zeros }
    }

    /// The next `block` bytes, unlike all before.
    pub(crate) fn next_block(&mut self, block: usize) -> &[u8] {
        if self.zeros {
            return &self.buffer.as_mut()[..block];
        }
        let end = self.position + block;
        if end > self.buffer.length {
            // another start each time around, so that nothing comes at equal distances
            let pages = (self.buffer.length - block) / ALIGNMENT;
            let page = self.random.below(pages.min(MIN_BUFFER_SIZE / ALIGNMENT) as u64 + 1);
            self.position = usize::try_from(page).unwrap_or(0) * ALIGNMENT;
        }
        let range = self.position..self.position + block;
        self.position = range.end.next_multiple_of(ALIGNMENT);
        let bytes = &mut self.buffer.as_mut()[range];
        for page in bytes.chunks_mut(ALIGNMENT) {
            if let Some(stamp) = page.first_chunk_mut::<8>() {
                *stamp = self.random.next_u64().to_le_bytes();
            }
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::{ALIGNMENT, Random, TestData};

    #[test]
    fn no_page_repeats() {
        let mut seen = HashSet::new();
        let mut content = TestData::new(7, 1 << 20, 32, false);
        for _ in 0..20 {
            for page in content.next_block(1 << 20).chunks(ALIGNMENT) {
                assert!(seen.insert(page.to_vec()));
            }
        }
    }

    #[test]
    fn interleaved_writes_are_incompressible() {
        let mut random = Random::new(9);
        for (block, writers) in [(4096, 1), (4096, 32), (1 << 16, 32), (1 << 17, 32), (1 << 20, 1)]
        {
            let content = |seed| TestData::new(seed, block, writers, false);
            let mut all: Vec<TestData> = (0..writers as u64).map(content).collect();
            let (mut packed, mut whole) = (0, 0);
            for _ in 0..8 {
                let mut record = Vec::new();
                for _ in 0..(1 << 20) / block {
                    let who = usize::try_from(random.below(writers as u64)).unwrap();
                    record.extend_from_slice(all[who].next_block(block));
                }
                packed += zstd::bulk::compress(&record, 9).unwrap().len();
                whole += record.len();
            }
            assert!(packed > whole * 95 / 100, "{block} by {writers}: {packed} of {whole}");
        }
    }

    #[test]
    fn bytes_are_uniform_and_aligned() {
        let mut content = TestData::new(3, 4096, 1, false);
        let mut counts = [0_u32; 256];
        for _ in 0..10_000 {
            let block = content.next_block(4096);
            assert_eq!(block.as_ptr().align_offset(ALIGNMENT), 0);
            for byte in block {
                counts[usize::from(*byte)] += 1;
            }
        }
        let mean = 4096 * 10_000 / 256;
        assert!(counts.iter().all(|count| count.abs_diff(mean) < mean / 50), "{counts:?}");
    }

    #[test]
    fn zeros_are_zeros() {
        let mut content = TestData::new(3, 8192, 4, true);
        assert!((0..3).all(|_| content.next_block(8192).iter().all(|byte| *byte == 0)));
    }

    #[test]
    fn random_covers_whole_range() {
        let mut random = Random::new(1);
        let seen: HashSet<u64> = (0..1000).map(|_| random.below(10)).collect();
        assert_eq!(seen, (0..10).collect());
    }
}
