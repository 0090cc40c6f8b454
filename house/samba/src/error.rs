//! Errors of Samba.

use crate::Version;

/// The reason why an operation of Samba failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A program of Samba is not installed.
    #[error(
        "Samba is not installed ({program} is missing): install the packages samba and samba-vfs-modules"
    )]
    NotInstalled {
        /// The program.
        program: &'static str,
    },
    /// A version that is known to lose Time Machine backups.
    #[error(
        "Samba {version} breaks Time Machine of macOS 26 (Samba bug 15926): install {fixed} or later"
    )]
    BrokenVersion {
        /// The version.
        version: Version,
        /// The first version of the same series without that mistake.
        fixed: Version,
    },
    /// The text of a program is not understood.
    #[error("this version of Poolhouse does not understand the output of {program}: {text}")]
    Output {
        /// The program.
        program: &'static str,
        /// The start of its text.
        text: String,
    },
    /// A program failed.
    #[error("{program} failed: {why}")]
    Program {
        /// The program.
        program: &'static str,
        /// The reason in its words.
        why: String,
    },
    /// A file of the folder cannot be used.
    #[error("'{path}' cannot be used: {why}")]
    File {
        /// The file.
        path: String,
        /// The system's reason.
        why: String,
    },
    /// The users of clients cannot reach Samba's files.
    #[error(
        "SMB users cannot pass through '{path}', so that Samba could not keep their locks apart: choose a --state \
             folder that other users may pass through, or `chmod o+x` it"
    )]
    Unreachable {
        /// The folder.
        path: String,
    },
    /// A value cannot be written to smb.conf.
    #[error("'{value}' cannot be shared by SMB: its name has line breaks, or spaces at an end")]
    Value {
        /// The value.
        value: String,
    },
    /// A name that no user can have.
    #[error(
        "'{name}' cannot be the name of a user: it has 1 to 32 letters, digits, '.', '_' or '-'"
    )]
    UserName {
        /// The name.
        name: String,
    },
    /// The system user does not exist.
    #[error(
        "system user '{name}' does not exist: create it with useradd(8), or name another one with --system-user"
    )]
    NoSystemUser {
        /// The name.
        name: String,
    },
    /// smbd of an ordinary user serves that user alone.
    #[error(
        "this daemon runs as '{own}' and serves that system user alone: '{name}' needs root's daemon"
    )]
    OtherUser {
        /// The user of the daemon.
        own: String,
        /// The other system user.
        name: String,
    },
    /// The user exists already.
    #[error("user '{name}' exists already: `poolhouse user passwd {name}` sets the password")]
    UserExists {
        /// The name.
        name: String,
    },
    /// A system user has one SMB user only.
    #[error(
        "the system user '{system_user}' belongs to user '{name}' already: remove that one, or name another system user"
    )]
    SystemUserTaken {
        /// The system user.
        system_user: String,
        /// Its user.
        name: String,
    },
    /// The user does not exist.
    #[error("there is no user '{name}': `poolhouse user list` shows them")]
    NoSuchUser {
        /// The name.
        name: String,
    },
    /// A password that clients cannot send.
    #[error("the password is empty or has line breaks: choose another one")]
    Password,
    /// smbd did not listen in time.
    #[error("smbd does not listen: {why}")]
    NotListening {
        /// The end of its log.
        why: String,
    },
    /// Clients did not leave a share in time.
    #[error("clients stay connected to the SMB share '{share}'")]
    StillConnected {
        /// The share.
        share: String,
    },
}

/// The result of a change.
pub type Result<T> = std::result::Result<T, Error>;
