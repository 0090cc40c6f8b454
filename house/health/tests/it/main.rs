//! Drives as smartctl and the kernel describe them, and the verdicts on them.

mod burn_in;
mod history;
mod inventory;
mod locate;
mod recordings;
mod smartctl;
mod verdicts;
