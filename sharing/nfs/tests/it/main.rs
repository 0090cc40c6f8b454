//! The server on a pool in memory, and clients over TCP.

mod client;
mod delegations;
mod delegations_v40;
mod hostile;
mod lifecycle;
mod nlm;
mod nlm_client;
mod served_pool;
mod suspended;
mod v3;
mod v3_client;
mod v4;
mod v40;
mod v40_client;
mod v4_client;
mod v4_state;
mod wire;
