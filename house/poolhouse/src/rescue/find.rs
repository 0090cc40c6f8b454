//! `poolhouse rescue find`: finds files, as `find` does.

use std::io::{self, BufWriter, IsTerminal, Write};

use super::pool_path::{OpenDatasets, PoolPath, escape_bytes, terminal_bytes};
use super::tree::{WalkEvent, walk_tree};
use crate::outcome::{CommandResult, Failure, Outcome};
use crate::pool_args::PoolArgs;
use crate::print;

/// Find files by name, type and size
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Example:\n  poolhouse rescue find -d ~/images tank:/ --name '*.jpg' --type f"
)]
pub(crate) struct Args {
    /// POOL/FS[@SNAP]:/PATH
    #[arg(required = true)]
    pub(crate) targets: Vec<String>,
    /// Only names that match this pattern (* ? [...])
    #[arg(long, value_name = "PATTERN")]
    pub(crate) name: Option<String>,
    /// The same, upper and lower case being one
    #[arg(long, value_name = "PATTERN")]
    pub(crate) iname: Option<String>,
    /// Only files of this type: f, d, l, b, c, p, s
    #[arg(long = "type", value_name = "TYPE")]
    pub(crate) kind: Option<char>,
    /// Only larger (+1M) or smaller (-1M) files, or those of exactly that size
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    pub(crate) size: Option<String>,
    /// Not deeper than this
    #[arg(long, value_name = "LEVELS")]
    pub(crate) maxdepth: Option<usize>,
    /// End names with NUL instead of a line's end
    #[arg(long)]
    pub(crate) print0: bool,
}

/// The conditions.
struct FindFilter {
    name: Option<Vec<char>>,
    iname: Option<Vec<char>>,
    type_letter: Option<char>,
    size: Option<(char, u64)>,
}

pub(crate) fn run(args: &Args, common: &PoolArgs) -> CommandResult {
    let wanted = FindFilter::new(args)?;
    let mut opened = OpenDatasets::in_pools(common);
    let stdout = io::stdout().lock();
    let terminal = stdout.is_terminal() && !args.print0;
    let mut out = BufWriter::with_capacity(64 << 10, stdout);
    let end: &[u8] = if args.print0 { b"\0" } else { b"\n" };
    let mut wrong = false;
    for target in &args.targets {
        let place = PoolPath::parse(target)?;
        let (files, top) = opened.find_file(&place)?;
        let facts = top.stat();
        if wanted
            .matches(place.file_name().as_bytes(), facts.kind.letter(), &mut || Some(facts.size))
        {
            out.write_all(&terminal_bytes(&place.display_with(b""), terminal))?;
            out.write_all(end)?;
        }
        if !facts.is_directory() || args.maxdepth == Some(0) {
            continue;
        }
        let mut done = Ok(());
        walk_tree(&files, &top, args.maxdepth.unwrap_or(usize::MAX), &mut |step| {
            match step {
                WalkEvent::Entry(name, path) => {
                    let mut size = || files.stat(name.ino).ok().map(|facts| facts.size);
                    if wanted.matches(&name.name, name.kind.letter(), &mut size) {
                        done = out
                            .write_all(&terminal_bytes(&place.display_with(path), terminal))
                            .and_then(|()| out.write_all(end));
                    }
                }
                WalkEvent::Error(path, why) => {
                    wrong = true;
                    print::warning(&format!("{}: {why}", escape_bytes(&place.display_with(path))));
                }
                WalkEvent::EndOfDirectory(_) => {}
            }
            done.is_ok()
        });
        done?;
    }
    out.flush()?;
    Ok(Outcome::complete_unless(wrong))
}

impl FindFilter {
    fn new(args: &Args) -> Result<Self, Failure> {
        let pattern = |text: &String| text.chars().collect::<Vec<_>>();
        let letter = match args.kind {
            Some('f') => Some('-'),
            Some(other) if "dlbcps".contains(other) => Some(other),
            Some(other) => {
                let what = format!("--type {other}: one of f, d, l, b, c, p, s is expected");
                return Err(Failure::usage(what));
            }
            None => None,
        };
        let size = args.size.as_deref().map(parse_size).transpose()?;
        let iname = args.iname.as_ref().map(|text| pattern(&text.to_lowercase()));
        Ok(Self { name: args.name.as_ref().map(pattern), iname, type_letter: letter, size })
    }

    fn matches(&self, name: &[u8], letter: char, size: &mut dyn FnMut() -> Option<u64>) -> bool {
        if self.type_letter.is_some_and(|wanted| wanted != letter) {
            return false;
        }
        let text = String::from_utf8_lossy(name);
        let fits = |pattern: &Option<Vec<char>>, text: &str| {
            let text: Vec<char> = text.chars().collect();
            pattern.as_ref().is_none_or(|pattern| glob_match(pattern, &text))
        };
        fits(&self.name, &text)
            && (self.iname.is_none() || fits(&self.iname, &text.to_lowercase()))
            && self.size.is_none_or(|(sign, wanted)| {
                size().is_some_and(|size| match sign {
                    '+' => size > wanted,
                    '-' => size < wanted,
                    _ => size == wanted,
                })
            })
    }
}

