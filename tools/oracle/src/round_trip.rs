//! Round trips of pools that we make: to real OpenZFS, and back.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::random_pool::{POOL, Round, UNCUT_DIR, read_keys};
use crate::{Vm, check_manifest, differences};

/// The environment of round trips.
#[derive(Clone, Debug)]
pub struct RoundTripRunner {
    /// The project's folder.
    pub project: PathBuf,
    /// Our program.
    pub poolhouse: PathBuf,
    /// A folder for images; its content may be lost.
    pub scratch: PathBuf,
}

/// The errors that `zdb` finds in the pool in a folder; none if it is not installed.
pub fn zdb_errors(folder: &Path) -> Option<String> {
    let mut command = fixtures::zdb_command();
    let output = command.args(["-e", "-p"]).arg(folder).args(["-bcc", POOL]).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    let clean = output.status.success() && text.contains("No leaks (block sum matches");
    let about = |line: &&str| !line.trim().is_empty() && !line.contains("estimated time");
    (!clean).then(|| text.lines().filter(about).take(30).collect::<Vec<_>>().join("\n    "))
}

impl RoundTripRunner {
    fn read_manifest(&self, folder: &Path) -> Result<Value, String> {
        let mut command = Command::new(&self.poolhouse);
        command.args(["rescue", "manifest", "-d"]).arg(folder).arg(POOL);
        for (number, line) in read_keys(folder).iter().enumerate() {
            let path = folder.join(format!("our-key-{number}"));
            std::fs::write(&path, line.1.as_slice()).map_err(|error| error.to_string())?;
            command.arg("--key").arg(format!("{}={}", line.0, path.display()));
        }
        let done = command.output().map_err(|error| format!("poolhouse: {error}"))?;
        if !done.status.success() {
            let words = String::from_utf8_lossy(&done.stderr);
            return Err(format!("rescue manifest ends with {}: {words}", done.status));
        }
        serde_json::from_slice(&done.stdout).map_err(|error| error.to_string())
    }

    /// Our half of a round: creates the pool; returns its errors, as far as they are visible
    /// here.
    fn create_pool(&self, round: Round) -> (String, Vec<String>) {
        let folder = self.scratch.join(round.name());
        let made = std::fs::create_dir_all(&folder)
            .map_err(|error| error.to_string())
            .and_then(|()| round.create_pool(&folder));
        match made {
            // unclaimed log blocks are not leaks, but zdb reports them as such
            Ok(about) if round.has_power_cut() => (about, Vec::new()),
            Ok(about) => (
                about,
                zdb_errors(&folder).map(|text| format!("zdb: {text}")).into_iter().collect(),
            ),
            Err(why) => (String::new(), vec![why]),
        }
    }

    /// OpenZFS's half is done: its observations, and the resulting pool.
    fn check_pool(&self, round: Round) -> Result<Vec<String>, String> {
        let folder = self.scratch.join(round.name());
        let mut wrong = Vec::new();
        if let Ok(text) = std::fs::read_to_string(folder.join("trouble")) {
            wrong.extend(text.lines().map(|line| format!("OpenZFS: {line}")));
        }
        if !folder.join("done").exists() {
            wrong.push("OpenZFS did not come to its end".to_owned());
            return Ok(wrong);
        }
        let text = std::fs::read(folder.join("theirs.json")).map_err(|error| error.to_string())?;
        let theirs: Value = serde_json::from_slice(&text).map_err(|error| error.to_string())?;
        if round.has_power_cut() {
            let promised = retain_contents(self.read_manifest(&folder.join(UNCUT_DIR))?);
            let told = |who: &str, line: String| format!("committed state, {who}: {line}");
            let replayed = differences(&promised, &retain_contents(theirs));
            wrong.extend(replayed.into_iter().map(|line| told("replayed by OpenZFS", line)));
            // ranges of a log are compared as logged, not in whole blocks
            let read = remove_data_ranges(retain_contents(self.read_manifest(&folder)?));
            let ours = differences(&remove_data_ranges(promised.clone()), &read);
            wrong.extend(ours.into_iter().map(|line| told("read by us", line)));
            round.replay_log(&folder)?;
            let ours = differences(&promised, &retain_contents(self.read_manifest(&folder)?));
            wrong.extend(ours.into_iter().map(|line| told("replayed by us", line)));
        } else {
            wrong.extend(differences(&theirs, &self.read_manifest(&folder)?));
        }
        let after = folder.join("after");
        let told = |line: String| format!("after OpenZFS: {line}");
        let judged = check_manifest(&self.poolhouse, &after).map_err(|error| error.to_string())?;
        wrong.extend(judged.into_iter().map(told));
        round.modify_pool(&after).map_err(told)?;
        wrong.extend(zdb_errors(&after).map(|text| format!("after both: zdb: {text}")));
        Ok(wrong)
    }

