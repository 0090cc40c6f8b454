//! Authentication of callers, and the check whether a caller may make a call.
//!
//! The kernel gives the user at the other end of a Unix socket (`SO_PEERCRED`). As with OpenZFS
//! every local user may list pools and datasets and read their status; changes and secrets are for
//! root and for the user of the daemon. `zfs allow` opens calls to others (`pools::permissions`).
//! On TCP a client shows a token: that of the file `token` has the rights of the daemon's own user, that of the file
//! `token-operate` those of the role operate, that of the file `token-look` lists and shows what every local user may
//! see, and changes nothing.

use api::{Call, Role};
use axum::http::{HeaderMap, header};
use subtle::ConstantTimeEq;
use tokio::net::UnixStream;

use crate::cancel::Cancel;
use crate::{Error, Result, StateDir, state_file};

/// The user id of root.
const ROOT: u32 = 0;
/// The user id of a client that is no user of this machine.
const NOBODY: u32 = 65_534;

/// The user at the other end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Peer {
    pub(crate) uid: u32,
    /// The primary group.
    pub(crate) gid: u32,
    /// The process, by which the other groups are found.
    pub(crate) pid: Option<i32>,
    /// Whether it is root or the daemon's own user.
    pub(crate) is_owner: bool,
    /// The role that limits it, whatever `zfs allow` gives to everyone.
    pub(crate) limit: Option<Role>,
}

impl Peer {
    /// The user at the other end of a Unix socket.
    pub(crate) fn from_socket(stream: &UnixStream) -> std::io::Result<Self> {
        let found = stream.peer_cred()?;
        Ok(Self { gid: found.gid(), pid: found.pid(), ..Self::from_uid(found.uid()) })
    }

    /// A user of this machine, in the group of the same number.
    pub(crate) fn from_uid(uid: u32) -> Self {
        let own = rustix::process::geteuid().as_raw();
        let is_owner = uid == ROOT || uid == own;
        Self { uid, gid: uid, pid: None, is_owner, limit: None }
    }

    /// A client with the token of a role other than administer.
    fn limited(role: Role) -> Self {
        Self { uid: NOBODY, gid: NOBODY, pid: None, is_owner: false, limit: Some(role) }
    }

    /// Refuses a call that this user may not make, in the words of zfs(8) and zpool(8).
    pub(crate) fn check<C: Call>(self, call: &C) -> Result<()> {
        let is_open = match self.limit {
            Some(role) if C::CHANGES => C::OPERATES && role >= Role::Operate,
            _ => !C::OWNER_ONLY,
        };
        if self.is_owner || is_open {
            return Ok(());
        }
        Err(Error::PermissionDenied { action: call.action() })
    }
}

/// The secrets of clients on TCP: 64 hexadecimal digits each.
pub(crate) struct Token {
    /// That of clients with all rights.
    owner: String,
    /// That of clients of the role operate.
    operator: String,
    /// That of clients that only look.
    reader: String,
}

impl Token {
    /// Reads the token files of a daemon, or creates them.
    pub(crate) fn load_or_create(state_dir: &StateDir) -> Result<Self> {
        let paths = [state_dir.token(), state_dir.operator_token(), state_dir.reader_token()];
        let [owner, operator, reader] = paths.map(|path| state_file::load_or_create_secret(&path));
        Ok(Self { owner: owner?, operator: operator?, reader: reader? })
    }

    /// The user of a request on TCP; nothing if it does not show a token.
    pub(crate) fn peer(&self, headers: &HeaderMap) -> Option<Peer> {
        let shown = headers.get(header::AUTHORIZATION)?.as_bytes().strip_prefix(b"Bearer ")?;
        // comparison in constant time: the time shows nothing about the token
        let is_same = |token: &str| bool::from(shown.ct_eq(token.as_bytes()));
        if is_same(&self.owner) {
            return Some(Peer::from_uid(rustix::process::geteuid().as_raw()));
        }
        let limited = [(&self.operator, Role::Operate), (&self.reader, Role::Look)];
        limited.into_iter().find(|(token, _)| is_same(token)).map(|(_, role)| Peer::limited(role))
    }
}

/// A call's envelope: its user, and whether the user still waits for the reply.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    pub(crate) peer: Peer,
    pub(crate) cancel: Cancel,
}

#[cfg(test)]
mod tests {
    use api::{
        CreateSnapshots, DestroyDatasets, FindImportablePools, ListPools, LoadKey, ScrubPool,
        Secret, StopDaemon,
    };

    use axum::http::{HeaderMap, HeaderValue, header};

    use super::{Peer, Token};
    use crate::StateDir;

    #[test]
    fn only_the_token_opens_tcp() {
        let dir = std::env::temp_dir().join(format!("poolhouse-token-{}", std::process::id()));
        let state_dir = StateDir::from_dir(&dir).unwrap();
        state_dir.create_dirs().unwrap();
        let token = Token::load_or_create(&state_dir).unwrap();
        assert_eq!(Token::load_or_create(&state_dir).unwrap().owner, token.owner);
        let shows = |text: &str| {
            let value = HeaderValue::from_str(text).unwrap();
            token.peer(&HeaderMap::from_iter([(header::AUTHORIZATION, value)]))
        };
        let owner = &token.owner;
        assert!(shows(&format!("Bearer {owner}")).is_some_and(|peer| peer.is_owner));
        for wrong in [owner.clone(), "Bearer ".to_owned(), format!("Bearer {owner}0")] {
            assert!(shows(&wrong).is_none());
        }
        let reader = shows(&format!("Bearer {}", token.reader)).unwrap();
        assert!(reader.check(&ListPools { names: Vec::new(), verbose: false }).is_ok());
        assert!(
            reader.check(&FindImportablePools { paths: Vec::new(), destroyed: false }).is_err()
        );
        let scrub = ScrubPool { name: "tank".to_owned(), ..ScrubPool::default() };
        assert!(reader.check(&scrub).is_err() && !reader.is_owner);
        let operator = shows(&format!("Bearer {}", token.operator)).unwrap();
        assert!(operator.check(&scrub).is_ok() && !operator.is_owner);
        assert!(operator.check(&ListPools { names: Vec::new(), verbose: false }).is_ok());
        assert!(operator.check(&DestroyDatasets::default()).is_err());
        assert!(operator.check(&StopDaemon {}).is_err());
        assert!(token.peer(&HeaderMap::new()).is_none());
        std::fs::write(state_dir.token(), "short").unwrap();
        assert!(Token::load_or_create(&state_dir).is_err());
        std::fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn other_users_may_only_read() {
        let peer = |uid, is_owner| Peer { uid, gid: uid, pid: None, is_owner, limit: None };
        let (owner, other) = (peer(0, true), peer(1000, false));
        let list = ListPools { names: Vec::new(), verbose: false };
        let snapshot = CreateSnapshots {
            names: vec!["tank@a".to_owned()],
            recursive: false,
            properties: Vec::new(),
        };
        let search = FindImportablePools { paths: Vec::new(), destroyed: false };
        let key = LoadKey { name: "tank".to_owned(), secret: Secret(Vec::new()), dry_run: false };
        assert!(owner.check(&snapshot).is_ok() && owner.check(&search).is_ok());
        assert!(owner.check(&key).is_ok() && other.check(&list).is_ok());
        let why = other.check(&snapshot).unwrap_err();
        assert_eq!(why.to_string(), "cannot create snapshot 'tank@a': permission denied");
        assert_eq!(why.status(), 1);
        assert!(other.check(&search).is_err() && other.check(&key).is_err());
    }
}
