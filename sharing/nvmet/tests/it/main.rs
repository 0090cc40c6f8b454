//! A server with a volume of a pool in memory, used by a small host.

mod commands;
mod events;
mod fabrics;
mod host;
mod hostile;
mod login;
mod reservations;
mod served_pool;
#[path = "../../../lun/tests/it/volume_pool.rs"]
mod volume_pool;
