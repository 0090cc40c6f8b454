//! Logical units over volumes of real pools.

mod power_cuts;
mod volume_pool;
mod volumes;
