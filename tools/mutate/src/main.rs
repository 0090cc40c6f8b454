//! Makes mutants of a fixture's pool:  mutate FIXTURE [image|hostile|both] [FIRST [COUNT]]
//!
//! With FIRST alone only the mutant of that number is made and shown. Status 1 if any mutant had a
//! problem. `MUTATE_SHOW=1` shows each. `POOLHOUSE_FIXTURES` names a folder with more fixtures.
#![forbid(unsafe_code)]

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use mutate::Family;
use mutate::run::{RunOptions, Subject, run_mutants};

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let Some(name) = words.first() else {
        eprintln!("mutate FIXTURE [image|hostile|both] [FIRST [COUNT]]");
        return ExitCode::from(2);
    };
    let family = words.get(1).and_then(|word| Family::from_name(word));
    let families = family.map_or(vec![Family::Image, Family::Hostile], |family| vec![family]);
    let number = |at: usize| words.get(at).and_then(|word| word.parse::<u64>().ok());
    let (first, count) = (number(2).unwrap_or(0), number(3).unwrap_or(1));
    let other = fixtures::load(if name == "mirror-3" { "stripe-copies" } else { "mirror-3" });
    let subject = Arc::new(Subject::new(&fixtures::load(name), Some(&other)));
    let honest = subject.baseline();
    println!("{name}: {} things shown, faults {:?}", honest.items.len(), honest.errors);
    if count == 1 {
        for family in &families {
            println!("{}: {:#?}", family.name(), subject.describe_mutant(*family, first));
        }
    }
    let pace = RunOptions { workers: 2, timeout: Duration::from_mins(1) };
    let failures = run_mutants(&subject, &families, first..first.saturating_add(count), pace);
    if count == 1 && failures.is_empty() {
        for family in &families {
            println!("{}: {:#?}", family.name(), subject.read_mutant(*family, first).0.errors);
        }
    }
    for failure in &failures {
        println!("{failure}");
    }
    println!("{name}: {} failures", failures.len());
    if failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
