//! Our streams of OpenZFS's snapshots, compared byte for byte with those that OpenZFS sent.

use std::path::Path;
use std::sync::Arc;

use device::{Device, File};
use dmu::Objset;
use dsl::{Dataset, DatasetTree, PoolInfo};
use fixtures::Fixture;
use ondisk::blkptr::Regular;
use ondisk::dsl::Dataset as DatasetPhys;
use ondisk::feature::Feature;
use send::{
    FeatureFacts, SendBase, SendOptions, SendSource, StoredBlocks, StreamWriter, stream_features,
};
use spa::Pool;
use units::Zbookmark;

const PLAIN: SendOptions =
    SendOptions { large_blocks: false, embedded: false, compressed: false, raw: false };
const ALL: SendOptions =
    SendOptions { large_blocks: true, embedded: true, compressed: true, raw: false };
const RAW: SendOptions = SendOptions { raw: true, ..PLAIN };

#[test]
fn full_streams_equal_those_of_openzfs() {
    let pool = TestPool::open("sent");
    pool.compare("full.zstream", "tank/from@one", None, PLAIN);
    pool.compare("volume.zstream", "tank/volume@one", None, PLAIN);
}

#[test]
fn incremental_streams_equal_those_of_openzfs() {
    let pool = TestPool::open("sent");
    pool.compare("incremental.zstream", "tank/from@two", Some("tank/from@one"), PLAIN);
    pool.compare("from-bookmark.zstream", "tank/from@two", Some("tank/from#one"), PLAIN);
    pool.compare("volume-incremental.zstream", "tank/volume@two", Some("tank/volume@one"), PLAIN);
    pool.compare("clone.zstream", "tank/clone@two", Some("tank/from@one"), PLAIN);
}

#[test]
fn streams_with_flags_equal_those_of_openzfs() {
    let pool = TestPool::open("sent");
    let large = SendOptions { large_blocks: true, ..PLAIN };
    pool.compare("large.zstream", "tank/from@one", None, large);
    pool.compare(
        "embedded.zstream",
        "tank/from@one",
        None,
        SendOptions { embedded: true, ..PLAIN },
    );
    let compressed = SendOptions { compressed: true, ..PLAIN };
    pool.compare("compressed.zstream", "tank/from@one", None, compressed);
    pool.compare("all-flags.zstream", "tank/from@one", None, ALL);
    pool.compare("all-flags-incremental.zstream", "tank/from@two", Some("tank/from@one"), ALL);
}

#[test]
fn raw_streams_equal_those_of_openzfs() {
    let pool = TestPool::open("sent-raw");
    let secret = Some("tank/secret@one");
    pool.compare("raw.zstream", "tank/secret@one", None, RAW);
    pool.compare("raw-incremental.zstream", "tank/secret@two", secret, RAW);
    pool.compare("raw-from-bookmark.zstream", "tank/secret@two", Some("tank/secret#one"), RAW);
    pool.compare("raw-child.zstream", "tank/secret/child@one", None, RAW);
    pool.compare("raw-clone.zstream", "tank/secret/clone@two", secret, RAW);
    pool.compare("raw-plain.zstream", "tank/plain@one", None, RAW);
}

#[test]
fn raw_streams_of_volumes_equal_those_of_openzfs() {
    let pool = TestPool::open("sent-raw");
    pool.compare("raw-volume.zstream", "tank/secret/volume@one", None, RAW);
    let base = Some("tank/secret/volume@one");
    pool.compare("raw-volume-incremental.zstream", "tank/secret/volume@two", base, RAW);
}

struct TestPool {
    fixture: Fixture,
    pool: Pool,
    tree: DatasetTree,
}

impl StoredBlocks for TestPool {
    fn read_stored(&self, block: &Regular, zbookmark: Zbookmark) -> send::Result<Vec<u8>> {
        Ok(self.pool.reader().read_stored(block, zbookmark)?)
    }
}

