//! Honest arithmetic: clamps are counted and may not become more, assertions may not become rare.
//!
//! A clamp is a `saturating_*` operation, or a conversion with a default (`u32::try_from(x).unwrap_or(0)`). It hides
//! a mistake of ours: the sum is wrong, and nobody learns of it. STYLE.md says what to write instead. The ratchet
//! holds the number of clamps of each crate; all crates together may have [`MAX_CLAMPS`]. [`EXEMPT`] lists the
//! modules in which a clamp hides no mistake.

use std::collections::BTreeMap;

use syn::visit::{self, Visit};

use super::SourceFile;
use super::ratchet::{LimitKind, Sizes};
use super::rust::is_test_item;
use crate::Violation;

/// Clamps that all crates may have together.
const MAX_CLAMPS: usize = 100;
/// Assertions for each ten thousand lines of the storage engine, at least. The aim is 40: raise this with them.
const MIN_ASSERTIONS_PER_TEN_THOUSAND_LINES: usize = 39;

/// Paths whose clamps are not counted, and why.
const EXEMPT: [(&str, &str); 20] = [
    ("storage/ondisk/src/", "bytes from a disk are any number, and the crate must never panic"),
    ("storage/geometry/src/capacity.rs", "sizes as a label or a user says them"),
    ("storage/spa/src/capacity.rs", "figures of a pool that is only read, from its records"),
    ("storage/arc/src/l2/rebuild.rs", "log blocks of a cache device, as a disk has them"),
    ("storage/zpl/src/replay", "records of the intent log, as a disk has them"),
    ("storage/zpl/src/writer/replay.rs", "records of the intent log, as a disk has them"),
    ("storage/zvol/src/replay.rs", "records of the intent log, as a disk has them"),
    ("storage/send/src/", "records of a stream, as the sender made them"),
    ("sharing/nfs/src/wire/", "fields of requests, as a client sent them"),
    ("sharing/iscsi/src/wire/", "fields of requests, as an initiator sent them"),
    (
        "sharing/iscsi/src/scsi/",
        "fields of SCSI data are narrower, and have the greatest number for more",
    ),
    ("sharing/nbd/src/wire/", "fields of requests, as a client sent them"),
    ("sharing/nvmet/src/", "fields of commands and responses, which are narrower"),
    ("sharing/fusedev/src/", "fields of the kernel's requests and replies"),
    ("house/poolhouse/src/", "figures that are shown"),
    ("house/lab/src/", "figures that were measured, and are shown"),
    ("house/planner/src/", "figures of pools that a user thinks of"),
    ("house/raster/src/", "sizes of pictures"),
    ("house/bucket/src/", "lengths as an object store reports them"),
    ("tools/", "programs that test"),
];

/// Clamps and assertions of files.
#[derive(Debug, Default)]
pub(super) struct Counts {
    /// Clamps by the folder of the crate.
    clamps: BTreeMap<String, usize>,
    /// Assertions and lines of the storage engine.
    assertions: usize,
    lines: usize,
}

impl Counts {
    /// Adds a file of a crate in `dir`.
    pub(super) fn add(&mut self, dir: &str, file: &SourceFile) {
        if file.is_test || file.is_generated {
            return;
        }
        let Ok(parsed) = syn::parse_file(&file.text) else { return };
        let mut counter = Counter::default();
        counter.visit_file(&parsed);
        if counter.clamps > 0 && !EXEMPT.iter().any(|(path, _)| file.path.starts_with(path)) {
            *self.clamps.entry(dir.to_owned()).or_default() += counter.clamps;
        }
        if file.path.starts_with("storage/") {
            self.assertions += counter.assertions;
            self.lines += file.text.lines().count() - counter.test_lines;
        }
    }

    /// The clamps for the ratchet, and what is wrong with the sums.
    pub(super) fn finish(self, sizes: &mut Sizes) -> Vec<Violation> {
        let all: usize = self.clamps.values().sum();
        let mut violations = Vec::new();
        if all > MAX_CLAMPS {
            let what = format!("{all} clamps, more than {MAX_CLAMPS}: see STYLE.md, Arithmetic");
            violations.push(Violation::new("all crates", what));
        }
        if self.assertions * 10_000 < self.lines * MIN_ASSERTIONS_PER_TEN_THOUSAND_LINES {
            let what = format!(
                "{} assertions in {} lines, less than {MIN_ASSERTIONS_PER_TEN_THOUSAND_LINES} in \
                 ten thousand",
                self.assertions, self.lines
            );
            violations.push(Violation::new("storage", what));
        }
        for (dir, count) in self.clamps {
            sizes.insert((LimitKind::Clamps, dir, "-".to_owned()), count);
        }
        violations
    }
}

