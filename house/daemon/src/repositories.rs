//! The repositories of backups in the configuration, and the keys of their buckets.
//!
//! ```toml
//! [[repository]]
//! location = "s3://backups/nas"                # or "file:///mnt/usb/backup", which has no credentials
//! credentials = "/etc/poolhouse/backup.env"    # the variables of S3 tools, a line each: AWS_ACCESS_KEY_ID=...,
//!                                              # AWS_SECRET_ACCESS_KEY=..., AWS_REGION=..., AWS_ENDPOINT_URL=...
//! ```
//!
//! A repository is opened for each request: others may write to it, and its state is that of its newest head.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use api::{CreateRepository, RepositorySnapshot, RepositoryState};
use bucket::S3Access;
use engine::backup::{BackupRepository, SnapshotSummary};
use engine::files::{DatasetCatalog as _, FileSystemReader};
use engine::pool::FillRandom;
use serde::Deserialize;

use crate::config::Config;
use crate::environment::fill_random;
use crate::events::unix_seconds;
use crate::{Error, Result, secret_file};

/// The name of the section.
pub(crate) const SECTION: &str = "repository";

/// A section `[[repository]]`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RepositoryConfig {
    /// The address.
    location: String,
    /// The file with the keys of the bucket, which only its owner may read.
    credentials: Option<PathBuf>,
}

/// How the bucket of a repository is reached, by the configuration. None: its section names no credentials.
pub(crate) fn access(config: &Config, location: &str) -> Result<Option<S3Access>> {
    let known: Vec<RepositoryConfig> = config.section(SECTION);
    let found = known.into_iter().find(|it| it.location == location);
    let Some(path) = found.and_then(|it| it.credentials) else { return Ok(None) };
    let failed = |why: &str| Error::refused_error(format!("'{}': {why}", path.display()));
    let text = secret_file::read(&path).map_err(|why| failed(&why))?;
    let variables = parse_variables(&String::from_utf8_lossy(&text));
    let access = S3Access::from_variables(&|name| variables.get(name).cloned());
    let missing = "it has no AWS_ACCESS_KEY_ID=... and AWS_SECRET_ACCESS_KEY=...";
    access.map(Some).ok_or_else(|| failed(missing))
}

/// The lines `NAME=value`, as systemd and shells read them. A value may be in quotes.
fn parse_variables(text: &str) -> HashMap<String, String> {
    let lines = text.lines().map(str::trim).filter(|line| !line.starts_with('#'));
    let pairs = lines.filter_map(|line| {
        let (name, value) = line.strip_prefix("export ").unwrap_or(line).split_once('=')?;
        let quoted = ['"', '\''].iter().find_map(|quote| {
            value.trim().strip_prefix(*quote).and_then(|value| value.strip_suffix(*quote))
        });
        Some((name.trim().to_owned(), quoted.unwrap_or(value.trim()).to_owned()))
    });
    pairs.collect()
}

fn open(config: &Config, location: &str) -> Result<BackupRepository> {
    let store = bucket::open(location, false, access(config, location)?.as_ref())?;
    Ok(BackupRepository::open(store)?)
}

/// The repositories of the configuration, each as it is now.
pub(crate) fn states(config: &Config) -> Vec<RepositoryState> {
    let known: Vec<RepositoryConfig> = config.section(SECTION);
    let state = |RepositoryConfig { location, .. }: RepositoryConfig| match open(config, &location)
    {
        Ok(repository) => {
            let snapshots = repository.snapshots();
            RepositoryState {
                location,
                problem: None,
                stored: repository.stored_bytes(),
                snapshots: snapshots.len(),
                newest: snapshots.iter().map(|it| it.creation).max(),
            }
        }
        Err(why) => {
            let problem = Some(why.to_string());
            RepositoryState { location, problem, ..RepositoryState::default() }
        }
    };
    known.into_iter().map(state).collect()
}

