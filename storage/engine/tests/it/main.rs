//! Pools through the door: made, filled, left and taken over again.

mod back;
mod brim;
mod cache_drives;
mod cloning;
mod destroying;
mod early;
mod encrypted;
mod healing;
mod held;
mod history;
mod lasting;
mod naming;
mod own;
mod refused;
mod replace;
mod resilver;
mod rewind;
mod room;
mod shared;
mod snapshots;
mod standstill;
mod thick;
mod together;
mod unlinked;
