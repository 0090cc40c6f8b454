//! The iSCSI target over volumes of real pools, on loopback.

mod commands;
mod faults;
mod hostile;
mod initiator;
mod lifecycle;
mod login;
mod programs;
mod reservations;
mod served_pool;
#[path = "../../../lun/tests/it/volume_pool.rs"]
mod volume_pool;
mod wire;
