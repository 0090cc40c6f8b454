//! The API of the daemon: one request type per call, and the data that it answers with.
//!
//! A request is a struct that implements [`Call`]: its method, its path and its answer. The daemon's router,
//! the client of the commands and the description of the API are all made from these types. One file holds
//! one resource.
//!
//! ```text
//! METHOD /api/v1/PATH      {field} in a path is a field of the request, percent-encoded
//!   GET, DELETE            the other fields are the query string; a list repeats its name
//!   POST, PUT, PATCH       the other fields are a JSON object in the body
//! X-Poolhouse-Command      the command line for the history of the pool, percent-encoded
//!
//! 200  {"value": ..., "warnings": [sentence, ...]}
//! 4xx  {"error": sentence, "status": exit status of the command}
//! ```
#![forbid(unsafe_code)]

mod call;
mod config;
mod daemon;
mod dataset;
mod event;
mod job;
mod key;
mod mount;
mod pool;
mod snapshot;
mod stream;
mod vdev;
mod wire;

pub use call::{Call, Method, Refusal, Reply};
pub use config::{ConfigReport, GetConfig, SetConfig};
pub use daemon::{DaemonInfo, GetDaemon, StopDaemon};
pub use dataset::{
    CreateFilesystem, CreateVolume, DestroyDatasets, DestroyedDatasets, InheritProperty,
    ListDatasets, PromoteClone, RenameDataset, SetProperties,
};
pub use event::{Event, EventPage, EventRecord, ListEvents};
pub use job::{CancelJob, Job, JobProgress, JobState, ListJobs};
pub use key::{ChangeKey, InheritKey, LoadKey, Secret, UnloadKey};
pub use mount::{ListMounts, Mount, MountOverrides, Mounting, Unmount};
pub use pool::{
    ClearPool, CreatePool, DestroyPool, ExportPool, FindEncryptionRoots, FindImportablePools,
    GetPoolHistory, GetPoolProperties, GetRewindProgress, ImportPools, ImportResult,
    ImportablePool, ListPools, PoolReport, ScrubPool, SetPoolProperty, StopRewindProbe, SyncPools,
};
pub use snapshot::{CloneSnapshot, CreateBookmark, CreateSnapshots, RollbackDataset};
pub use stream::{ReceiveStream, ReceivedStream, SendStream};
pub use vdev::{
    AddDevices, AttachDevice, ClearLabels, DetachDevice, OfflineDevice, OnlineDevice,
    RemoveDevices, ReopenPools, ReplaceDevice, VdevLayout, VdevRole,
};
pub use wire::{
    COMMAND_HEADER, EncodedCall, PREFIX, decode, decode_command, encode, encode_command,
};

/// The pool that a dataset, snapshot or bookmark belongs to.
pub fn pool_of(dataset: &str) -> &str {
    dataset.split(['/', '@', '#']).next().unwrap_or(dataset)
}
