//! Whole measurements, as the commands ask for them. No figure is ever expected.

mod array;

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use lab::course::{Course, Nobody, Onlooker};
use lab::workload::{self, Files};
use lab::{Heading, Record, System, copy, net, page, path, present};

fn heading(label: &str) -> Heading {
    Heading { label: label.to_owned(), started: "2026-11-21T12:00:00Z".to_owned() }
}

fn wish() -> path::Wish {
    path::Wish {
        runs: 2,
        time: Duration::from_millis(10),
        size: Some(4 << 20),
        least_size: 4 << 20,
        zeros: false,
        buffered: false,
        drop_caches: false,
        streams: workload::usual(),
        files: Files::ALL.to_vec(),
        most_files: 20,
    }
}

fn is_empty(dir: &Path) -> bool {
    fs::read_dir(dir).unwrap().next().is_none()
}

/// Wants an end when so many steps have begun.
struct Impatient(AtomicUsize);

impl Onlooker for Impatient {
    fn wants_stop(&self) -> bool {
        self.0.load(SeqCst) == 0
    }
    fn begins(&self, _: &str, _: Duration, _: Duration, _: Duration) {
        let left = self.0.load(SeqCst);
        self.0.store(left.saturating_sub(1), SeqCst);
    }
}

#[test]
fn whatever_was_measured_before_the_end_is_kept() {
    let dir = fixtures::scratch("lab-it-stop");
    let onlooker = Impatient(AtomicUsize::new(6));
    let course = Course::new(&onlooker);
    let record = path::measure(&dir, &wish(), heading("a"), &course, &System::default()).unwrap();
    assert!(!record.complete && record.measures.len() == 4, "{:?}", record.measures);
    assert!(present::text(&record).contains("INTERRUPTED"));
    assert!(is_empty(&dir));
}

#[test]
fn a_result_is_read_back_as_it_was() {
    let dir = fixtures::scratch("lab-it-record");
    let course = Course::new(&Nobody);
    let record = path::measure(&dir, &wish(), heading("a"), &course, &System::default()).unwrap();
    assert!(record.complete && record.measures.len() == 22);
    let again = Record::parse(&serde_json::to_string(&record).unwrap()).unwrap();
    assert_eq!(again.measures.len(), record.measures.len());
    let mut pairs = again.measures[0].runs.iter().zip(&record.measures[0].runs);
    // the last digit may differ: figures are read fast, not to the bit
    assert!(pairs.all(|(read, was)| (read / was - 1.0).abs() < 1e-12));
    assert_eq!(again.measures[0].runs.len(), 2);
    let html = page::page(&[record, again]).unwrap();
    assert!(html.matches("<svg").count() == 12 && !html.contains("NaN"), "{html}");
    assert!(Record::parse("{\"poolhouse_bench\": 2}").is_err() && Record::parse("[]").is_err());
}

#[test]
fn every_way_copies_all_and_leaves_nothing() {
    let root = fixtures::scratch("lab-it-copy");
    let (source, target) = (root.join("source"), root.join("target"));
    fs::create_dir_all(source.join("a/b")).unwrap();
    fs::create_dir(&target).unwrap();
    for number in 0..50_u8 {
        fs::write(source.join(format!("a/b/{number}")), vec![number; 20_000]).unwrap();
    }
    let wish = copy::Wish {
        source,
        destinations: vec![target.display().to_string()],
        ways: copy::Way::ALL.to_vec(),
        runs: 2,
        limit: None,
    };
    let prepared = wish.prepare(&System::default()).unwrap();
    assert!(prepared.copies() >= 4 && prepared.intent()[0].contains("50 files"));
    drop(prepared);
    assert!(is_empty(&target), "looking touches nothing");
    let prepared = wish_again(&root).prepare(&System::default()).unwrap();
    let copies = prepared.copies();
    let course = Course::new(&Nobody);
    let record = prepared.measure(heading("c"), &course, &System::default()).unwrap();
    drop(prepared);
    assert!(record.complete && record.measures.len() == copies, "bytes and files, two runs each");
    assert!(record.measures.iter().all(|measure| measure.runs.len() == 2));
    assert!(record.findings[0].contains("the fastest way is") || record.findings.len() > 1);
    assert!(is_empty(&target));
}

fn wish_again(root: &Path) -> copy::Wish {
    copy::Wish {
        source: root.join("source"),
        destinations: vec![root.join("target").display().to_string()],
        ways: copy::Way::ALL.to_vec(),
        runs: 2,
        limit: None,
    }
}

#[test]
fn copies_that_take_too_long_are_ended() {
    let root = fixtures::scratch("lab-it-limit");
    fs::create_dir(root.join("source")).unwrap();
    fs::create_dir(root.join("target")).unwrap();
    fs::write(root.join("source/large"), vec![3; 40 << 20]).unwrap();
    let mut prepared = wish_again(&root).prepare(&System::default()).unwrap();
    prepared.set_limit(Duration::from_millis(1));
    let course = Course::new(&Nobody);
    let record = prepared.measure(heading("c"), &course, &System::default()).unwrap();
    assert!(record.complete && !record.measures.is_empty());
    drop(prepared);
    assert!(is_empty(&root.join("target")));
}

#[test]
fn two_ends_talk() {
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
        let wish = net::Wish {
            host: address.to_string(),
            runs: 2,
            time: Duration::from_millis(250),
            streams: 2,
            buffers: vec![64 << 10],
        };
        let course = Course::new(&Nobody);
        let record = net::measure(&wish, heading("n"), &course, &System::default());
        end.store(true, SeqCst);
        let record = record.unwrap();
        assert!(record.complete && record.measures.len() == 11, "{:?}", record.measures);
        assert!(record.findings[0].contains("same machine"), "{:?}", record.findings);
    });
    assert_eq!(came.load(SeqCst), 2, "asked before and after");
}
