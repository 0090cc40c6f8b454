//! Properties that hold for all bytes: no panic, and each encoding decodes to its input.

use ondisk::Order;
use proptest::prelude::*;
use transform::checksum::{Checksum, embedded};
use transform::compress::{Compression, compress, decompress, is_zero};
use transform::crypt::block::{Layout, Params, decrypt_block, encrypt_block};
use transform::crypt::{DatasetKey, Suite, mac};

const METHODS: [Compression; 7] = [
    Compression::Lz4,
    Compression::Zstd,
    Compression::Gzip(1),
    Compression::Gzip(9),
    Compression::Lzjb,
    Compression::Zle,
    Compression::Empty,
];

/// Bytes with runs, repeats and noise, as files have them.
fn content() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        (any::<u8>(), 1..400_usize).prop_map(|(byte, n)| vec![byte; n]),
        (1..300_usize).prop_map(|n| vec![0; n]),
        prop::collection::vec(any::<u8>(), 1..200),
        prop::collection::vec(0..3_u8, 1..400),
    ];
    prop::collection::vec(piece, 0..12).prop_map(|pieces| pieces.concat())
}

fn key(code: u64, version: u64) -> DatasetKey {
    DatasetKey::new(Suite::from_code(code).unwrap(), 1, version, &[3; 32], &[4; 64])
}

proptest! {
    #[test]
    fn compressed_data_decompresses_to_its_input(data in content(), padding in 0..600_usize) {
        for method in METHODS {
            let Some(mut packed) = compress(method, 0, &data, data.len() + 1000) else {
                prop_assert!(method == Compression::Empty && !is_zero(&data));
                continue;
            };
            packed.resize(packed.len() + padding, 0);
            let mut out = vec![0xee; data.len()];
            prop_assert_eq!(decompress(method, &packed, &mut out), Ok(()), "{}", method);
            prop_assert_eq!(&out, &data, "{}", method);
        }
    }

    #[test]
    fn compression_stays_within_its_limit(data in content(), limit in 0..3000_usize) {
        for method in METHODS {
            if let Some(packed) = compress(method, 0, &data, limit) {
                prop_assert!(packed.len() <= limit);
            }
        }
    }

    #[test]
    fn every_zstd_level_decompresses(data in content()) {
        for level in [1, 7, 19, -1, -10, -20, -100, -500, -1000] {
            let packed = compress(Compression::Zstd, level, &data, data.len() + 1000).unwrap();
            let mut out = vec![0xee; data.len()];
            prop_assert_eq!(decompress(Compression::Zstd, &packed, &mut out), Ok(()));
            prop_assert_eq!(&out, &data);
        }
        prop_assert!(compress(Compression::Zstd, 20, &data, 9999).is_none());
        prop_assert!(compress(Compression::Zstd, -11, &data, 9999).is_none());
    }

    #[test]
    fn random_bytes_never_panic_a_reader(
        noise in prop::collection::vec(any::<u8>(), 0..600),
        size in 0..3000_usize,
    ) {
        for method in METHODS {
            let mut out = vec![0; size];
            let _ = decompress(method, &noise, &mut out);
        }
    }

    #[test]
    fn damaged_streams_never_panic_a_reader(
        data in content(),
        at in any::<prop::sample::Index>(),
        byte in any::<u8>(),
        size in 0..3000_usize,
    ) {
        for method in METHODS {
            let Some(mut packed) = compress(method, 0, &data, data.len() + 1000) else { continue };
            if packed.is_empty() {
                continue;
            }
            let at = at.index(packed.len());
            packed[at] = byte;
            let _ = decompress(method, &packed, &mut vec![0; data.len()]);
            let _ = decompress(method, &packed, &mut vec![0; size]);
        }
    }

    #[test]
    fn random_bytes_never_panic_a_walker(
        block in prop::collection::vec(any::<u8>(), 0..2600),
        zeroed in any::<bool>(),
    ) {
        let mut block = block;
        if zeroed {
            // small numbers where lengths and counts are, so that walks go further
            block.chunks_mut(3).for_each(|c| c[0] = 0);
        }
        let params = Params { salt: [0; 8], iv: [0; 12], mac: [0; 16] };
        for order in [Order::Little, Order::Big] {
            let key = key(8, 1);
            let mut out = vec![0; block.len()];
            for layout in [Layout::Whole, Layout::Dnodes, Layout::Log] {
                let opened = decrypt_block(&key, layout, &params, order, &block, &mut out);
                prop_assert!(opened.is_err());
                let _ = encrypt_block(&key, layout, &params, order, &block, &mut out);
            }
            prop_assert!(mac::verify_objset(&key, &block, order).is_err());
            prop_assert!(mac::verify_pointers(&block, order, &[0; 16]).is_err());
        }
        for method in [Checksum::Label, Checksum::Zilog, Checksum::Zilog2] {
            prop_assert!(!embedded::verify(&block, &[0; 4], method, false));
        }
    }

    #[test]
    fn encrypted_data_decrypts_to_its_input(
        data in content(),
        salt in any::<[u8; 8]>(),
        iv in any::<[u8; 12]>(),
    ) {
        for code in 3..=8 {
            let key = key(code, 1);
            let mut hidden = vec![0; data.len()];
            let mut params = Params { salt, iv, mac: [0; 16] };
            params.mac =
                encrypt_block(&key, Layout::Whole, &params, Order::Little, &data, &mut hidden)
                    .unwrap();
            let mut out = vec![0; data.len()];
            let opened =
                decrypt_block(&key, Layout::Whole, &params, Order::Little, &hidden, &mut out);
            prop_assert_eq!(opened, Ok(()));
            prop_assert_eq!(&out, &data);
            params.salt[0] ^= 1;
            let opened =
                decrypt_block(&key, Layout::Whole, &params, Order::Little, &hidden, &mut out);
            prop_assert!(opened.is_err());
        }
    }
}
