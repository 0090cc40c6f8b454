//! Every pointer, dnode and object set of every fixture is encoded as OpenZFS wrote it.

use std::sync::Arc;

use dmu::{Objset, WalkControl, WalkOptions};
use ondisk::blkptr::Protection;
use ondisk::dnode::Dnode;
use ondisk::dsl::Dataset;
use ondisk::objset::ObjsetHeader;
use ondisk::zil::{Body, Chain, Record};
use ondisk::{Blkptr, Checksum, ObjectType, Order, Reader};
use parking_lot::Mutex;
use units::{ObjsetId, Zbookmark};
use zio::{Block, Error, Key, Source};

use crate::check::open_pool;

/// How much was compared.
#[derive(Default)]
struct EncodingStats {
    pointers: usize,
    holes: usize,
    embedded: usize,
    protected: usize,
    dnodes: usize,
    objsets: usize,
    records: usize,
    mismatches: Vec<String>,
}

/// Looks at all that is read through it.
struct CheckingSource {
    below: Arc<dyn Source>,
    stats: Mutex<EncodingStats>,
}

impl Source for CheckingSource {
    fn read(
        &self,
        pointer: &Blkptr,
        zbookmark: Zbookmark,
        key: Option<&Key>,
    ) -> Result<Block, Error> {
        let block = self.below.read(pointer, zbookmark, key)?;
        let mut seen = self.stats.lock();
        if !pointer.is_hole() && block.order() == Order::Little {
            match (pointer.level().get(), pointer.kind()) {
                (1.., _) => {
                    block.chunks(Blkptr::SIZE).for_each(|raw| seen.check_pointer(raw, zbookmark));
                }
                (0, ObjectType::OBJSET) => seen.check_objset(&block, zbookmark),
                (0, ObjectType::DNODE) => seen.check_dnodes(&block, zbookmark),
                _ => {}
            }
        }
        Ok(block)
    }
}

impl EncodingStats {
    fn check_pointer(&mut self, raw: &[u8], zbookmark: Zbookmark) {
        let pointer = Blkptr::parse(raw, Order::Little).unwrap();
        self.count(&pointer);
        if pointer.encode() != raw {
            self.mismatches.push(format!("{zbookmark}: {pointer:?}"));
        }
    }

    fn count(&mut self, pointer: &Blkptr) {
        self.pointers += 1;
        match pointer {
            Blkptr::Hole(_) => self.holes += 1,
            Blkptr::Embedded(_) => self.embedded += 1,
            Blkptr::Regular(block) => self.protected += usize::from(block.has_half_sum()),
            Blkptr::Redacted(_) => {}
        }
    }

    fn check_dnodes(&mut self, block: &[u8], zbookmark: Zbookmark) {
        let mut rest = block;
        while rest.len() >= Dnode::SLOT {
            let slots = usize::from(Dnode::peek_slots(rest).unwrap_or(1));
            let (raw, after) = rest.split_at(slots * Dnode::SLOT);
            self.check_dnode(raw, zbookmark);
            rest = after;
        }
    }

    fn check_dnode(&mut self, raw: &[u8], zbookmark: Zbookmark) {
        let Some(dnode) = Dnode::parse(raw, Order::Little).unwrap() else { return };
        self.dnodes += 1;
        dnode.pointers.iter().chain(&dnode.spill).for_each(|pointer| self.count(pointer));
        let mut encoded = vec![0; raw.len()];
        dnode.encode(&mut encoded);
        // the bytes behind a shortened bonus are unused
        let mut wanted = raw.to_vec();
        let end = wanted.len() - if dnode.spill.is_some() { Blkptr::SIZE } else { 0 };
        let bonus = Dnode::CORE + dnode.pointers.len() * Blkptr::SIZE + dnode.bonus.len();
        if let Some(free) = wanted.get_mut(bonus..end) {
            free.fill(0);
        }
        if encoded != wanted {
            let at = encoded.iter().zip(&wanted).position(|(a, b)| a != b);
            self.mismatches.push(format!("{zbookmark}: differs at {at:?}: {dnode:?}"));
        }
    }

