//! A virtual machine with real OpenZFS, in which scripts run.

use std::path::{Path, PathBuf};
use std::process::Command;

/// A program that runs scripts where OpenZFS is: `PROGRAM run --share FOLDER --mem SIZE --timeout
/// SECONDS --disk FILE... -- SCRIPT ARGUMENT...`, the folder being `/share` there, and the files
/// `/dev/vda` and so on.
#[derive(Clone, Debug)]
pub struct Vm {
    program: PathBuf,
}

impl Vm {
    /// The program that `POOLHOUSE_ORACLE` names, else the project's own; or why it cannot be.
    pub fn locate(project: &Path) -> Result<Self, String> {
        if let Some(program) = std::env::var_os("POOLHOUSE_ORACLE").filter(|name| !name.is_empty())
        {
            return Ok(Self { program: program.into() });
        }
        let program = project.join("fixtures/recipes/zfs-vm");
        let cache = std::env::var_os("ZFS_VM_CACHE").map(PathBuf::from);
        let image = cache.unwrap_or_else(|| "/var/cache/zfs-vm".into()).join("image.cpio");
        if Command::new("qemu-system-x86_64").arg("--version").output().is_err() {
            return Err("qemu-system-x86_64 is not installed".to_owned());
        }
        if !image.exists() {
            let build = "fixtures/recipes/zfs-vm build makes it";
            return Err(format!("there is no {} ({build})", image.display()));
        }
        Ok(Self { program })
    }

    /// The program.
    pub fn program(&self) -> &Path {
        &self.program
    }

    /// Runs a script there, with files as its disks; returns its output.
    pub fn run_script(
        &self,
        share: &Path,
        disks: &[PathBuf],
        script: &Path,
        arguments: &[String],
    ) -> Result<String, String> {
        let mut command = Command::new(&self.program);
        command.args(["run", "--mem", "3G", "--timeout", "1700", "--share"]).arg(share);
        for disk in disks {
            command.arg("--disk").arg(disk);
        }
        let done = command.arg("--").arg(script).args(arguments).output();
        let done = done.map_err(|error| format!("{}: {error}", self.program.display()))?;
        let said = String::from_utf8_lossy(&done.stdout).into_owned();
        if done.status.success() {
            return Ok(said);
        }
        let words = String::from_utf8_lossy(&done.stderr).into_owned();
        Err(format!("{}: {said}{words}", done.status))
    }
}
