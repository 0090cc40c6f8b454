//! Every kernel against `Naive`.

use proptest::prelude::*;
use simd::{Backend, gf256, parity};

/// Reproducible noise: xorshift.
fn noise(seed: u64, length: usize) -> Vec<u8> {
    let mut x = seed.wrapping_mul(0x9e3779b97f4a7c15) | 1;
    let next = || {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        x.to_le_bytes()[3]
    };
    std::iter::repeat_with(next).take(length).collect()
}

fn fast_backends() -> impl Iterator<Item = Backend> {
    Backend::ALL.into_iter().filter(|backend| *backend != Backend::Naive && backend.is_available())
}

/// Lengths around every multiple a kernel may step by, and two larger ones.
fn lengths() -> impl Iterator<Item = usize> {
    (0..=131).chain([191, 192, 255, 256, 257, 319, 511, 512, 513, 640, 1000, 4096, 4097, 8200])
}

/// Runs `work` on buffers of these lengths that are never aligned and full of poison, and checks
/// that it stays within them.
fn guarded(lengths: &[usize], work: impl FnOnce(&mut [&mut [u8]])) -> Vec<Vec<u8>> {
    let mut buffers: Vec<_> = lengths.iter().map(|length| vec![0xa5; 129 + length]).collect();
    let slices =
        buffers.iter_mut().zip(lengths).map(|(buffer, length)| &mut buffer[1..][..*length]);
    work(&mut slices.collect::<Vec<_>>());
    for (buffer, length) in buffers.iter().zip(lengths) {
        assert!(buffer[0] == 0xa5, "wrote in front");
        assert!(buffer[1 + length..].iter().all(|byte| *byte == 0xa5), "wrote behind");
    }
    buffers.iter().zip(lengths).map(|(buffer, length)| buffer[1..][..*length].to_vec()).collect()
}

fn generate_parity(
    backend: Backend,
    columns: &[&[u8]],
    rows: usize,
    length: usize,
) -> Vec<Vec<u8>> {
    guarded(&vec![length; rows], |parity| backend.generate(columns, parity))
}

fn rebuild_columns(
    backend: Backend,
    data: &[Option<&[u8]>],
    parity: &[Option<&[u8]>],
    missing: &[usize],
    lengths: &[usize],
) -> Vec<Vec<u8>> {
    guarded(lengths, |out| {
        backend.rebuild(parity.len(), data, parity, missing, out).expect("enough parity");
    })
}

#[test]
fn generate_on_all_lengths() {
    for length in lengths() {
        for count in [1, 2, 3, 8] {
            let buffers: Vec<_> = (0..count).map(|i| noise(i + 1, length + 64)).collect();
            let columns: Vec<&[u8]> = (0..)
                .zip(&buffers)
                .map(|(i, buffer)| &buffer[(i * 7 + length) % 64..][..length])
                .collect();
            for rows in 1..=3 {
                let expected = generate_parity(Backend::Naive, &columns, rows, length);
                for backend in fast_backends() {
                    let actual = generate_parity(backend, &columns, rows, length);
                    assert!(actual == expected, "{backend:?} {length} x {count} + {rows}");
                }
            }
        }
    }
}

#[test]
fn combine_on_all_lengths() {
    for length in lengths() {
        let buffers: Vec<_> = (0..6).map(|i| noise(i + 1, length)).collect();
        let columns: Vec<&[u8]> = buffers.iter().map(Vec::as_slice).collect();
        let rows = generate_parity(Backend::Naive, &columns, 3, length);
        let parity: Vec<Option<&[u8]>> = rows.iter().map(|row| Some(&row[..])).collect();
        for missing in [&[4][..], &[5, 0], &[2, 1, 3]] {
            let data: Vec<_> =
                (0..6).map(|i| (!missing.contains(&i)).then_some(columns[i])).collect();
            for backend in Backend::ALL.into_iter().filter(|backend| backend.is_available()) {
                // All rows, and without P, whose factors are all one.
                for lost in [None, Some(0)] {
                    let mut parity = parity.clone();
                    if let (Some(lost), true) = (lost, missing.len() < 3) {
                        parity[lost] = None;
                    }
                    let lengths = vec![length; missing.len()];
                    let out = rebuild_columns(backend, &data, &parity, missing, &lengths);
                    for (out, &column) in out.iter().zip(missing) {
                        assert!(out == columns[column], "{backend:?} {length} {missing:?}");
                    }
                }
            }
        }
        for (row, expected) in rows.iter().enumerate() {
            let mut out = vec![0; length];
            parity::generate_row(row, &columns, &mut out);
            assert!(out == *expected, "row {row} of {length}");
        }
    }
}

#[test]
fn bytes_and_checksums_on_all_lengths_and_alignments() {
    let buffer = noise(7, 8300);
    let other = noise(8, 8300);
    for length in lengths() {
        for align in [0, 1, 3, 8, 31, 63] {
            let data = &buffer[align..][..length];
            let mut expected = data.to_vec();
            Backend::Naive.xor(&mut expected, &other[..length]);
            for backend in fast_backends() {
                let context = format!("{backend:?} {length} at {align}");
                for swapped in [false, true] {
                    let four = Backend::Naive.fletcher4(data, swapped);
                    assert_eq!(backend.fletcher4(data, swapped), four, "{context}");
                    let two = Backend::Naive.fletcher2(data, swapped);
                    assert_eq!(backend.fletcher2(data, swapped), two, "{context}");
                }
                let mut sum = data.to_vec();
                backend.xor(&mut sum, &other[..length]);
                assert!(sum == expected, "{context}");
            }
        }
    }
}

