//! The words for a command line that cannot be understood.
//!
//! Scripts and people know those of zpool(8) and zfs(8): a first line that names the mistake, then `usage:` with the
//! form of the command, all on standard error, and status 2. Other commands have clap's words.

use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue, ErrorKind};

use crate::outcome::Failure;

/// The status of zpool and zfs for a command line that cannot be understood.
const INVALID_COMMAND_LINE: i32 = 2;
/// Characters of a line of the list of commands, after the tab at its begin.
const MAX_LINE_LEN: usize = 73;

/// The first line where arguments are missing: command, subcommand, and the words for each required argument in its
/// order. The last of them stands for all further ones.
const MISSING_ARGUMENTS: &[(&str, &str, &[&str])] = &[
    ("zpool", "add", &["missing pool name argument", "missing vdev specification"]),
    (
        "zpool",
        "attach",
        &[
            "missing pool name argument",
            "missing <device> specification",
            "missing <new_device> specification",
        ],
    ),
    ("zpool", "clear", &["missing pool name"]),
    ("zpool", "create", &["missing pool name argument", "missing vdev specification"]),
    ("zpool", "destroy", &["missing pool argument"]),
    ("zpool", "detach", &["missing pool name argument", "missing <device> specification"]),
    ("zpool", "export", &["missing pool argument"]),
    ("zpool", "get", &["missing property argument"]),
    ("zpool", "initialize", &["missing pool name argument"]),
    ("zpool", "labelclear", &["missing vdev name"]),
    ("zpool", "offline", &["missing pool name", "missing device name"]),
    ("zpool", "online", &["missing pool name", "missing device name"]),
    ("zpool", "reguid", &["missing pool name"]),
    ("zpool", "remove", &["missing pool name argument", "missing device"]),
    ("zpool", "replace", &["missing pool name argument", "missing <device> specification"]),
    ("zpool", "scrub", &["missing pool name argument"]),
    ("zpool", "set", &["missing property=value argument", "missing pool name"]),
    ("zpool", "split", &["Missing pool name", "Missing new pool name"]),
    ("zpool", "trim", &["missing pool name argument"]),
    ("zpool", "wait", &["missing 'pool' argument"]),
    ("zfs", "bookmark", &["missing source argument", "missing bookmark argument"]),
    ("zfs", "change-key", &["Missing dataset argument"]),
    ("zfs", "clone", &["missing source dataset argument", "missing target dataset argument"]),
    ("zfs", "create", &["missing filesystem argument"]),
    ("zfs", "destroy", &["missing dataset argument"]),
    ("zfs", "diff", &["must provide at least one snapshot name"]),
    ("zfs", "get", &["missing property argument"]),
    ("zfs", "inherit", &["missing property argument", "missing dataset argument"]),
    ("zfs", "load-key", &["Missing dataset argument or -a option"]),
    ("zfs", "promote", &["missing clone filesystem argument"]),
    ("zfs", "receive", &["missing snapshot argument"]),
    ("zfs", "rename", &["missing source dataset argument", "missing target dataset argument"]),
    ("zfs", "rollback", &["missing dataset argument"]),
    ("zfs", "send", &["missing snapshot argument"]),
    ("zfs", "set", &["missing arguments"]),
    ("zfs", "share", &["missing filesystem argument (specify -a for all)"]),
    ("zfs", "snapshot", &["missing snapshot argument"]),
    ("zfs", "unload-key", &["Missing dataset argument or -a option"]),
    ("zfs", "unmount", &["missing filesystem argument"]),
    ("zfs", "unshare", &["missing filesystem argument"]),
    ("zfs", "wait", &["missing 'filesystem' argument"]),
];

/// Beginnings of messages after which the commands end with status 255: their functions return -1.
const MINUS_ONE_MESSAGES: &[(&str, &[&str])] = &[
    (
        "zpool",
        &[
            "cannot attach ",
            "cannot detach ",
            "cannot initialize ",
            "cannot replace ",
            "cannot trim ",
            "failed to clear label",
        ],
    ),
    ("zfs set", &["cannot set property for "]),
    ("zfs", &["Key load error", "Key unload error", "Key change error", "cannot resume send"]),
];

