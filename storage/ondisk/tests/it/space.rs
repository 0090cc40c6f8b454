//! Space maps, an indirect mapping and a dedup log of fixture pools, against `zdb`.

use ondisk::dedup::{DedupValue, LogHeader, Records, Shape};
use ondisk::indirect::{Birth, Mapping, MappingEntry, MappingHeader};
use ondisk::spacemap::{Action, Entries, Entry};
use ondisk::{Order, Reader};

fn little(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// An entry as `zdb -mmmm` prints it, up to the size.
fn line(entry: &Entry) -> String {
    let letter = |action, word: &'static str| match action {
        Action::Allocated => word,
        Action::Freed if word == "A" => "F",
        Action::Freed => "FREE",
    };
    match entry {
        Entry::Padding => "padding".to_owned(),
        Entry::Debug { action, txg, pass } => {
            format!("{}: txg {txg} pass {pass}", letter(*action, "ALLOC"))
        }
        Entry::Range { action, .. } => {
            let (start, size) = entry.bytes(9, 0).expect("a range");
            let end = start + size;
            format!("{}  range: {start:010x}-{end:010x}  size: {size:06x}", letter(*action, "A"))
        }
    }
}

fn compare(bytes: &[u8], text: &str) -> u64 {
    let entries: Vec<_> =
        Entries::new(bytes, Order::Little).map(|entry| entry.expect("an entry")).collect();
    let golden: Vec<_> =
        text.lines().map(|line| line.split(" vdev:").next().unwrap_or(line).trim()).collect();
    assert_eq!(entries.iter().map(line).collect::<Vec<_>>(), golden);
    let mut back = Vec::new();
    for entry in &entries {
        entry.encode(&mut back).expect("what was read can be written");
    }
    assert!(back == bytes, "written as OpenZFS wrote it");
    entries.iter().fold(0_u64, |sum, entry| match (entry, entry.bytes(9, 0)) {
        (Entry::Range { action: Action::Allocated, .. }, Some((_, size))) => sum.wrapping_add(size),
        (_, Some((_, size))) => sum.wrapping_sub(size),
        _ => sum,
    })
}

#[test]
fn golden_metaslab_space_map() {
    let bytes = include_bytes!("../golden/spacemap-single.bin");
    let sum = compare(bytes, include_str!("../golden/spacemap-single.txt"));
    assert_eq!(sum, 0x0010_4e00, "what its header says is allocated");
}

#[test]
fn golden_log_space_map() {
    let bytes = include_bytes!("../golden/spacemap-log.bin");
    let sum = compare(bytes, include_str!("../golden/spacemap-log.txt"));
    assert_eq!(sum, 0x0002_7000, "what its header says is allocated");
    let vdevs = Entries::new(bytes, Order::Little).filter_map(|entry| match entry {
        Ok(Entry::Range { vdev, .. }) => Some(vdev),
        _ => None,
    });
    assert!(vdevs.into_iter().all(|vdev| vdev == Some(units::VdevId::new(0))));
}

#[test]
fn golden_indirect_mapping() {
    // bonus and content of the mapping of fixture `removed`, as `zdb -dddddd` prints their words
    let bonus = little(&[0x5b000, 0x3b000, 2, 0x8f]);
    let mut reader = Reader::new("mapping", &bonus, Order::Little);
    let header = MappingHeader::read(&mut reader).expect("a header");
    assert_eq!(header.counts.map(units::ObjectId::get), Some(143));
    let content = little(&[8, 0x40, 0x10, 0x140, 0x198, 0x9f8]);
    assert_eq!(u64::try_from(content.len()), Ok(header.size()));
    let mapping = Mapping::parse(&content, Order::Little).expect("a mapping");
    let mapped: u64 = mapping.entries().iter().map(|entry| entry.target.asize).sum();
    assert_eq!(mapped, header.bytes_mapped);
    assert_eq!(mapping.entries().last().map(MappingEntry::end), Some(header.max_offset));
    assert_eq!(mapping.find(0x28000).map(|entry| entry.target.offset), Some(0x13f000));
}

#[test]
fn golden_indirect_births() {
    assert_eq!(Birth::count(&little(&[1]), Order::Little), Ok(1));
    let births = Birth::parse_all(&little(&[0x5b000, 0x1e]), Order::Little).expect("births");
    assert_eq!(births, [Birth { end: 0x5b000, txg: units::Txg::new(30) }]);
}

#[test]
fn golden_dedup_log() {
    // the log DDT-log-sha256-0 of fixture `dedup-fast` and its first two entries, likewise
    let bonus = little(&[1, 0x20000, 0x3f, 0, 0, 0, 0, 0]);
    let mut reader = Reader::new("dedup log", &bonus, Order::Little);
    let header = LogHeader::read(&mut reader).expect("a header");
    assert_eq!((header.length, header.first_txg.get()), (131_072, 63));
    assert!(!header.flushing && header.checkpoint.is_none());
    #[rustfmt::skip]
    let block = little(&[
        0x0301_0000_0000_7801, 0x4de6_96d5_3069_c3d8, 0x7ae4_e173_8fe7_316b,
        0x72b2_4541_ca69_dc9c, 0xefc7_25ad_5afc_aa42, 0x0002_000f_000f, 0x10, 0x23a0, 0, 0, 0, 0,
        1, 0x40, 0x6b01_5189, //
        0x0301_0000_0000_7801, 0x72a9_ca80_b353_045f, 0x4a92_2f36_19b4_fb16,
        0xb64c_a2a1_2433_bd31, 0x47fa_8208_503f_b92e, 0x0002_000f_000f, 0x10, 0x22f0, 0, 0, 0, 0,
        1, 0x40, 0x6b01_5189, //
        0, 0,
    ]);
    let all: Vec<_> = Records::new(&block, Order::Little, Shape::from_flags(3))
        .map(|record| record.expect("an entry"))
        .collect();
    let copies: Vec<_> = all
        .iter()
        .map(|entry| {
            let DedupValue::Flat { copies, since } = entry.value else { panic!("it is flat") };
            assert_eq!((copies.references, copies.birth.get(), since), (1, 64, 0x6b01_5189));
            assert_eq!((entry.key.lsize, entry.key.psize, entry.class), (8192, 8192, None));
            copies.dvas[0].expect("a copy").to_string()
        })
        .collect();
    assert_eq!(copies, ["0:474000:2000", "0:45e000:2000"]);
}
