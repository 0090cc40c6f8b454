//! Histories: bounded, and kept in files.

use std::collections::BTreeMap;
use std::path::PathBuf;

use health::{Counter, History, HistoryStore, MAX_SAMPLES, Sample};

const HOUR: u64 = 60 * 60;

fn sample(time: u64, sectors: u64) -> Sample {
    let counters = BTreeMap::from([(Counter::ReallocatedSectors, sectors)]);
    Sample { time, temperature: Some(30), counters }
}

fn scratch(name: &str) -> PathBuf {
    let dir = std::env::temp_dir().join(format!("health-{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&dir);
    dir
}

#[test]
fn history_is_bounded_and_thinned() {
    let mut history = History::default();
    for hour in 0..24 * 1200 {
        history.add(sample(hour * HOUR, hour / 1000));
    }
    assert!(history.samples.len() <= MAX_SAMPLES);
    let times: Vec<_> = history.samples.iter().map(|sample| sample.time).collect();
    assert!(times.is_sorted());
    let newest = times.last().unwrap();
    assert_eq!(times.iter().filter(|time| newest - **time < 48 * HOUR).count(), 48);
    assert_eq!(history.samples.last().unwrap().counters[&Counter::ReallocatedSectors], 28);
}

#[test]
fn equal_samples_are_stored_once_an_hour() {
    let mut history = History::default();
    assert!(history.add(sample(0, 1)));
    assert!(!history.add(sample(60, 1)));
    assert!(history.add(sample(120, 2)));
    assert!(history.add(sample(120 + HOUR, 2)));
    // the clock was set back by an hour
    assert!(history.add(sample(130, 2)));
    assert_eq!(history.samples.last().unwrap().time, 130);
    assert_eq!(history.samples.len(), 3);
}

#[test]
fn histories_survive_in_files() {
    let dir = scratch("files");
    let store = HistoryStore::new(dir.join("drives"));
    assert_eq!(store.load("WD-1/../x").unwrap(), History::default());
    let mut history = History::default();
    history.add(sample(5, 1));
    store.save("WD-1/../x", &history).unwrap();
    assert_eq!(store.load("WD-1/../x").unwrap(), history);
    let names: Vec<_> = std::fs::read_dir(dir.join("drives"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    assert_eq!(names, ["WD-1_2f_2e_2e_2fx.json"]);
    std::fs::write(dir.join("drives/A.json"), "{").unwrap();
    assert!(store.load("A").unwrap_err().to_string().contains("A.json', cannot be used"));
    std::fs::remove_dir_all(dir).unwrap();
}
