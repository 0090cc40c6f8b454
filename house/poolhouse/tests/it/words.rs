//! The words of zpool and zfs beside those of OpenZFS 2.3.2: the same commands in the same order, recorded from its own
//! programs. Numbers, dates and widths of columns are left out; `zpool::config_tree` and others test the widths.

use std::collections::BTreeMap;
use std::process::{Command, Stdio};

use crate::test_nas::TestNas;

const SITUATIONS: &str = include_str!("words/situations.sh");
const RECORDED: &str = include_str!("words/openzfs-2.3.2.txt");
const REFUSALS: &str = include_str!("words/refusals.sh");
const RECORDED_REFUSALS: &str = include_str!("words/refusals-openzfs-2.3.2.txt");

/// Commands of the refusals whose words differ, with the reason.
const KNOWN_REFUSAL_DIFFERENCES: &[(&str, &str)] = &[
    ("zpool remove tank", "names no device, as the pool is looked for later"),
    ("zpool upgrade -V 99 tank", "looks for the pool first"),
    ("zfs set compression tank", "says what is missing"),
    ("zfs allow", "the usage of all other commands"),
    ("zfs unallow", "the usage of all other commands"),
    (
        "zpool get guid,version,bootfs nopool",
        "the words of all other commands about a missing pool",
    ),
    ("zpool get feature@nothere tank", "refuses a feature that does not exist"),
    ("zpool set bootfs=tank/nothere tank", "names the dataset"),
    ("zpool trim -c tank", "names the first drive only"),
    ("zpool initialize -s tank", "names the first drive only"),
    ("zpool initialize tank DIR/nothere", "does not repeat the device"),
    ("zpool status -i tank", "pools of files are initialized faster here, or slower"),
    ("zpool resilver nopool", "not supported"),
    ("zpool split tank other", "names both pools"),
    ("zpool remove tank raidz1-0", "says that a raidz cannot be removed"),
    ("zpool iostat nopool", "says that the pool does not exist"),
    ("zpool events -c", "events are not cleared"),
    ("zfs set volsize=8M tank/q", "says that it is not a volume"),
    ("zfs inherit used tank/q", "the words of zfs set"),
    ("zfs snapshot tank/q@one tank/nopool@one", "finds the first mistake first"),
    ("zfs snapshot tank/q", "says what is missing"),
    ("zfs list -t filesystem tank/q@one", "lists what is named"),
    ("zfs destroy tank/q@one%two", "names the dataset"),
    ("zfs clone tank/q@one nopool/x", "the words of all other commands about a missing dataset"),
    ("zfs destroy -nvR tank/q@one", "lists the clones, which it would destroy as well"),
    ("zfs promote tank/q@one", "the words for a missing dataset"),
    ("zfs destroy tank/x/y/c#nothere", "the words for a missing dataset"),
    ("zfs holds -H tank/x/y/c@nothere", "prints no empty table"),
    ("zfs allow nobody nonsense tank", "names the permission"),
    ("zfs send -i one tank/x/y/c@nothere", "takes the name of a snapshot without a warning"),
    ("zfs send -R tank/x/y/c", "says what can be sent"),
    ("zfs receive tank/new", "says what the input is"),
    ("zfs send -t nonsense", "says what is wrong with the token"),
    ("zfs unmount DIR/nothere", "says it once"),
    ("zfs project tank/nothere", "the words for paths"),
];