/// "+1M": a sign and bytes.
fn parse_size(text: &str) -> Result<(char, u64), Failure> {
    let sign = text.chars().next().filter(|sign| matches!(sign, '+' | '-'));
    let rest = text.trim_start_matches(['+', '-']);
    let digits = rest.trim_end_matches(|letter: char| !letter.is_ascii_digit());
    let shift = match rest.get(digits.len()..).unwrap_or("").to_ascii_uppercase().as_str() {
        "" | "C" | "B" => Some(0),
        "K" | "KIB" => Some(10),
        "M" | "MIB" => Some(20),
        "G" | "GIB" => Some(30),
        "T" | "TIB" => Some(40),
        _ => None,
    };
    let bytes = digits.parse::<u64>().ok().zip(shift);
    let bytes = bytes.and_then(|(number, shift)| number.checked_mul(1 << shift));
    let bytes = bytes.ok_or_else(|| {
        Failure::usage(format!("--size {text}: a number of bytes is expected, as +10M"))
    })?;
    Ok((sign.unwrap_or('='), bytes))
}

/// Whether a name fits a pattern of the shell. Takes no longer than their lengths multiplied.
fn glob_match(pattern: &[char], text: &[char]) -> bool {
    let (mut p, mut t, mut star) = (0, 0, None);
    loop {
        match pattern.get(p) {
            Some('*') => {
                star = Some((p, t));
                p += 1;
                continue;
            }
            Some(_) if t < text.len() => {
                if let Some(next) = match_one(pattern, p, text[t]) {
                    (p, t) = (next, t + 1);
                    continue;
                }
            }
            None if t == text.len() => return true,
            _ => {}
        }
        // the last star takes one letter more
        match star {
            Some((at, from)) if from < text.len() => {
                star = Some((at, from + 1));
                (p, t) = (at + 1, from + 1);
            }
            _ => return false,
        }
    }
}

/// The rest of the pattern after one matched letter.
fn match_one(pattern: &[char], at: usize, letter: char) -> Option<usize> {
    match pattern[at] {
        '?' => Some(at + 1),
        '\\' if at + 1 < pattern.len() => (pattern[at + 1] == letter).then_some(at + 2),
        '[' => {
            let first = at + 1;
            let negated = matches!(pattern.get(first), Some('!' | '^'));
            let begin = first + usize::from(negated);
            // a bracket that comes first is a letter like any other
            let end = (begin + 1..pattern.len()).find(|end| pattern[*end] == ']');
            let Some(end) = end else { return (letter == '[').then_some(at + 1) };
            let (mut found, mut i) = (false, begin);
            while i < end {
                if i + 2 < end && pattern[i + 1] == '-' {
                    found |= (pattern[i]..=pattern[i + 2]).contains(&letter);
                    i += 3;
                } else {
                    found |= pattern[i] == letter;
                    i += 1;
                }
            }
            (found != negated).then_some(end + 1)
        }
        other => (other == letter).then_some(at + 1),
    }
}

#[cfg(test)]
mod tests {
    use super::{glob_match, parse_size};

    fn glob_fits(pattern: &str, text: &str) -> bool {
        let letters = |text: &str| text.chars().collect::<Vec<_>>();
        glob_match(&letters(pattern), &letters(text))
    }

    #[test]
    fn patterns_are_the_shells() {
        for (pattern, text) in [
            ("*.jpg", "a.jpg"),
            ("*", ""),
            ("a?c", "aüc"),
            ("[a-c]x", "bx"),
            ("[!a]", "b"),
            ("a*b*c", "a--b-b--c"),
            ("\\*", "*"),
            ("[]x]", "]"),
            ("[", "["),
            ("**a", "ba"),
        ] {
            assert!(glob_fits(pattern, text), "{pattern} fits {text}");
        }
        for (pattern, text) in [
            ("*.jpg", "a.jpeg"),
            ("?", ""),
            ("[a-c]", "d"),
            ("[!a]", "a"),
            ("a*b", "abc"),
            ("\\*", "x"),
            ("", "x"),
        ] {
            assert!(!glob_fits(pattern, text), "{pattern} does not fit {text}");
        }
    }

    #[test]
    fn sizes_have_signs_and_units() {
        assert_eq!(parse_size("+10M").unwrap(), ('+', 10 << 20));
        assert_eq!(parse_size("-1k").unwrap(), ('-', 1024));
        assert_eq!(parse_size("7").unwrap(), ('=', 7));
        assert!(
            parse_size("x").is_err()
                && parse_size("1Q").is_err()
                && parse_size("99999999999999T").is_err()
        );
    }
}
