//! Rounds: random pools from real OpenZFS in a VM, and our reading of them.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::time::{SystemTime, UNIX_EPOCH};

use oracle::random_pool::Round;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("tools/oracle").to_owned()
}

/// The program beside the tests, which cargo has built as well: `target/PROFILE/poolhouse`.
fn poolhouse() -> PathBuf {
    let here = std::env::current_exe().expect("a path");
    let beside = here.ancestors().nth(2).expect("target/PROFILE").join("poolhouse");
    std::env::var_os("POOLHOUSE").map_or(beside, PathBuf::from)
}

fn run_successfully(command: &mut Command) -> Vec<u8> {
    let done = command.output().expect("the command starts");
    let words = String::from_utf8_lossy(&done.stderr).into_owned();
    assert!(done.status.success(), "{command:?}: {words}");
    done.stdout
}

fn env_number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// `ROUNDS` pools (10) from `SEED` (the time), each compared.
#[test]
#[ignore = "long: pools are made in a VM, a minute or more each"]
fn random_openzfs_pools_match_their_manifests() {
    // make-fixtures starts the project's own VM
    if let Err(why) = oracle::Vm::locate(&root()) {
        println!("no rounds against real OpenZFS: {why}");
        return;
    }
    let now = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
    let (rounds, seed) =
        (env_number("ROUNDS").unwrap_or(10), env_number("SEED").unwrap_or_else(now));
    println!("SEED={seed} ROUNDS={rounds}");
    let scratch = fixtures::scratch_dir("rounds");
    let recipes = scratch.join("recipes.sh");
    let recipe = root().join("tools/oracle/recipe.py");
    let mut python = Command::new("python3");
    let text = run_successfully(python.arg(recipe).arg(seed.to_string()).arg(rounds.to_string()));
    std::fs::write(&recipes, text).expect("a file");
    let mut wrong = Vec::new();
    for number in 0..rounds {
        // one start of the VM each: what one recipe breaks must not take the others with it
        let name = format!("r{seed}-{number}");
        let mut make = Command::new(root().join("fixtures/recipes/make-fixtures"));
        make.arg("--recipes").arg(&recipes).arg("--out").arg(&scratch).arg(&name);
        let made = make.output().expect("the command starts");
        let packed = scratch.join(format!("{name}.tar.zst"));
        if !packed.exists() {
            let words = String::from_utf8_lossy(&made.stdout).into_owned();
            println!("{name}: OpenZFS could not make it: {words}");
            continue;
        }
        run_successfully(
            Command::new("tar").arg("-C").arg(&scratch).arg("--zstd").arg("-xf").arg(&packed),
        );
        match oracle::check_manifest(&poolhouse(), &scratch.join(&name)) {
            Ok(lines) if lines.is_empty() => println!("{name}: agrees"),
            Ok(lines) => wrong.extend(lines.iter().take(20).map(|line| format!("{name}: {line}"))),
            Err(error) => wrong.push(format!("{name}: {error}")),
        }
    }
    assert!(wrong.is_empty(), "SEED={seed} ROUNDS={rounds}:\n{}", wrong.join("\n"));
}

/// The same seed gives the same recipes, and bash understands them.
#[test]
fn recipes_are_reproducible_and_valid() {
    let recipe = root().join("tools/oracle/recipe.py");
    let write = |seed: &str| {
        let mut python = Command::new("python3");
        run_successfully(python.arg(&recipe).args([seed, "30"]))
    };
    if Command::new("python3").arg("--version").output().is_err() {
        println!("no python3 here: recipes are not tried");
        return;
    }
    let first = write("7");
    assert_eq!(first, write("7"));
    assert_ne!(first, write("8"));
    let path = fixtures::scratch_dir("recipes").join("recipes.sh");
    std::fs::write(&path, first).expect("a file");
    run_successfully(Command::new("bash").arg("-n").arg(path));
}

/// The most pools in a VM at one start of it.
const MAX_POOLS_PER_VM: usize = 10;

/// The most VMs at a time: each does mostly one thing after the other.
const PARALLEL_VMS: usize = 2;

