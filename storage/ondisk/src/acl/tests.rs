//! Lists by hand.

use posix::acl::{Ace, AceWho, PosixAclEntry};

use super::{ZnodeAcl, encode, encode_old, encode_posix, parse, parse_old, parse_posix, to_little};
use crate::{Order, Reader};

fn short(kind: u16, flags: u16, mask: u32) -> Vec<u8> {
    [&kind.to_le_bytes()[..], &flags.to_le_bytes(), &mask.to_le_bytes()].concat()
}

#[test]
fn entries_of_every_size() {
    let mut bytes = short(0, 0x1000, 0x1e_01bf);
    bytes.extend(short(0, 0x2040, 0x1));
    bytes.extend(short(1, 0x3, 0x2));
    bytes.extend(1001_u64.to_le_bytes());
    bytes.extend(short(5, 0x40, 0x4));
    bytes.extend(((2_u64 << 32) + 513).to_le_bytes());
    bytes.extend([7; 32]);
    bytes.extend(short(0, 0x4000, 0x8));
    let entries = parse(&bytes, 5, Order::Little).expect("entries");
    let whos: Vec<_> = entries.iter().map(|entry| entry.who).collect();
    let cifs = AceWho::NamedGroup((2 << 32) + 513);
    assert_eq!(whos, [AceWho::Owner, AceWho::Group, AceWho::User(1001), cifs, AceWho::Everyone]);
    assert_eq!(entries[3].object, Some([[7; 16]; 2]));
    assert_eq!(entries[0].to_string(), "owner@:rwxp--aARWcCos:-------:allow");
    assert_eq!(entries[2].to_string(), "user:1001:-w------------:fd-----:deny");
    assert!(parse(&bytes, 6, Order::Little).is_err());
    assert!(parse(&bytes, u64::MAX, Order::Little).is_err());
}

#[test]
fn old_entries() {
    let mut bytes = 500_u32.to_be_bytes().to_vec();
    bytes.extend(3_u32.to_be_bytes());
    bytes.extend(0x40_u16.to_be_bytes());
    bytes.extend(1_u16.to_be_bytes());
    let expected = Ace { who: AceWho::NamedGroup(500), kind: 1, flags: 0, mask: 3, object: None };
    assert_eq!(parse_old(&bytes, 1, Order::Big), Ok(vec![expected]));
}

#[test]
fn znode_acl_count_depends_on_version() {
    let mut bytes = [0; 88];
    bytes[8] = 6;
    bytes[14] = 3;
    let mut acl = ZnodeAcl::read(&mut Reader::new("acl", &bytes, Order::Little)).expect("acl");
    assert_eq!((acl.entries(), acl.bytes()), (6, 72));
    assert_eq!(acl.parse(None, Order::Little).expect("entries").len(), 6);
    acl.version = 1;
    assert_eq!((acl.entries(), acl.bytes()), (3, 6));
}

#[test]
fn posix_entries() {
    let bytes = [2, 0, 0, 0, 2, 0, 6, 0, 0xe8, 3, 0, 0];
    let expected = PosixAclEntry { tag: 2, permissions: 6, id: 1000 };
    assert_eq!(parse_posix(&bytes), Ok(vec![expected]));
    assert!(parse_posix(&bytes[..11]).is_err() && parse_posix(&[1, 0, 0, 0]).is_err());
}

#[test]
fn entries_survive_encoding() {
    let mut bytes = short(0, 0x1000, 0x1e_01bf);
    bytes.extend(short(0, 0x2040, 0x1));
    bytes.extend(short(1, 0x3, 0x2));
    bytes.extend(1001_u64.to_le_bytes());
    bytes.extend(short(5, 0x40, 0x4));
    bytes.extend(((2_u64 << 32) + 513).to_le_bytes());
    bytes.extend([7; 32]);
    bytes.extend(short(2, 0x4000, 0x8));
    bytes.extend(u64::MAX.to_le_bytes());
    let entries = parse(&bytes, 5, Order::Little).expect("entries");
    assert_eq!(encode(&entries), bytes);
    let plain = Ace { object: None, kind: 0, ..entries[2].clone() };
    let old = encode_old(std::slice::from_ref(&plain));
    assert_eq!(parse_old(&old, 1, Order::Little), Ok(vec![plain]));
    let bits = PosixAclEntry { tag: 2, permissions: 6, id: 1000 };
    assert_eq!(parse_posix(&encode_posix(&[bits])), Ok(vec![bits]));
}

#[test]
fn big_endian_entries_become_little_endian() {
    let big = [&0_u16.to_be_bytes()[..], &0x1003_u16.to_be_bytes(), &9_u32.to_be_bytes()].concat();
    assert_eq!(to_little(&big), short(0, 0x1003, 9));
}

#[test]
fn znode_acl_survives_encoding() {
    let mut bytes = [5; 88];
    bytes[12..16].copy_from_slice(&[1, 0, 3, 0]);
    let acl = ZnodeAcl::read(&mut Reader::new("acl", &bytes, Order::Little)).expect("acl");
    assert_eq!(acl.encode(), bytes);
}
