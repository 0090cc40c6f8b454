//! Round trips of both encodings, and what damage does to them.

use proptest::prelude::*;

use super::{Encoding, MAX_DEPTH, Nvlist, Value};
use crate::Order;

const ENCODINGS: [Encoding; 3] =
    [Encoding::Xdr, Encoding::Native(Order::Little), Encoding::Native(Order::Big)];

fn list_of_every_type() -> Nvlist {
    let mut inner = Nvlist::new();
    inner.push("deep", Value::U64(7));
    let mut list = Nvlist { flags: 2, ..Nvlist::default() };
    for (name, value) in [
        ("flag", Value::Flag),
        ("byte", Value::Byte(200)),
        ("i16", Value::I16(-2)),
        ("u16", Value::U16(65000)),
        ("i32", Value::I32(-3)),
        ("u32", Value::U32(4_000_000_000)),
        ("i64", Value::I64(i64::MIN)),
        ("u64", Value::U64(u64::MAX)),
        ("string", Value::Str(b"text".to_vec())),
        ("not UTF-8", Value::Str(vec![0xff, 1])),
        ("bytes", Value::Bytes(vec![1, 2, 3])),
        ("i16s", Value::I16s(vec![-1, 2, -3])),
        ("u16s", Value::U16s(vec![1, 2, 65535])),
        ("i32s", Value::I32s(vec![-1])),
        ("u32s", Value::U32s(vec![1, u32::MAX])),
        ("i64s", Value::I64s(vec![-1, i64::MAX])),
        ("u64s", Value::U64s(vec![1, u64::MAX])),
        ("none", Value::U64s(vec![])),
        ("strings", Value::Strs(vec![b"a".to_vec(), b"".to_vec(), b"ccc".to_vec()])),
        ("time", Value::HrTime(-5)),
        ("list", Value::List(inner.clone())),
        ("lists", Value::Lists(vec![inner.clone(), Nvlist::new(), inner])),
        ("no lists", Value::Lists(vec![])),
        ("truth", Value::Bool(true)),
        ("i8", Value::I8(-128)),
        ("u8", Value::U8(255)),
        ("truths", Value::Bools(vec![true, false])),
        ("i8s", Value::I8s(vec![-1, 0, 1])),
        ("u8s", Value::U8s(vec![255, 0])),
        ("double", Value::Double(-0.5)),
        ("u64", Value::U64(0)),
    ] {
        list.push(name, value);
    }
    list
}

#[test]
fn every_type_survives_every_encoding() {
    let list = list_of_every_type();
    for encoding in ENCODINGS {
        let packed = list.encode(encoding);
        assert_eq!(Nvlist::decode(&packed).unwrap(), list, "{encoding:?}");
        let cut = &packed[..packed.len() - 1];
        assert!(Nvlist::decode(cut).is_err(), "{encoding:?}");
    }
}

#[test]
fn values_are_found_by_name_and_type() {
    let list = list_of_every_type();
    assert_eq!(list.u64("u64"), Some(u64::MAX), "the first of a name counts");
    assert_eq!(list.u64("u16"), Some(65000));
    assert_eq!(list.u64("string"), None);
    assert_eq!(list.str("string"), Some("text"));
    assert_eq!(list.str("not UTF-8"), None);
    assert_eq!(list.text("not UTF-8").unwrap(), "\u{fffd}\u{1}");
    assert_eq!(list.nvlist("list").unwrap().u64("deep"), Some(7));
    assert_eq!(list.nvlists("lists").len(), 3);
    assert_eq!(list.u64s("u64s"), Some(&[1, u64::MAX][..]));
    assert!(list.flag("flag") && list.flag("truth") && !list.flag("nothing"));
    assert_eq!(list.len(), 31);
}

/// A pair of the XDR form as its bytes are drawn, by hand.
#[test]
fn xdr_matches_the_drawing() {
    let bytes = [
        1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, // head, version, flags
        0, 0, 0, 28, 0, 0, 0, 32, 0, 0, 0, 1, b'v', 0, 0, 0, 0, 0, 0, 8, 0, 0, 0, 1, //
        0, 0, 0, 0, 0, 0, 0x13, 0x88, 0, 0, 0, 0, 0, 0, 0, 0,
    ];
    let list = Nvlist::decode(&bytes).unwrap();
    assert_eq!(list.to_string(), "v: 5000\n");
    let size = 28 + 4;
    let packed = list.encode(Encoding::Xdr);
    assert_eq!((packed[15], packed.len()), (size, bytes.len()));
}

#[test]
fn impossible_counts_are_refused_before_allocation() {
    for kind in [10_u32, 16, 17, 20, 26] {
        let mut bytes = vec![1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 9, 0, 0, 0, 9];
        bytes.extend([0, 0, 0, 0]);
        bytes.extend(kind.to_be_bytes());
        bytes.extend([0xff; 64]);
        assert!(Nvlist::decode(&bytes).is_err(), "{kind}");
    }
}

#[test]
fn nesting_depth_is_limited() {
    let mut list = Nvlist::new();
    for depth in 0..=MAX_DEPTH {
        for encoding in ENCODINGS {
            assert!(Nvlist::decode(&list.encode(encoding)).is_ok(), "{depth}");
        }
        let mut outer = Nvlist::new();
        outer.push("in", Value::List(list));
        list = outer;
    }
    for encoding in ENCODINGS {
        assert!(Nvlist::decode(&list.encode(encoding)).is_err());
    }
}

#[test]
fn non_utf8_names_are_preserved() {
    let mut list = Nvlist::new();
    list.push("user.?", Value::Bytes(vec![1]));
    for encoding in ENCODINGS {
        let mut packed = list.encode(encoding);
        let at = packed.iter().position(|byte| *byte == b'?').unwrap();
        packed[at] = 0xff;
        let found = Nvlist::decode(&packed).unwrap();
        assert_eq!(found.encode(encoding), packed, "{encoding:?}");
        assert_eq!(found.iter_bytes().next().unwrap().0, b"user.\xff");
    }
}

#[test]
fn display_matches_zdb_format() {
    let mut vdev = Nvlist::new();
    vdev.push("type", Value::Str(b"file".to_vec()));
    let mut list = Nvlist::new();
    list.push("children", Value::Lists(vec![vdev.clone()]));
    list.push("tree", Value::List(vdev));
    list.push("raidz_expanding", Value::Flag);
    list.push("txgs", Value::U64s(vec![43]));
    let text = "children[0]:\n    type: 'file'\ntree:\n    type: 'file'\nraidz_expanding\n";
    assert_eq!(list.to_string(), format!("{text}txgs[0]: 43\n"));
}

proptest! {
    #[test]
    fn any_bytes(mut bytes in prop::collection::vec(any::<u8>(), 4..600), native: bool) {
        bytes[0] = u8::from(!native);
        bytes[1] &= 1;
        let _ = Nvlist::decode(&bytes);
    }

    /// A good list with some bytes changed goes deeper than noise does.
    #[test]
    fn damaged_lists(
        which in 0_usize..3,
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
    ) {
        let mut bytes = list_of_every_type().encode(ENCODINGS[which]);
        for (place, byte) in damage {
            let place = place.index(bytes.len());
            bytes[place] = byte;
        }
        if let Ok(list) = Nvlist::decode(&bytes) {
            let _ = list.to_string();
        }
    }
}