/// `ROUNDS` pools (10) of ours from `SEED` (the time), from number `FIRST` (0) on: OpenZFS checks
/// each and changes it, and we import it again.
#[test]
#[ignore = "long: OpenZFS goes on with our pools in a VM, half a minute or more each"]
fn openzfs_imports_and_modifies_our_pools() {
    let vm = match oracle::Vm::locate(&root()) {
        Ok(vm) => vm,
        Err(why) => return println!("no pools of ours shown to real OpenZFS: {why}"),
    };
    let now = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
    let rounds = env_number("TRIPS").or_else(|| env_number("ROUNDS")).unwrap_or(10);
    let seed = env_number("SEED").unwrap_or_else(now);
    let first = env_number("FIRST").unwrap_or(0);
    println!("SEED={seed} FIRST={first} ROUNDS={rounds}");
    let all: Vec<Round> = (first..first + rounds).map(|number| Round { seed, number }).collect();
    let at_once = all.len().div_ceil(PARALLEL_VMS).clamp(1, MAX_POOLS_PER_VM);
    let left = Mutex::new(all.chunks(at_once));
    let next = || left.lock().expect("no lane panicked").next();
    let lane = &|number: usize| {
        // its own folder: it is seen inside its machine
        let scratch = fixtures::scratch_dir(&format!("trips-{seed}-{first}-{number}"));
        let tools = oracle::RoundTripRunner { project: root(), poolhouse: poolhouse(), scratch };
        let mut wrong = Vec::new();
        while let Some(some) = next() {
            wrong.extend(tools.run_rounds(&vm, some));
        }
        if wrong.is_empty() && std::env::var_os("POOLHOUSE_KEEP").is_none() {
            let _ = std::fs::remove_dir_all(tools.scratch);
        }
        wrong
    };
    let wrong: Vec<String> = std::thread::scope(|scope| {
        let lanes: Vec<_> =
            (0..PARALLEL_VMS).map(|number| scope.spawn(move || lane(number))).collect();
        lanes.into_iter().flat_map(|lane| lane.join().expect("a lane ends")).collect()
    });
    let replay = "replay one: make test-oracle SEED=... FIRST=(the number behind the -) ROUNDS=1";
    assert!(wrong.is_empty(), "SEED={seed}: {replay}\n{}", wrong.join("\n"));
}

