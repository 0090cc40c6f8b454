//! Golden values: records laid out by the drawings.

use super::{Body, Chain, CreateKind, Record, RenameKind, Verifier};
use crate::{Blkptr, Order, Reader};

struct RecordBuilder {
    bytes: Vec<u8>,
    order: Order,
}

impl RecordBuilder {
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
        reader.expect_end()?;
        Ok(record)
    }
}

#[test]
fn chain_header_is_at_front_or_end() {
    let mut chain = vec![0; 17];
    chain.push(200);
    chain.extend([0; 5]);
    let chain = RecordBuilder::new(Order::Little).words(&chain).bytes;
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
fn plain_and_encrypted_pointers_give_same_verifier() {
    for crypt in [0, 1 << 61] {
        for order in [0, 1 << 63] {
            let mut words = [0; 16];
            words[0] = 8;
            words[1] = 0x160;
            words[6] = order | crypt | (9 << 48) | (9 << 40) | (2 << 32) | (7 << 16) | 7;
            words[12..].copy_from_slice(&[11, 12, 54, 3]);
            let laid = RecordBuilder::new(Order::Little).words(&words);
            let Blkptr::Regular(pointer) = Blkptr::parse(&laid.bytes, Order::Little).unwrap()
            else {
                panic!("a regular block");
            };
            let verifier = Verifier::from_pointer(&pointer);
            assert_eq!(verifier.words(), [11, 12, 54, 3]);
            assert_eq!(verifier.next().seq, 4);
        }
    }
}

#[test]
fn golden_records() {
    let order = Order::Big;
    let create = [4, (1 << 56) | 9, 0o100644, 1000, 1001, 70, 1, 2, 0];
    let record = RecordBuilder::new(order).words(&create).bytes(b"name\0\0\0\0").record(1).unwrap();
    let Body::Create(made) = record.body else { panic!("create") };
    assert_eq!((made.dir.get(), made.object.get(), made.slots), (4, 9, 2));
    assert_eq!((&made.name[..], made.mode), (&b"name"[..], 0o100644));

    let record =
        RecordBuilder::new(order).words(&create).bytes(b"l\0where/to\0").record((1 << 63) | 4);
    let record = record.unwrap();
    assert!(record.fold_case);
    let Body::Create(made) = record.body else { panic!("symlink") };
    assert_eq!((made.kind, &made.target[..]), (CreateKind::Symlink, &b"where/to"[..]));

    let record = RecordBuilder::new(order)
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

    let rename = RecordBuilder::new(order).words(&[4, 5]).bytes(b"a\0b\0").record(22).unwrap();
    let Body::Rename(rename) = rename.body else { panic!("exchange") };
    assert_eq!((rename.kind, &rename.target[..]), (RenameKind::Exchange, &b"b"[..]));

    let xattr = RecordBuilder::new(order).words(&[9, 3]).bytes(b"user.x\0abc").record(21).unwrap();
    let wanted = Body::SetXattr {
        object: units::ObjectId::new(9),
        name: b"user.x".to_vec(),
        value: b"abc".to_vec(),
    };
    assert_eq!(xattr.body, wanted);
}

#[test]
fn write_has_data_or_a_pointer() {
    let write = RecordBuilder::new(Order::Little).words(&[9, 4096, 3, 0]).words(&[0; 16]);
    let record = write.bytes(b"abc\0\0\0\0\0").record(9).unwrap();
    let Body::Write(write) = record.body else { panic!("write") };
    assert_eq!((write.offset, write.data.as_deref()), (4096, Some(&b"abc"[..])));

    let far = RecordBuilder::new(Order::Little)
        .words(&[9, 4096, 3, 0])
        .words(&[0; 16])
        .record(9)
        .unwrap();
    let Body::Write(write) = far.body else { panic!("write") };
    assert_eq!(write.data, None);

    let cut = RecordBuilder::new(Order::Little).words(&[9, 0, 9, 0]).words(&[0; 16]);
    assert!(cut.bytes(b"abc").record(9).is_err());
    let many =
        RecordBuilder::new(Order::Little).words(&[9, 0, 4096, 4096, u64::MAX]).words(&[0; 16]);
    assert!(many.record(24).is_err());
    assert!(RecordBuilder::new(Order::Little).words(&[9, 0]).record(25).is_err());
}

proptest::proptest! {
    #[test]
    fn any_bytes_are_a_record_or_an_error(
        kind in 0_u64..26, bytes in proptest::collection::vec(0_u8..4, 0..400)
    ) {
        let _ = RecordBuilder::new(Order::Little).bytes(&bytes).record(kind);
        let mut reader = Reader::new("test", &bytes, Order::Big);
        while Record::read(&mut reader).is_ok() {}
        let _ = Chain::split(&bytes, Order::Little, true);
    }
}

mod roundtrip {
    use proptest::prelude::*;

    use super::super::{Acl, Attributes, Body, Create, CreateKind, Rename, RenameKind, SetAttr};
    use super::super::{Whiteout, Write};
    use crate::zil::{Chain, Record};
    use crate::{Blkptr, Order, Reader};
    use units::{ObjectId, Txg};

    fn object() -> impl Strategy<Value = ObjectId> {
        (1_u64..1 << 48).prop_map(ObjectId::new)
    }

    fn name() -> impl Strategy<Value = Vec<u8>> {
        proptest::collection::vec(1_u8.., 1..40)
    }

    fn attributes() -> impl Strategy<Value = Attributes> {
        let words = proptest::collection::vec(any::<u32>(), 0..4);
        let rest = any::<(u64, [u64; 2], [u8; 32])>();
        (words, rest).prop_map(|(requested, (values, crtime, scanstamp))| {
            let project = u64::from_le_bytes(*scanstamp.first_chunk().unwrap());
            Attributes { requested, values, crtime, scanstamp, project }
        })
    }

    fn acl() -> impl Strategy<Value = Acl> {
        let entries = proptest::collection::vec(any::<u8>(), 0..50);
        let fuids = proptest::collection::vec(any::<u64>(), 0..4);
        let domains = proptest::collection::vec(name(), 0..3);
        (any::<[u64; 2]>(), entries, fuids, domains).prop_map(
            |([count, flags], entries, fuids, domains)| Acl {
                count,
                flags,
                entries,
                fuids,
                domains,
            },
        )
    }

    fn create() -> impl Strategy<Value = Body> {
        use CreateKind::{Directory, File, Symlink, XattrDirectory};
        let kind = proptest::sample::select(vec![File, Directory, XattrDirectory, Symlink]);
        let optional = (proptest::option::of(acl()), proptest::option::of(attributes()));
        let places = (object(), object(), 1_u16..32, name(), name());
        (kind, places, any::<[u64; 4]>(), any::<[u32; 2]>(), optional).prop_map(
            |(kind, places, numbers, owners, (acl, attributes))| {
                let (dir, object, slots, name, target) = places;
                let full = matches!(kind, File | Directory);
                Body::Create(Box::new(Create {
                    kind,
                    dir,
                    object,
                    slots,
                    mode: numbers[0],
                    uid: owners[0].into(),
                    gid: owners[1].into(),
                    generation: numbers[1],
                    crtime: [numbers[2], numbers[3]],
                    rdev: numbers[0] >> 32,
                    name,
                    target: if kind == Symlink { target } else { Vec::new() },
                    attributes: attributes.filter(|_| full),
                    acl: acl.filter(|_| full),
                    domains: Vec::new(),
                }))
            },
        )
    }

    fn rename() -> impl Strategy<Value = Body> {
        let whiteout = (object(), any::<[u64; 7]>()).prop_map(|(object, n)| {
            RenameKind::Whiteout(Whiteout {
                object,
                mode: n[0],
                uid: n[1],
                gid: n[2],
                generation: n[3],
                crtime: [n[4], n[5]],
                rdev: n[6],
            })
        });
        let kind = prop_oneof![Just(RenameKind::Plain), Just(RenameKind::Exchange), whiteout];
        (kind, object(), object(), name(), name()).prop_map(
            |(kind, source_dir, target_dir, source, target)| {
                Body::Rename(Box::new(Rename { kind, source_dir, target_dir, source, target }))
            },
        )
    }

    fn set_attr() -> impl Strategy<Value = Body> {
        let domains = proptest::collection::vec(name(), 0..3);
        (object(), any::<[u64; 9]>(), proptest::option::of(attributes()), domains).prop_map(
            |(object, n, attributes, domains)| {
                let bit = if attributes.is_some() { SetAttr::ATTRIBUTES } else { 0 };
                Body::SetAttr(Box::new(SetAttr {
                    object,
                    mask: n[0] & !SetAttr::ATTRIBUTES | bit,
                    mode: n[1],
                    uid: n[2],
                    gid: n[3],
                    size: n[4],
                    atime: [n[5], n[6]],
                    mtime: [n[7], n[8]],
                    attributes,
                    domains,
                }))
            },
        )
    }

    fn body() -> impl Strategy<Value = Body> {
        let data = proptest::collection::vec(any::<u8>(), 1..300);
        let range = || (object(), any::<u64>(), any::<u64>());
        prop_oneof![
            create(),
            rename(),
            set_attr(),
            (object(), name()).prop_map(|(dir, name)| Body::Remove { dir, name }),
            (object(), name()).prop_map(|(dir, name)| Body::RemoveDirectory { dir, name }),
            (object(), object(), name()).prop_map(|(dir, object, name)| Body::Link {
                dir,
                object,
                name
            }),
            (object(), any::<u64>(), data.clone()).prop_map(|(object, offset, data)| {
                let (length, pointer) = (data.len() as u64, Blkptr::EMPTY);
                let data = Some(data);
                Body::Write(Box::new(Write { object, offset, length, pointer, data }))
            }),
            range().prop_map(|(object, offset, length)| {
                let (pointer, data) = (Blkptr::EMPTY, None);
                Body::Write(Box::new(Write { object, offset, length, pointer, data }))
            }),
            range()
                .prop_map(|(object, offset, length)| { Body::Truncate { object, offset, length } }),
            range().prop_map(|(object, offset, length)| {
                Body::WriteSynced { object, offset, length }
            }),
            (object(), acl()).prop_map(|(object, acl)| Body::Acl { object, acl: Box::new(acl) }),
            (object(), name(), data).prop_map(|(object, name, value)| Body::SetXattr {
                object,
                name,
                value
            }),
            range().prop_map(|(object, offset, length)| Body::Clone {
                object,
                offset,
                length,
                block_size: 4096,
                pointers: vec![Blkptr::EMPTY; 2],
            }),
        ]
    }

    proptest! {
        #[test]
        fn any_record_survives_its_bytes(body in body(), txg: u64, seq: u64, fold_case: bool) {
            let record =
                Record { txg: Txg::new(txg), seq, fold_case, order: Order::Little, body };
            let bytes = record.encode();
            prop_assert!(bytes.len().is_multiple_of(8));
            let mut reader = Reader::new("test", &bytes, Order::Little);
            prop_assert_eq!(Record::read(&mut reader).unwrap(), record);
            reader.expect_end().unwrap();
        }
    }

    #[test]
    fn chain_header_survives_encoding() {
        let chain = Chain { next: Blkptr::EMPTY, used: 200 };
        let mut block = chain.encode().to_vec();
        block.resize(4096, 7);
        let (read, records) = Chain::split(&block, Order::Little, true).unwrap();
        assert_eq!((read, records), (chain, &[7; 16][..]));
    }
}
