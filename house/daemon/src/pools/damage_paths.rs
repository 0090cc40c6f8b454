//! The paths of damaged files in the status of a pool. OpenZFS names a file of a mounted file system by its path, and
//! another one by its dataset: `/tank/home/letter`, `tank/home@monday:/letter`.

use std::path::Path;

use engine::pool::PoolStatus;

use super::ManagedPool;

impl ManagedPool {
    /// The status of the pool, with the paths of damaged files where they are mounted. `verbose`: the names are looked
    /// up again if the pool changed, which is a walk of the datasets.
    pub(super) fn status(&self, verbose: bool) -> PoolStatus {
        if verbose {
            self.handle.scans().refresh_data_errors();
        }
        let mut status = self.handle.status();
        if status.data_errors.is_empty() {
            return status;
        }
        let mounted = self.mounted_filesystems();
        for file in &mut status.data_errors {
            let paths =
                mounted.iter().filter_map(|(dataset, dir)| mounted_path(file, dataset, dir));
            // of two datasets whose names both fit, the longer one is meant
            if let Some((_, path)) = paths.max_by_key(|(length, _)| *length) {
                *file = path;
            }
        }
        status
    }
}

/// The path of a file of a dataset that is mounted at `dir`, and the length of the dataset's name. None: it is a file
/// of another dataset.
fn mounted_path(file: &str, dataset: &str, dir: &Path) -> Option<(usize, String)> {
    let path =
        file.strip_prefix(dataset)?.strip_prefix(':').filter(|path| path.starts_with('/'))?;
    let dir = dir.display().to_string();
    Some((dataset.len(), format!("{}{path}", dir.trim_end_matches('/'))))
}

#[cfg(test)]
mod tests {
    use super::mounted_path;

    #[test]
    fn files_of_mounted_datasets_have_paths() {
        let path =
            |file| mounted_path(file, "tank/home", "/srv/home".as_ref()).map(|found| found.1);
        assert_eq!(path("tank/home:/a: all of it").unwrap(), "/srv/home/a: all of it");
        for other in ["tank/home@one:/a", "tank:/home:/a", "tank/homes:/a", "tank/home"] {
            assert_eq!(path(other), None, "{other}");
        }
        assert_eq!(mounted_path("tank:/a", "tank", "/".as_ref()).unwrap().1, "/a");
    }
}
