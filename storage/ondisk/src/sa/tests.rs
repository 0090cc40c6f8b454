//! Buffers by hand.

use super::{Attribute, Attributes, Header, Registration, Registry, Value, count_fitting, encode};
use crate::Order;

fn buffer(info: u16, lengths: &[u16], values: &[&[u8]]) -> Vec<u8> {
    let mut out = 0x2f505a_u32.to_le_bytes().to_vec();
    out.extend(info.to_le_bytes());
    for length in lengths {
        out.extend(length.to_le_bytes());
    }
    out.resize(out.len().next_multiple_of(8), 0);
    for value in values {
        out.extend_from_slice(value);
        out.resize(out.len().next_multiple_of(8), 0);
    }
    out
}

#[test]
fn registration_words_split_into_fields() {
    let registered = Registration::from_word(0x5803_000f);
    assert_eq!(registered, Registration { number: 15, length: 88, swap: 3 });
}

#[test]
fn attributes_after_variable_ones_are_found() {
    let layout = Registry::standard().layout(&[5, 17, 6, 20]).expect("layout");
    let word = 7_u64.to_le_bytes();
    let bytes = buffer(2 | (2 << 10), &[5, 3], &[&word, b"there", &word, b"nvl"]);
    let header = Header::parse(&bytes).expect("header");
    assert_eq!((header.layout, header.size), (2, 16));
    let found = Attributes::new(&bytes, header, &layout);
    assert_eq!(found.word(Attribute::Mode), Ok(Some(7)));
    assert_eq!(found.bytes(Attribute::Symlink), Ok(Some(&b"there"[..])));
    assert_eq!(found.word(Attribute::Size), Ok(Some(7)));
    assert_eq!(found.bytes(Attribute::Dxattr), Ok(Some(&b"nvl"[..])));
    assert_eq!(found.bytes(Attribute::Projid), Ok(None));
}

#[test]
fn lengths_beyond_buffer_or_header_are_refused() {
    let layout = Registry::standard().layout(&[17, 20]).expect("layout");
    let bytes = buffer(2 | (1 << 10), &[200], &[b"short"]);
    let header = Header::parse(&bytes).expect("header");
    let found = Attributes::new(&bytes, header, &layout);
    assert!(found.bytes(Attribute::Symlink).is_err());
    assert!(found.bytes(Attribute::Dxattr).is_err());
    assert!(Header::parse(&[0; 16]).is_err());
    assert!(Registry::standard().layout(&[99]).is_err());
}

#[test]
fn both_byte_orders_read_the_same() {
    let layout = Registry::standard().layout(&[6]).expect("layout");
    let mut bytes = 0x2f505a_u32.to_be_bytes().to_vec();
    bytes.extend((3_u16 | (1 << 10)).to_be_bytes());
    bytes.extend([0, 0]);
    bytes.extend(1234_u64.to_be_bytes());
    let header = Header::parse(&bytes).expect("header");
    assert_eq!(header, Header { layout: 3, size: 8, order: Order::Big });
    let found = Attributes::new(&bytes, header, &layout);
    assert_eq!(found.word(Attribute::Size), Ok(Some(1234)));
}

#[test]
fn registration_words_match_openzfs() {
    let mut registry = Registry::standard();
    assert!(registry.register_missing().is_empty());
    let word = |attribute: Attribute| attribute.registration(attribute as u16).to_word();
    assert_eq!(word(Attribute::ZnodeAcl), 0x5803_000f);
    assert_eq!(word(Attribute::Atime), 0x1000_0000);
    assert_eq!(word(Attribute::DaclAces), 0x4_0013);
    assert_eq!(Registration::from_word(0x4_0013).to_word(), 0x4_0013);
}

#[test]
fn missing_attributes_get_the_next_number() {
    let mut registry = Registry::default();
    for attribute in Attribute::ALL.iter().filter(|one| **one != Attribute::Projid) {
        registry.register(
            attribute.name().as_bytes(),
            attribute.registration(*attribute as u16).to_word(),
        );
    }
    registry.register(b"OTHERS", 0x15 | 0x18 << 24);
    let new = registry.register_missing();
    assert_eq!(new, [(Attribute::Projid, Registration { number: 22, length: 8, swap: 0 })]);
    assert_eq!(registry.number(Attribute::Projid), Some(22));
}

fn value(known: Attribute, length: usize, byte: u8) -> Value {
    let registered = known.registration(known as u16);
    Value { attribute: Some(known), registration: registered, bytes: vec![byte; length] }
}

#[test]
fn the_longest_run_that_fits_is_found() {
    let sizes = [
        (Attribute::Mode, 8),
        (Attribute::Symlink, 5),
        (Attribute::Size, 8),
        (Attribute::DaclAces, 9),
        (Attribute::Dxattr, 1),
    ];
    let all: Vec<Value> = sizes.iter().map(|(known, length)| value(*known, *length, 0)).collect();
    let fit = |space| count_fitting(&all, space);
    // header 8: 8, 13, 24, then header 16 (two lengths): 33, and 41
    assert_eq!((fit(15), fit(16), fit(20), fit(21), fit(32)), (0, 1, 1, 2, 3));
    assert_eq!((fit(48), fit(49), fit(56), fit(57)), (3, 4, 4, 5));
}

proptest::proptest! {
    #[test]
    fn encoded_attributes_parse_to_their_input(
        lengths in proptest::collection::vec(0_usize..40, 5), layout in 2_u16..1023, byte: u8,
    ) {
        let order = [Attribute::Symlink, Attribute::Mode, Attribute::DaclAces, Attribute::Dxattr,
            Attribute::Atime];
        let length = |one: &Attribute, drawn: usize| match one.length() {
            0 => drawn,
            fixed => fixed.into(),
        };
        let pairs = order.iter().zip(lengths);
        let values: Vec<Value> =
            pairs.map(|(one, drawn)| value(*one, length(one, drawn), byte)).collect();
        let numbers: Vec<u16> = values.iter().map(|value| value.registration.number).collect();
        let known = Registry::standard().layout(&numbers).expect("layout");
        let bytes = encode(layout, &values);
        let header = Header::parse(&bytes).expect("header");
        assert_eq!((header.layout, header.order), (layout, Order::Little));
        let read = Attributes::new(&bytes, header, &known);
        assert_eq!(read.values().expect("values"), values);
        for (one, value) in order.iter().zip(&values) {
            assert_eq!(read.bytes(*one), Ok(Some(value.bytes.as_slice())));
        }
        assert!(known.has_numbers(numbers.iter().copied()) && !known.has_numbers([1_u16].into_iter()));
    }
}
