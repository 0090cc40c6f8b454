//! Alerts: told once, and delivered by real programs and a real HTTP server.

mod book;
mod channels;
