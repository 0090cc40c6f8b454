//! The API of the daemon: one request type per call, and the data that it answers with.
//!
//! A request is a struct that implements [`Call`]: its method, its path and its reply. The daemon's
//! router, the client of the commands and the description of the API are all made from these types.
//! One file holds one resource.
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

mod alert;
mod backup;
mod benchmark;
mod call;
mod config;
mod daemon;
mod dataset;
mod diff;
mod drive;
mod event;
mod fans;
mod file;
mod hold;
mod job;
mod key;
mod maintenance;
mod mount;
mod overview;
mod permission;
mod policy;
mod pool;
mod replica;
mod repository;
mod rewrite;
mod share;
mod snapshot;
mod stream;
mod time_machine;
mod ups;
mod user;
mod vdev;
mod web;
mod wire;

pub use alert::{AcknowledgeAlert, AlertList, ChannelTest, ListAlerts, TestAlerts};
pub use backup::{BucketAccess, StartBackup, StartedBackup};
pub use benchmark::{Benchmark, BenchmarkList, GetBenchmarkReport, ListBenchmarks};
pub use call::{Call, Method, Refusal, Reply};
pub use config::{AddConfigSection, ConfigReport, GetConfig, RemoveConfigSection, SetConfig};
pub use daemon::{DaemonInfo, GetDaemon, StopDaemon};
pub use dataset::{
    CreateFilesystem, CreateVolume, CreatedVolume, DestroyDatasets, DestroyedDatasets,
    GetDeleteQueue, InheritProperty, ListDatasets, ListOwnerUsage, OwnerKind, PromoteClone,
    RenameDataset, SetProperties, UpgradeFilesystem,
};
pub use diff::{FileChange, ListFileChanges};
pub use drive::{
    BurnInDrive, BurnInReport, BurnInState, CheckDrives, Drive, DriveDetails, DriveList,
    DrivePlace, DrivePower, GetBurnIn, GetDrive, ListDrives, LocateDrive, LocateMethod, NoteDrive,
    TestDrive,
};
pub use event::{Event, EventPage, EventRecord, ListEvents};
pub use fans::{CalibrateFan, FanStatus, GetFans};
pub use file::{FileEntry, ListFiles, RestoreFile, RestoreFolder, StartedRestore, restored_name};
pub use hold::{Hold, ListHolds, PlaceHold, ReleaseHold};
pub use job::{CancelJob, Job, JobProgress, JobState, ListJobs};
pub use key::{ChangeKey, InheritKey, LoadKey, Secret, UnloadKey};
pub use maintenance::{
    ChangePoolGuid, CheckpointPool, GetIoStats, ListUpgrades, SweepDrives, UpgradePool,
};
pub use mount::{ListMounts, Mount, MountOverrides, Mounting, Unmount};
pub use overview::{GetOverview, Overview};
pub use permission::{
    AllowPermissions, DatasetPermissions, GetPermissions, NeededPermission, PermissionTarget,
    RemovePermissions, property_permission,
};
pub use policy::{GetPolicyStatus, PolicyRun, PolicyStatus, RunPolicies};
pub use pool::{
    ClearPool, CreatePool, DestroyPool, ExportPool, FindEncryptionRoots, FindImportablePools,
    GetPoolHistory, GetPoolProperties, GetRewindProgress, GetVdevProperties, ImportPools,
    ImportResult, ImportablePool, ListPools, PoolReport, ScrubPool, SetPoolProperty,
    SetVdevProperty, StopRewindProbe, SyncPools,
};
pub use replica::{
    CopyStatus, GetReplicaStatus, ReplicaStatus, Replicate, ReplicatedDataset, RunReplicas,
    TestReplicas, TestedCopy,
};
pub use repository::{
    CreateRepository, ListRepositories, ListRepositorySnapshots, RepositorySnapshot,
    RepositoryState,
};
pub use rewrite::{GetRewrite, RewriteFiles, RewriteStatus, StartedRewrite};
pub use share::{
    AddShare, GetShares, ImportShares, ImportedShare, ImportedShares, Protocol, RemoveShare,
    ShareClient, ShareFileFormat, ShareFilesystems, ShareState, ShareStatus, SkippedShare,
    UnshareFilesystems,
};
pub use snapshot::{
    CloneSnapshot, CreateBookmark, CreateSnapshots, RedactSnapshot, RollbackDataset,
};
pub use stream::{
    AbortReceive, HealedSnapshot, PlanSend, PlannedSend, ReceiveNaming, ReceiveStream,
    ReceivedSnapshot, ReceivedStream, SendStream,
};
pub use time_machine::{
    AddTimeMachine, ListTimeMachines, RollBackTimeMachine, TimeMachine, TimeMachineSnapshot,
};
pub use ups::{GetUps, UpsStatus};
pub use user::{AddUser, ListUsers, RemoveUser, SetUserPassword, ShareUser};
pub use vdev::{
    AddDevices, AttachDevice, CancelRemoval, ClearLabels, DetachDevice, OfflineDevice,
    OnlineDevice, RemoveDevices, ReopenPools, ReplaceDevice, SplitPool, VdevLayout, VdevRole,
};
pub use web::{
    CertificateStatus, DashboardLinks, DashboardStatus, DashboardUser, FIRST_USER, GetDashboard,
    GetRootCertificate, ListDashboardUsers, RemoveDashboardUser, Role, SetUpDashboard,
    TurnOffDashboard,
};
pub use wire::{
    COMMAND_HEADER, EncodedCall, PREFIX, decode, decode_command, encode, encode_command,
};

/// The pool that a dataset, snapshot or bookmark belongs to.
pub fn pool_of(dataset: &str) -> &str {
    dataset.split(['/', '@', '#']).next().unwrap_or(dataset)
}
