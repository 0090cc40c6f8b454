//! Logical units over volumes of real pools.

mod power_cuts;
mod volumes;