/// Hundreds of commands: we refuse the same commands as real OpenZFS, and where it
/// matters both print the same.
#[test]
#[ignore = "long: commands are given in a VM, and mounted for; takes root"]
fn commands_behave_as_in_openzfs() {
    let vm = match oracle::Vm::locate(&root()) {
        Ok(vm) => vm,
        Err(why) => return println!("no commands compared with real OpenZFS: {why}"),
    };
    let is_root = run_successfully(Command::new("id").arg("-u")).trim_ascii() == b"0";
    if !is_root || !Path::new("/dev/fuse").exists() {
        return println!("no commands compared with real OpenZFS: it takes root, and /dev/fuse");
    }
    let scratch = fixtures::scratch_dir("words");
    let words = root().join("tools/oracle/commands.sh");
    let (state, share) = (scratch.join("state"), scratch.join("share"));
    std::fs::create_dir_all(&share).expect("a folder");
    let mut ours = Command::new("bash");
    ours.arg(&words).args(["d", "m", "ours"].map(|name| scratch.join(name))).arg(poolhouse());
    let done = ours.env("POOLHOUSE_STATE", &state).status();
    let mut end = Command::new(poolhouse());
    run_successfully(end.args(["serve", "--stop"]).env("POOLHOUSE_STATE", &state));
    assert!(done.is_ok_and(|done| done.success()), "all commands are given");
    let arguments = ["/ram/d", "/ram/m", "/share/openzfs"].map(str::to_owned);
    vm.run_script(&share, &[], &words, &arguments).unwrap_or_else(|why| panic!("{why}"));
    let lines = |path: PathBuf| {
        let text = std::fs::read_to_string(path).expect("the results of the commands");
        text.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    let (ours, theirs) = (lines(scratch.join("ours")), lines(share.join("openzfs")));
    assert!(ours.len() > 300 && ours.len() == theirs.len(), "{} {}", ours.len(), theirs.len());
    let unlike = ours.iter().zip(&theirs).filter(|(ours, theirs)| ours != theirs);
    let unlike: Vec<_> = unlike.map(|(o, t)| format!("OpenZFS: {t}\n   ours: {o}")).collect();
    assert!(unlike.is_empty(), "{} of {}:\n{}", unlike.len(), ours.len(), unlike.join("\n"));
    println!("{} commands: both do the same", ours.len());
    let _ = std::fs::remove_dir_all(&scratch);
}

/// The virtual machine, for scripts that mount; none, and a line that says why, where it cannot be had.
fn vm_for_mounts(what: &str) -> Option<oracle::Vm> {
    let is_root = run_successfully(Command::new("id").arg("-u")).trim_ascii() == b"0";
    let why = match oracle::Vm::locate(&root()) {
        Ok(vm) if is_root && Path::new("/dev/fuse").exists() => return Some(vm),
        Ok(_) => "it takes root, and /dev/fuse".to_owned(),
        Err(why) => why,
    };
    println!("no {what} with real OpenZFS: {why}");
    None
}

/// `HISTORIES` histories of datasets (60) from `SEED` (1) on: replicated to real OpenZFS, and from it.
#[test]
#[ignore = "long: histories are replicated to a VM and back, a minute or more each; takes root"]
fn histories_are_replicated_both_ways() {
    let Some(vm) = vm_for_mounts("histories replicated") else { return };
    let numbers = [("HISTORIES", 60), ("SEED", 1)];
    let numbers = numbers.map(|(name, usual)| env_number(name).unwrap_or(usual).to_string());
    let mut script = Command::new(root().join("tools/oracle/histories.sh"));
    let done = script.arg(poolhouse()).arg(vm.program()).args(&numbers).status();
    assert!(done.is_ok_and(|done| done.success()), "a line with FAULT names the seed");
}

/// Streams cut behind every `STEP`th record (1): what one system received, the other resumes.
#[test]
#[ignore = "long: hundreds of streams are received in a VM, and here; takes root"]
fn cut_streams_are_resumed_elsewhere() {
    let Some(vm) = vm_for_mounts("cut streams resumed") else { return };
    let fixture = root().join("fixtures/sent.tar.zst");
    let step = env_number("STEP").unwrap_or(1).to_string();
    let mut script = Command::new(root().join("tools/oracle/cuts.sh"));
    let done = script.arg(poolhouse()).arg(vm.program()).arg(fixture).arg(step).status();
    assert!(done.is_ok_and(|done| done.success()), "a line with FAULT names the cut");
}

/// Snapshots restored out of a repository into a new pool: read by zdb, imported and compared by OpenZFS.
#[test]
#[ignore = "long: a pool is imported in a VM; takes root"]
fn restored_backups_are_imported_by_openzfs() {
    let Some(vm) = vm_for_mounts("backups restored") else { return };
    let mut script = Command::new(root().join("tools/oracle/backups.sh"));
    let done = script.arg(poolhouse()).arg(vm.program()).status();
    assert!(done.is_ok_and(|done| done.success()), "a line with FAULT names the snapshot");
}

/// The same without OpenZFS between the two halves: `zdb` alone checks.
#[test]
fn zdb_accepts_our_random_pools() {
    // one has a cache drive with a log, the one before the last lacks features, the last has a file of
    // exabytes that are not written yet
    for (seed, number) in [(1, 0), (1, 1), (1, 2), (1, 3), (31, 18), (20261125, 1)] {
        let trouble = find_pool_error(Round { seed, number });
        assert_eq!(trouble, None);
    }
}

/// `ROUNDS` of them (10) from `SEED` (the time), from number `FIRST` (0) on.
#[test]
#[ignore = "long: some seconds each"]
fn zdb_accepts_many_of_our_random_pools() {
    let now = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
    let (rounds, seed) =
        (env_number("ROUNDS").unwrap_or(10), env_number("SEED").unwrap_or_else(now));
    let first = env_number("FIRST").unwrap_or(0);
    println!("SEED={seed} FIRST={first} ROUNDS={rounds}");
    let all = (first..first + rounds).map(|number| Round { seed, number });
    let wrong: Vec<String> = all.filter_map(find_pool_error).collect();
    assert!(wrong.is_empty(), "SEED={seed}:\n{}", wrong.join("\n"));
}

fn find_pool_error(round: Round) -> Option<String> {
    let folder = fixtures::scratch_dir(&format!("ours-{}", round.name()));
    let lived = || {
        let about = round.create_pool(&folder)?;
        let told = |why: String| format!("{about}: {why}");
        let judged = |when: &str| match oracle::zdb_errors(&folder) {
            Some(text) => Err(format!("{about}: {when}: {text}")),
            None => Ok(()),
        };
        if round.has_power_cut() {
            // encrypted datasets need their keys for that
            round.replay_log(&folder)?;
        }
        judged("made")?;
        round.modify_pool(&folder).map_err(told)?;
        judged("gone on with")
    };
    let trouble = lived().err();
    if trouble.is_none() {
        let _ = std::fs::remove_dir_all(&folder);
    }
    trouble.map(|why| format!("{}: {why}", round.name()))
}
