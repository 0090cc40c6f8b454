//! Logical units over volumes of real pools.

mod copies;
mod power_cuts;
mod unit_table;
mod volume_pool;
mod volumes;
