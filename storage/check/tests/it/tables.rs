//! Every name table of every fixture keeps the rules that ours are tested against, and its micro
//! tables and headers are made again byte for byte.

#[path = "../../../zap/tests/it/audit.rs"]
mod audit;

use std::collections::BTreeSet;
use std::sync::Arc;

use dmu::{Object, Objset};
use ondisk::dedup::{DedupKey, DedupValue, Shape};
use ondisk::object_type::Content;
use ondisk::zap::fat::Header;
use ondisk::zap::micro::{Micro, MicroMut};
use ondisk::zap::{HEADER, MICRO, block_kind};
use ondisk::{ObjectType, Order, Reader};
use units::{BlockId, ObjsetId};

use crate::check::open_pool;

/// The object sets of a pool that can be read without keys.
fn readable_objsets(mos: &Objset) -> Vec<Objset> {
    let mut all = vec![mos.clone()];
    for (id, dnode) in mos.objects().flatten() {
        let object = mos.object_with_dnode(id, dnode);
        if object.dnode().bonus_kind != ObjectType::DSL_DATASET {
            continue;
        }
        let mut reader = Reader::new("dataset", object.bonus(), object.bonus_order());
        let dataset = ondisk::dsl::Dataset::read(&mut reader).unwrap();
        let id = ObjsetId::new(object.id().get());
        all.extend(Objset::open(Arc::clone(mos.source()), id, &dataset.root, None).ok());
    }
    all
}

/// Whether the table is made again; `None` where it is a table of another byte order.
fn reencoded_kind(object: &Object) -> Option<&'static str> {
    let block = object.block(BlockId::new(0)).unwrap()?;
    let mut made = block.to_vec();
    let kind = match block_kind(&block, block.order()).unwrap() {
        MICRO => {
            let micro = Micro::parse(&block, block.order()).unwrap();
            let mut ours =
                MicroMut::init(&mut made, block.order(), micro.salt, micro.normalization);
            for (number, entry) in micro.numbered_entries() {
                ours.set_entry(number, &entry);
            }
            "micro"
        }
        HEADER => {
            let header = Header::parse(&block, block.order()).unwrap();
            let half = made.len() / 2;
            made[..half].fill(0);
            header.write(&mut made, block.order());
            "fat"
        }
        _ => return None,
    };
    assert!(made == block[..], "{object:?} is not made again");
    (block.order() == Order::Little).then_some(kind)
}

/// Every value of a table of dedup is packed again as it was.
fn check_dedup_values(object: &Object) -> usize {
    let table = zap::Zap::open(object.clone()).unwrap();
    let again = |entry: &zap::ZapEntry| {
        let packed = entry.value.bytes();
        let shapes = [Shape::Flat, Shape::Traditional];
        let key = entry.key64.as_deref().unwrap().try_into().unwrap();
        assert_eq!(DedupKey::from_words(&key).unwrap().to_words(), key);
        shapes.iter().any(|shape| {
            DedupValue::parse(packed, *shape).is_ok_and(|value| value.pack() == packed)
        })
    };
    let entries: Vec<zap::ZapEntry> = table.entries().map(Result::unwrap).collect();
    assert!(entries.iter().all(again), "{object:?}");
    entries.len()
}

#[test]
fn real_tables_are_valid_and_reencode() {
    let mut seen = BTreeSet::new();
    let mut values = 0;
    for fixture in fixtures::all() {
        let pool = open_pool(&fixture.dir);
        for objset in readable_objsets(pool.mos()) {
            for (id, dnode) in objset.objects().flatten() {
                let object = objset.object_with_dnode(id, dnode);
                let Ok(Some(_)) = object.block(BlockId::new(0)) else { continue };
                if object.dnode().kind.content() != Content::Zap {
                    continue;
                }
                if let Some(kind) = reencoded_kind(&object) {
                    audit::audit(&object);
                    if object.dnode().kind == ObjectType::DDT_ZAP {
                        values += check_dedup_values(&object);
                    }
                    seen.insert((kind, object.dnode().kind));
                }
            }
        }
    }
    assert!(values > 10, "{values}");
    assert!(seen.contains(&("micro", ObjectType::DIRECTORY)));
    assert!(seen.contains(&("fat", ObjectType::OBJECT_DIRECTORY)));
    assert!(seen.contains(&("fat", ObjectType::DDT_ZAP)));
}
