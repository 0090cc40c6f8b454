//! Pools mounted, and looked at through the kernel.

mod acls;
mod bind_mounts;
mod client;
mod cloning;
mod coherence;
mod coherence_step;
mod conforms;
mod control_dir;
mod filesystem;
mod flags;
mod locks;
mod manifest;
mod many;
mod mapped;
mod mapping;
mod mount_client;
mod mounted_fixture;
mod mounted_pool;
mod names;
mod rewriting;
mod rollback;
mod snapshot_mounts;
mod suspension;
mod syncing;
mod volumes;
