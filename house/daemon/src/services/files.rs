//! The service of files in snapshots, of pools and of repositories, and of the repositories themselves.

use std::sync::Arc;

use api::{
    CreateRepository, ListFiles, ListRepositories, ListRepositorySnapshots, RestoreFile,
    RestoreFolder,
};
use engine::files::FileSystemReader;

use super::Service;
use crate::context::Context;
use crate::router::Router;
use crate::{Result, pools, repositories};

/// The service of files in snapshots.
pub(super) struct FileService {
    context: Arc<Context>,
}

impl FileService {
    pub(super) fn new(context: &Arc<Context>) -> Self {
        Self { context: Arc::clone(context) }
    }

    /// The files of a snapshot: of a repository, or of a pool.
    fn reader(&self, repository: Option<&str>, snapshot: &str) -> Result<FileSystemReader> {
        match repository {
            Some(location) => {
                repositories::reader(&self.context.config.current(), location, snapshot)
            }
            None => self.context.pools.snapshot_reader(snapshot),
        }
    }

    fn add_repositories(&self, router: &mut Router) {
        let context = Arc::clone(&self.context);
        router.add(move |_: &ListRepositories, _| {
            Ok(repositories::states(&context.config.current()))
        });
        let context = Arc::clone(&self.context);
        router.add(move |call: &CreateRepository, _| {
            repositories::create(&context.config.current(), call)
        });
        let context = Arc::clone(&self.context);
        router.add(move |call: &ListRepositorySnapshots, _| {
            repositories::snapshots(&context.config.current(), &call.location)
        });
    }
}

impl Service for FileService {
    fn name(&self) -> &'static str {
        "files"
    }

    fn calls(self: Arc<Self>, router: &mut Router) {
        self.add_repositories(router);
        let service = Arc::clone(&self);
        router.add(move |call: &ListFiles, _| {
            let reader = service.reader(call.repository.as_deref(), &call.dataset)?;
            pools::list_files(&reader, call)
        });
        let service = Arc::clone(&self);
        router.add(move |call: &RestoreFile, _| {
            let reader = service.reader(call.repository.as_deref(), &call.snapshot)?;
            service.context.pools.restore_file(&reader, call)
        });
        router.add(move |call: &RestoreFolder, caller| {
            let reader = self.reader(call.repository.as_deref(), &call.snapshot)?;
            self.context.pools.restore_folder(reader, call, caller)
        });
    }
}