/// Commands whose words differ, with the reason. A command leaves the list when it is alike.
const KNOWN_DIFFERENCES: &[(&str, &str)] = &[
    ("zpool get size,free,health nopool", "the words of all other commands about a missing pool"),
    (
        "zfs create -o canmount=off nopool/x",
        "the words of all other commands about a missing dataset",
    ),
    ("zfs create -o nonsense=1 tank/x", "says that there is no such property"),
    ("zfs create tank//x", "looks for the parent first"),
    ("zfs create tank/x/", "looks for the parent first"),
    ("zfs create tank/x*", "names the characters that may be there"),
    ("zfs bookmark tank/fs@nothere tank/fs#mark2", "a missing snapshot is no mistake of usage"),
    ("zfs snapshot tank/nothere@one", "a missing dataset is no mistake of usage"),
    ("zfs holds tank/nothere@one", "prints no empty table"),
    ("zfs rename tank/fs tank/clone", "names the dataset that exists"),
    ("zfs rename tank/fs nopool/fs", "the words for a missing parent"),
    ("zfs destroy tank/fs@nothere", "names the snapshot"),
    ("zfs unmount tank/nothere", "does not say whether the dataset exists"),
    ("zfs mount tank/vol", "says that it is not a file system"),
    ("zfs diff tank@nothere", "names the snapshot"),
    ("zpool add tank DIR/c", "calls a file a disk"),
    ("zpool add z2 DIR/g", "calls a file a disk"),
    ("zpool list -v", "spares have no size"),
    ("zpool add tank spare DIR/s", "names the pool that has the device"),
    ("zpool create tank DIR/d", "the mountpoint of the recording existed"),
    ("zpool create mirror DIR/d", "says which word is reserved"),
    ("zpool create other DIR/nothere", "gives the reason of the system"),
    ("zpool create -o ashift=99 other DIR/d", "says what 0 means"),
    ("zpool create -o nonsense=1 other DIR/d", "the words of zpool set"),
    ("zpool create -O nonsense=1 other DIR/d", "says that there is no such property"),
    ("zpool offline nopool DIR/a", "says it once"),
    ("zpool online tank DIR/nothere", "the words of zpool offline"),
    ("zpool import nopool -d DIR/", "names the imported pool on the devices"),
    ("zpool import -d DIR/", "shows no comment"),
    ("zpool import -D -d DIR/", "shows no comment"),
    ("zpool labelclear DIR/d", "says why"),
];

/// The output of a command, and its exit status.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Said {
    command: String,
    lines: Vec<String>,
    status: i32,
}

/// Reads `$ command`, its output and `= status`, again and again.
fn parse(text: &str) -> Vec<Said> {
    let mut all: Vec<Said> = Vec::new();
    for line in text.lines() {
        if let Some(command) = line.strip_prefix("$ ") {
            all.push(Said { command: command.to_owned(), lines: Vec::new(), status: -1 });
        } else if let Some(said) = all.last_mut() {
            match line.strip_prefix("= ").and_then(|status| status.parse().ok()) {
                Some(status) => said.status = status,
                None => said.lines.push(line.to_owned()),
            }
        }
    }
    all
}

/// A line without its numbers, dates and runs of spaces.
fn skeleton(line: &str) -> String {
    const DAYS: [&str; 7] = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];
    let mut words = Vec::new();
    let mut in_date = 0;
    for word in line.split_whitespace() {
        let is_number = word
            .trim_end_matches(['K', 'M', 'G', 'B', '%', 'x', ',', 's', 'u', 'm', 'n', '/'])
            .chars()
            .all(|letter| letter.is_ascii_digit() || ".:".contains(letter));
        if DAYS.contains(&word) {
            in_date = 4;
            words.push("DATE".to_owned());
        } else if in_date > 0 {
            in_date -= 1;
            // a date ends with the year
            if word.len() == 4 && word.starts_with("20") {
                in_date = 0;
            }
        } else if is_number && word.starts_with(|first: char| first.is_ascii_digit()) {
            words.push("#".to_owned());
        } else if word.starts_with("{\"output_version\"") {
            words.push(json_skeleton(line));
            break;
        } else if word.chars().all(|letter| letter == '-') {
            words.push("-".to_owned());
        } else {
            words.push(word.to_owned());
        }
    }
    words.join(" ")
}

