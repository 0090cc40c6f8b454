//! The command as users run it: on pools made by real OpenZFS, and on other data.

mod api_page;
mod backup;
mod bench;
mod browser;
mod builds;
mod burn_in;
#[path = "../../../../sharing/nfs/tests/it/client.rs"]
#[allow(dead_code, reason = "shared with the tests of nfs, which use all of it")]
mod client;
mod command;
mod config;
mod daemon;
mod dashboard;
mod dataset_commands;
mod destroy_in_use;
mod drives;
#[path = "../../../ups/tests/it/dummy_server.rs"]
mod dummy_server;
mod errors;
mod events;
mod fans;
mod fixtures;
mod health;
mod iscsi_shares;
mod keys;
mod list;
mod maintenance;
mod memory;
mod mounts;
mod name_conflicts;
mod nfs;
mod nfs_kills;
mod nfs_memory;
mod nvme_shares;
mod packaging;
mod partial_datasets;
mod power;
mod readonly;
mod rebuild;
mod receive_rules;
mod replicas;
mod rescue_get;
mod rescue_manifest;
mod rescue_scan;
mod rescue_streams;
mod rewind;
mod rewrite;
mod script_words;
mod secrets;
mod shares;
mod smb;
mod status;
mod streams;
mod surroundings;
mod syncing;
mod test_nas;
mod ups;
mod users;
#[path = "../../../../sharing/nfs/tests/it/v3_client.rs"]
#[allow(dead_code, reason = "shared with the tests of nfs, which use all of it")]
mod v3_client;
#[path = "../../../../sharing/nfs/tests/it/v4_client.rs"]
#[allow(dead_code, reason = "shared with the tests of nfs, which use all of it")]
mod v4_client;
mod vdev_properties;
mod words;
mod write_protected;
mod zfs_syntax;
mod zvol_devices;