/// The exit status of zpool or zfs after a failure that has `status` elsewhere: 2 where the command found the mistake
/// in its own arguments, 130 after an interruption, otherwise 255 or 1, as scripts know them.
pub(crate) fn refusal_status(command: &str, failure: &Failure, status: u8) -> u8 {
    let message = match (failure.refusal_message(), status) {
        (_, 0 | 130) | (None, 2) => return status,
        (message, _) => message.unwrap_or_default(),
    };
    let listed = MINUS_ONE_MESSAGES.iter().filter(|(of, _)| *of == command);
    let mut begins = listed.flat_map(|(_, begins)| *begins);
    if begins.any(|begin| message.starts_with(begin)) { 255 } else { 1 }
}

/// Says why the command line cannot be understood, and ends the process. `args` begin with the program.
pub(crate) fn exit(error: &clap::Error, definition: &clap::Command, args: &[OsString]) -> ! {
    let words: Vec<&str> = args.iter().skip(1).filter_map(|arg| arg.to_str()).collect();
    let Some(text) = zfs_words(error, definition, &words) else { error.exit() };
    eprint!("{text}");
    std::process::exit(INVALID_COMMAND_LINE)
}

/// The words of zpool and zfs; `None` for other commands, and where help was asked for.
fn zfs_words(error: &clap::Error, definition: &clap::Command, words: &[&str]) -> Option<String> {
    let (command, rest) = words.split_first()?;
    if !["zpool", "zfs"].contains(command) || !error.use_stderr() {
        return None;
    }
    let mut definition = definition.clone();
    definition.build();
    let command = definition.find_subcommand(command)?;
    if rest.is_empty() {
        return Some(list_commands(command));
    }
    let subcommand = rest.iter().find_map(|word| command.find_subcommand(word));
    let first = first_line(error, command, subcommand)?;
    let usage = subcommand.unwrap_or(command).clone().render_usage().to_string();
    let prefix = format!("Usage: poolhouse {} ", command.get_name());
    let usage = usage.trim_start_matches(&prefix).replace('\n', "\n\t");
    let help = match subcommand {
        Some(subcommand) => format!("{} {} --help", command.get_name(), subcommand.get_name()),
        None => format!("{} --help", command.get_name()),
    };
    Some(format!("{first}\nusage:\n\t{usage}\n\nFor more information, run: {help}\n"))
}

/// All subcommands, in lines of at most 80 characters.
fn list_commands(command: &clap::Command) -> String {
    let name = command.get_name();
    let mut text = format!("missing command\nusage: {name} command args ...\n");
    text.push_str("where 'command' is one of the following:\n\n");
    for subcommand in command.get_subcommands().filter(|it| !it.is_hide_set()) {
        let about = subcommand.get_about().map(ToString::to_string).unwrap_or_default();
        let mut line = format!("\t{:<12}", subcommand.get_name());
        for word in about.split(' ') {
            if line.chars().count() + word.chars().count() + 1 > MAX_LINE_LEN {
                text.push_str(&line);
                text.push('\n');
                line = format!("\t{:<12}", "");
            }
            line.push(' ');
            line.push_str(word);
        }
        text.push_str(&line);
        text.push('\n');
    }
    text + &format!("\nFor more information, run: {name} --help\n")
}

fn context_strings(error: &clap::Error, kind: ContextKind) -> Vec<String> {
    match error.get(kind) {
        Some(ContextValue::String(text)) => vec![text.clone()],
        Some(ContextValue::Strings(texts)) => texts.clone(),
        _ => Vec::new(),
    }
}

