//! `poolhouse zfs load-key`, `unload-key` and `change-key`.

use std::collections::BTreeSet;
use std::io::{self, Write};

use api::{ChangeKey, InheritKey, ListDatasets, LoadKey, UnloadKey};
use engine::KeyState;
use engine::dataset::{Dataset, DatasetQuery};

use crate::daemon::DaemonArgs;
use crate::keys::read_secret;
use crate::outcome::{CommandResult, Failure, run_for_each};
use crate::property_values::parse_assignment;

/// The subject of failures of `zfs change-key`.
const KEY_CHANGE_ERROR: &str = "Key change error";

/// Unlock encrypted datasets
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:
  poolhouse zfs load-key tank/private
  poolhouse zfs load-key -L file:///root/key tank/private
  poolhouse zfs load-key -a")]
pub(super) struct LoadKeyArgs {
    /// Only check that the keys are right, loaded or not
    #[arg(short = 'n')]
    dry_run: bool,
    /// Location of the key: prompt, or file:///PATH; the default is the dataset's keylocation
    #[arg(short = 'L', value_name = "KEYLOCATION")]
    location: Option<String>,
    /// Of all encryption roots at and below
    #[arg(short = 'r')]
    recursive: bool,
    /// Of all encryption roots
    #[arg(short = 'a', conflicts_with = "recursive")]
    all: bool,
    /// Its full name
    #[arg(value_name = "DATASET", required_unless_present = "all", conflicts_with = "all")]
    name: Option<String>,
}

impl LoadKeyArgs {
    pub(super) fn run(&self, asking: &DaemonArgs) -> CommandResult {
        let several = self.all || self.recursive;
        let mut roots = encryption_roots("load", self.name.as_deref(), several, asking)?;
        roots.retain(|root| !several || self.dry_run || root.key == KeyState::Locked);
        let location = self.location.as_deref();
        let mut done = 0;
        let result = run_for_each(&roots, |root| {
            load_key(root, location, self.dry_run, asking).inspect(|_| done += 1)
        });
        if several {
            let word = if self.dry_run { "verified" } else { "loaded" };
            writeln!(io::stdout(), "{done} / {} key(s) successfully {word}", roots.len())?;
        }
        result
    }
}

/// Lock encrypted datasets, which must not be mounted
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:
  poolhouse zfs unload-key tank/private
  poolhouse zfs unload-key -a")]
pub(super) struct UnloadKeyArgs {
    /// Of all encryption roots at and below
    #[arg(short = 'r')]
    recursive: bool,
    /// Of all encryption roots
    #[arg(short = 'a', conflicts_with = "recursive")]
    all: bool,
    /// Its full name
    #[arg(value_name = "DATASET", required_unless_present = "all", conflicts_with = "all")]
    name: Option<String>,
}

impl UnloadKeyArgs {
    pub(super) fn run(&self, asking: &DaemonArgs) -> CommandResult {
        let several = self.all || self.recursive;
        let mut roots = encryption_roots("unload", self.name.as_deref(), several, asking)?;
        roots.retain(|root| !several || root.key == KeyState::Unlocked);
        let (all, mut done) = (roots.len(), 0);
        let result = run_for_each(roots, |root| {
            asking.execute(&UnloadKey { name: root.name }).inspect(|_| done += 1)
        });
        if several {
            writeln!(io::stdout(), "{done} / {all} key(s) successfully unloaded")?;
        }
        result
    }
}

/// Give an encrypted dataset another key
#[derive(clap::Args, Debug)]
#[command(
    after_help = "The content is unchanged. Descendants that inherit the key get the new one.
The present key must be loaded.

Examples:
  poolhouse zfs change-key tank/private                      another passphrase
  poolhouse zfs change-key -o keyformat=hex -o keylocation=file:///root/key tank/private
  poolhouse zfs change-key -i tank/private/letters           the key of the parent"
)]
pub(super) struct ChangeKeyArgs {
    /// Load its present key first
    #[arg(short = 'l')]
    load: bool,
    /// Use the key of the parent
    #[arg(short = 'i', conflicts_with = "properties")]
    inherit: bool,
    /// keyformat, keylocation or pbkdf2iters
    #[arg(short = 'o', value_name = "NAME=VALUE", value_parser = parse_assignment)]
    properties: Vec<(String, String)>,
    /// Its full name
    #[arg(value_name = "DATASET")]
    name: String,
}

