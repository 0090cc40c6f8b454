//! `poolhouse zfs load-key` and `unload-key`, and where keys come from.

use std::io::{IsTerminal, Read};

use ::daemon::{Ask, Listing, Secret};
use engine::KeyState;
use engine::dataset::{Dataset, Wanted};

use crate::daemon::Asking;
use crate::keys::read;
use crate::outcome::{Done, Failure, Outcome};

/// Unlock encrypted datasets
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:
  poolhouse zfs load-key tank/private
  poolhouse zfs load-key -L file:///root/key tank/private
  poolhouse zfs load-key -a")]
pub(super) struct Load {
    /// Where the key is: prompt, or file:///PATH; without it where the dataset says
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

impl Load {
    pub(super) fn run(&self, asking: &Asking) -> Done {
        let several = self.all || self.recursive;
        let roots = roots(self.name.as_deref(), several, asking)?;
        for root in &roots {
            if several && root.key != KeyState::Locked {
                continue;
            }
            let location = self.location.as_deref().or(root.value("keylocation"));
            let format = root.value("keyformat").unwrap_or("raw");
            let secret = from(&root.name, location.unwrap_or("prompt"), format, false)?;
            asking.tell(&Ask::LoadKey { name: root.name.clone(), secret })?;
        }
        Ok(Outcome::Complete)
    }
}

/// Lock encrypted datasets, which must not be mounted
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:
  poolhouse zfs unload-key tank/private
  poolhouse zfs unload-key -a")]
pub(super) struct Unload {
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

impl Unload {
    pub(super) fn run(&self, asking: &Asking) -> Done {
        let several = self.all || self.recursive;
        for root in roots(self.name.as_deref(), several, asking)? {
            if !several || root.key == KeyState::Unlocked {
                asking.tell(&Ask::UnloadKey { name: root.name })?;
            }
        }
        Ok(Outcome::Complete)
    }
}

/// The encryption roots that are meant: the dataset's own, or all at and below it.
fn roots(name: Option<&str>, several: bool, asking: &Asking) -> Result<Vec<Dataset>, Failure> {
    let properties = ["encryptionroot", "keyformat", "keylocation"].map(str::to_owned).to_vec();
    let ask = |name: Option<&str>, depth| {
        let kinds = vec!["filesystem".to_owned(), "volume".to_owned()];
        let wanted = Wanted { kinds, depth, properties: properties.clone() };
        let names = name.map(str::to_owned).into_iter().collect();
        asking.ask::<Vec<Dataset>>(&Ask::Datasets(Listing { names, wanted }))
    };
    if several {
        let mut found = ask(name, None)?;
        found.retain(|it| it.value("encryptionroot") == Some(it.name.as_str()));
        return Ok(found);
    }
    let name = name.unwrap_or_default();
    let found = ask(Some(name), Some(0))?;
    let root = found.first().and_then(|it| it.value("encryptionroot"));
    match root.filter(|root| !["-", "none", ""].contains(root)) {
        Some(root) if root == name => Ok(found),
        Some(root) => Err(Failure::usage(format!("'{name}' has its key from '{root}': name that"))),
        None => Err(Failure::usage(format!("'{name}' is not encrypted"))),
    }
}

/// The key of a dataset that is to be, if its properties ask for one of its own.
pub(super) fn of_new(
    name: &str,
    properties: &[(String, String)],
) -> Result<Option<Secret>, Failure> {
    let value = |wanted: &str| {
        let found = properties.iter().rev().find(|(name, _)| name == wanted);
        found.map(|(_, value)| value.as_str())
    };
    let Some(format) = value("keyformat") else { return Ok(None) };
    from(name, value("keylocation").unwrap_or("prompt"), format, true).map(Some)
}

/// A key from where it is. One that is typed in for the first time (`new`) is typed in twice.
fn from(name: &str, location: &str, format: &str, new: bool) -> Result<Secret, Failure> {
    if let Some(path) = location.strip_prefix("file://") {
        return read(std::path::Path::new(path)).map(Secret);
    }
    if location != "prompt" {
        let why = "keys are read from files and prompts only";
        return Err(Failure::usage(format!("'{name}' has keylocation={location}: {why}")));
    }
    if !std::io::stdin().is_terminal() {
        let mut secret = Vec::new();
        std::io::stdin().lock().read_to_end(&mut secret)?;
        return Ok(Secret(secret));
    }
    let what = if format == "hex" { "Key (64 hexadecimal digits)" } else { "Passphrase" };
    let secret = rpassword::prompt_password(format!("{what} of {name}: "))?;
    if new && rpassword::prompt_password("The same again: ")? != secret {
        return Err(Failure::usage("these were not the same"));
    }
    Ok(Secret(secret.into_bytes()))
}
