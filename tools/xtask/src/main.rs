//! `cargo xtask floors|picture|licences|tidy|ratchet`: runs the rules by hand.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use xtask::{Violation, floors, format_violations, licences, picture, root, tidy};

const USAGE: &str = "\
cargo xtask floors     every crate imports only from lower floors
cargo xtask picture    redraws the floors in ARCHITECTURE.md
cargo xtask licences   the licences of all dependencies are among those of deny.toml
cargo xtask tidy       the house rules for files and functions
cargo xtask ratchet    tightens tools/xtask/ratchet.txt to what is true now (never loosens it)
cargo xtask accept     loosens it to what is true now: say why in the commit";

fn main() -> ExitCode {
    let root = root();
    let result = match std::env::args().nth(1).as_deref() {
        Some("floors") => floors::check(&root),
        Some("picture") => picture::redraw(&root),
        Some("licences") => licences::check(&root),
        Some("tidy") => tidy::check(&root),
        Some("ratchet") => tidy::tighten(&root),
        Some("accept") => tidy::accept(&root),
        _ => Err(vec![Violation::new("usage", format!("\n{USAGE}"))]),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(violations) => {
            eprint!("{}", format_violations(&violations));
            ExitCode::FAILURE
        }
    }
}
