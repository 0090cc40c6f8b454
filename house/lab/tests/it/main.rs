//! Whole measurements as the commands run them. No test expects a figure.

mod array;

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use lab::progress::{NoObserver, Observer, Progress};
use lab::workload::{self, FileWorkload};
use lab::{BenchResult, Heading, System, copy, formatting, html_report, net, path};

fn heading(label: &str) -> Heading {
    Heading { label: label.to_owned(), started: "2026-11-21T12:00:00Z".to_owned() }
}

fn path_options() -> path::Options {
    path::Options {
        runs: 2,
        run_time: Duration::from_millis(10),
        size: Some(4 << 20),
        min_size: 4 << 20,
        use_zeros: false,
        buffered: false,
        drop_caches: false,
        streams: workload::default_streams(),
        files: FileWorkload::ALL.to_vec(),
        max_files: 20,
    }
}

fn is_empty(dir: &Path) -> bool {
    fs::read_dir(dir).unwrap().next().is_none()
}

/// Stops when this many steps have begun.
struct CancelAfterSteps(AtomicUsize);

impl Observer for CancelAfterSteps {
    fn is_cancelled(&self) -> bool {
        self.0.load(SeqCst) == 0
    }
    fn step_started(&self, _: &str, _: Duration, _: Duration, _: Duration) {
        let left = self.0.load(SeqCst);
        self.0.store(left.saturating_sub(1), SeqCst);
    }
}

#[test]
fn cancel_keeps_finished_measures() {
    let dir = fixtures::scratch_dir("lab-it-stop");
    let onlooker = CancelAfterSteps(AtomicUsize::new(6));
    let course = Progress::new(&onlooker);
    let record =
        path::measure(&dir, &path_options(), heading("a"), &course, &System::default()).unwrap();
    assert!(!record.complete && record.measures.len() == 4, "{:?}", record.measures);
    assert!(formatting::format_result(&record).contains("INTERRUPTED"));
    assert!(is_empty(&dir));
}

#[test]
fn result_round_trips_through_json() {
    let dir = fixtures::scratch_dir("lab-it-record");
    let course = Progress::new(&NoObserver);
    let record =
        path::measure(&dir, &path_options(), heading("a"), &course, &System::default()).unwrap();
    assert!(record.complete && record.measures.len() == 22);
    let again = BenchResult::parse(&serde_json::to_string(&record).unwrap()).unwrap();
    assert_eq!(again.measures.len(), record.measures.len());
    let mut pairs = again.measures[0].runs.iter().zip(&record.measures[0].runs);
    // the last digit may differ: figures are read fast, not to the bit
    assert!(pairs.all(|(read, was)| (read / was - 1.0).abs() < 1e-12));
    assert_eq!(again.measures[0].runs.len(), 2);
    let html = html_report::render_page(&[record, again]).unwrap();
    assert!(html.matches("<svg").count() == 12 && !html.contains("NaN"), "{html}");
    assert!(
        BenchResult::parse("{\"poolhouse_bench\": 2}").is_err()
            && BenchResult::parse("[]").is_err()
    );
}

#[test]
fn every_method_copies_all_and_cleans_up() {
    let root = fixtures::scratch_dir("lab-it-copy");
    let (source, target) = (root.join("source"), root.join("target"));
    fs::create_dir_all(source.join("a/b")).unwrap();
    fs::create_dir(&target).unwrap();
    for number in 0..50_u8 {
        fs::write(source.join(format!("a/b/{number}")), vec![number; 20_000]).unwrap();
    }
    let wish = copy::Options {
        source,
        destinations: vec![target.display().to_string()],
        methods: copy::CopyMethod::ALL.to_vec(),
        runs: 2,
        time_limit: None,
    };
    let prepared = wish.prepare(&System::default()).unwrap();
    assert!(prepared.copy_count() >= 4 && prepared.describe_plan()[0].contains("50 files"));
    drop(prepared);
    assert!(is_empty(&target), "looking touches nothing");
    let prepared = copy_options(&root).prepare(&System::default()).unwrap();
    let copies = prepared.copy_count();
    let course = Progress::new(&NoObserver);
    let record = prepared.measure(heading("c"), &course, &System::default()).unwrap();
    drop(prepared);
    assert!(record.complete && record.measures.len() == copies, "bytes and files, two runs each");
    assert!(record.measures.iter().all(|measure| measure.runs.len() == 2));
    assert!(record.findings[0].contains("the fastest way is") || record.findings.len() > 1);
    assert!(is_empty(&target));
}

fn copy_options(root: &Path) -> copy::Options {
    copy::Options {
        source: root.join("source"),
        destinations: vec![root.join("target").display().to_string()],
        methods: copy::CopyMethod::ALL.to_vec(),
        runs: 2,
        time_limit: None,
    }
}

#[test]
fn copy_stops_at_time_limit() {
    let root = fixtures::scratch_dir("lab-it-limit");
    fs::create_dir(root.join("source")).unwrap();
    fs::create_dir(root.join("target")).unwrap();
    fs::write(root.join("source/large"), vec![3; 40 << 20]).unwrap();
    let mut prepared = copy_options(&root).prepare(&System::default()).unwrap();
    prepared.set_time_limit(Duration::from_millis(1));
    let course = Progress::new(&NoObserver);
    let record = prepared.measure(heading("c"), &course, &System::default()).unwrap();
    assert!(record.complete && !record.measures.is_empty());
    drop(prepared);
    assert!(is_empty(&root.join("target")));
}

#[test]
fn client_measures_against_listener() {
    let listener =
        net::Listener::bind(Some(SocketAddr::from(([127, 0, 0, 1], 0))), System::default());
    let listener = listener.unwrap();
    let address = listener.address().unwrap();
    let end = AtomicBool::new(false);
    let came = Arc::new(AtomicUsize::new(0));
    std::thread::scope(|scope| {
        let seen = Arc::clone(&came);
        let serve = || {
            listener.serve(
                || end.load(SeqCst),
                move |_| {
                    seen.fetch_add(1, SeqCst);
                },
            );
        };
        scope.spawn(serve);
        let wish = net::Options {
            host: address.to_string(),
            runs: 2,
            time: Duration::from_millis(250),
            stream_count: 2,
            buffer_sizes: vec![64 << 10],
        };
        let course = Progress::new(&NoObserver);
        let record = net::measure(&wish, heading("n"), &course, &System::default());
        end.store(true, SeqCst);
        let record = record.unwrap();
        assert!(record.complete && record.measures.len() == 11, "{:?}", record.measures);
        assert!(record.findings[0].contains("same machine"), "{:?}", record.findings);
    });
    assert_eq!(came.load(SeqCst), 2, "asked before and after");
}
