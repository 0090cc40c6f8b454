//! Mutants of pools that real OpenZFS made: 500 in every run of the tests, 20,000 in the long one.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use mutate::Family;
use mutate::contents::{PoolContents, silent_corruptions};
use mutate::run::{RunOptions, Subject, run_mutants, run_watched};
use serde_json::Value;

/// No mutant of these small pools takes a tenth of it, on a busy machine either.
const RUN_OPTIONS: RunOptions = RunOptions { workers: 2, timeout: Duration::from_mins(1) };

/// Locked by a test that measures the memory peak: the allocator counts for the whole process, so
/// two such tests at once would count each other's.
fn lock_memory_peak() -> MutexGuard<'static, ()> {
    static LOCK: Mutex<()> = Mutex::new(());
    LOCK.lock().unwrap_or_else(PoisonError::into_inner)
}

fn load_subject(name: &str) -> Arc<Subject> {
    let other = fixtures::load(if name == "mirror-3" { "stripe-copies" } else { "mirror-3" });
    Arc::new(Subject::new(&fixtures::load(name), Some(&other)))
}

/// Examines `count` mutants of each family of each pool; the numbers begin at `MUTATE_FIRST`.
fn assert_mutants_harmless(names: &[&str], count: u64) {
    let _peak = lock_memory_peak();
    let first = std::env::var("MUTATE_FIRST").ok().and_then(|text| text.parse().ok()).unwrap_or(0);
    let mut failures = Vec::new();
    for name in names {
        let families = [Family::Image, Family::Hostile];
        failures.extend(run_mutants(
            &load_subject(name),
            &families,
            first..first + count,
            RUN_OPTIONS,
        ));
    }
    let shown: Vec<String> = failures.iter().map(ToString::to_string).collect();
    assert!(
        failures.is_empty(),
        "{} mutants are examined wrongly; each line is the command that makes it again \
         (cargo run -p mutate -- FIXTURE FAMILY NUMBER):\n{}",
        failures.len(),
        shown.join("\n")
    );
}

#[test]
fn five_hundred_mutants_do_no_harm() {
    let names = ["stripe-copies", "mirror-3", "snapshots", "dedup-legacy", "removed-twice"];
    assert_mutants_harmless(&names, 50);
}

#[test]
#[ignore = "long: 20,000 mutants"]
fn twenty_thousand_mutants_do_no_harm() {
    let names = fixtures::names();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let each = 10_000_u64.div_ceil(names.len() as u64);
    assert_mutants_harmless(&names, each);
}

/// The reader that checks mutants sees every file that OpenZFS does, with the same content.
#[test]
fn unmodified_pool_matches_manifest() {
    for name in ["stripe-copies", "snapshots", "encryption"] {
        let fixture = fixtures::load(name);
        let seen = Subject::new(&fixture, None).baseline().clone();
        assert_eq!(seen.errors.len(), 0, "{name}: {:?}", seen.errors);
        assert_eq!(seen.is_clean, Some(true), "{name}");
        let mut count = 0;
        for dataset in fixture.manifest["datasets"].as_array().expect("datasets") {
            let set = dataset["name"].as_str().expect("a name");
            let entries = dataset["entries"].as_array();
            for entry in entries.into_iter().flatten() {
                let (Some(path), Some(sha)) = (entry["path"].as_str(), entry["sha256"].as_str())
                else {
                    continue;
                };
                let shown = seen.items.get(&format!("{set}:/{path}")).map_or("", String::as_str);
                assert!(shown.contains(&format!("sha256 {sha}")), "{name}: {set}:/{path}: {shown}");
                count += 1;
            }
            if let Some(sha) = dataset["volume"]["sha256"].as_str() {
                let shown = seen.items.get(&format!("{set}:")).map_or("", String::as_str);
                assert!(shown.ends_with(&format!("sha256 {sha}")), "{name}: {set}: {shown}");
            }
            assert_ne!(dataset["type"], Value::Null);
        }
        assert!(count > 10, "{name} has {count} files");
    }
}

/// Mutants that change nothing would prove nothing.
#[test]
fn mutants_differ_and_stay_mostly_readable() {
    let subject = load_subject("stripe-copies");
    let honest = subject.baseline();
    for family in [Family::Image, Family::Hostile] {
        let seen = (0..24).map(|seed| subject.read_mutant(family, seed).0);
        let seen: Vec<PoolContents> = seen.collect();
        let hurt = seen.iter().filter(|seen| *seen != honest).count();
        let read = seen.iter().filter(|seen| seen.items.len() * 2 > honest.items.len()).count();
        assert!(hurt >= 8, "{} mutants: {hurt} hurt", family.name());
        assert!(read >= 8, "{} mutants: {read} read", family.name());
    }
}

#[test]
fn panics_hangs_memory_and_corruption_are_detected() {
    let _peak = lock_memory_peak();
    let watch = |work: fn() -> Vec<String>| run_watched("a trial", Duration::from_secs(5), work);
    assert_eq!(watch(Vec::new), None);
    assert_eq!(watch(|| panic!("at the disk")).as_deref(), Some("panics: at the disk"));
    assert_eq!(watch(|| vec!["a".to_owned()]).as_deref(), Some("lies: a"));
    let hungry = watch(|| {
        drop(std::hint::black_box(Vec::<u8>::with_capacity(3 << 29)));
        Vec::new()
    });
    assert!(hungry.is_some_and(|what| what.starts_with("takes 1")));
    let slow = run_watched("a trial", Duration::from_millis(1), || {
        std::thread::sleep(Duration::from_secs(2));
        Vec::new()
    });
    assert!(slow.is_some_and(|what| what.starts_with("hangs")));
}

#[test]
fn difference_without_error_is_silent_corruption() {
    let seen = |content: &str| {
        let mut seen = PoolContents { txg: 7, ..PoolContents::default() };
        for (what, shown) in [("tank", "a dataset"), ("tank:/a", content), ("tank:/b", "b")] {
            seen.items.insert(what.to_owned(), shown.to_owned());
        }
        seen
    };
    let honest = seen("a");
    assert_eq!(silent_corruptions(&honest, &honest), Vec::<String>::new());
    assert_eq!(silent_corruptions(&honest, &seen("c")), ["tank:/a: c instead of a"]);
    let mut lacking = seen("a");
    lacking.items.remove("tank:/b");
    assert_eq!(silent_corruptions(&honest, &lacking), ["tank:/b: left out without an error"]);
    lacking.errors.insert("tank".to_owned(), vec!["b cannot be read".to_owned()]);
    assert_eq!(silent_corruptions(&honest, &lacking), Vec::<String>::new());
    let older = PoolContents { txg: 6, ..seen("c") };
    assert_eq!(silent_corruptions(&honest, &older), Vec::<String>::new());
}