    /// Makes the pools of some rounds, runs OpenZFS on them in one start of the VM, and imports
    /// them again. Returns the errors, a line each.
    pub fn run_rounds(&self, vm: &Vm, rounds: &[Round]) -> Vec<String> {
        let (mut wrong, mut sent) = (Vec::new(), Vec::new());
        for round in rounds {
            let (about, trouble) = self.create_pool(*round);
            println!("{}: {about}", round.name());
            let fine = trouble.is_empty();
            wrong.extend(trouble.into_iter().map(|line| format!("{}: {line}", round.name())));
            if fine {
                sent.push(*round);
            }
        }
        if let Err(why) = self.run_in_vm(vm, &sent) {
            wrong.push(why);
        }
        for round in sent {
            let lines = self.check_pool(round).unwrap_or_else(|why| vec![why]);
            let told = |line: &String| format!("{}: {line}", round.name());
            lines.iter().take(20).map(told).for_each(|line| println!("{line}"));
            wrong.extend(lines.iter().take(20).map(told));
            println!("{}: {}", round.name(), if lines.is_empty() { "agrees" } else { "DIFFERS" });
            if lines.is_empty() && std::env::var_os("POOLHOUSE_KEEP").is_none() {
                let _ = std::fs::remove_dir_all(self.scratch.join(round.name()));
            }
        }
        wrong
    }

    fn run_in_vm(&self, vm: &Vm, rounds: &[Round]) -> Result<(), String> {
        if rounds.is_empty() {
            return Ok(());
        }
        let oracle = self.project.join("tools/oracle");
        for (from, name) in [
            (oracle.join("words.sh"), "words.sh"),
            (oracle.join("guest.sh"), "guest.sh"),
            (self.project.join("fixtures/recipes/manifest.py"), "manifest.py"),
        ] {
            let copied = std::fs::copy(&from, self.scratch.join(name));
            copied.map_err(|error| format!("{}: {error}", from.display()))?;
        }
        // a script that the machine gets contains its commands
        let start = self.scratch.join("start.sh");
        std::fs::write(&start, "exec bash /share/guest.sh \"$@\"\n")
            .map_err(|error| error.to_string())?;
        let names: Vec<String> = rounds.iter().map(Round::name).collect();
        let packed = names.iter().map(|name| pack_images(&self.scratch.join(name)));
        let disks = packed.collect::<Result<Vec<_>, _>>()?;
        let said = vm.run_script(&self.scratch, &disks, &start, &names)?;
        for disk in disks {
            let _ = std::fs::remove_file(disk);
        }
        said.lines().for_each(|line| println!("in the VM: {line}"));
        Ok(())
    }
}

/// Packs the images in a folder into images.tar without their holes, which the machine gets as a
/// disk: the folder it sees through a protocol that is slow, and knows no holes.
fn pack_images(folder: &Path) -> Result<PathBuf, String> {
    let told = |error: std::io::Error| format!("{}: {error}", folder.display());
    let files = std::fs::read_dir(folder).map_err(told)?.flatten().map(|entry| entry.file_name());
    let images = files.filter(|name| name.to_string_lossy().ends_with(".img"));
    let mut tar = Command::new("tar");
    tar.arg("-C").arg(folder).args(["-S", "-cf", "images.tar"]).args(images).current_dir(folder);
    let done = tar.output().map_err(|error| format!("tar: {error}"))?;
    let words = String::from_utf8_lossy(&done.stderr);
    if !done.status.success() {
        return Err(format!("tar {}: {words}", folder.display()));
    }
    Ok(folder.join("images.tar"))
}

/// Of a manifest what files hold, and how they are called: figures and times are others after a
/// log was replayed.
fn retain_contents(mut manifest: Value) -> Value {
    for dataset in manifest["datasets"].as_array_mut().into_iter().flatten() {
        let kept = ["name", "type", "entries", "volume"];
        if let Some(facts) = dataset.as_object_mut() {
            facts.retain(|fact, _| kept.contains(&fact.as_str()));
        }
    }
    remove_entry_field("mtime_ns", manifest)
}

/// Without where in large files there are data.
fn remove_data_ranges(manifest: Value) -> Value {
    remove_entry_field("data", manifest)
}

/// Without a fact of all entries.
fn remove_entry_field(fact: &str, mut manifest: Value) -> Value {
    for dataset in manifest["datasets"].as_array_mut().into_iter().flatten() {
        for entry in dataset["entries"].as_array_mut().into_iter().flatten() {
            if let Some(facts) = entry.as_object_mut() {
                facts.remove(fact);
            }
        }
    }
    manifest
}
