//! Values made by OpenZFS; see `golden/README.md`.

use simd::Backend;

#[test]
fn golden_block() {
    let four = include_bytes!("../golden/fletcher4.bin");
    let two = include_bytes!("../golden/fletcher2.bin");
    for backend in Backend::ALL {
        let sums = [0x825821d02, 0x3bd17ce9a89, 0xde279b5b3d43, 0x22c4971624a048];
        assert_eq!(backend.fletcher4(four, false), sums, "{backend:?}");
        let sums = [0x4077f93d2be98f1a, 0x98a452c0207c41ef, 0x6ff18a8d7c09702a, 0x58880099d4480926];
        assert_eq!(backend.fletcher2(two, false), sums, "{backend:?}");
        // The same words, stored the other way round.
        let turned: Vec<u8> = four.chunks(4).flat_map(|w| w.iter().rev().copied()).collect();
        assert_eq!(backend.fletcher4(&turned, true), backend.fletcher4(four, false));
        let turned: Vec<u8> = two.chunks(8).flat_map(|w| w.iter().rev().copied()).collect();
        assert_eq!(backend.fletcher2(&turned, true), backend.fletcher2(two, false));
    }
}

#[test]
fn golden_raidz3() {
    let parts: Vec<&[u8]> = include_bytes!("../golden/raidz3.bin").chunks(256).collect();
    let (rows, columns) = parts.split_at(2);
    for backend in Backend::ALL {
        let [mut p, mut q, mut r] = [[0; 256]; 3];
        backend.generate(columns, &mut [&mut p, &mut q, &mut r]);
        assert!(p == *rows[0] && r == *rows[1], "{backend:?}");
        let data = [None, Some(columns[1]), Some(columns[2]), None, Some(columns[4])];
        let parity = [Some(rows[0]), None, Some(rows[1])];
        let [mut first, mut fourth] = [[0; 256]; 2];
        backend.rebuild(3, &data, &parity, &[3, 0], &mut [&mut fourth, &mut first]).unwrap();
        assert!(first == *columns[0] && fourth == *columns[3], "{backend:?}");
    }
}

#[test]
fn golden_raidz2_with_short_columns() {
    let bytes = include_bytes!("../golden/raidz2-short-columns.bin");
    let (long, short) = bytes.split_at(3 * 256);
    let long: Vec<&[u8]> = long.chunks(256).collect();
    let columns: Vec<&[u8]> = [long[2]].into_iter().chain(short.chunks(128)).collect();
    for backend in Backend::ALL {
        let [mut p, mut q] = [[0; 256]; 2];
        backend.generate(&columns, &mut [&mut p, &mut q]);
        assert!(p == *long[0] && q == *long[1], "{backend:?}");
        let data = [None, Some(columns[1]), None, Some(columns[3])];
        let parity = [Some(long[0]), Some(long[1])];
        let (mut first, mut third) = ([0; 256], [0; 128]);
        backend.rebuild(2, &data, &parity, &[0, 2], &mut [&mut first, &mut third]).unwrap();
        assert!(first == *columns[0] && third == *columns[2], "{backend:?}");
    }
}
