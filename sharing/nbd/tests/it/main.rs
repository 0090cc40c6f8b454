//! The NBD server over volumes of real pools, on loopback.

mod client;
mod encryption;
mod histories;
mod hostile;
mod lifecycle;
mod negotiation;
mod programs;
mod requests;
mod served_pool;
#[path = "../../../lun/tests/it/volume_pool.rs"]
mod volume_pool;
mod wire;
