//! Records read and written in both byte orders.

use proptest::prelude::*;

use super::{
    Begin, BeginFlags, BlockCrypt, DedupKey, End, FreeObjects, FreeRange, ObjectRange,
    ObjectRecord, Package, PackagedValue, RECORD_SIZE, RawRecord, Record, RedactRange, Spill,
    StreamFeatures, StreamKind, Write, WriteEmbedded, detect_order,
};
use crate::{ObjectType, Order};

/// The first two records of `zfs send tank/a/b@one` of OpenZFS 2.3.2, from the fixture `streams`.
const REAL: &[u8] = include_bytes!("../../tests/golden/stream-full.bin");

#[test]
fn golden_stream_header() {
    let (begin, next) = REAL.split_at(RECORD_SIZE);
    assert_eq!(detect_order(begin), Some(Order::Little));
    let raw = RawRecord::parse(begin, Order::Little).unwrap();
    let Record::Begin(begin_record) = &raw.record else { panic!("{raw:?}") };
    assert_eq!(begin_record.to_name, b"tank/a/b@one");
    assert_eq!((begin_record.kind, begin_record.from_guid), (StreamKind::Snapshot, 0));
    assert_eq!(begin_record.features.names(), ["sa_spill"]);
    assert_eq!(raw.record.encode(Order::Little, 0), begin);
    let next = RawRecord::parse(next, Order::Little).unwrap();
    assert_eq!((next.record.name(), next.record.to_guid()), ("OBJECT", begin_record.to_guid));
    assert_ne!(next.checksum, [0; 4]);
}

#[test]
fn golden_package() {
    // of `zfs send -R -I @one tank@three` of OpenZFS 2.3.2
    const PAYLOAD: &[u8] = include_bytes!("../../tests/golden/package.bin");
    let package = Package::decode(PAYLOAD).unwrap().unwrap();
    assert_eq!((package.from_snapshot.as_deref(), &*package.to_snapshot), (Some("one"), "three"));
    assert!(package.is_recursive && !package.is_raw);
    let names: Vec<&str> = package.datasets.iter().map(|it| it.name.as_str()).collect();
    assert_eq!(names, ["tank", "tank/clone", "tank/volume", "tank/from"]);
    let from = &package.datasets[3];
    assert_eq!(package.datasets[1].origin, Some(from.snapshots[0].1));
    let recordsize = ("recordsize".to_owned(), PackagedValue::Number(1 << 20));
    assert!(from.properties.contains(&recordsize));
    assert!(package.encode() == PAYLOAD);
    assert_eq!(Package::decode(&[]), Ok(None));
    assert!(Package::decode(&PAYLOAD[..900]).is_err());
}

#[test]
fn deduplicated_records_are_refused_by_name() {
    let mut bytes = [0; RECORD_SIZE];
    bytes[0] = 6;
    let why = RawRecord::parse(&bytes, Order::Little).unwrap_err().to_string();
    assert!(why.contains("WRITE_BYREF"), "{why}");
}

#[test]
fn payload_above_16_mib_is_refused() {
    let write = Write { logical_size: (16 << 20) + 1, ..Write::default() };
    let bytes = Record::Write(Box::new(write)).encode(Order::Little, 0);
    assert!(RawRecord::parse(&bytes, Order::Little).is_err());
}

fn crypt() -> impl Strategy<Value = BlockCrypt> {
    any::<([u8; 8], [u8; 12], [u8; 16])>().prop_map(|(salt, iv, mac)| BlockCrypt { salt, iv, mac })
}

fn begin() -> impl Strategy<Value = Record> {
    let numbers = (any::<[u64; 3]>(), 0_u64..1 << 56, any::<(u8, u32, bool)>());
    let name = prop::collection::vec(1_u8.., 0..256);
    (numbers, name).prop_map(|((words, features, (kind, flags, compound)), to_name)| {
        Record::Begin(Box::new(Begin {
            kind: if compound { StreamKind::Compound } else { StreamKind::Snapshot },
            features: StreamFeatures(features),
            creation_time: words[0],
            objset_type: kind,
            flags: BeginFlags(flags),
            to_guid: words[1],
            from_guid: words[2],
            to_name,
        }))
    })
}