/// Creates a repository. Returns its ID.
pub(crate) fn create(config: &Config, call: &CreateRepository) -> Result<String> {
    let access = access(config, &call.location)?;
    let store = bucket::open(&call.location, true, access.as_ref())?;
    // getrandom(2) worked when the daemon started, and always works then
    let random: Arc<FillRandom> =
        Arc::new(|bytes| fill_random(bytes).expect("the system gave random bytes before"));
    Ok(BackupRepository::create(store, &random, unix_seconds())?.id().to_owned())
}

/// The snapshots in a repository.
pub(crate) fn snapshots(config: &Config, location: &str) -> Result<Vec<RepositorySnapshot>> {
    let plain = |it: SnapshotSummary| RepositorySnapshot {
        dataset: it.dataset,
        name: it.snapshot,
        creation: it.creation,
        referenced: it.referenced,
        added: it.added,
        is_encrypted: it.encrypted,
        is_volume: it.volume,
    };
    Ok(open(config, location)?.snapshots().into_iter().map(plain).collect())
}

/// The files of a snapshot in a repository.
pub(crate) fn reader(config: &Config, location: &str, snapshot: &str) -> Result<FileSystemReader> {
    Ok(open(config, location)?.open_filesystem(snapshot)?.0)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;
    use std::path::PathBuf;

    use super::{access, create, parse_variables, snapshots, states};
    use crate::config::Config;

    fn scratch_dir(name: &str) -> PathBuf {
        let dir = format!("poolhouse-repository-{name}-{}", std::process::id());
        let dir = std::env::temp_dir().join(dir);
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(&dir).unwrap();
        dir
    }

    #[test]
    fn variables_are_read_as_shells_do() {
        let text = "# keys\nAWS_ACCESS_KEY_ID=AKIA\nexport AWS_REGION = 'eu-1'\nAWS_SECRET_ACCESS_KEY=\"a=b\"\n\nx\n";
        let found = parse_variables(text);
        let value = |name: &str| found.get(name).map(String::as_str);
        assert_eq!(value("AWS_ACCESS_KEY_ID"), Some("AKIA"));
        assert_eq!(value("AWS_REGION"), Some("eu-1"));
        assert_eq!(value("AWS_SECRET_ACCESS_KEY"), Some("a=b"));
        assert_eq!(found.len(), 3);
    }

    #[test]
    fn keys_come_from_private_files_only() {
        let dir = scratch_dir("keys");
        let path = dir.join("keys.env");
        let text = format!(
            "[[repository]]\nlocation = \"s3://b/nas\"\ncredentials = \"{}\"\n",
            path.display()
        );
        let config = Config::parse(&text).unwrap();
        assert_eq!(access(&config, "s3://other").unwrap().map(|it| it.key_id), None);
        std::fs::write(&path, "AWS_ACCESS_KEY_ID=AKIA\nAWS_SECRET_ACCESS_KEY=secret\n").unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        let why = access(&config, "s3://b/nas").err().unwrap().to_string();
        assert!(why.contains("chmod 600"), "{why}");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        assert_eq!(access(&config, "s3://b/nas").unwrap().unwrap().key_id, "AKIA");
        std::fs::write(&path, "AWS_REGION=eu-1\n").unwrap();
        let why = access(&config, "s3://b/nas").err().unwrap().to_string();
        assert!(why.contains("AWS_SECRET_ACCESS_KEY") && !why.contains("eu-1"), "{why}");
        std::fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn repositories_are_listed_with_their_problems() {
        let dir = scratch_dir("states");
        let location = format!("file://{}", dir.join("backup").display());
        let text = format!("[[repository]]\nlocation = \"{location}\"\n");
        let config = Config::parse(&text).unwrap();
        assert!(states(&config)[0].problem.is_some());
        let id = create(&config, &api::CreateRepository { location: location.clone() }).unwrap();
        assert!(!id.is_empty());
        let state = states(&config).remove(0);
        assert_eq!((state.problem, state.snapshots, state.newest), (None, 0, None));
        assert!(snapshots(&config, &location).unwrap().is_empty());
        assert!(create(&config, &api::CreateRepository { location }).is_err(), "it exists");
        std::fs::remove_dir_all(dir).unwrap();
    }
}
