//! Blocks that OpenZFS wrote, cut out of pools; `tests/golden/index.txt` says what each is.
//!
//! Every line of the index is one case; its first word says what is claimed of the block.

use std::collections::HashMap;
use std::path::Path;

use ondisk::{ObjectType, Order};
use transform::checksum::{self, Checksum, embedded};
use transform::compress::{Compression, compress, decompress};
use transform::crypt::block::{Layout, Params, decrypt_block, encrypt_block};
use transform::crypt::{DatasetKey, Suite, WrappedKey, WrappingKey, mac, unwrap_key};

const SYSTEM_ATTRIBUTES: u32 = 0x002f_505a;

fn cases(claim: &str) -> Vec<Vec<String>> {
    let index = String::from_utf8(file("index.txt")).unwrap();
    let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let cases: Vec<_> =
        index.lines().map(words).filter(|w| w.first().is_some_and(|c| c == claim)).collect();
    assert!(!cases.is_empty(), "no case claims {claim}");
    cases
}

fn file(name: &str) -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

fn bytes<const N: usize>(hex: &str) -> [u8; N] {
    let bytes: Vec<u8> =
        (0..hex.len() / 2).map(|i| u8::from_str_radix(&hex[2 * i..][..2], 16).unwrap()).collect();
    bytes.try_into().unwrap()
}

fn sum_words(text: &str) -> [u64; 4] {
    let words: Vec<u64> = text.split(':').map(|w| u64::from_str_radix(w, 16).unwrap()).collect();
    words.try_into().unwrap()
}

fn sha256(data: &[u8]) -> String {
    let words = checksum::compute(Checksum::Sha256, data, Order::Little, None).unwrap();
    words.iter().fold(String::new(), |text, w| text + &format!("{w:016x}"))
}

fn checksum_named(name: &str) -> Checksum {
    (0..=255).find_map(|n| Checksum::from_number(n).filter(|c| c.name() == name)).unwrap()
}

fn compression_named(name: &str) -> Compression {
    let name = if name == "off" { "uncompressed" } else { name };
    (0..=255).find_map(|n| Compression::from_number(n).filter(|c| c.to_string() == name)).unwrap()
}

fn decompress_to_vec(method: &str, data: &[u8], lsize: &str) -> Vec<u8> {
    let mut out = vec![0xee; lsize.parse().unwrap()];
    decompress(compression_named(method), data, &mut out).unwrap();
    out
}

#[test]
fn checksums_match_block_pointers() {
    let salt: [u8; 32] = bytes(&cases("salt")[0][1]);
    for case in cases("sum") {
        let method = checksum_named(&case[1]);
        let mut data = file(&case[3]);
        let expected = sum_words(&case[2]);
        let judge = |data: &[u8]| {
            checksum::matches(method, data, Order::Little, Some(&salt), &expected, false).unwrap()
        };
        assert!(judge(&data), "{case:?}");
        data[17] ^= 1;
        assert!(!judge(&data), "{case:?}");
    }
}

#[test]
fn embedded_checksums_of_real_blocks_verify() {
    for case in cases("seal") {
        let (method, verifier) = (checksum_named(&case[1]), sum_words(&case[2]));
        let (encrypted, mut data) = (case[3] == "encrypted", file(&case[4]));
        assert!(embedded::verify(&data, &verifier, method, encrypted), "{case:?}");
        let sealed = data.clone();
        data[40] ^= 1;
        assert!(!embedded::verify(&data, &verifier, method, encrypted), "{case:?}");
        data[40] ^= 1;
        embedded::seal(&mut data, &verifier, method, encrypted).unwrap();
        assert_eq!(data, sealed, "{case:?}");
    }
}

#[test]
fn compressed_blocks_decompress_to_their_files() {
    for case in cases("packed") {
        let packed = file(&case[4]);
        let plain = decompress_to_vec(&case[1], &packed, &case[2]);
        assert_eq!(sha256(&plain), case[3], "{case:?}");

        let method = compression_named(&case[1]);
        let ours = compress(method, 0, &plain, plain.len()).unwrap();
        assert_eq!(decompress_to_vec(&case[1], &ours, &case[2]), plain, "{case:?}");
        // the method's own strength; OpenZFS's level may be another
        assert!(ours.len() <= packed.len() * 5 / 4 + 512, "{case:?}: {}", ours.len());
    }
}

#[test]
fn truncated_stream_is_refused() {
    for case in cases("packed") {
        let packed = file(&case[4]);
        let mut out = vec![0; case[2].parse().unwrap()];
        let cut = &packed[..packed.len() / 2];
        assert!(decompress(compression_named(&case[1]), cut, &mut out).is_err(), "{case:?}");
    }
}

fn wrapped(case: &[String]) -> (WrappingKey, WrappedKey) {
    let number = |i: usize| case[i].parse::<u64>().unwrap();
    let secret = case[10].replace('_', " ");
    let user = match case[9].as_str() {
        "raw" => WrappingKey::from_raw(&bytes::<32>(&secret)),
        "hex" => WrappingKey::from_hex(secret.as_bytes()),
        _ => WrappingKey::from_passphrase(secret.as_bytes(), number(11), number(12)),
    };
    let wrapped = WrappedKey {
        suite: Suite::from_code(number(2)).unwrap(),
        guid: number(3),
        version: number(4),
        iv: bytes(&case[5]),
        mac: bytes(&case[6]),
        master: bytes(&case[7]),
        hmac: bytes(&case[8]),
    };
    (user.unwrap(), wrapped)
}

