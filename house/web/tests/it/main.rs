//! The dashboard in this process: requests without a network, and a daemon that is made up.

mod access;
mod client;
mod pages;
