//! The tests of the crate.

mod apcupsd;
mod config;
mod dummy_server;
mod dummy_ups;
mod stages;
mod starttls;