    /// A block of an intent log.
    fn check_log_block(&mut self, block: &[u8], front: bool, zbookmark: Zbookmark) -> Blkptr {
        let (chain, records) = Chain::split(block, Order::Little, front).unwrap();
        let at = if front { 0 } else { block.len() - Chain::SIZE };
        if chain.encode()[..144] != block[at..at + 144] {
            self.mismatches.push(format!("{zbookmark}: {chain:?}"));
        }
        let mut reader = Reader::new("log block", records, Order::Little);
        while reader.remaining() > 0 {
            let start = reader.position();
            let record = Record::read(&mut reader).unwrap();
            let mut wanted = records[start..reader.position()].to_vec();
            if matches!(&record.body, Body::Write(write) if write.data.is_some()) {
                // a pointer that is not made
                wanted[64..192].fill(0);
            }
            self.records += 1;
            if record.encode() != wanted {
                self.mismatches.push(format!("{zbookmark}: {record:?}"));
            }
        }
        chain.next
    }

    fn check_objset(&mut self, block: &[u8], zbookmark: Zbookmark) {
        self.objsets += 1;
        let header = ObjsetHeader::parse(block, Order::Little).unwrap();
        if header.encode(block.len()) != block {
            self.mismatches.push(format!("{zbookmark}: {header:?}"));
        }
    }
}

#[test]
fn what_openzfs_wrote_is_encoded_as_it_stands() {
    let mut total = EncodingStats::default();
    for fixture in fixtures::all() {
        let pool = open_pool(&fixture.dir);
        let below = Arc::new(pool.reader().with_raw_dnodes());
        let source = Arc::new(CheckingSource { below, stats: Mutex::default() });
        let dynamic = || Arc::clone(&source) as Arc<dyn Source>;
        let mos = Objset::open(dynamic(), ObjsetId::MOS, &pool.uberblock().root, None).unwrap();
        let mut roots = vec![(ObjsetId::MOS, pool.uberblock().root.clone())];
        for found in mos.objects() {
            let (id, dnode) = found.unwrap();
            if dnode.bonus_kind == ObjectType::DSL_DATASET {
                let dataset = Dataset::parse(&dnode.bonus, dnode.order).unwrap();
                roots.push((ObjsetId::new(id.get()), dataset.root));
            }
        }
        let plan = WalkOptions { include_holes: true, ..WalkOptions::default() };
        for (id, root) in roots.into_iter().filter(|(_, root)| !root.is_hole()) {
            let objset = Objset::open(dynamic(), id, &root, None).unwrap();
            objset.walk(&plan, &mut |_, _| WalkControl::Descend);
            let mut next = objset.header().log.chain.clone();
            while let Blkptr::Regular(block) = &next
                && block.protection == Protection::None
                && let Ok(bytes) = pool.reader().read_stored(block, Zbookmark::root(id))
            {
                let front = block.checksum == Checksum::Zilog2;
                next = source.stats.lock().check_log_block(&bytes, front, Zbookmark::root(id));
            }
        }
        let seen = source.stats.lock();
        assert!(seen.mismatches.is_empty(), "{}: {:#?}", fixture.name, &seen.mismatches[..1]);
        total.pointers += seen.pointers;
        total.holes += seen.holes;
        total.embedded += seen.embedded;
        total.protected += seen.protected;
        total.dnodes += seen.dnodes;
        total.objsets += seen.objsets;
        total.records += seen.records;
    }
    assert!(total.records > 20, "{}", total.records);
    let EncodingStats { pointers, holes, embedded, protected, dnodes, objsets, .. } = total;
    assert!(pointers > 400_000 && dnodes > 8_000 && objsets > 80, "{pointers} {dnodes} {objsets}");
    assert!(holes > 1_000 && embedded > 50 && protected > 100, "{holes} {embedded} {protected}");
}
