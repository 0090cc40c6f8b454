//! Keys: read from the files that the user names or the pool knows, or typed in.

use std::io::{BufRead, IsTerminal, Read};
use std::path::Path;

use api::Secret;
use engine::{Error, KeyState, RescuePool};

use crate::outcome::Failure;
use crate::print;

/// How often a passphrase may be mistyped.
const MAX_PASSPHRASE_TRIES: usize = 3;

/// Loads the keys of `DATASET=FILE`, as far as they are for this pool.
pub(crate) fn load_key_files(pool: &RescuePool, given: &[String]) -> Result<(), Failure> {
    for each in given {
        let (dataset, file) = each.rsplit_once('=').ok_or_else(|| {
            Failure::usage(format!("--key {each}: write DATASET=FILE, as in tank/home=key.txt"))
        })?;
        let secret = read_key_file(Path::new(file))?;
        pool.load_key(dataset, &secret)?;
    }
    Ok(())
}

/// Loads the keys that are still wanted for the dataset `inside` the pool ("" is its root) and
/// those below. That a key cannot be had is not a failure: the dataset stays locked.
pub(crate) fn load_missing_keys(pool: &RescuePool, inside: &str) -> Result<(), Failure> {
    for root in pool.encryption_roots() {
        let below = root.name.split_once('/').map_or("", |(_, rest)| rest);
        let wanted = is_within(below, inside) || is_within(inside, below);
        if root.state == KeyState::Locked && wanted && !load_from_keylocation(pool, &root) {
            prompt_key(pool, &root)?;
        }
    }
    Ok(())
}

/// Whether a name is another or lies below it.
fn is_within(name: &str, other: &str) -> bool {
    let rest = name.strip_prefix(other);
    other.is_empty() || rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Reads the key from the dataset's keylocation.
fn load_from_keylocation(pool: &RescuePool, root: &engine::EncryptionRoot) -> bool {
    let Some(path) = root.location.strip_prefix("file://") else { return false };
    let Ok(secret) = std::fs::read(path) else { return false };
    match pool.load_key(&root.name, &secret) {
        Ok(()) => true,
        Err(error) => {
            print::warning(&format!("the key in {path}: {error}"));
            false
        }
    }
}

/// Prompts for it on a terminal.
fn prompt_key(pool: &RescuePool, root: &engine::EncryptionRoot) -> Result<(), Failure> {
    if root.format == "raw" || !std::io::stdin().is_terminal() {
        return Ok(());
    }
    let what = if root.format == "hex" { "Key (64 hexadecimal digits)" } else { "Passphrase" };
    for _ in 0..MAX_PASSPHRASE_TRIES {
        let prompt = format!("{what} of {} (empty: leave it locked): ", root.name);
        let secret = rpassword::prompt_password(prompt)?;
        if secret.is_empty() {
            return Ok(());
        }
        match pool.load_key(&root.name, secret.as_bytes()) {
            Ok(()) => return Ok(()),
            Err(error) => print::error(&error),
        }
    }
    Ok(())
}

pub(crate) fn read_key_file(path: &Path) -> Result<Vec<u8>, Failure> {
    let failed = |error: std::io::Error| {
        let (path, reason) = (path.display().to_string(), engine::error::io_error_text(&error));
        Failure::Engine(Error::UnusablePath { path, reason })
    };
    std::fs::read(path).map_err(failed)
}

/// The key of a new dataset, if its properties require one of its own.
pub(crate) fn read_new_key(
    name: &str,
    properties: &[(String, String)],
) -> Result<Option<Secret>, Failure> {
    let Some(format) = value_of(properties, "keyformat") else { return Ok(None) };
    let location = value_of(properties, "keylocation").unwrap_or("prompt");
    read_secret(name, location, format, true).map(Some)
}

/// The same for a dataset that is received: standard input is the stream.
pub(crate) fn read_receive_key(
    name: &str,
    properties: &[(String, String)],
) -> Result<Option<Secret>, Failure> {
    let has_format = value_of(properties, "keyformat").is_some();
    let location = value_of(properties, "keylocation").unwrap_or("prompt");
    if has_format && location == "prompt" {
        let why = "Cannot use \"prompt\" keylocation because stdin is in use.";
        return Err(Failure::usage(format!("cannot receive into '{name}': {why}")));
    }
    read_new_key(name, properties)
}

fn value_of<'a>(properties: &'a [(String, String)], wanted: &str) -> Option<&'a str> {
    let found = properties.iter().rev().find(|(name, _)| name == wanted);
    found.map(|(_, value)| value.as_str())
}

/// A key from where it is. One that is typed in for the first time (`new`) is typed in twice.
pub(crate) fn read_secret(
    name: &str,
    location: &str,
    format: &str,
    new: bool,
) -> Result<Secret, Failure> {
    if let Some(path) = location.strip_prefix("file://") {
        return read_key_file(Path::new(path)).map(Secret);
    }
    if location != "prompt" {
        let why = "keys are read from files and prompts only";
        return Err(Failure::usage(format!("'{name}' has keylocation={location}: {why}")));
    }
    let mut input = std::io::stdin().lock();
    if !input.is_terminal() {
        let mut secret = Vec::new();
        if format == "raw" {
            input.read_to_end(&mut secret)?;
        } else {
            // a line each, if several are wanted
            input.read_until(b'\n', &mut secret)?;
        }
        return Ok(Secret(secret));
    }
    drop(input);
    if format == "raw" {
        let why = "a raw key is not text: give it from a file, or to standard input";
        return Err(Failure::usage(format!("'{name}': {why}")));
    }
    let what = if format == "hex" { "Key (64 hexadecimal digits)" } else { "Passphrase" };
    let secret = rpassword::prompt_password(format!("{what} of {name}: "))?;
    if new && rpassword::prompt_password("The same again: ")? != secret {
        return Err(Failure::usage("these were not the same"));
    }
    Ok(Secret(secret.into_bytes()))
}

#[cfg(test)]
mod tests {
    use super::is_within;

    #[test]
    fn below_is_by_whole_names() {
        assert!(is_within("a/b", "a") && is_within("a", "a") && is_within("a", ""));
        assert!(!is_within("ab", "a") && !is_within("a", "a/b"));
    }
}
