//! Caches metadata when it is written: the next txg changes much of the metadata that
//! the last one wrote, and drives that seek need not read it in between.
//!
//! Content of volumes is cached, too: initiators read it through no cache of this machine. Content of files is not:
//! the page cache of the client holds what was written recently.

use ondisk::{Blkptr, ObjectType, Order};
use units::{ObjsetId, Txg};
use zio::{Error, Sink, Trimmed, WriteRequest};

use crate::Cache;
use crate::identity::BlockIdentity;

/// A sink that puts written metadata, and content of volumes, into a cache.
pub struct CachingSink<'a> {
    sink: &'a dyn Sink,
    cache: &'a Cache,
}

impl<'a> CachingSink<'a> {
    /// Reads of blocks that go to `sink` use `cache`.
    pub fn new(sink: &'a dyn Sink, cache: &'a Cache) -> Self {
        Self { sink, cache }
    }

    fn cache_written(&self, request: &WriteRequest<'_>, pointer: &Blkptr) {
        // an object set gets its codes while it is written
        let is_known = request.kind != ObjectType::OBJSET && pointer != request.previous;
        // the bytes of a raw stream are not the content
        let is_raw = request.raw.is_some() || request.policy.keyless;
        let is_file = request.level.get() == 0
            && !request.kind.is_metadata()
            && request.kind != ObjectType::ZVOL;
        if is_raw || !is_known || is_file {
            return;
        }
        // A block that its own txg overwrites is not read again. Neither is one of the MOS that a
        // later txg overwrites, since snapshots do not have it. Readers of the older txg read it
        // from the drives.
        let is_mos = request.zbookmark.objset == ObjsetId::MOS;
        let is_superseded = |old: &BlockIdentity| is_mos || old.birth() == request.txg;
        if let Some(old) = BlockIdentity::from_pointer(request.previous).filter(is_superseded) {
            self.cache.remove(old);
        }
        if let Some(identity) = BlockIdentity::from_pointer(pointer) {
            self.cache.insert(identity, Trimmed::copied(request.data, Order::Little));
        }
    }
}

impl Sink for CachingSink<'_> {
    fn write(&self, request: &WriteRequest<'_>) -> Result<Blkptr, Error> {
        let pointer = self.sink.write(request)?;
        self.cache_written(request, &pointer);
        Ok(pointer)
    }

    fn write_many(&self, requests: &[WriteRequest<'_>]) -> Vec<Result<Blkptr, Error>> {
        let results = self.sink.write_many(requests);
        for (request, result) in requests.iter().zip(&results) {
            if let Ok(pointer) = result {
                self.cache_written(request, pointer);
            }
        }
        results
    }

    fn free(&self, pointer: &Blkptr, txg: Txg) {
        self.sink.free(pointer, txg);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use ondisk::{Blkptr, ObjectType};
    use units::{Level, ObjsetId, Txg, Zbookmark};
    use zio::{Block, Error, Key, Sink, Source, WritePolicy, WriteRequest};

    use super::CachingSink;
    use crate::tests::pointer;
    use crate::{Cache, MemoryBudget};

    /// Takes anything and gives nothing back; each block gets the next address.
    #[derive(Default)]
    struct DiscardingStore(AtomicU64);

    impl Sink for DiscardingStore {
        fn write(&self, _: &WriteRequest<'_>) -> Result<Blkptr, Error> {
            Ok(pointer(8 * (1 + self.0.fetch_add(1, Ordering::Relaxed))))
        }

        fn free(&self, _: &Blkptr, _: Txg) {}
    }

    impl Source for DiscardingStore {
        fn read(&self, _: &Blkptr, place: Zbookmark, _: Option<&Key>) -> Result<Block, Error> {
            Err(Error::Redacted { zbookmark: place })
        }
    }

    #[test]
    fn written_metadata_is_cached_and_files_are_not() {
        let below = Arc::new(DiscardingStore::default());
        let cache = Cache::new(Arc::clone(&below) as Arc<dyn Source>, &MemoryBudget::default());
        let (written, policy) = (CachingSink::new(&*below, &cache), WritePolicy::default());
        let request = |kind, level, mark: &'static [u8], previous| WriteRequest {
            data: mark,
            kind,
            level: Level::new(level),
            fill: 1,
            txg: Txg::new(5),
            policy: &policy,
            previous,
            zbookmark: Zbookmark::default(),
            raw: None,
        };
        let held = |pointer: &Blkptr| cache.read(pointer, Zbookmark::default(), None).ok();
        let (content, list) = (ObjectType::PLAIN_FILE, ObjectType::DIRECTORY);
        let alone = written.write(&request(content, 0, &[1; 4096], &Blkptr::EMPTY)).unwrap();
        assert!(held(&alone).is_none(), "content of a file");
        let first = &Blkptr::EMPTY;
        let disk = written.write(&request(ObjectType::ZVOL, 0, &[7; 4096], first)).unwrap();
        assert_eq!(held(&disk).unwrap()[..], [7; 4096]);
        let again = written.write(&request(ObjectType::ZVOL, 0, &[8; 4096], &disk)).unwrap();
        assert!(held(&disk).is_none() && held(&again).is_some(), "written once more");
        let above = written.write(&request(content, 1, &[2; 4096], &Blkptr::EMPTY)).unwrap();
        assert_eq!(held(&above).unwrap()[..], [2; 4096]);
        let many = [
            request(list, 0, &[3; 4096], &Blkptr::EMPTY),
            request(ObjectType::OBJSET, 0, &[4; 4096], &Blkptr::EMPTY),
            request(list, 0, &[5; 4096], &above),
        ];
        let many: Vec<_> = written.write_many(&many).into_iter().flatten().collect();
        assert_eq!(held(&many[0]).unwrap()[..], [3; 4096]);
        assert!(held(&many[1]).is_none(), "its MAC is not known here");
        assert_eq!(held(&many[2]).unwrap()[..], [5; 4096]);
        assert!(held(&above).is_none(), "written once more in the same group");
        let later = |objset, previous| WriteRequest {
            txg: Txg::new(6),
            zbookmark: Zbookmark { objset, ..Zbookmark::default() },
            ..request(list, 0, &[6; 4096], previous)
        };
        written.write(&later(ObjsetId::new(54), &many[0])).unwrap();
        assert!(held(&many[0]).is_some(), "a snapshot may have it");
        written.write(&later(ObjsetId::MOS, &many[2])).unwrap();
        assert!(held(&many[2]).is_none(), "the MOS has no snapshots");
        assert_eq!(cache.bytes(), 4 * (4096 + 256));
    }
}