impl TestPool {
    fn open(name: &str) -> Self {
        let fixture = fixtures::load(name);
        let open = |path: &std::path::PathBuf| Arc::new(File::open(path).unwrap());
        let devices: Vec<Arc<dyn Device>> =
            fixture.images().iter().map(|path| open(path) as Arc<dyn Device>).collect();
        let (found, _) = spa::scan_devices(&devices);
        let pool = found[0].open(&spa::PoolOpenOptions::default()).unwrap();
        let facts = PoolInfo { name: pool.name().to_owned(), usable_space: 0 };
        let tree = DatasetTree::open(pool.mos().clone(), facts).unwrap();
        Self { fixture, pool, tree }
    }

    fn facts(&self, dataset: &Dataset) -> FeatureFacts {
        let guid = |name| Feature::by_name(name).unwrap().guid;
        let pool =
            |name| self.pool.features().iter().any(|it| it.guid == guid(name) && it.refcount > 0);
        let own = |name| dataset.zap_field(guid(name)).unwrap().is_some();
        FeatureFacts {
            pool_embedded_data: pool("embedded_data"),
            pool_lz4: pool("lz4_compress"),
            large_blocks: own("large_blocks"),
            large_dnode: own("large_dnode"),
            zstd: own("zstd_compress"),
            long_name: own("longname"),
            large_microzap: own("large_microzap"),
            encrypted: dataset.key_object().unwrap().is_some(),
        }
    }

    fn compare(&self, recorded: &str, name: &str, base: Option<&str>, options: SendOptions) {
        let dataset = self.tree.find(name).unwrap();
        let phys = dataset.phys().unwrap();
        let is_raw = options.raw && dataset.key_object().unwrap().is_some();
        let objset = if is_raw {
            let source = Arc::new(self.pool.reader().with_raw_dnodes());
            Objset::open(source, dataset.id().unwrap(), &phys.root, None).unwrap()
        } else {
            dataset.open_objset().unwrap()
        };
        let from_ivset = base.map_or(0, |base| self.tree.find(base).unwrap().ivset_guid().unwrap());
        let keydata = dataset.crypt_keydata(objset.header(), from_ivset).unwrap();
        let base = base.map(|base| {
            let it = self.tree.find(base).unwrap();
            let txg = it.phys().map(|it| it.creation_txg);
            let txg = txg.or_else(|| it.bookmark_record().map(|it| it.creation_txg)).unwrap();
            let is_origin = it.dir().path() != dataset.dir().path();
            SendBase { guid: it.guid().get(), txg, is_origin }
        });
        let features = stream_features(&objset, options, self.facts(&dataset)).unwrap();
        let source = SendSource {
            objset: &objset,
            name,
            guid: phys.guid.get(),
            is_partial: false,
            creation_time: phys.creation_time,
            case_insensitive: phys.flags & DatasetPhys::CASELESS != 0,
            base,
            features,
            resume: None,
            keydata: keydata.filter(|_| is_raw),
            redaction: send::Redaction::default(),
            stored: self,
        };
        let mut ours = Vec::new();
        send::send(&source, &mut StreamWriter::new(&mut ours)).unwrap();
        assert_same_records(recorded, &self.fixture.dir.join(recorded), &ours);
    }
}

/// Compares two streams; reports the first differing record.
fn assert_same_records(name: &str, path: &Path, ours: &[u8]) {
    let theirs = std::fs::read(path).unwrap();
    if theirs == ours {
        return;
    }
    let mut readers = [&theirs[..], ours].map(send::StreamReader::new);
    loop {
        let [theirs, ours] = readers.each_mut().map(|reader| reader.next_record().unwrap());
        let [theirs_text, ours_text] =
            [&theirs, &ours].map(|it| it.as_ref().map(send::describe_record));
        assert_eq!(theirs_text, ours_text, "{name}: theirs, ours");
        let (Some(theirs), Some(ours)) = (theirs, ours) else { panic!("{name}: streams differ") };
        assert_eq!(theirs.record, ours.record, "{name}: record at {}", theirs.at);
        assert!(theirs.payload == ours.payload, "{name}: payload of {theirs_text:?}");
    }
}
