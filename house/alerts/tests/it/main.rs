//! Alerts: sent once, and delivered by real programs and a real HTTP server.

mod channels;
mod store;