fn object() -> impl Strategy<Value = Record> {
    any::<([u64; 3], [u32; 2], u16, [u8; 9])>().prop_map(|(words, sizes, raw, bytes)| {
        Record::Object(ObjectRecord {
            object: words[0],
            kind: ObjectType(bytes[0]),
            bonus_kind: ObjectType(bytes[1]),
            block_size: sizes[0],
            bonus_length: sizes[1] & 0xffff,
            checksum: bytes[2],
            compression: bytes[3],
            dnode_slots: bytes[4],
            flags: bytes[5],
            raw_bonus_length: raw.into(),
            to_guid: words[1],
            indirect_shift: bytes[6],
            levels: bytes[7],
            pointer_count: bytes[8],
            max_block: words[2],
        })
    })
}

fn block() -> impl Strategy<Value = Record> {
    let parts = (any::<[u64; 5]>(), 0_u64..=16 << 20, any::<[u8; 4]>(), any::<[u64; 4]>());
    let write = (parts, crypt()).prop_map(|((words, size, bytes, checksum), crypt)| {
        Record::Write(Box::new(Write {
            object: words[0],
            kind: ObjectType(bytes[0]),
            offset: words[1],
            logical_size: size,
            to_guid: words[2],
            checksum: bytes[1],
            flags: bytes[2],
            compression: bytes[3],
            key: DedupKey { checksum, properties: words[3] },
            compressed_size: words[4] % (16 << 20),
            crypt,
        }))
    });
    let parts = (any::<[u64; 2]>(), 0_u64..=16 << 20, any::<[u8; 3]>(), crypt());
    let spill = parts.prop_map(|(words, length, bytes, crypt)| {
        Record::Spill(Box::new(Spill {
            object: words[0],
            length,
            to_guid: words[1],
            flags: bytes[0],
            compression: bytes[1],
            compressed_size: words[0] % (16 << 20),
            crypt,
            kind: ObjectType(bytes[2]),
        }))
    });
    let embedded =
        any::<([u64; 4], [u8; 2], u32, u16)>().prop_map(|(words, bytes, size, stored)| {
            Record::WriteEmbedded(WriteEmbedded {
                object: words[0],
                offset: words[1],
                length: words[2],
                to_guid: words[3],
                compression: bytes[0],
                embedded_type: bytes[1],
                logical_size: size,
                physical_size: stored.into(),
            })
        });
    prop_oneof![write, spill, embedded]
}

fn range() -> impl Strategy<Value = Record> {
    (any::<[u64; 5]>(), any::<u8>(), crypt(), 0..5).prop_map(|(words, flags, crypt, which)| {
        let [a, b, c, d, _] = words;
        match which {
            0 => Record::FreeObjects(FreeObjects { first: a, count: b, to_guid: c }),
            1 => Record::Free(FreeRange { object: a, offset: b, length: c, to_guid: d }),
            2 => Record::Redact(RedactRange { object: a, offset: b, length: c, to_guid: d }),
            3 => Record::End(End { checksum: [a, b, c, d], to_guid: words[4] }),
            _ => Record::ObjectRange(Box::new(ObjectRange {
                first: a,
                count: b,
                to_guid: c,
                crypt,
                flags,
            })),
        }
    })
}

proptest! {
    #[test]
    fn records_round_trip(record in prop_oneof![begin(), object(), block(), range()]) {
        for order in [Order::Little, Order::Big] {
            let bytes = record.encode(order, 0);
            let raw = RawRecord::parse(&bytes, order).unwrap();
            prop_assert_eq!(&raw.record, &record);
            prop_assert_eq!(raw.payload_length, record.payload_length().unwrap_or(0));
        }
    }

    #[test]
    fn any_bytes_are_a_record_or_an_error(
        kind in 0_u8..12,
        mut bytes in prop::collection::vec(any::<u8>(), RECORD_SIZE),
    ) {
        bytes[..4].copy_from_slice(&[kind, 0, 0, 0]);
        let _ = RawRecord::parse(&bytes, Order::Little);
    }
}
