//! Examines the pools in the folders given; a line for each.
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

fn main() {
    let threads: usize =
        std::env::var("THREADS").ok().and_then(|text| text.parse().ok()).unwrap_or(2);
    for dir in std::env::args().skip(1) {
        let found = device::probe(&[PathBuf::from(&dir)]);
        for candidate in spa::scan(&found.devices).0 {
            let pool = match candidate.open(&spa::Options::default()) {
                Ok(pool) => pool,
                Err(error) => {
                    println!("{dir}: {error}");
                    continue;
                }
            };
            let start = Instant::now();
            let check = match check::Check::new(&pool, Arc::default()) {
                Ok(check) => check,
                Err(error) => {
                    println!("{dir}: {error}");
                    continue;
                }
            };
            loop {
                std::thread::scope(|scope| {
                    for _ in 0..threads {
                        scope.spawn(|| check.work());
                    }
                });
                if !check.next_round() {
                    break;
                }
            }
            let facts = dsl::PoolFacts { name: pool.name().to_owned(), usable: 0 };
            let names = dsl::Tree::open(pool.mos().clone(), facts).ok();
            let report = check.report(names.as_ref(), start.elapsed(), threads);
            println!(
                "{dir}: clean {} blocks {} lsize {} psize {} asize {} embedded {} shared {} degraded {} repairable {} lost {} leaked {} unallocated {} double {} outside {} waiting {:?} {:?}",
                report.is_clean(), report.total.blocks, report.total.lsize, report.total.psize, report.total.asize,
                report.embedded, report.shared, report.degraded, report.repairable, report.lost, report.leaked(),
                report.unallocated(), report.double_bytes, report.outside_count, report.waiting.blocks, report.elapsed
            );
            for leaf in &report.leaves {
                if leaf.wrong + leaf.unreadable + leaf.absent + leaf.stale > 0 {
                    println!("    {leaf:?}");
                }
            }
            for note in &report.notes {
                println!("    {note:?}");
            }
            if std::env::var_os("LONG").is_some() {
                println!("{report:#?}");
            }
        }
    }
}
