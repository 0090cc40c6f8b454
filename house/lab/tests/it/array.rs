//! Arrays of sparse files: made, measured, and gone without a trace.

use std::fs::{self, File};
use std::io::Read as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicUsize;

use lab::array::{DrivePart, Layout, Options, VdevLayout};
use lab::progress::{NoObserver, Progress};
use lab::{BenchResult, Error, System, compare};

use crate::{CancelAfterSteps, heading, path_options};

const DRIVE_SIZE: u64 = 256 << 20;

fn create_drives(dir: &Path, count: usize) -> Vec<PathBuf> {
    let paths: Vec<PathBuf> = (0..count).map(|index| dir.join(format!("d{index}"))).collect();
    for path in &paths {
        File::create_new(path).unwrap().set_len(DRIVE_SIZE).unwrap();
    }
    paths
}

fn layout(words: &str, vdevs: Vec<(VdevLayout, usize)>, ashift: u64, part: DrivePart) -> Layout {
    Layout { name: words.to_owned(), vdevs, ashift, drive_part: part }
}

fn array_options(drives: &[PathBuf]) -> Options {
    Options {
        drives: drives.to_vec(),
        overwrite: Vec::new(),
        layouts: vec![
            layout("raidz1 3", vec![(VdevLayout::Raidz(1), 3)], 12, DrivePart::Whole),
            layout("mirror 2", vec![(VdevLayout::Mirror, 2)], 9, DrivePart::PartitionAt(1 << 20)),
        ],
        workload: path_options(),
        properties: vec![("recordsize".to_owned(), "64K".to_owned())],
    }
}

fn run_benchmark(wish: Options, course: &Progress<'_>) -> Result<Vec<BenchResult>, Error> {
    wish.prepare(&System::default())?.measure(&heading(""), course, &System::default())
}

/// Checks for zeros only, without allocated space.
fn are_empty(drives: &[PathBuf]) -> bool {
    drives.iter().all(|path| {
        let facts = fs::metadata(path).unwrap();
        let mut content = Vec::new();
        File::open(path).unwrap().take(4 << 20).read_to_end(&mut content).unwrap();
        facts.len() == DRIVE_SIZE && facts.blocks() == 0 && content.iter().all(|byte| *byte == 0)
    })
}

#[test]
fn array_benchmark_leaves_drives_empty() {
    let dir = fixtures::scratch_dir("lab-it-array");
    let drives = create_drives(&dir, 3);
    let opened = array_options(&drives).prepare(&System::default()).unwrap();
    let said = opened.describe_plan().join("\n");
    assert!(said.contains("would be OVERWRITTEN") && said.contains("mirror 2, ashift 9, from 1M"));
    assert!(are_empty(&drives), "looking touches nothing");
    let records = run_benchmark(array_options(&drives), &Progress::new(&NoObserver)).unwrap();
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
    // a record of 4K on raidz1 with sectors of 4K is a data and a parity column; metadata adds to
    // that
    for record in &records {
        let small = &record.facts["small_records"];
        let [data, allocated] =
            ["data_bytes", "allocated_bytes"].map(|name| small[name].as_u64().unwrap());
        assert!(allocated >= 2 * data && allocated < 4 * data, "{}: {small}", record.label);
    }
    let again: Vec<BenchResult> = (records.iter())
        .map(|record| BenchResult::parse(&serde_json::to_string(record).unwrap()).unwrap())
        .collect();
    let comparison = compare::compare(&again).unwrap();
    assert_eq!((comparison.rows.len(), comparison.warnings.len()), (26, 0));
}

#[test]
fn nonempty_drives_need_overwrite_option() {
    let dir = fixtures::scratch_dir("lab-it-array-full");
    let drives = create_drives(&dir, 3);
    let file = File::options().write(true).open(&drives[1]).unwrap();
    file.write_all_at(b"letters", 4096).unwrap();
    let refused = array_options(&drives).prepare(&System::default()).unwrap_err();
    assert!(matches!(&refused, Error::Refused { .. }), "{refused}");
    assert!(refused.to_string().contains("--overwrite"), "{refused}");
    let named = |name: &str| Options { overwrite: vec![name.to_owned()], ..array_options(&drives) };
    assert!(named("d0").prepare(&System::default()).is_err(), "another name does not count");
    assert!(named("d7").prepare(&System::default()).is_err(), "nor a missing one");
    let said = named("d1").prepare(&System::default()).unwrap().describe_plan().join("\n");
    assert!(said.contains("what it holds is LOST"), "{said}");
    let twice = Options { drives: vec![drives[0].clone(); 3], ..array_options(&drives) };
    assert!(twice.prepare(&System::default()).is_err(), "no drive is in a pool twice");
    let few = Options { drives: drives[..1].to_vec(), ..array_options(&drives) };
    assert!(few.prepare(&System::default()).is_err());
}

#[test]
fn cancel_keeps_results_and_empties_drives() {
    let dir = fixtures::scratch_dir("lab-it-array-stop");
    let drives = create_drives(&dir, 3);
    let onlooker = CancelAfterSteps(AtomicUsize::new(7));
    let records = run_benchmark(array_options(&drives), &Progress::new(&onlooker)).unwrap();
    assert!(are_empty(&drives));
    assert!(records.iter().all(|record| !record.complete));
    assert!(!records[0].measures.is_empty() && records[1].measures.is_empty());
}

#[test]
fn oversized_file_and_invalid_property_are_errors() {
    let dir = fixtures::scratch_dir("lab-it-array-room");
    let drives = create_drives(&dir, 3);
    let mut large = array_options(&drives);
    large.workload.size = Some(1 << 40);
    let error = run_benchmark(large, &Progress::new(&NoObserver)).unwrap_err();
    assert!(matches!(error, Error::NoSpace { .. }), "{error}");
    let mut wrong = array_options(&drives);
    wrong.properties = vec![("recordsize".to_owned(), "3".to_owned())];
    let error = run_benchmark(wrong, &Progress::new(&NoObserver)).unwrap_err();
    assert!(matches!(error, Error::Pool(_)), "{error}");
    assert!(are_empty(&drives));
}
