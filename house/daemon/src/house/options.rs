//! How a file system is mounted: as its properties say, and as somebody wishes this once.

use engine::dataset::Dataset;
use fuse::LiveOptions;

use crate::{Error, MountWish, Result};

impl MountWish {
    /// Refuses words that nobody knows.
    pub(super) fn check(&self) -> Result<()> {
        let mut unknown = LiveOptions::default();
        match self.options.iter().find(|word| !follow(word, &mut unknown)) {
            None => Ok(()),
            Some(word) if word.ends_with("atime") => Err(Error::usage(format!(
                "-o {word}: access times follow the properties: `zfs set atime=off`, `relatime=on`"
            ))),
            Some(word) => Err(Error::usage(format!(
                "-o {word}: ro, rw, exec, noexec, suid, nosuid, dev and nodev are known"
            ))),
        }
    }
}

/// Whether a file system may cover what its folder has in it.
pub(super) fn may_cover(dataset: &Dataset, wish: &MountWish) -> bool {
    wish.overlay || dataset.value("overlay") != Some("off")
}

/// How a file system is to be mounted.
pub(super) fn options_of(dataset: &Dataset, wish: &MountWish) -> LiveOptions {
    let is = |name: &str, word: &str| dataset.value(name) == Some(word);
    let mut options = LiveOptions {
        allow_other: may_allow_others(),
        read_only: is("readonly", "on"),
        no_exec: is("exec", "off"),
        no_setuid: is("setuid", "off"),
        no_devices: is("devices", "off"),
        without_rings: false,
    };
    for word in &wish.options {
        // all were looked at before
        let _ = follow(word, &mut options);
    }
    options
}

/// Follows one of mount(8)'s words, of which the last counts; gives whether it is known.
fn follow(word: &str, options: &mut LiveOptions) -> bool {
    match word {
        "defaults" => (),
        "ro" => options.read_only = true,
        "rw" => options.read_only = false,
        "exec" => options.no_exec = false,
        "noexec" => options.no_exec = true,
        "suid" | "setuid" => options.no_setuid = false,
        "nosuid" | "nosetuid" => options.no_setuid = true,
        "dev" | "devices" => options.no_devices = false,
        "nodev" | "nodevices" => options.no_devices = true,
        _ => return false,
    }
    true
}

/// Whether other users may see what is mounted.
fn may_allow_others() -> bool {
    let allowed = || std::fs::read_to_string("/etc/fuse.conf").unwrap_or_default();
    rustix::process::geteuid().is_root()
        || allowed().lines().any(|line| line.trim() == "user_allow_other")
}
