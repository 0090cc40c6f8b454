//! The groups and capabilities of a program that makes a request, for mounts whose permissions are checked here.
//!
//! The kernel sends only the user and the primary group of the caller. Linux shows the rest in
//! `/proc/TID/status`; the caller waits for its response, so the thread exists. Capabilities count
//! only if the program is in the user namespace of this process: a container's superuser has all of
//! them for its own users alone.

use std::fs;

use posix::{Capability, Credentials};

/// The capabilities that access checks use, by their bit in the kernel's set.
const CAPABILITIES: [(u32, Capability); 9] = [
    (0, Capability::Chown),
    (1, Capability::DacOverride),
    (2, Capability::DacReadSearch),
    (3, Capability::FileOwner),
    (4, Capability::FileSetId),
    (9, Capability::Immutable),
    (21, Capability::Administrator),
    (27, Capability::MakeNode),
    (31, Capability::SetFileCapabilities),
];

/// The credentials of a thread that acts as that user and group. Thread 0 is the kernel.
pub(super) fn credentials(thread: u32, uid: u32, gid: u32) -> Credentials {
    let user = Credentials::new(uid, gid);
    let status = match thread {
        0 => None,
        thread => fs::read_to_string(format!("/proc/{thread}/status")).ok(),
    };
    let Some(status) = status else {
        return if uid == 0 { user.with_all_capabilities() } else { user };
    };
    let user = user.with_groups(&parse_groups(&status));
    let capabilities = parse_capabilities(&status);
    if capabilities == 0 || !is_in_own_namespace(thread) {
        return user;
    }
    let held = CAPABILITIES.into_iter().filter(|(bit, _)| capabilities & 1 << bit != 0);
    held.fold(user, |user, (_, capability)| user.with_capability(capability))
}

fn field<'a>(status: &'a str, name: &str) -> Option<&'a str> {
    status.lines().find_map(|line| line.strip_prefix(name))
}

fn parse_groups(status: &str) -> Vec<u32> {
    let groups = field(status, "Groups:").into_iter().flat_map(str::split_whitespace);
    groups.filter_map(|group| group.parse().ok()).collect()
}

fn parse_capabilities(status: &str) -> u64 {
    let set = field(status, "CapEff:").and_then(|set| u64::from_str_radix(set.trim(), 16).ok());
    set.unwrap_or(0)
}

fn is_in_own_namespace(thread: u32) -> bool {
    let (theirs, own) = (format!("/proc/{thread}/ns/user"), "/proc/self/ns/user");
    matches!((fs::read_link(theirs), fs::read_link(own)), (Ok(theirs), Ok(own)) if theirs == own)
}

#[cfg(test)]
mod tests {
    use posix::Capability;

    use super::{credentials, parse_capabilities, parse_groups};

    #[test]
    fn status_tells_groups_and_capabilities() {
        let status = "Name:\tcat\nGroups:\t4 24 1000 \nCapInh:\t0000000000000000\n\
                      CapEff:\t0000000000000003\n";
        assert_eq!(parse_groups(status), [4, 24, 1000]);
        assert_eq!(parse_capabilities(status), 3);
        assert_eq!((parse_groups(""), parse_capabilities("CapEff:\tx")), (Vec::new(), 0));
    }

    #[test]
    fn kernel_threads_act_as_their_user() {
        assert!(credentials(0, 0, 0).has(Capability::DacOverride));
        assert!(!credentials(0, 7, 7).has(Capability::DacOverride));
        let own = credentials(std::process::id(), 7, 8);
        assert_eq!((own.uid, own.gid), (7, 8));
        assert_eq!(own.has(Capability::Chown), rustix::process::geteuid().is_root());
    }
}
