//! The wire format: recorded bytes, and properties of the codec.

use nfs::wire::portmap::{parse_universal_address, universal_address};
use nfs::wire::rpc::{Call, Credentials};
use nfs::wire::v3::{self, Attributes, Procedure};
use nfs::wire::v4::{
    Bitmap, CachedAttributes, CallbackOperation, Compound, Operation, StateId, op,
    parse_v40_results,
};
use nfs::wire::xdr::{Reader, Writer};
use nfs::wire::{Error, mount};
use proptest::prelude::*;

fn from_hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    let digits = digits.chunks(2).map(|pair| std::str::from_utf8(pair).unwrap());
    digits.map(|pair| u8::from_str_radix(pair, 16).unwrap()).collect()
}

/// Runs all parsers on bytes.
fn parse_all(bytes: &[u8]) {
    let _ = Call::parse(bytes);
    for number in 0..=22 {
        let _ = Procedure::parse(number, bytes, 1 << 20);
        let _ = mount::Procedure::parse(number, bytes);
    }
    let mut reader = Reader::new(bytes);
    if let Ok(header) = Compound::parse(&mut reader) {
        for _ in 0..header.count.min(100) {
            let Ok((_, Ok(_))) = Operation::parse(&mut reader, 2, 1 << 20) else { break };
        }
    }
    for minor in 0..3 {
        let _ = Operation::parse(&mut Reader::new(bytes), minor, 1 << 20);
    }
}

/// A LOOKUP of NFSv3 by AUTH_SYS, as a client of Linux prints it.
#[test]
fn recorded_call_is_parsed() {
    let bytes = from_hex(
        "00000065 00000000 00000002 000186a3 00000003 00000003
         00000001 00000024 0007e2f1 00000006 636c69656e740000 000003e8 00000064
         00000002 00000064 0000001b 00000000 00000000
         00000008 0102030405060708 00000005 68656c6c6f000000",
    );
    let (call, error) = Call::parse(&bytes).unwrap();
    assert_eq!(error, None);
    assert_eq!((call.xid, call.program, call.version, call.procedure), (0x65, 100_003, 3, 3));
    let credentials = Credentials::System { uid: 1000, gid: 100, groups: vec![100, 27] };
    assert_eq!(call.credentials, credentials);
    let procedure = Procedure::parse(3, call.arguments, 0).unwrap().unwrap();
    let at = v3::DirName { dir: &[1, 2, 3, 4, 5, 6, 7, 8], name: b"hello" };
    assert_eq!(procedure, Procedure::Lookup(at));
    for cut in 0..bytes.len() {
        if let Ok((call, _)) = Call::parse(&bytes[..cut]) {
            assert!(Procedure::parse(3, call.arguments, 0).is_err());
        }
    }
}

/// CB_RECALL of NFSv4.0 by the server, and a client's answer to CB_GETATTR.
#[test]
fn callbacks_of_v40_have_one_operation() {
    let state = StateId { seqid: 1, other: [7; 12] };
    let mut writer = Writer::default();
    CallbackOperation::Recall { state, handle: b"file" }.write_v40(&mut writer, 0x4d);
    let recall = "00000000 00000000 0000004d 00000001 00000004
                  00000001 07070707 07070707 07070707 00000000 00000004 66696c65";
    assert_eq!(writer.as_bytes(), from_hex(recall));
    let answer = from_hex(
        "00000000 00000000 00000001 00000003 00000000
         00000001 00000018 00000010 0000000000000009 0000000000001770",
    );
    let (status, mut rest) = parse_v40_results(&mut Reader::new(&answer)).unwrap();
    assert!(status.is_ok());
    assert_eq!(CachedAttributes::parse(&mut rest), Ok(CachedAttributes { change: 9, size: 6000 }));
    for cut in 0..answer.len() {
        if let Ok((_, mut rest)) = parse_v40_results(&mut Reader::new(&answer[..cut])) {
            assert!(CachedAttributes::parse(&mut rest).is_err());
        }
    }
}

#[test]
fn universal_addresses_are_read_as_written() {
    for address in ["192.0.2.7:2049", "[2001:db8::7]:65535", "0.0.0.0:0"] {
        let address = address.parse().unwrap();
        assert_eq!(parse_universal_address(universal_address(address).as_bytes()), Some(address));
    }
    for bad in ["", "192.0.2.7", "192.0.2.7.1", "192.0.2.7.256.1", "a.b.c.d.1.1", "\u{e9}.1.1"] {
        assert_eq!(parse_universal_address(bad.as_bytes()), None, "{bad}");
    }
}

