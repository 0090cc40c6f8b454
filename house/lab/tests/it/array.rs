//! Arrays of sparse files: made, measured, and gone without a trace.

use std::fs::{self, File};
use std::io::Read as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicUsize;

use lab::array::{Layout, Part, VdevLayout, Wish};
use lab::course::{Course, Nobody};
use lab::{Error, Record, System, compare};

use crate::{Impatient, heading, wish};

const SIZE: u64 = 256 << 20;

fn drives(dir: &Path, count: usize) -> Vec<PathBuf> {
    let paths: Vec<PathBuf> = (0..count).map(|index| dir.join(format!("d{index}"))).collect();
    for path in &paths {
        File::create_new(path).unwrap().set_len(SIZE).unwrap();
    }
    paths
}

fn layout(words: &str, vdevs: Vec<(VdevLayout, usize)>, ashift: u64, part: Part) -> Layout {
    Layout { words: words.to_owned(), vdevs, ashift, part }
}

fn array(drives: &[PathBuf]) -> Wish {
    Wish {
        drives: drives.to_vec(),
        overwrite: Vec::new(),
        layouts: vec![
            layout("raidz1 3", vec![(VdevLayout::Raidz(1), 3)], 12, Part::Whole),
            layout("mirror 2", vec![(VdevLayout::Mirror, 2)], 9, Part::From(1 << 20)),
        ],
        work: wish(),
        properties: vec![("recordsize".to_owned(), "64K".to_owned())],
    }
}

fn measured(wish: Wish, course: &Course<'_>) -> Result<Vec<Record>, Error> {
    wish.open(&System::default())?.measure(&heading(""), course, &System::default())
}

/// Nothing but zeros, and no room taken by them.
fn are_empty(drives: &[PathBuf]) -> bool {
    drives.iter().all(|path| {
        let facts = fs::metadata(path).unwrap();
        let mut content = Vec::new();
        File::open(path).unwrap().take(4 << 20).read_to_end(&mut content).unwrap();
        facts.len() == SIZE && facts.blocks() == 0 && content.iter().all(|byte| *byte == 0)
    })
}

#[test]
fn layouts_are_made_measured_and_gone() {
    let dir = fixtures::scratch("lab-it-array");
    let drives = drives(&dir, 3);
    let opened = array(&drives).open(&System::default()).unwrap();
    let said = opened.intent().join("\n");
    assert!(said.contains("would be OVERWRITTEN") && said.contains("mirror 2, ashift 9, from 1M"));
    assert!(are_empty(&drives), "looking touches nothing");
    let records = measured(array(&drives), &Course::new(&Nobody)).unwrap();
    assert!(are_empty(&drives));
    assert_eq!(records.len(), 2);
    for record in &records {
        assert!(record.complete, "{}", record.label);
        assert_eq!(
            record.measures.len(),
            22 + 4,
            "small records, scrub and resilver are measured too"
        );
        for measure in &record.measures {
            assert_eq!(measure.runs.len(), 2, "{}", measure.id);
            assert!(measure.runs.iter().all(|run| *run > 0.0), "{}", measure.id);
            // how much the system kept is the machine's affair; that it is a share is ours
            let warm = measure.found_in_cache;
            assert!(
                warm.is_none_or(|part| (0.0..=1.0).contains(&part)),
                "{}: {warm:?}",
                measure.id
            );
        }
        assert!(record.measures.iter().any(|measure| measure.id == "resilver"));
    }
    assert_eq!(records[0].label, "raidz1 3, ashift 12");
    assert_eq!(records[0].facts["drive_bytes"].as_array().map(Vec::len), Some(3));
    assert_eq!(records[1].facts["partition_from"], 1 << 20);
    // a record of 4K on raidz1 with sectors of 4K is a column and a parity; metadata come to that
    for record in &records {
        let small = &record.facts["small_records"];
        let [data, allocated] =
            ["data_bytes", "allocated_bytes"].map(|name| small[name].as_u64().unwrap());
        assert!(allocated >= 2 * data && allocated < 4 * data, "{}: {small}", record.label);
    }
    let again: Vec<Record> = (records.iter())
        .map(|record| Record::parse(&serde_json::to_string(record).unwrap()).unwrap())
        .collect();
    let comparison = compare::compare(&again).unwrap();
    assert_eq!((comparison.rows.len(), comparison.warnings.len()), (26, 0));
}

#[test]
fn drives_with_anything_on_them_are_refused_unless_they_are_named() {
    let dir = fixtures::scratch("lab-it-array-full");
    let drives = drives(&dir, 3);
    let file = File::options().write(true).open(&drives[1]).unwrap();
    file.write_all_at(b"letters", 4096).unwrap();
    let refused = array(&drives).open(&System::default()).unwrap_err();
    assert!(matches!(&refused, Error::Refused { .. }), "{refused}");
    assert!(refused.to_string().contains("--overwrite"), "{refused}");
    let named = |name: &str| Wish { overwrite: vec![name.to_owned()], ..array(&drives) };
    assert!(named("d0").open(&System::default()).is_err(), "another name does not count");
    assert!(named("d7").open(&System::default()).is_err(), "nor one that is not there");
    let said = named("d1").open(&System::default()).unwrap().intent().join("\n");
    assert!(said.contains("what it holds is LOST"), "{said}");
    let twice = Wish { drives: vec![drives[0].clone(); 3], ..array(&drives) };
    assert!(twice.open(&System::default()).is_err(), "no drive is in a pool twice");
    let few = Wish { drives: drives[..1].to_vec(), ..array(&drives) };
    assert!(few.open(&System::default()).is_err());
}

#[test]
fn an_end_in_the_middle_keeps_figures_and_empties_drives() {
    let dir = fixtures::scratch("lab-it-array-stop");
    let drives = drives(&dir, 3);
    let onlooker = Impatient(AtomicUsize::new(7));
    let records = measured(array(&drives), &Course::new(&onlooker)).unwrap();
    assert!(are_empty(&drives));
    assert!(records.iter().all(|record| !record.complete));
    assert!(!records[0].measures.is_empty() && records[1].measures.is_empty());
}

#[test]
fn what_does_not_fit_is_said() {
    let dir = fixtures::scratch("lab-it-array-room");
    let drives = drives(&dir, 3);
    let mut large = array(&drives);
    large.work.size = Some(1 << 40);
    let error = measured(large, &Course::new(&Nobody)).unwrap_err();
    assert!(matches!(error, Error::Room { .. }), "{error}");
    let mut wrong = array(&drives);
    wrong.properties = vec![("recordsize".to_owned(), "3".to_owned())];
    let error = measured(wrong, &Course::new(&Nobody)).unwrap_err();
    assert!(matches!(error, Error::Pool(_)), "{error}");
    assert!(are_empty(&drives));
}
