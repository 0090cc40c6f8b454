//! Output to standard error: errors, warnings. And JSON to standard output.

use std::fmt::Display;
use std::io::{self, IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};

use serde::Serialize;

/// Whether messages stand alone, as those of zpool(8) and zfs(8).
static IS_PLAIN: AtomicBool = AtomicBool::new(false);

/// From now on, messages stand alone, as those of zpool(8) and zfs(8).
pub(crate) fn use_plain_messages() {
    IS_PLAIN.store(true, Ordering::Relaxed);
}

/// Says what went wrong.
pub(crate) fn error(what: &dyn Display) {
    print_message("error", "31", what);
}

/// Prints a warning; the work continues.
pub(crate) fn warning(what: &dyn Display) {
    print_message("warning", "33", what);
}

/// Prints the present step of long work.
pub(crate) fn info(what: &dyn Display) {
    print_message("note", "36", what);
}

fn print_message(word: &str, colour: &str, what: &dyn Display) {
    let mut err = io::stderr().lock();
    if IS_PLAIN.load(Ordering::Relaxed) {
        let _ = match word {
            "error" => writeln!(err, "{what}"),
            "warning" => writeln!(err, "Warning: {what}"),
            _ => writeln!(err, "{word}: {what}"),
        };
        return;
    }
    let colourful = err.is_terminal() && std::env::var_os("NO_COLOR").is_none();
    // an error of this output cannot be reported
    let _ = if colourful {
        writeln!(err, "\x1b[1;{colour}m{word}:\x1b[0m {what}")
    } else {
        writeln!(err, "poolhouse: {word}: {what}")
    };
}

/// Prints a line.
pub(crate) fn line(text: &str) -> io::Result<()> {
    writeln!(io::stdout().lock(), "{text}")
}

/// Prints facts as JSON.
pub(crate) fn json(facts: &impl Serialize) -> io::Result<()> {
    let mut out = io::BufWriter::new(io::stdout().lock());
    serde_json::to_writer_pretty(&mut out, facts)?;
    writeln!(out)?;
    out.flush()
}