#[test]
fn one_bit_is_not_zero() {
    for length in lengths().filter(|&length| length <= 640) {
        let mut data = vec![0; length + 1];
        for backend in Backend::ALL {
            assert!(backend.is_zero(&data[1..]), "{backend:?} {length}");
            for at in 1..=length {
                data[at] = 1 << (at % 8);
                assert!(!backend.is_zero(&data[1..]), "{backend:?} {at} of {length}");
                data[at] = 0;
            }
            data[0] = 1;
            assert!(backend.is_zero(&data[1..]), "{backend:?} looks in front");
            data[0] = 0;
        }
    }
}

#[test]
fn checksums_of_large_words_wrap() {
    let data = vec![0xff; 1 << 20];
    for backend in fast_backends() {
        assert_eq!(backend.fletcher4(&data, false), Backend::Naive.fletcher4(&data, false));
        assert_eq!(backend.fletcher2(&data, true), Backend::Naive.fletcher2(&data, true));
    }
}

#[test]
fn known_parity() {
    // 2 * (2 * 0x80 + 1) + 3 and the same with 4, by hand.
    let mut rows = [[0u8; 1]; 3];
    let [p, q, r] = &mut rows;
    parity::generate(&[&[0x80], &[1], &[3]], &mut [p, q, r]);
    let q = gf256::double(gf256::double(0x80) ^ 1) ^ 3;
    let r = gf256::mul(4, gf256::mul(4, 0x80) ^ 1) ^ 3;
    assert_eq!((q, gf256::double(0x80)), (0x3b, 0x1d));
    assert_eq!(rows, [[0x82], [0x3b], [r]]);
}

#[test]
fn a_short_column_is_padded() {
    for backend in Backend::ALL {
        let long = noise(1, 300);
        let short = noise(2, 170);
        let mut padded = short.clone();
        padded.resize(300, 0);
        let ragged = generate_parity(backend, &[&long, &short, &[]], 3, 300);
        let whole = generate_parity(Backend::Naive, &[&long, &padded, &[0; 300]], 3, 300);
        assert!(ragged == whole, "{backend:?}");
    }
}

#[test]
fn one_row_cannot_rebuild_two_columns() {
    let column = [1u8; 8];
    let (mut a, mut b) = ([7; 8], [7; 8]);
    let data = [None, Some(&column[..]), None];
    let parity = [None, Some(&column[..]), Some(&column[..])];
    let error = parity::NotEnoughParity { missing: 2, parity: 1 };
    // Row R exists but is not among the first two rows.
    assert_eq!(parity::rebuild(2, &data, &parity, &[0, 2], &mut [&mut a, &mut b]), Err(error));
    assert_eq!(parity::rebuild(2, &data, &parity, &[2], &mut [&mut a]), Err(error));
    assert_eq!((a, b), ([7; 8], [7; 8]));
    assert_eq!(parity::rebuild(3, &data, &parity, &[2], &mut [&mut a]), Ok(()));
}

#[test]
fn any_three_of_255_columns_can_be_rebuilt() {
    let buffers: Vec<_> = (0..255).map(|i| noise(i + 1, 8)).collect();
    let columns: Vec<&[u8]> = buffers.iter().map(Vec::as_slice).collect();
    let rows = generate_parity(Backend::Scalar, &columns, 3, 8);
    let parity: Vec<Option<&[u8]>> = rows.iter().map(|row| Some(&row[..])).collect();
    for step in 1..127 {
        let missing = [step - 1, 2 * step, 254];
        let data: Vec<_> =
            (0..255).map(|i| (!missing.contains(&i)).then_some(columns[i])).collect();
        let [mut a, mut b, mut c] = [[0; 8]; 3];
        parity::rebuild(3, &data, &parity, &missing, &mut [&mut a, &mut b, &mut c]).unwrap();
        assert_eq!([&a, &b, &c], missing.map(|i| columns[i]));
    }
}

proptest! {
    /// Ragged columns, any losses that the parity can bear, every backend.
    #[test]
    fn lost_columns_are_rebuilt(
        lengths in prop::collection::vec(0usize..400, 1..12),
        seed: u64,
        rows in 1usize..=3,
        lost_rows in prop::collection::vec(any::<bool>(), 3),
        lost in prop::collection::vec(any::<prop::sample::Index>(), 3),
        only_first: bool,
    ) {
        let buffers: Vec<_> =
            (1..).zip(&lengths).map(|(i, &length)| noise(seed ^ i, length)).collect();
        let columns: Vec<&[u8]> = buffers.iter().map(Vec::as_slice).collect();
        let length = lengths.iter().copied().max().unwrap_or(0);
        let full = generate_parity(Backend::Naive, &columns, rows, length);
        let parity: Vec<Option<&[u8]>> =
            (0..rows).map(|row| (!lost_rows[row]).then_some(&full[row][..])).collect();
        let left = parity.iter().flatten().count();
        let mut missing: Vec<usize> = Vec::new();
        for index in lost {
            let column = index.index(columns.len());
            if missing.len() < left && !missing.contains(&column) {
                missing.push(column);
            }
        }
        let data: Vec<_> =
            (0..columns.len()).map(|i| (!missing.contains(&i)).then_some(columns[i])).collect();
        if only_first {
            missing.truncate(1);
        }
        for backend in Backend::ALL {
            prop_assert!(generate_parity(backend, &columns, rows, length) == full);
            let lost: Vec<usize> = missing.iter().map(|&i| lengths[i]).collect();
            let out = rebuild_columns(backend, &data, &parity, &missing, &lost);
            for (out, &i) in out.iter().zip(&missing) {
                prop_assert!(out[..] == *columns[i], "{:?} column {}", backend, i);
            }
        }
    }
}