/// SEQUENCE, PUTFH, READ of NFSv4.2.
#[test]
fn recorded_compound_is_parsed() {
    let bytes = from_hex(
        "00000000 00000002 00000003
         00000035 00112233445566778899aabbccddeeff 00000007 00000001 0000000f 00000001
         00000016 00000004 deadbeef
         00000019 00000001 0123456789abcdef01234567 0000000000010000 00001000",
    );
    let mut reader = Reader::new(&bytes);
    let header = Compound::parse(&mut reader).unwrap();
    assert_eq!((header.tag, header.minor_version, header.count), (&b""[..], 2, 3));
    let mut next = || Operation::parse(&mut reader, 2, 1 << 20).unwrap();
    let (number, sequence) = next();
    assert_eq!(number, op::SEQUENCE);
    let Ok(Operation::Sequence(sequence)) = sequence else { panic!("{sequence:?}") };
    assert_eq!((sequence.number, sequence.slot, sequence.highest_slot), (7, 1, 15));
    let handle = &[0xde, 0xad, 0xbe, 0xef][..];
    assert_eq!(next(), (op::PUTFH, Ok(Operation::PutHandle { handle })));
    let other = from_hex("0123456789abcdef01234567").try_into().unwrap();
    let state = StateId { seqid: 1, other };
    assert_eq!(next(), (op::READ, Ok(Operation::Read { state, offset: 0x10000, count: 0x1000 })));
    reader.finish().unwrap();
}

#[test]
fn operations_of_later_minor_versions_are_illegal() {
    let seek = op::SEEK.to_be_bytes();
    let parsed = |minor| Operation::parse(&mut Reader::new(&seek), minor, 0).unwrap();
    assert_eq!(parsed(1), (op::ILLEGAL, Ok(Operation::Illegal)));
    assert_eq!(parsed(2), (op::SEEK, Err(Error::TooShort)));
}

proptest! {
    #[test]
    fn no_bytes_cause_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        parse_all(&bytes);
    }

    /// Small numbers are counts, lengths and choices that lead further into the parsers.
    #[test]
    fn no_numbers_cause_a_panic(numbers in prop::collection::vec(
        prop_oneof![0..4_u32, 0..80_u32, any::<u32>()], 0..60,
    )) {
        parse_all(&numbers.iter().flat_map(|number| number.to_be_bytes()).collect::<Vec<u8>>());
    }

    #[test]
    fn fields_are_parsed_as_written(
        number: u64,
        opaque in prop::collection::vec(any::<u8>(), 0..40),
        fixed: [u8; 7],
        flag: bool,
        attributes in prop::collection::btree_set(0..96_u32, 0..20),
    ) {
        let attributes: Vec<u32> = attributes.into_iter().collect();
        let mut writer = Writer::default();
        writer.u64(number);
        writer.opaque(&opaque);
        writer.fixed(&fixed);
        writer.bool(flag);
        Bitmap::of(&attributes).write(&mut writer);
        let placeholder = writer.placeholder();
        writer.u32(5);
        writer.set(placeholder, 77);
        prop_assert_eq!(writer.len_behind(placeholder), 4);
        prop_assert_eq!(writer.len() % 4, 0);
        let mut reader = Reader::new(writer.as_bytes());
        prop_assert_eq!(reader.u64(), Ok(number));
        prop_assert_eq!(reader.opaque(40), Ok(&opaque[..]));
        prop_assert_eq!(reader.fixed::<7>(), Ok(fixed));
        prop_assert_eq!(reader.bool(), Ok(flag));
        let parsed: Vec<u32> = Bitmap::parse(&mut reader).unwrap().iter().collect();
        prop_assert_eq!(parsed, attributes);
        prop_assert_eq!((reader.u32(), reader.u32()), (Ok(77), Ok(5)));
        prop_assert_eq!(reader.finish(), Ok(()));
        if !opaque.is_empty() {
            let mut reader = Reader::new(&writer.as_bytes()[8..]);
            let (found, most) = (opaque.len(), opaque.len() - 1);
            prop_assert_eq!(reader.opaque(most), Err(Error::TooLong { found, most }));
        }
    }

    #[test]
    fn attributes_are_parsed_as_written(numbers: [u32; 5], sizes: [u64; 4]) {
        let [kind, mode, nlink, uid, gid] = numbers;
        let [size, used, fsid, fileid] = sizes;
        let time = v3::Time { seconds: kind, nanoseconds: mode };
        let attributes = Attributes {
            kind, mode, nlink, uid, gid, size, used, fsid, fileid,
            rdev: (uid, gid), atime: time, mtime: time, ctime: time,
        };
        let mut writer = Writer::default();
        attributes.write(&mut writer);
        prop_assert_eq!(writer.len(), 84);
        prop_assert_eq!(Attributes::parse(&mut Reader::new(writer.as_bytes())), Ok(attributes));
    }
}
