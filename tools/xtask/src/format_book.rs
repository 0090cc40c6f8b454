//! The book of the on-disk format in `docs/format`, made from the drawings at the top of the files of `ondisk`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use crate::{Violation, relative_path};

const SOURCE: &str = "storage/ondisk/src";
const BOOK: &str = "docs/format";

/// A chapter: the name of its file, its title, and the modules it shows, in the order of a reader.
type Chapter = (&'static str, &'static str, &'static [&'static str]);

const CHAPTERS: &[Chapter] = &[
    (
        "labels",
        "Labels and uberblocks",
        &["label/mod", "label/config", "label/vdev", "uberblock", "version", "feature"],
    ),
    ("nvlists", "Name/value lists", &["nvlist/mod", "nvlist/xdr", "nvlist/native"]),
    ("blocks", "Block pointers", &["dva", "blkptr", "gang", "indirect"]),
    ("objects", "Objects and object sets", &["objset", "dnode", "object_type", "swap"]),
    (
        "zap",
        "Tables of names (ZAP)",
        &["zap/mod", "zap/micro", "zap/fat", "zap/pointers", "zap/leaf", "zap/hash"],
    ),
    (
        "datasets",
        "Datasets and snapshots",
        &[
            "dsl/mod",
            "dsl/dir",
            "dsl/dataset",
            "dsl/deadlist",
            "dsl/bpobj",
            "dsl/bookmark",
            "dsl/delegation",
            "history",
            "scan",
            "rebuild",
        ],
    ),
    ("space", "Free space", &["spacemap"]),
    ("files", "Files", &["sa/mod", "znode", "acl/mod"]),
    ("intent-log", "The intent log", &["zil/mod", "zil/record", "zil/body", "zil/create"]),
    (
        "dedup",
        "Dedup and block cloning",
        &["dedup/mod", "dedup/value", "dedup/log", "dedup/clones"],
    ),
    ("cache-drives", "Cache drives", &["l2arc/mod", "l2arc/header", "l2arc/log"]),
    (
        "streams",
        "Send streams",
        &[
            "stream/mod",
            "stream/begin",
            "stream/object",
            "stream/block",
            "stream/range",
            "stream/package",
            "stream/keydata",
        ],
    ),
];

/// Whether the book shows the drawings as they are, and every file that has one.
pub fn check(root: &Path) -> Result<(), Vec<Violation>> {
    let mut violations = undrawn_files(root)?;
    for (path, text) in render(root)? {
        if std::fs::read_to_string(root.join(&path)).ok().as_deref() != Some(&text) {
            let message = "the book of the format is stale: run `cargo xtask format`";
            violations.push(Violation::new(path.display().to_string(), message));
        }
    }
    if violations.is_empty() { Ok(()) } else { Err(violations) }
}

/// Writes the book.
pub fn write(root: &Path) -> Result<(), Vec<Violation>> {
    let fail = |error: std::io::Error| vec![Violation::new(BOOK, error.to_string())];
    std::fs::create_dir_all(root.join(BOOK)).map_err(fail)?;
    for (path, text) in render(root)? {
        std::fs::write(root.join(path), text).map_err(fail)?;
    }
    Ok(())
}

/// Files with a drawing that no chapter shows.
fn undrawn_files(root: &Path) -> Result<Vec<Violation>, Vec<Violation>> {
    let mut files = Vec::new();
    let fail = |error: std::io::Error| vec![Violation::new(SOURCE, error.to_string())];
    list_files(&root.join(SOURCE), &mut files).map_err(fail)?;
    let shown: Vec<PathBuf> = CHAPTERS
        .iter()
        .flat_map(|(_, _, modules)| modules.iter().map(|each| module_path(each)))
        .collect();
    let mut violations = Vec::new();
    for file in files {
        let text = std::fs::read_to_string(&file).map_err(fail)?;
        let path = relative_path(root, &file);
        if header(&text).contains("offset  size")
            && !shown.iter().any(|each| Path::new(&path) == each)
        {
            violations.push(Violation::new(
                path,
                "its drawing is in no chapter of tools/xtask/src/format_book.rs",
            ));
        }
    }
    Ok(violations)
}

