//! A smoke test of every fuzz target: mutations of blocks that OpenZFS wrote, from a fixed seed.

mod mutate;
mod seeds;

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::time::{Duration, Instant};

use mutate::Random;
use ondisk::Order::Little as LITTLE;
use ondisk::dnode::Dnode;
use ondisk::label::parse_config;
use ondisk::objset::ObjsetHeader;
use ondisk::uberblock::Uberblock;
use ondisk::zap::leaf::Leaf;
use ondisk::zap::micro::Micro;

/// Mutations for each target; a failure names target and seed.
const MUTATIONS: u64 = 10_000;
/// A target that takes longer than this for one input hangs.
const HANG_TIMEOUT: Duration = Duration::from_secs(20);

fn run_all_targets(seeds: &[Vec<u8>], first: u64, count: u64) {
    for (name, target) in fuzzing::TARGETS {
        for seed in first..first + count {
            let input = mutate::mutated_block(&mut Random::new(seed), seeds);
            let begun = Instant::now();
            let outcome = catch_unwind(AssertUnwindSafe(|| target(&input)));
            assert!(outcome.is_ok(), "{name} panics with seed {seed} ({} bytes)", input.len());
            assert!(begun.elapsed() < HANG_TIMEOUT, "{name} hangs with seed {seed}");
        }
    }
}

#[test]
fn no_target_panics_on_mutated_blocks() {
    let seeds = seeds::find_blocks("mirror-2");
    assert!(seeds.len() > 50, "only {} blocks found to mutate", seeds.len());
    run_all_targets(&seeds, 0, MUTATIONS);
}

#[test]
#[ignore = "long: ten times as many mutations, of more pools"]
fn no_target_panics_on_many_mutated_blocks() {
    for name in ["mirror-2", "encryption", "snapshots", "removed-twice", "version-28-upgraded"] {
        run_all_targets(&seeds::find_blocks(name), MUTATIONS, 2 * MUTATIONS);
    }
}

#[test]
fn seeds_contain_every_block_kind() {
    let seeds = seeds::find_blocks("mirror-2");
    let count = |is: &dyn Fn(&[u8]) -> bool| seeds.iter().filter(|seed| is(seed)).count();
    assert!(count(&|seed| parse_config(seed).is_ok()) > 0, "a label's list");
    assert!(count(&|seed| matches!(Uberblock::parse(seed), Ok(Some(_)))) > 0, "an uberblock");
    assert!(count(&|seed| ObjsetHeader::parse(seed, LITTLE).is_ok()) > 0, "an objset");
    assert!(count(&|seed| matches!(Dnode::parse(seed, LITTLE), Ok(Some(_)))) > 9, "dnodes");
    assert!(count(&|seed| Micro::parse(seed, LITTLE).is_ok()) > 0, "a table of one block");
    assert!(count(&|seed| Leaf::parse(seed, LITTLE).is_ok()) > 0, "a leaf of a table");
}

#[test]
fn no_target_panics_on_empty_or_uniform_bytes() {
    for (name, target) in fuzzing::TARGETS {
        for length in [0, 1, 7, 8, 127, 128, 511, 512, 1024, 4096] {
            for byte in [0, 1, 0x80, 0xff] {
                let outcome = catch_unwind(|| target(&vec![byte; length]));
                assert!(outcome.is_ok(), "{name} panics on {length} bytes of {byte:#x}");
            }
        }
    }
}

#[test]
fn every_target_has_a_fuzz_program() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz");
    let manifest = std::fs::read_to_string(folder.join("Cargo.toml")).unwrap();
    let programs: BTreeSet<String> = std::fs::read_dir(folder.join("fuzz_targets"))
        .unwrap()
        .filter_map(|entry| Some(entry.ok()?.path().file_stem()?.to_str()?.to_owned()))
        .collect();
    let targets: BTreeSet<String> = fuzzing::TARGETS.iter().map(|t| t.0.to_owned()).collect();
    assert_eq!(programs, targets);
    for name in targets {
        let path = format!("path = \"fuzz_targets/{name}.rs\"");
        assert!(manifest.contains(&path), "fuzz/Cargo.toml lacks {name}");
        let program = std::fs::read_to_string(folder.join(format!("fuzz_targets/{name}.rs")));
        assert!(program.unwrap().contains(&format!("fuzzing::{name}(")), "{name} runs another");
    }
}
