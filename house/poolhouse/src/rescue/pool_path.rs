//! `POOL/FS[@SNAP]:/PATH`: a file in a pool or a backup repository, as users name it.

use std::collections::HashMap;
use std::sync::Arc;

use engine::Error;
use engine::files::{DatasetCatalog, File, FileSystemReader};

use crate::outcome::Failure;
use crate::pool_args::{PoolArgs, pool_name};
use crate::print;

/// A file in a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PoolPath {
    /// The file system or snapshot, by its full name.
    pub(crate) dataset: String,
    /// The path in it, its parts split by `/`; empty for the root.
    pub(crate) path: String,
}

impl PoolPath {
    /// Parses the user's text. Names of datasets may have colons, but none before a `/`.
    pub(crate) fn parse(text: &str) -> Result<Self, Failure> {
        let (dataset, path) = match text.split_once(":/") {
            Some((dataset, path)) => (dataset, path),
            None => (text.strip_suffix(':').unwrap_or(text), ""),
        };
        if dataset.is_empty() || dataset.starts_with('/') {
            return Err(Failure::usage(format!(
                "'{text}' is not a path in a pool; write POOL/FS[@SNAP]:/PATH, as in tank/home:/ann"
            )));
        }
        let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
        Ok(Self { dataset: dataset.to_owned(), path: parts.join("/") })
    }

    /// The last part of the path; of a root the last part of the dataset's name.
    pub(crate) fn file_name(&self) -> &str {
        let of = if self.path.is_empty() { &self.dataset } else { &self.path };
        of.rsplit('/').next().unwrap_or(of)
    }

    /// How the place is shown with `below` behind it.
    pub(crate) fn display_with(&self, below: &[u8]) -> Vec<u8> {
        let mut out = format!("{}:/{}", self.dataset, self.path).into_bytes();
        if !below.is_empty() {
            if !self.path.is_empty() {
                out.push(b'/');
            }
            out.extend_from_slice(below);
        }
        out
    }
}

/// The pools and file systems that a command line names, each opened once.
pub(crate) struct OpenDatasets<'a> {
    origin: Origin<'a>,
    filesystems: HashMap<String, FileSystemReader>,
}

/// Where the datasets are.
enum Origin<'a> {
    Pools(&'a PoolArgs, HashMap<String, Arc<dyn DatasetCatalog>>),
    Repository(Arc<dyn DatasetCatalog>),
}

impl<'a> OpenDatasets<'a> {
    /// Those of pools.
    pub(crate) fn in_pools(pool_args: &'a PoolArgs) -> Self {
        Self { origin: Origin::Pools(pool_args, HashMap::new()), filesystems: HashMap::new() }
    }

    /// Those of a backup repository.
    pub(crate) fn in_repository(repository: Arc<dyn DatasetCatalog>) -> Self {
        Self { origin: Origin::Repository(repository), filesystems: HashMap::new() }
    }

    /// The pool that a dataset is of, or the repository.
    pub(crate) fn catalog(&mut self, dataset: &str) -> Result<Arc<dyn DatasetCatalog>, Failure> {
        let (pool_args, pools) = match &mut self.origin {
            Origin::Pools(pool_args, pools) => (pool_args, pools),
            Origin::Repository(repository) => return Ok(Arc::clone(repository)),
        };
        let name = pool_name(dataset);
        if let Some(pool) = pools.get(name) {
            return Ok(Arc::clone(pool));
        }
        let pool: Arc<dyn DatasetCatalog> = Arc::new(pool_args.open_unlocked(dataset)?);
        pools.insert(name.to_owned(), Arc::clone(&pool));
        Ok(pool)
    }

    /// A file system or snapshot by its full name.
    pub(crate) fn filesystem(&mut self, dataset: &str) -> Result<FileSystemReader, Failure> {
        if let Some(files) = self.filesystems.get(dataset) {
            return Ok(files.clone());
        }
        let (files, log) = self.catalog(dataset)?.open_filesystem(dataset)?;
        if let Some(trouble) = log.error {
            print::warning(&format!("{dataset}: {trouble}"));
        }
        self.filesystems.insert(dataset.to_owned(), files.clone());
        Ok(files)
    }

    /// The file at a place.
    pub(crate) fn find_file(
        &mut self,
        place: &PoolPath,
    ) -> Result<(FileSystemReader, File), Failure> {
        let files = self.filesystem(&place.dataset)?;
        let found = files.find(place.path.as_bytes()).map_err(|why| Error::Unreadable {
            subject: String::from_utf8_lossy(&place.display_with(b"")).into_owned(),
            why: why.to_string(),
        })?;
        let missing = || Error::NoSuchFile {
            dataset: place.dataset.clone(),
            path: format!("/{}", place.path),
        };
        Ok((files, found.ok_or_else(missing)?))
    }
}

/// Bytes of a name or path as they may be shown on a terminal: what would steer it is replaced.
pub(crate) fn escape_bytes(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    if !text.chars().any(char::is_control) {
        return text.into_owned();
    }
    text.chars().map(|letter| if letter.is_control() { '?' } else { letter }).collect()
}

/// The same; unchanged if standard output is not a terminal.
pub(crate) fn terminal_bytes(bytes: &[u8], terminal: bool) -> Vec<u8> {
    if terminal { escape_bytes(bytes).into_bytes() } else { bytes.to_vec() }
}

#[cfg(test)]
mod tests {
    use super::PoolPath;

    fn parse(text: &str) -> (String, String) {
        let place = PoolPath::parse(text).unwrap();
        (place.dataset, place.path)
    }

    #[test]
    fn places_are_parsed() {
        let pair = |a: &str, b: &str| (a.to_owned(), b.to_owned());
        assert_eq!(parse("tank"), pair("tank", ""));
        assert_eq!(parse("tank:"), pair("tank", ""));
        assert_eq!(parse("tank/a@s:/"), pair("tank/a@s", ""));
        assert_eq!(parse("tank/a@auto:12:/x//y:/z/"), pair("tank/a@auto:12", "x/y:/z"));
        assert!(PoolPath::parse("/tank").is_err() && PoolPath::parse(":/x").is_err());
    }

    #[test]
    fn places_are_shown_as_they_are_typed() {
        let place = PoolPath::parse("tank/a:/x").unwrap();
        assert_eq!(place.display_with(b"y"), b"tank/a:/x/y");
        assert_eq!(PoolPath::parse("tank").unwrap().display_with(b"y"), b"tank:/y");
        assert_eq!(place.file_name(), "x");
        assert_eq!(PoolPath::parse("tank/a@s").unwrap().file_name(), "a@s");
    }
}
