//! `scst.conf` of SCST, as scstadmin writes it.
//!
//! ```text
//! HANDLER vdisk_blockio {
//!   DEVICE disk {
//!     filename /dev/zvol/tank/disk
//!     read_only 1
//!   }
//! }
//! TARGET_DRIVER iscsi {
//!   TARGET iqn.2020-01.lan.nas:disk {
//!     IncomingUser "anna SECRET"    # initiators prove to be anna; OutgoingUser: the target's own name
//!     LUN 0 disk                    # of initiators without a group
//!     GROUP hosts {
//!       LUN 0 disk
//!       INITIATOR iqn.1993-08.org.debian:01:abc
//!     }
//!   }
//! }
//! ```

use std::path::PathBuf;

use api::Protocol;

use super::chap::{FoundChap, FoundUser};
use super::{Found, FoundShare, Skipped, field, quoted, quoted_list};

/// The deepest nesting that is read. scstadmin writes five levels.
const MAX_DEPTH: usize = 8;

/// A line with the lines in the braces behind it.
#[derive(Debug, Default)]
struct Block {
    words: Vec<String>,
    blocks: Vec<Block>,
}

impl Block {
    fn kind(&self) -> &str {
        self.words.first().map_or("", String::as_str)
    }

    fn name(&self) -> &str {
        self.words.get(1).map_or("", String::as_str)
    }

    /// The blocks within of a kind.
    fn all<'a>(&'a self, kind: &'a str) -> impl Iterator<Item = &'a Block> {
        self.blocks.iter().filter(move |block| block.kind() == kind)
    }

    fn is_set(&self, attribute: &str) -> bool {
        self.all(attribute).any(|block| block.name() == "1")
    }
}

/// Reads a file.
pub(super) fn parse(text: &str) -> Found {
    let root = match read_blocks(text) {
        Ok(root) => root,
        Err(why) => return vec![Err(("the file".to_owned(), why))],
    };
    let devices: Vec<&Block> = root.all("HANDLER").flat_map(|it| it.all("DEVICE")).collect();
    let mut found = Vec::new();
    for driver in root.all("TARGET_DRIVER") {
        for target in driver.all("TARGET") {
            match read_target(driver.name(), target) {
                Ok((luns, initiators, chap)) => {
                    let share = |lun: &Block| {
                        let share = read_lun(target, lun, &initiators, &devices)?;
                        Ok(FoundShare { chap: chap.clone(), ..share })
                    };
                    found.extend(luns.into_iter().map(share));
                }
                Err(why) => found.push(Err((target.name().to_owned(), why))),
            }
        }
    }
    found
}

fn read_blocks(text: &str) -> Result<Block, String> {
    let mut open = vec![Block::default()];
    for (at, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default().trim();
        let goes_deeper = line.ends_with('{');
        let words = line.trim_end_matches('{').replace('"', " ");
        if line == "}" {
            let done = open.pop().filter(|_| !open.is_empty());
            let (Some(done), Some(outer)) = (done, open.last_mut()) else {
                return Err(format!("line {}: '}}' closes nothing", at + 1));
            };
            outer.blocks.push(done);
            continue;
        }
        let words: Vec<String> = words.split_whitespace().map(str::to_owned).collect();
        if words.is_empty() {
            continue;
        }
        let block = Block { words, blocks: Vec::new() };
        if goes_deeper {
            open.push(block);
        } else if let Some(outer) = open.last_mut() {
            outer.blocks.push(block);
        }
        if open.len() > MAX_DEPTH {
            return Err(format!("line {}: braces are nested too deeply", at + 1));
        }
    }
    match (open.pop(), open.is_empty()) {
        (Some(root), true) => Ok(root),
        _ => Err("a '}' is missing at the end".to_owned()),
    }
}

/// The units of a target, the initiators that may use them (none: all), and the users of CHAP.
fn read_target<'a>(
    driver: &str,
    target: &'a Block,
) -> Result<(Vec<&'a Block>, Vec<&'a str>, FoundChap), String> {
    if driver != "iscsi" {
        return Err(format!("its driver is {driver}, and only iscsi can be imported"));
    }
    let users = |kind| {
        let user = |block: &Block| {
            FoundUser::new(
                block.words.get(1).map(String::as_str),
                block.words.get(2).map(String::as_str),
            )
        };
        let users: Option<Vec<_>> = target.all(kind).map(user).collect();
        users.ok_or_else(|| "a user of it has no password".to_owned())
    };
    let chap = FoundChap::new(&users("IncomingUser")?, &users("OutgoingUser")?)?;
    let open: Vec<&Block> = target.all("LUN").collect();
    let mut groups = target.all("GROUP");
    let Some(first) = groups.next() else { return Ok((open, Vec::new(), chap)) };
    // groups that see the same units are one
    if !open.is_empty() || groups.any(|group| shown_units(group) != shown_units(first)) {
        return Err(
            "it shows initiators different units, and a [[share]] shows all the same: add it \
                    by hand"
                .to_owned(),
        );
    }
    let members = target.all("GROUP").flat_map(|group| group.all("INITIATOR"));
    let initiators: Vec<&str> = members.map(Block::name).collect();
    if initiators.is_empty() || initiators.iter().any(|it| it.contains(['*', '?', '!'])) {
        return Err(
            "its initiators are patterns, and [[share]] has names alone: add it by hand".to_owned()
        );
    }
    Ok((first.all("LUN").collect(), initiators, chap))
}

/// The units of a group: number, device, and whether it may only be read.
fn shown_units(group: &Block) -> Vec<(&[String], bool)> {
    group.all("LUN").map(|lun| (&lun.words[..], lun.is_set("read_only"))).collect()
}

fn read_lun(
    target: &Block,
    lun: &Block,
    initiators: &[&str],
    devices: &[&Block],
) -> Result<FoundShare, Skipped> {
    let origin = format!("{} unit {}", target.name(), lun.name());
    let device = lun.words.get(2).and_then(|name| devices.iter().find(|it| it.name() == name));
    let path = device.and_then(|device| Some((device, device.all("filename").next()?)));
    let Some((device, path)) = path else {
        return Err((origin, "its device is not in the file".to_owned()));
    };
    let mut options = vec![
        field("target", quoted(target.name())),
        field("lun", lun.name()),
        field("networks", quoted("*")),
    ];
    if !initiators.is_empty() {
        options.push(field("initiators", quoted_list(initiators.iter().copied())));
    }
    if device.is_set("read_only") || lun.is_set("read_only") {
        options.push(field("read_only", "true"));
    }
    let path = PathBuf::from(path.name());
    let (ignored, chap) = (Vec::new(), FoundChap::default());
    Ok(FoundShare { origin, protocol: Protocol::Iscsi, path, options, ignored, chap })
}