/// The mistake in the words of zpool(8) and zfs(8); `None` where clap's say more.
fn first_line(
    error: &clap::Error,
    command: &clap::Command,
    subcommand: Option<&clap::Command>,
) -> Option<String> {
    let given = context_strings(error, ContextKind::InvalidArg);
    match error.kind() {
        ErrorKind::InvalidSubcommand => {
            let names = context_strings(error, ContextKind::InvalidSubcommand);
            Some(format!("unrecognized command '{}'", names.first()?))
        }
        ErrorKind::UnknownArgument => match given.first()?.strip_prefix('-') {
            Some(option) => Some(format!("invalid option '{}'", option.trim_start_matches('-'))),
            None => Some("too many arguments".to_owned()),
        },
        ErrorKind::MissingRequiredArgument => {
            let subcommand = subcommand?;
            let required = subcommand.get_positionals().filter(|arg| arg.is_required_set());
            let present = required.skip(given.len()).count();
            let lines = missing_arguments(command.get_name(), subcommand.get_name())?;
            lines.get(present).or(lines.last()).map(|line| (*line).to_owned())
        }
        ErrorKind::TooFewValues | ErrorKind::WrongNumberOfValues => {
            subcommand.filter(|it| it.get_name() == "set")?;
            Some("missing dataset name(s)".to_owned())
        }
        ErrorKind::InvalidValue | ErrorKind::ValueValidation => {
            let value = context_strings(error, ContextKind::InvalidValue);
            let (value, option) = (value.first()?, given.first()?);
            invalid_value(subcommand?.get_name(), option, value)
        }
        ErrorKind::ArgumentConflict => {
            let other = context_strings(error, ContextKind::PriorArg);
            let (one, other) = (given.first()?, other.first()?);
            Some(format!("invalid option combination: {one} and {other} are mutually exclusive"))
        }
        _ => None,
    }
}

/// The words for an option without its value, or with one that it cannot have.
fn invalid_value(subcommand: &str, option: &str, value: &str) -> Option<String> {
    let letter = option.strip_prefix('-')?.chars().next()?;
    match (subcommand, letter, value) {
        ("create", 'V', "") => Some("missing size argument".to_owned()),
        (_, '-', _) => None,
        (_, letter, "") => Some(format!("missing argument for '{letter}' option")),
        ("wait", 't', value) => Some(format!("invalid activity '{value}'")),
        _ => None,
    }
}

fn missing_arguments(command: &str, subcommand: &str) -> Option<&'static [&'static str]> {
    let mut all = MISSING_ARGUMENTS.iter();
    all.find(|(of, name, _)| (*of, *name) == (command, subcommand)).map(|(_, _, lines)| *lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(line: &str) -> Option<String> {
        let definition = crate::cli::Cli::definition();
        let args: Vec<&str> = line.split(' ').collect();
        let error = definition.clone().try_get_matches_from(&args).unwrap_err();
        zfs_words(&error, &definition, &args[1..])
    }

    #[test]
    fn mistakes_have_the_words_of_openzfs() {
        for (line, first) in [
            ("poolhouse zpool nonsense", "unrecognized command 'nonsense'"),
            ("poolhouse zpool status -Z", "invalid option 'Z'"),
            ("poolhouse zpool attach", "missing pool name argument"),
            ("poolhouse zpool attach tank", "missing <device> specification"),
            ("poolhouse zpool attach tank a", "missing <new_device> specification"),
            ("poolhouse zfs clone tank@x", "missing target dataset argument"),
            ("poolhouse zfs promote a b", "too many arguments"),
            ("poolhouse zfs create -V", "missing size argument"),
            ("poolhouse zfs set compression=on", "missing dataset name(s)"),
            ("poolhouse zpool status -T", "missing argument for 'T' option"),
            ("poolhouse zpool wait -t nonsense tank", "invalid activity 'nonsense'"),
            (
                "poolhouse zpool scrub -s -p tank",
                "invalid option combination: -s and -p are mutually exclusive",
            ),
        ] {
            let text = said(line).unwrap();
            assert_eq!(text.lines().next(), Some(first), "{line}");
            assert_eq!(text.lines().nth(1), Some("usage:"), "{line}");
        }
    }

    #[test]
    fn command_alone_lists_its_subcommands() {
        for command in ["zpool", "zfs"] {
            let text = said(&format!("poolhouse {command}")).unwrap();
            assert!(text.contains(&format!("usage: {command} command args")), "{text}");
            assert!(text.contains("\n\tlist "), "{text}");
            let longest = text.lines().map(|line| line.replace('\t', "        ").len()).max();
            assert!(longest <= Some(80), "{text}");
        }
    }

    #[test]
    fn other_commands_and_help_keep_their_words() {
        for line in ["poolhouse nonsense", "poolhouse zpool status --help"] {
            assert_eq!(said(line), None, "{line}");
        }
    }

    #[test]
    fn listed_commands_exist() {
        let definition = crate::cli::Cli::definition();
        for (command, subcommand, _) in MISSING_ARGUMENTS {
            let command = definition.find_subcommand(command).unwrap();
            assert!(command.find_subcommand(subcommand).is_some(), "{subcommand}");
        }
    }
}
