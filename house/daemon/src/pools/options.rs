//! Mount options of a file system: from its properties, and from a command for one time.

use api::MountOverrides;
use engine::dataset::Dataset;
use fuse::MountOptions;

use crate::{Error, Result};

/// The option of mount(8) that changes the options of a mounted file system.
const REMOUNT: &str = "remount";

/// Options that hold for one mount only.
pub(super) trait Overrides: Sized {
    /// Whether they change a mounted file system.
    fn is_remount(&self) -> bool;

    /// These options, and `other` after them.
    fn merged_with(&self, other: &Self) -> Self;

    /// Refuses unknown options.
    fn validate(&self) -> Result<()>;

    /// The options that are left when properties change: from then on the properties count.
    fn without_changed(&self, is_changed: impl Fn(&str) -> bool) -> Self;
}

impl Overrides for MountOverrides {
    fn is_remount(&self) -> bool {
        self.options.iter().any(|word| word == REMOUNT)
    }

    fn merged_with(&self, other: &Self) -> Self {
        let more = other.options.iter().filter(|word| *word != REMOUNT);
        Self { options: self.options.iter().chain(more).cloned().collect(), ..self.clone() }
    }

    fn validate(&self) -> Result<()> {
        let mut unknown = MountOptions::default();
        let mut words = self.options.iter().filter(|word| *word != REMOUNT);
        match words.find(|word| !apply_option(word, &mut unknown)) {
            None => Ok(()),
            Some(word) => Err(Error::usage_error(format!(
                "-o {word}: ro, rw, exec, noexec, suid, nosuid, dev, nodev, atime, noatime and remount \
                 are known"
            ))),
        }
    }

    fn without_changed(&self, is_changed: impl Fn(&str) -> bool) -> Self {
        let stays = |word: &&String| {
            option_property(word).is_none_or(|(property, _)| !is_changed(property))
        };
        Self { options: self.options.iter().filter(stays).cloned().collect(), ..self.clone() }
    }
}

/// The value of a property that means these mount options; nothing for a property that is not a mount option.
pub(super) fn property_value(property: &str, options: &MountOptions) -> Option<&'static str> {
    let is_on = match property {
        "readonly" => options.read_only,
        "exec" => !options.no_exec,
        "setuid" => !options.no_setuid,
        "devices" => !options.no_devices,
        "atime" => !options.no_atime,
        _ => return None,
    };
    Some(if is_on { "on" } else { "off" })
}

/// Whether a file system may be mounted on a directory that is not empty.
pub(super) fn can_overlay(dataset: &Dataset, wish: &MountOverrides) -> bool {
    wish.overlay || dataset.property_value("overlay") != Some("off")
}

/// The mount options of a file system.
pub(super) fn mount_options(dataset: &Dataset, wish: &MountOverrides) -> MountOptions {
    let is = |name: &str, word: &str| dataset.property_value(name) == Some(word);
    let mut options = MountOptions {
        allow_other: can_allow_other(),
        read_only: is("readonly", "on"),
        no_exec: is("exec", "off"),
        no_setuid: is("setuid", "off"),
        no_devices: is("devices", "off"),
        no_atime: is("atime", "off"),
        no_io_uring: false,
        without_syncfs: false,
    };
    for word in &wish.options {
        // `validate` refused unknown options
        let _ = apply_option(word, &mut options);
    }
    options
}

/// Applies a word of mount(8), of which the last counts. Returns whether it is known.
fn apply_option(word: &str, options: &mut MountOptions) -> bool {
    match option_property(word) {
        Some(("readonly", is_on)) => options.read_only = is_on,
        Some(("exec", is_on)) => options.no_exec = !is_on,
        Some(("setuid", is_on)) => options.no_setuid = !is_on,
        Some(("devices", is_on)) => options.no_devices = !is_on,
        Some(("atime", is_on)) => options.no_atime = !is_on,
        _ => return is_word_of_mount(word),
    }
    true
}

/// Whether a word concerns mount(8) alone, or is the default anyway.
fn is_word_of_mount(word: &str) -> bool {
    const WORDS: [&str; 12] = [
        "defaults", "zfsutil", "auto", "noauto", "nofail", "_netdev", "user", "nouser", "users",
        "owner", "group", "async",
    ];
    WORDS.contains(&word) || word.starts_with("x-") || word.starts_with("comment=")
}

/// The property of a word of mount(8), and whether it is on.
fn option_property(word: &str) -> Option<(&'static str, bool)> {
    Some(match word {
        "ro" => ("readonly", true),
        "rw" => ("readonly", false),
        "exec" => ("exec", true),
        "noexec" => ("exec", false),
        "suid" | "setuid" => ("setuid", true),
        "nosuid" | "nosetuid" => ("setuid", false),
        "dev" | "devices" => ("devices", true),
        "nodev" | "nodevices" => ("devices", false),
        "atime" => ("atime", true),
        "noatime" => ("atime", false),
        _ => return None,
    })
}

/// Whether a file system has canmount=on.
pub(super) fn is_automounted(dataset: &Dataset) -> bool {
    dataset.property_value("canmount") == Some("on")
}

/// Whether the mountpoint follows from the name. Such a directory is removed with the mount.
pub(super) fn is_mountpoint_inherited(dataset: &Dataset) -> bool {
    let point = dataset.properties.iter().find(|property| property.name == "mountpoint");
    point.is_some_and(|point| point.source == "default" || point.source.starts_with("inherited"))
}

/// Whether this user may mount with allow_other.
fn can_allow_other() -> bool {
    let allowed = || std::fs::read_to_string("/etc/fuse.conf").unwrap_or_default();
    rustix::process::geteuid().is_root()
        || allowed().lines().any(|line| line.trim() == "user_allow_other")
}
