//! `targets.conf` of tgt, as targets.conf(5) describes it.
//!
//! ```text
//! <target iqn.2020-01.lan.nas:disk>
//!   backing-store /dev/zvol/tank/disk     # each one is a logical unit, from 1 on
//!   initiator-address 10.0.0.0/24         # or ALL, which is the default
//!   initiator-name iqn.1993-08.org.debian:01:abc
//!   incominguser anna SECRET              # initiators prove to be anna; outgoinguser: the target's own name
//! </target>
//! ```

use std::path::PathBuf;

use api::Protocol;

use super::chap::{FoundChap, FoundUser};
use super::{Found, FoundShare, Skipped, field, quoted, quoted_list};
use crate::shares::networks::parse_networks;

/// Options that do not affect access rights.
#[rustfmt::skip] // a table
const IGNORED: [&str; 9] = [
    "write-cache", "vendor_id", "product_id", "product_rev", "scsi_id", "scsi_sn", "driver", "bs-type",
    "block-size",
];

/// A target that is being read.
#[derive(Default)]
struct Target {
    name: String,
    stores: Vec<String>,
    networks: Vec<String>,
    initiators: Vec<String>,
    /// Users that initiators prove to be, and as whom the target proves itself.
    incoming: Vec<FoundUser>,
    outgoing: Vec<FoundUser>,
    ignored: Vec<String>,
    problem: Option<String>,
}

/// Reads a file.
pub(super) fn parse(text: &str) -> Found {
    let (mut found, mut target) = (Vec::new(), None::<Target>);
    for line in text.lines() {
        let line = line.split('#').next().unwrap_or_default().trim();
        if let Some(name) = tag(line, "target") {
            target = Some(Target { name: name.to_owned(), ..Target::default() });
        } else if line.eq_ignore_ascii_case("</target>") {
            found.extend(target.take().into_iter().flat_map(Target::finish));
        } else if let Some(target) = target.as_mut() {
            target.read_line(line);
        }
    }
    if let Some(target) = target {
        found.push(Err((target.name, "</target> is missing".to_owned())));
    }
    found
}

/// The word in `<NAME WORD>`.
fn tag<'a>(line: &'a str, name: &str) -> Option<&'a str> {
    let inner = line.strip_prefix('<')?.strip_suffix('>')?;
    let (word, rest) = inner.split_once(char::is_whitespace)?;
    word.eq_ignore_ascii_case(name).then_some(rest.trim())
}

impl Target {
    fn read_line(&mut self, line: &str) {
        let (option, value) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        let value = value.trim();
        match option.to_lowercase().as_str() {
            "" => (),
            "backing-store" | "direct-store" => self.stores.push(value.to_owned()),
            "initiator-address" if value.eq_ignore_ascii_case("all") => {
                self.networks.push("*".to_owned());
            }
            "initiator-address" if parse_networks(value).is_ok() => {
                self.networks.push(value.to_owned());
            }
            "initiator-name" => self.initiators.push(value.to_owned()),
            "incominguser" => self.add_user(value, true),
            "outgoinguser" => self.add_user(value, false),
            known if IGNORED.contains(&known) => self.ignored.push(line.to_owned()),
            _ => self.problem = Some(format!("its line '{line}' is not known: add it by hand")),
        }
    }

    fn add_user(&mut self, value: &str, is_incoming: bool) {
        let mut words = value.split_whitespace();
        let Some(user) = FoundUser::new(words.next(), words.next()) else {
            self.problem = Some("a user of it has no password".to_owned());
            return;
        };
        if is_incoming { self.incoming.push(user) } else { self.outgoing.push(user) }
    }

    /// A share for each logical unit.
    fn finish(self) -> Vec<Result<FoundShare, Skipped>> {
        let chap = FoundChap::new(&self.incoming, &self.outgoing);
        let chap = match (self.problem, chap) {
            (Some(why), _) | (None, Err(why)) => return vec![Err((self.name, why))],
            (None, Ok(chap)) => chap,
        };
        let mut networks = self.networks;
        if networks.is_empty() {
            networks.push("*".to_owned());
        }
        let share = |(at, store): (usize, &String)| {
            let mut options = vec![
                field("target", quoted(&self.name)),
                // unit 0 is the controller of tgt
                field("lun", (at + 1).to_string()),
                field("networks", quoted_list(networks.iter().map(String::as_str))),
            ];
            if !self.initiators.is_empty() {
                let initiators = self.initiators.iter().map(String::as_str);
                options.push(field("initiators", quoted_list(initiators)));
            }
            Ok(FoundShare {
                origin: format!("{} unit {}", self.name, at + 1),
                protocol: Protocol::Iscsi,
                path: PathBuf::from(store),
                options,
                ignored: self.ignored.clone(),
                chap: chap.clone(),
            })
        };
        self.stores.iter().enumerate().map(share).collect()
    }
}