fn list_files(dir: &Path, files: &mut Vec<PathBuf>) -> std::io::Result<()> {
    for entry in std::fs::read_dir(dir)? {
        let path = entry?.path();
        if path.is_dir() {
            list_files(&path, files)?;
        } else {
            files.push(path);
        }
    }
    Ok(())
}

fn module_path(module: &str) -> PathBuf {
    Path::new(SOURCE).join(format!("{module}.rs"))
}

/// The files of the book with their texts.
fn render(root: &Path) -> Result<BTreeMap<PathBuf, String>, Vec<Violation>> {
    let mut book = BTreeMap::new();
    let mut index = String::from(
        "# The on-disk format\n\n\
         The structures of an OpenZFS pool, as `storage/ondisk` reads and writes them. `cargo xtask format` makes these pages \
         from the tops of its files; a test keeps them current. Offsets and sizes are bytes. Numbers are little-endian on \
         most pools; the magic number of a structure tells.\n\n",
    );
    for (name, title, modules) in CHAPTERS {
        let mut chapter = format!("# {title}\n");
        for module in *modules {
            let path = module_path(module);
            let text = std::fs::read_to_string(root.join(&path)).map_err(|error| {
                vec![Violation::new(path.display().to_string(), error.to_string())]
            })?;
            let _ = write!(
                chapter,
                "\n{}\nSource: [{module}.rs](../../{SOURCE}/{module}.rs)\n",
                section(&header(&text))
            );
        }
        let _ = writeln!(index, "* [{title}]({name}.md)");
        book.insert(Path::new(BOOK).join(format!("{name}.md")), chapter);
    }
    book.insert(Path::new(BOOK).join("README.md"), index);
    Ok(book)
}

/// The `//!` lines at the top of a file, without their marks.
fn header(text: &str) -> String {
    let lines = text.lines().map_while(|line| line.strip_prefix("//!"));
    lines.fold(String::new(), |all, line| all + line.strip_prefix(' ').unwrap_or(line) + "\n")
}

/// A header as a section: its first paragraph begins with the heading. Links of rustdoc become code.
fn section(header: &str) -> String {
    let text = unlink(header);
    let first_end = text.find("\n\n").map_or(text.len(), |end| end + 1);
    let (first, rest) = text.split_at(first_end);
    let first = first.replace('\n', " ");
    let (heading, remark) =
        first.trim().split_once(": ").unwrap_or((first.trim().trim_end_matches('.'), ""));
    let remark = capitalize(remark);
    let remark = if remark.is_empty() { remark } else { format!("{remark}\n") };
    format!("## {heading}\n\n{remark}{rest}").replace("\n\n\n", "\n\n")
}

fn capitalize(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}

/// Without the brackets of ``[`Name`]``.
fn unlink(text: &str) -> String {
    let text = text.replace("[`", "`");
    let mut result = String::new();
    for (index, part) in text.split("`]").enumerate() {
        if index > 0 {
            result.push('`');
        }
        result.push_str(match part.strip_prefix('(') {
            Some(target) if index > 0 => target.split_once(')').map_or(part, |(_, after)| after),
            _ => part,
        });
    }
    result
}

#[cfg(test)]
mod tests {
    use super::{header, section};

    #[test]
    fn headers_become_sections_without_links() {
        let file = "//! Label: what each drive\n//! knows.\n//!\n//! ```text\n//! offset  size\n//! ```\n//! See [`Dir::KEY`] and [`A`](crate::A).\nuse x;\n//! later\n";
        let text = section(&header(file));
        assert_eq!(
            text,
            "## Label\n\nWhat each drive knows.\n\n```text\noffset  size\n```\nSee `Dir::KEY` and `A`.\n"
        );
    }
}