/// JSON with its numbers replaced.
fn json_skeleton(line: &str) -> String {
    fn blank(value: &mut serde_json::Value) {
        match value {
            serde_json::Value::Object(facts) => facts.values_mut().for_each(blank),
            serde_json::Value::String(text)
                if text.starts_with(|first: char| first.is_ascii_digit()) =>
            {
                "#".clone_into(text);
            }
            _ => {}
        }
    }
    let mut value = serde_json::from_str(line).unwrap();
    blank(&mut value);
    value.to_string()
}

/// Why ours differs from theirs, if it does. A refusal of ours may say more, on lines of its own, and need not print
/// the usage of the command.
fn difference(ours: &Said, theirs: &Said) -> Option<String> {
    let shorten = |said: &Said| -> Vec<String> {
        let lines = said.lines.iter().take_while(|line| !line.starts_with("usage:"));
        lines.map(|line| skeleton(line)).collect()
    };
    let (said, wanted) = (shorten(ours), shorten(theirs));
    let is_alike = match theirs.status {
        0 => said == wanted,
        _ => said.starts_with(&wanted),
    };
    if is_alike && ours.status == theirs.status {
        return None;
    }
    let (said, wanted) = (ours.lines.join("\n  "), theirs.lines.join("\n  "));
    Some(format!(
        "$ {}\n  {said}\n  = {}\nOpenZFS:\n  {wanted}\n  = {}\n",
        ours.command, ours.status, theirs.status
    ))
}

/// Runs the situations in a directory of a NAS.
fn run_situations(nas: &TestNas, situations: &str) -> Vec<Said> {
    let (dir, bin) = (nas.0.join("images"), nas.0.join("bin"));
    for place in [&dir, &bin] {
        std::fs::create_dir_all(place).unwrap();
    }
    for command in ["zpool", "zfs"] {
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_poolhouse"), bin.join(command)).unwrap();
    }
    let prelude = "run() { printf '$ %s\\n' \"$*\"; \"$@\" 2>&1 </dev/null; echo \"= $?\"; }\n";
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    let done = Command::new("timeout")
        .args(["240", "bash", "-c", &format!("{prelude}{situations}")])
        .current_dir(&dir)
        .env("PATH", path)
        .env("POOLHOUSE_STATE", nas.state_dir())
        .env("TZ", "UTC")
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .unwrap();
    assert!(done.status.success(), "the situations took too long, or bash failed");
    let text = String::from_utf8(done.stdout).unwrap();
    parse(&text.replace(&dir.display().to_string(), "DIR"))
}

/// Runs situations, and compares them with their recording.
fn compare(nas: &TestNas, situations: &str, recorded: &str, known: &[(&str, &str)]) {
    let known: BTreeMap<&str, &str> = known.iter().copied().collect();
    let (ours, theirs) = (run_situations(nas, situations), parse(recorded));
    assert_eq!(ours.len(), theirs.len(), "the recording is of other situations");
    let is_unique =
        |command: &str| theirs.iter().filter(|said| said.command == command).count() == 1;
    let mut wrong = String::new();
    for (at, (ours, theirs)) in ours.iter().zip(&theirs).enumerate() {
        assert_eq!(ours.command, theirs.command, "situation {at}");
        match (difference(ours, theirs), known.contains_key(ours.command.as_str())) {
            (Some(text), false) => wrong += &text,
            // an entry of the list is about a command that is given once
            (None, true) if is_unique(&theirs.command) => {
                wrong += &format!("$ {}: alike now; take it off the list\n", ours.command);
            }
            _ => {}
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

#[test]
fn commands_say_what_openzfs_says() {
    compare(&TestNas::new("words", 0), SITUATIONS, RECORDED, KNOWN_DIFFERENCES);
}

#[test]
fn refusals_say_what_openzfs_says() {
    let nas = TestNas::new("refusals", 0);
    compare(&nas, REFUSALS, RECORDED_REFUSALS, KNOWN_REFUSAL_DIFFERENCES);
}
