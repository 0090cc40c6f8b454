//! Who makes a call, and whether that user may make it.
//!
//! The kernel tells the user at the other end of a Unix socket (`SO_PEERCRED`). As with OpenZFS every local
//! user may list pools and datasets and read their status; changes and secrets are for root and for the user
//! that the daemon runs as. The engine has no store of `zfs allow` permissions yet: nothing is delegated.

use api::Call;
use tokio::net::UnixStream;

use crate::cancel::Cancel;
use crate::{Error, Result};

/// The user id of root.
const ROOT: u32 = 0;

/// The user at the other end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Peer {
    pub(crate) uid: u32,
    /// Whether it is root or the daemon's own user.
    pub(crate) is_owner: bool,
}

impl Peer {
    /// The user at the other end of a Unix socket.
    pub(crate) fn from_socket(stream: &UnixStream) -> std::io::Result<Self> {
        Ok(Self::from_uid(stream.peer_cred()?.uid()))
    }

    /// A user of this machine.
    pub(crate) fn from_uid(uid: u32) -> Self {
        let own = rustix::process::geteuid().as_raw();
        Self { uid, is_owner: uid == ROOT || uid == own }
    }

    /// Refuses a call that this user may not make, in the words of zfs(8) and zpool(8).
    pub(crate) fn check<C: Call>(self, call: &C) -> Result<()> {
        if self.is_owner || !C::OWNER_ONLY {
            return Ok(());
        }
        Err(Error::PermissionDenied { action: call.action() })
    }
}

/// A call's envelope: its user, its command line, and whether the user still waits for the answer.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    pub(crate) peer: Peer,
    pub(crate) cancel: Cancel,
}

#[cfg(test)]
mod tests {
    use api::{CreateSnapshots, FindImportablePools, ListPools, LoadKey, Secret};

    use super::Peer;

    #[test]
    fn other_users_may_only_read() {
        let (owner, other) = (Peer { uid: 0, is_owner: true }, Peer { uid: 1000, is_owner: false });
        let list = ListPools { names: Vec::new() };
        let snapshot = CreateSnapshots {
            names: vec!["tank@a".to_owned()],
            recursive: false,
            properties: Vec::new(),
        };
        let search = FindImportablePools { paths: Vec::new(), destroyed: false };
        let key = LoadKey { name: "tank".to_owned(), secret: Secret(Vec::new()) };
        assert!(owner.check(&snapshot).is_ok() && owner.check(&search).is_ok());
        assert!(owner.check(&key).is_ok() && other.check(&list).is_ok());
        let why = other.check(&snapshot).unwrap_err();
        assert_eq!(why.to_string(), "cannot create snapshot 'tank@a': permission denied");
        assert_eq!(why.status(), 1);
        assert!(other.check(&search).is_err() && other.check(&key).is_err());
    }
}
