//! Golden values: records laid out by the drawings.

use super::{Body, Chain, CreateKind, Record, RenameKind, Verifier};
use crate::{Blkptr, Order, Reader};

struct Laid {
    bytes: Vec<u8>,
    order: Order,
}

impl Laid {
    fn new(order: Order) -> Self {
        Self { bytes: Vec::new(), order }
    }

    fn words(mut self, words: &[u64]) -> Self {
        for word in words {
            self.bytes.extend(match self.order {
                Order::Little => word.to_le_bytes(),
                Order::Big => word.to_be_bytes(),
            });
        }
        self
    }

    fn bytes(mut self, bytes: &[u8]) -> Self {
        self.bytes.extend_from_slice(bytes);
        self
    }

    /// Puts the common header in front and reads.
    fn record(self, kind: u64) -> crate::Result<Record> {
        let length = u64::try_from(self.bytes.len() + 32).unwrap();
        let whole = Self::new(self.order).words(&[kind, length, 70, 3]).bytes(&self.bytes);
        let mut reader = Reader::new("test", &whole.bytes, self.order);
        assert_eq!(Record::peek(&reader)?, (3, units::Txg::new(70)));
        let record = Record::read(&mut reader)?;
        reader.all()?;
        Ok(record)
    }
}

#[test]
fn chain_headers_stand_in_front_or_behind() {
    let mut chain = vec![0; 17];
    chain.push(200);
    chain.extend([0; 5]);
    let chain = Laid::new(Order::Little).words(&chain).bytes;
    assert_eq!(chain.len(), Chain::SIZE);
    let front = [&chain[..], &[9; 16], &[0; 3896]].concat();
    let (read, records) = Chain::split(&front, Order::Little, true).unwrap();
    assert_eq!((read.used, records), (200, &[9; 16][..]));
    let behind = [&[9; 200], &[0; 3712][..], &chain].concat();
    let (_, records) = Chain::split(&behind, Order::Little, false).unwrap();
    assert_eq!(records, [9; 200]);
    // more is used than there is, or less than the header takes
    assert!(Chain::split(&front[..190], Order::Little, true).is_err());
    assert!(Chain::split(&behind[4096 - 184 - 199..], Order::Little, false).is_err());
    assert!(Chain::split(&[], Order::Little, false).is_err());
}

#[test]
fn verifiers_are_the_same_in_plain_and_encrypted_pointers() {
    for crypt in [0, 1 << 61] {
        for order in [0, 1 << 63] {
            let mut words = [0; 16];
            words[0] = 8;
            words[1] = 0x160;
            words[6] = order | crypt | (9 << 48) | (9 << 40) | (2 << 32) | (7 << 16) | 7;
            words[12..].copy_from_slice(&[11, 12, 54, 3]);
            let laid = Laid::new(Order::Little).words(&words);
            let Blkptr::Regular(pointer) = Blkptr::parse(&laid.bytes, Order::Little).unwrap()
            else {
                panic!("a regular block");
            };
            let verifier = Verifier::of(&pointer);
            assert_eq!(verifier.words(), [11, 12, 54, 3]);
            assert_eq!(verifier.next().seq, 4);
        }
    }
}

#[test]
fn golden_records() {
    let order = Order::Big;
    let create = [4, (1 << 56) | 9, 0o100644, 1000, 1001, 70, 1, 2, 0];
    let record = Laid::new(order).words(&create).bytes(b"name\0\0\0\0").record(1).unwrap();
    let Body::Create(made) = record.body else { panic!("create") };
    assert_eq!((made.dir.get(), made.object.get(), made.slots), (4, 9, 2));
    assert_eq!((&made.name[..], made.mode), (&b"name"[..], 0o100644));

    let record = Laid::new(order).words(&create).bytes(b"l\0where/to\0").record((1 << 63) | 4);
    let record = record.unwrap();
    assert!(record.fold_case);
    let Body::Create(made) = record.body else { panic!("symlink") };
    assert_eq!((made.kind, &made.target[..]), (CreateKind::Symlink, &b"where/to"[..]));

    let record = Laid::new(order)
        .words(&create)
        .words(&[1, 1, 1, 12, 0])
        .bytes(&[5; 12])
        .bytes(&[0; 4])
        .words(&[1 << 32])
        .bytes(b"S-1-5\0dir\0")
        .record(17)
        .unwrap();
    let Body::Create(made) = record.body else { panic!("mkdir with ACL") };
    let acl = made.acl.unwrap();
    assert_eq!((acl.entries.len(), &acl.domains[0][..]), (12, &b"S-1-5"[..]));
    assert_eq!((made.kind, &made.name[..]), (CreateKind::Directory, &b"dir"[..]));

    let rename = Laid::new(order).words(&[4, 5]).bytes(b"a\0b\0").record(22).unwrap();
    let Body::Rename(rename) = rename.body else { panic!("exchange") };
    assert_eq!((rename.kind, &rename.target[..]), (RenameKind::Exchange, &b"b"[..]));

    let xattr = Laid::new(order).words(&[9, 3]).bytes(b"user.x\0abc").record(21).unwrap();
    let wanted = Body::SetXattr {
        object: units::ObjectId::new(9),
        name: b"user.x".to_vec(),
        value: b"abc".to_vec(),
    };
    assert_eq!(xattr.body, wanted);
}

#[test]
fn writes_have_their_data_or_point_to_it() {
    let write = Laid::new(Order::Little).words(&[9, 4096, 3, 0]).words(&[0; 16]);
    let record = write.bytes(b"abc\0\0\0\0\0").record(9).unwrap();
    let Body::Write(write) = record.body else { panic!("write") };
    assert_eq!((write.offset, write.data.as_deref()), (4096, Some(&b"abc"[..])));

    let far = Laid::new(Order::Little).words(&[9, 4096, 3, 0]).words(&[0; 16]).record(9).unwrap();
    let Body::Write(write) = far.body else { panic!("write") };
    assert_eq!(write.data, None);

    let cut = Laid::new(Order::Little).words(&[9, 0, 9, 0]).words(&[0; 16]);
    assert!(cut.bytes(b"abc").record(9).is_err());
    let many = Laid::new(Order::Little).words(&[9, 0, 4096, 4096, u64::MAX]).words(&[0; 16]);
    assert!(many.record(24).is_err());
    assert!(Laid::new(Order::Little).words(&[9, 0]).record(25).is_err());
}

proptest::proptest! {
    #[test]
    fn any_bytes_are_a_record_or_an_error(
        kind in 0_u64..26, bytes in proptest::collection::vec(0_u8..4, 0..400)
    ) {
        let _ = Laid::new(Order::Little).bytes(&bytes).record(kind);
        let mut reader = Reader::new("test", &bytes, Order::Big);
        while Record::read(&mut reader).is_ok() {}
        let _ = Chain::split(&bytes, Order::Little, true);
    }
}
