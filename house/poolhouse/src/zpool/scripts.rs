//! `zpool status -c SCRIPT,...`: programs that give more columns for drives.
//!
//! ```text
//! where      ZPOOL_SCRIPTS_PATH, or else ~/.zpool.d and /etc/zfs/zpool.d
//! runs       once for each drive, as the user of the command; as root only with ZPOOL_SCRIPTS_AS_ROOT set
//! gets       VDEV_PATH, VDEV_UPATH (links resolved), VDEV_ENC_SYSFS_PATH (its slot, if the system knows one)
//! prints     `NAME=VALUE`: a column each; a line without `=` is the value of the column with the script's name
//! ```
//!
//! Learnt from: zpool-status(8) of OpenZFS 2.3.2. The daemon runs no script.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::outcome::Failure;

/// Where OpenZFS's package has its scripts.
const SYSTEM_FOLDER: &str = "/etc/zfs/zpool.d";
/// Values by which the environment allows scripts for root.
const YES: [&str; 4] = ["1", "YES", "ON", "TRUE"];

/// The columns of scripts.
#[derive(Debug, Default)]
pub(super) struct ScriptColumns {
    /// In the order in which scripts printed them.
    heads: Vec<String>,
    /// Of each drive, by its guid.
    values: HashMap<u64, HashMap<String, String>>,
}

impl ScriptColumns {
    /// Runs scripts, of which the names are separated by commas, for drives with these guids and paths.
    pub(super) fn run(names: &str, drives: &[(u64, String)]) -> Result<Self, Failure> {
        let variable = |name: &str| std::env::var(name).unwrap_or_default();
        let is_allowed = YES.contains(&variable("ZPOOL_SCRIPTS_AS_ROOT").to_uppercase().as_str());
        if rustix::process::geteuid().is_root() && !is_allowed {
            return Err(Failure::usage(
                "Can't run -c with root privileges unless ZPOOL_SCRIPTS_AS_ROOT is set.",
            ));
        }
        let mut columns = Self::default();
        for name in names.split(',') {
            let script = find_script(name)?;
            for (guid, path) in drives {
                columns.add_output(*guid, name, &run_script(&script, path)?);
            }
        }
        Ok(columns)
    }

    fn add_output(&mut self, guid: u64, script: &str, output: &str) {
        for line in output.lines().map(str::trim).filter(|line| !line.is_empty()) {
            let (head, value) = line.split_once('=').unwrap_or((script, line));
            if !self.heads.iter().any(|known| known == head) {
                self.heads.push(head.to_owned());
            }
            // of several lines without a name the first one counts
            let values = self.values.entry(guid).or_default();
            values.entry(head.to_owned()).or_insert_with(|| value.to_owned());
        }
    }

    /// The heads of the columns.
    pub(super) fn heads(&self) -> &[String] {
        &self.heads
    }

    /// The cells of a drive; `-` where a script printed nothing for it.
    pub(super) fn cells(&self, guid: u64) -> impl Iterator<Item = String> {
        let values = self.values.get(&guid);
        let value = move |head: &String| values.and_then(|all| all.get(head)).cloned();
        self.heads.iter().map(move |head| value(head).unwrap_or_else(|| "-".to_owned()))
    }
}

/// The folders of scripts, in the order of their search.
fn folders() -> Vec<PathBuf> {
    if let Some(list) = std::env::var_os("ZPOOL_SCRIPTS_PATH") {
        return std::env::split_paths(&list).collect();
    }
    let home = std::env::var_os("HOME").map(|home| Path::new(&home).join(".zpool.d"));
    home.into_iter().chain([PathBuf::from(SYSTEM_FOLDER)]).collect()
}

fn find_script(name: &str) -> Result<PathBuf, Failure> {
    // a path would run any program, also for a user who may run the command by its name only
    if name.is_empty() || name.contains('/') || name.starts_with('.') {
        return Err(Failure::usage(format!("-c: '{name}' is no name of a script")));
    }
    let folders = folders();
    let found = folders.iter().map(|folder| folder.join(name)).find(|path| path.is_file());
    found.ok_or_else(|| {
        let searched: Vec<String> =
            folders.iter().map(|folder| folder.display().to_string()).collect();
        Failure::usage(format!("-c: there is no script '{name}' in {}", searched.join(" or ")))
    })
}

/// The output of a script for a drive; nothing where it fails.
fn run_script(script: &Path, drive: &str) -> Result<String, Failure> {
    let resolved = std::fs::canonicalize(drive).unwrap_or_else(|_| drive.into());
    let mut command = Command::new(script);
    command.env("VDEV_PATH", drive).env("VDEV_UPATH", &resolved);
    if let Some(slot) = enclosure_slot(&resolved) {
        command.env("VDEV_ENC_SYSFS_PATH", slot);
    }
    let output = command.stdin(Stdio::null()).stderr(Stdio::null()).output();
    let output = output.map_err(|error| {
        Failure::usage(format!("-c: {} cannot be run: {error}", script.display()))
    })?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The slot of a disk's enclosure in /sys.
fn enclosure_slot(disk: &Path) -> Option<PathBuf> {
    let device = Path::new("/sys/class/block").join(disk.file_name()?).join("device");
    let mut entries = std::fs::read_dir(device).ok()?.flatten();
    let is_slot = |name: &str| name.starts_with("enclosure_device");
    let slot = entries.find(|entry| entry.file_name().to_str().is_some_and(is_slot))?;
    std::fs::canonicalize(slot.path()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_scripts_become_columns() {
        let mut columns = ScriptColumns::default();
        columns.add_output(1, "smart", "temp=31\nhours = 5\n\nfine\nignored\n");
        columns.add_output(2, "smart", "temp=40=x\n");
        assert_eq!(columns.heads(), ["temp", "hours ", "smart"]);
        assert_eq!(columns.cells(1).collect::<Vec<_>>(), ["31", " 5", "fine"]);
        assert_eq!(columns.cells(2).collect::<Vec<_>>(), ["40=x", "-", "-"]);
        assert_eq!(columns.cells(3).collect::<Vec<_>>(), ["-", "-", "-"]);
    }

    #[test]
    fn script_is_named_without_its_folder() {
        for name in ["", "../x", "/bin/true", ".hidden", "a/b"] {
            assert!(find_script(name).is_err(), "{name}");
        }
    }
}