impl ChangeKeyArgs {
    pub(super) fn run(&self, asking: &DaemonArgs) -> CommandResult {
        let name = &self.name;
        let found = query_keys(Some(name), Some(0), asking)?;
        let root = found.first().and_then(|it| it.property_value("encryptionroot")).unwrap_or("-");
        if ["-", "none", ""].contains(&root) {
            return Err(key_error("change", "Dataset not encrypted."));
        }
        if self.load {
            self.load_missing_keys(root, asking)?;
        }
        if self.inherit {
            let inherited = asking.execute(&InheritKey { name: name.clone() });
            return inherited.map_err(|why| why.with_subject(|| KEY_CHANGE_ERROR.to_owned()));
        }
        let asked = |wanted: &str| {
            let asked = self.properties.iter().rev().find(|(property, _)| property == wanted);
            asked.map(|(_, value)| value.as_str())
        };
        let now = |wanted: &str| found.first().and_then(|it| it.property_value(wanted));
        let format = asked("keyformat").or(now("keyformat")).unwrap_or("raw");
        // one that has no place of its own as yet is typed in
        let own = now("keylocation").filter(|_| root == name);
        let location = asked("keylocation").or(own).unwrap_or("prompt");
        let secret = read_secret(&format!("{name} from now on"), location, format, true)?;
        let properties = self.properties.clone();
        let changed = asking.execute(&ChangeKey { name: name.clone(), properties, secret });
        changed.map_err(|why| why.with_subject(|| KEY_CHANGE_ERROR.to_owned()))
    }

    /// Loads the keys that are not loaded: the dataset's, and for -i that of the parent.
    fn load_missing_keys(&self, root: &str, asking: &DaemonArgs) -> Result<(), Failure> {
        let above = self.name.rsplit_once('/').filter(|_| self.inherit);
        let above = above.map(|(above, _)| query_keys(Some(above), Some(0), asking)).transpose()?;
        let above =
            above.as_ref().and_then(|found| found.first()?.property_value("encryptionroot"));
        let mut wanted = above.into_iter().filter(|name| *name != root).chain([root]);
        wanted.try_for_each(|name| load_if_locked(name, asking).map(drop))
    }
}

/// Loads the key of an encryption root, if it is locked.
fn load_if_locked(root: &str, asking: &DaemonArgs) -> CommandResult {
    let found = query_keys(Some(root), Some(0), asking)?;
    run_for_each(found.iter().filter(|it| it.key == KeyState::Locked), |root| {
        load_key(root, None, false, asking)
    })
}

/// Loads the missing keys of a dataset and its descendants; no name: those of all.
pub(super) fn load_keys(name: Option<&str>, below: bool, asking: &DaemonArgs) -> CommandResult {
    let found = query_keys(name, (!below).then_some(0), asking)?;
    let locked = found.iter().filter(|it| it.key == KeyState::Locked);
    let roots: BTreeSet<&str> =
        locked.filter_map(|it| it.property_value("encryptionroot")).collect();
    run_for_each(roots, |root| load_if_locked(root, asking))
}

/// Locks those datasets that have keys of their own, which are not mounted.
pub(super) fn unload_keys(names: &[String], asking: &DaemonArgs) -> CommandResult {
    run_for_each(names, |name| {
        let mut found = query_keys(Some(name), Some(0), asking)?;
        let own = |root: &Dataset| root.property_value("encryptionroot") == Some(name);
        found.retain(|root| own(root) && root.key == KeyState::Unlocked);
        run_for_each(found, |root| asking.execute(&UnloadKey { name: root.name }))
    })
}

/// Loads the key of an encryption root from where it is.
fn load_key(
    root: &Dataset,
    location: Option<&str>,
    dry_run: bool,
    asking: &DaemonArgs,
) -> CommandResult {
    let location = location.or(root.property_value("keylocation")).unwrap_or("prompt");
    let secret = read_secret(
        &root.name,
        location,
        root.property_value("keyformat").unwrap_or("raw"),
        false,
    )?;
    asking.execute(&LoadKey { name: root.name.clone(), secret, dry_run })
}

/// Datasets with their key properties.
fn query_keys(
    name: Option<&str>,
    depth: Option<usize>,
    asking: &DaemonArgs,
) -> Result<Vec<Dataset>, Failure> {
    let properties = ["encryptionroot", "keyformat", "keylocation"].map(str::to_owned).to_vec();
    let kinds = vec!["filesystem".to_owned(), "volume".to_owned()];
    let wanted = DatasetQuery { kinds, depth, properties };
    let names = name.map(str::to_owned).into_iter().collect();
    asking.request(&ListDatasets::new(names, wanted))
}

/// A refusal of `zfs load-key`, `unload-key` or `change-key`.
fn key_error(verb: &str, why: &str) -> Failure {
    engine::Error::Refused { what: format!("Key {verb} error: {why}") }.into()
}

/// The encryption roots that are meant: the dataset's own, or all at and below it.
fn encryption_roots(
    verb: &str,
    name: Option<&str>,
    several: bool,
    asking: &DaemonArgs,
) -> Result<Vec<Dataset>, Failure> {
    if several {
        let mut found = query_keys(name, None, asking)?;
        found.retain(|it| it.property_value("encryptionroot") == Some(it.name.as_str()));
        return Ok(found);
    }
    let name = name.unwrap_or_default();
    let found = query_keys(Some(name), Some(0), asking)?;
    let root = found.first().and_then(|it| it.property_value("encryptionroot"));
    match root.filter(|root| !["-", "none", ""].contains(root)) {
        Some(root) if root == name => Ok(found),
        Some(root) => {
            let why = format!("Keys must be {verb}ed for encryption root of '{name}' ({root}).");
            Err(key_error(verb, &why))
        }
        None => Err(key_error(verb, &format!("'{name}' is not encrypted."))),
    }
}