fn keys() -> HashMap<String, DatasetKey> {
    let open = |case: &Vec<String>| {
        let (user, wrapped) = wrapped(case);
        (case[1].clone(), unwrap_key(&user, &wrapped).unwrap())
    };
    cases("key").iter().map(open).collect()
}

#[test]
fn user_keys_unwrap_only_their_datasets() {
    let all: Vec<_> = cases("key").iter().map(|case| wrapped(case)).collect();
    for (user, own) in &all {
        assert_eq!(unwrap_key(user, own).unwrap().guid(), own.guid);
        // each suite here has its own user's key, so no other suite's opens this one
        for (other, theirs) in all.iter().filter(|(_, theirs)| theirs.suite != own.suite) {
            assert!(unwrap_key(other, own).is_err() && unwrap_key(user, theirs).is_err());
        }
        let mut bent = own.clone();
        bent.hmac[63] ^= 1;
        assert!(unwrap_key(user, &bent).is_err());
    }
}

#[test]
fn encrypted_blocks_decrypt_and_encrypt_again() {
    let keys = keys();
    for case in cases("cipher") {
        let key = &keys[&case[1]];
        let layout = match case[2].as_str() {
            "dnodes" => Layout::for_object_type(ObjectType(10)).unwrap(),
            "log" => Layout::for_object_type(ObjectType(9)).unwrap(),
            _ => Layout::for_object_type(ObjectType(19)).unwrap(),
        };
        let params = Params { salt: bytes(&case[3]), iv: bytes(&case[4]), mac: bytes(&case[5]) };
        let stored = file(&case[10]);
        let params = if layout == Layout::Log { params.for_log(&stored).unwrap() } else { params };
        let mut plain = vec![0; stored.len()];
        decrypt_block(key, layout, &params, Order::Little, &stored, &mut plain)
            .unwrap_or_else(|e| panic!("{case:?}: {e}"));
        match layout {
            Layout::Whole if case[9] != "-" => {
                let content = decompress_to_vec(&case[6], &plain, &case[7]);
                let size: usize = case[8].parse().unwrap();
                assert_eq!(sha256(&content[..size]), case[9], "{case:?}");
            }
            Layout::Dnodes => assert!(attributes(&plain) > 0, "{case:?}"),
            _ => assert_ne!(plain, stored),
        }
        let mut again = vec![0; stored.len()];
        let mac = encrypt_block(key, layout, &params, Order::Little, &plain, &mut again).unwrap();
        assert_eq!(mac, params.mac);
        let used = if layout == Layout::Log { log_used(&stored) } else { stored.len() };
        assert_eq!(again[..used], stored[..used], "{case:?}");

        let bent = Params { mac: params.mac.map(|b| b ^ 1), ..params };
        assert!(decrypt_block(key, layout, &bent, Order::Little, &stored, &mut plain).is_err());
        assert!(plain.iter().all(|b| *b == 0));
    }
}

/// How many dnodes have a bonus buffer that begins as system attributes do.
fn attributes(block: &[u8]) -> usize {
    let found = |node: &&[u8]| {
        let bonus = &node[64 + 128 * usize::from(node[3].min(3))..];
        node[4] == 44 && bonus.starts_with(&SYSTEM_ATTRIBUTES.to_le_bytes())
    };
    let claimed = block.chunks(512).filter(|n| n[0] != 0 && n[4] == 44).count();
    let good = block.chunks(512).filter(found).count();
    assert_eq!(good, claimed);
    good
}

fn log_used(block: &[u8]) -> usize {
    usize::try_from(u64::from_le_bytes(*block[136..].first_chunk().unwrap())).unwrap()
}

#[test]
fn macs_of_unencrypted_blocks_verify() {
    let keys = keys();
    for case in cases("leaf") {
        let mut data = file(&case[3]);
        mac::verify_leaf(&keys[&case[1]], &data, &bytes(&case[2])).unwrap();
        data[0] ^= 1;
        mac::verify_leaf(&keys[&case[1]], &data, &bytes(&case[2])).unwrap_err();
    }
    for case in cases("pointers") {
        let mut data = decompress_to_vec(&case[2], &file(&case[4]), &case[3]);
        mac::verify_pointers(&data, Order::Little, &bytes(&case[1])).unwrap();
        data[112] ^= 1;
        mac::verify_pointers(&data, Order::Little, &bytes(&case[1])).unwrap_err();
    }
}

#[test]
fn object_sets_verify_by_their_macs() {
    let keys = keys();
    for case in cases("objset") {
        let (key, data) = (&keys[&case[1]], file(&case[2]));
        mac::verify_objset(key, &data, Order::Little).unwrap_or_else(|e| panic!("{case:?}: {e}"));
        let (_, local) = mac::objset_macs(key, &data, Order::Little).unwrap();
        assert_eq!(local, data[752..784]);
        assert_ne!(local, [0; 32]);
        // a code in the metadnode's first pointer, one in the user accounting, and the log header
        for (at, held) in [(64 + 112, false), (1024 + 64 + 112, false), (520, true)] {
            let mut bent = data.clone();
            bent[at] ^= 1;
            let verdict = mac::verify_objset(key, &bent, Order::Little);
            assert_eq!(verdict.is_ok(), held, "{case:?} {at}");
        }
    }
}
