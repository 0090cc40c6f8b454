//! Samba's programs: where they are, and how they are run.

use std::env;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::{Error, Folder, Result, Version};

/// Folders besides those of PATH, because the PATH of ordinary users lacks some.
const FOLDERS: [&str; 5] =
    ["/usr/sbin", "/usr/bin", "/usr/local/sbin", "/usr/local/bin", "/usr/local/samba/sbin"];
/// The time that a program has, apart from smbd.
const LIMIT: Duration = Duration::from_secs(10);
/// The time between two looks whether a program ended.
const POLL: Duration = Duration::from_millis(5);

/// Samba's programs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Programs {
    pub(crate) smbd: PathBuf,
    smbcontrol: PathBuf,
    smbstatus: PathBuf,
    pdbedit: PathBuf,
    version: Version,
}

/// The result of a program that succeeded.
pub(crate) type Output = String;

impl Programs {
    /// Finds the programs, and refuses versions that break backups.
    pub fn find() -> Result<Self> {
        let smbd = find("smbd")?;
        let text = run("smbd", Command::new(&smbd).arg("--version"), "")?;
        let version = Version::parse(&text).ok_or(Error::Output { program: "smbd", text })?;
        version.check()?;
        let (smbcontrol, smbstatus) = (find("smbcontrol")?, find("smbstatus")?);
        Ok(Self { smbd, smbcontrol, smbstatus, pdbedit: find("pdbedit")?, version })
    }

    /// The version of Samba.
    pub const fn version(&self) -> Version {
        self.version
    }

    /// Sends a message to all processes of an smbd.
    pub(crate) fn control(&self, folder: &Folder, words: &[&str]) -> Result<()> {
        let mut command = with_conf(&self.smbcontrol, folder);
        run("smbcontrol", command.arg("smbd").args(words), "").map(drop)
    }

    /// The state of an smbd in JSON.
    pub(crate) fn status(&self, folder: &Folder) -> Result<Output> {
        run("smbstatus", with_conf(&self.smbstatus, folder).arg("--json"), "")
    }

    /// Runs pdbedit. A password never stands in the arguments.
    pub(crate) fn pdbedit(&self, folder: &Folder, words: &[&str], input: &str) -> Result<Output> {
        run("pdbedit", with_conf(&self.pdbedit, folder).args(words), input)
    }
}

fn with_conf(program: &Path, folder: &Folder) -> Command {
    let mut command = Command::new(program);
    command.arg("-s").arg(folder.conf());
    command
}

fn find(program: &'static str) -> Result<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let mut dirs = env::split_paths(&path).chain(FOLDERS.iter().map(PathBuf::from));
    let found = dirs.find_map(|dir| Some(dir.join(program)).filter(|path| path.is_file()));
    found.ok_or(Error::NotInstalled { program })
}

/// Runs a program to its end. Returns its standard output.
fn run(program: &'static str, command: &mut Command, input: &str) -> Result<Output> {
    let failed = |why: std::io::Error| Error::Program { program, why: why.to_string() };
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(failed)?;
    if let Some(mut stdin) = child.stdin.take() {
        // a program that does not read it reports the reason
        let _ = stdin.write_all(input.as_bytes());
    }
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let reader = std::thread::spawn(move || read_all(stdout));
    let errors = std::thread::spawn(move || read_all(stderr));
    let last = Instant::now() + LIMIT;
    let status = loop {
        if let Some(status) = child.try_wait().map_err(failed)? {
            break status;
        }
        if Instant::now() > last {
            let _ = child.kill();
            let _ = child.wait();
            let why = format!("it runs longer than {} seconds", LIMIT.as_secs());
            return Err(Error::Program { program, why });
        }
        std::thread::sleep(POLL);
    };
    let output = reader.join().unwrap_or_default();
    if status.success() {
        return Ok(output);
    }
    let said = [output, errors.join().unwrap_or_default()].concat();
    let why = said.trim().replace('\n', "; ");
    Err(Error::Program { program, why: if why.is_empty() { status.to_string() } else { why } })
}

fn read_all(from: Option<impl Read>) -> String {
    let mut bytes = Vec::new();
    if let Some(mut from) = from {
        // output before an error is shown
        let _ = from.read_to_end(&mut bytes);
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