#[derive(Debug, Default)]
struct Counter {
    clamps: usize,
    assertions: usize,
    test_lines: usize,
}

fn is_clamp_name(name: &syn::Ident) -> bool {
    let name = name.to_string();
    // a time that is left has no name of its own in std
    name.starts_with("saturating_") && name != "saturating_duration_since"
}

fn path_ends(path: &syn::Expr, wanted: &str) -> bool {
    let syn::Expr::Path(path) = path else { return false };
    path.path.segments.last().is_some_and(|last| last.ident == wanted)
}

/// Whether an expression converts a number and may fail.
fn is_conversion(expr: &syn::Expr) -> bool {
    match expr {
        syn::Expr::Call(call) => path_ends(&call.func, "try_from"),
        syn::Expr::MethodCall(call) => {
            call.method == "try_into" || call.method == "ok" && is_conversion(&call.receiver)
        }
        _ => false,
    }
}

impl<'ast> Visit<'ast> for Counter {
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if is_test_item(&item.attrs) {
            let span = syn::spanned::Spanned::span(item);
            self.test_lines += span.end().line - span.start().line + 1;
            return;
        }
        visit::visit_item_mod(self, item);
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        if !is_test_item(&item.attrs) {
            visit::visit_item_fn(self, item);
        }
    }

    fn visit_expr_method_call(&mut self, call: &'ast syn::ExprMethodCall) {
        let has_default = call.method == "unwrap_or" || call.method == "unwrap_or_default";
        if is_clamp_name(&call.method) || has_default && is_conversion(&call.receiver) {
            self.clamps += 1;
        }
        visit::visit_expr_method_call(self, call);
    }

    fn visit_expr_path(&mut self, path: &'ast syn::ExprPath) {
        // `u64::saturating_add` as a function, and `units::narrow`, which asserts that a number fits
        let last = path.path.segments.last();
        if last.is_some_and(|last| is_clamp_name(&last.ident)) {
            self.clamps += 1;
        }
        if last.is_some_and(|last| last.ident == "narrow") {
            self.assertions += 1;
        }
        visit::visit_expr_path(self, path);
    }

    fn visit_macro(&mut self, item: &'ast syn::Macro) {
        let name = item.path.segments.last().map(|last| last.ident.to_string()).unwrap_or_default();
        if name.starts_with("assert") || name.starts_with("debug_assert") {
            self.assertions += 1;
        }
        visit::visit_macro(self, item);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(path: &str, text: &str) -> (usize, usize) {
        let mut counts = Counts::default();
        counts.add("storage/x", &SourceFile::with_all_rules(path, text));
        (counts.clamps.values().sum(), counts.assertions)
    }

    #[test]
    fn clamps_and_assertions_are_counted() {
        let text = "fn f(a: u64, b: u64) -> u32 {
            assert!(a > b);
            let c = a.saturating_sub(b) + [a, b].iter().copied().fold(0, u64::saturating_add);
            let d: u32 = c.try_into().unwrap_or_default();
            units::narrow::<u32>(a) + d + u32::try_from(c).unwrap_or(u32::MAX)
        }";
        assert_eq!(count("storage/x/src/a.rs", text), (4, 2));
        assert_eq!(count("storage/ondisk/src/a.rs", text), (0, 2));
    }

    #[test]
    fn other_defaults_and_tests_are_no_clamps() {
        let text = "fn f(a: Option<u64>) -> u64 { a.unwrap_or(0) + g.unwrap_or_default() }
            fn g(until: Instant) -> Duration { until.saturating_duration_since(now) }
            #[cfg(test)] mod tests { fn f() { assert!(1_u64.saturating_sub(2) == 0); } }";
        assert_eq!(count("storage/x/src/a.rs", text), (0, 0));
    }

    #[test]
    fn clamps_and_missing_assertions_are_reported() {
        let mut sizes = Sizes::new();
        let clamps = BTreeMap::from([("storage/x".to_owned(), MAX_CLAMPS + 1)]);
        let counts =
            Counts { clamps, assertions: MIN_ASSERTIONS_PER_TEN_THOUSAND_LINES - 1, lines: 10_000 };
        assert_eq!(counts.finish(&mut sizes).len(), 2);
        assert_eq!(sizes.values().copied().collect::<Vec<_>>(), [MAX_CLAMPS + 1]);
        let enough = Counts {
            assertions: MIN_ASSERTIONS_PER_TEN_THOUSAND_LINES,
            lines: 10_000,
            ..Counts::default()
        };
        assert_eq!(enough.finish(&mut sizes), []);
    }
}
