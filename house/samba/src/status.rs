//! The state of an smbd, from `smbstatus --json`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::{Error, Result};

/// The clients of an smbd, and their files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// Connections to shares.
    pub connections: Vec<Connection>,
    /// Open files.
    pub files: Vec<OpenFile>,
}

/// A client's connection to a share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Connection {
    /// The share.
    pub share: String,
    /// The address of the client.
    pub address: String,
    /// The system user, if the client is logged in.
    pub user: Option<String>,
    /// The process that serves it.
    pub process: String,
}

/// An open file or directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenFile {
    /// The directory of its share.
    pub directory: PathBuf,
    /// Its path below the directory.
    pub path: String,
    /// The process that has it open.
    pub process: String,
}

#[derive(Deserialize)]
struct StatusText {
    #[serde(default)]
    sessions: BTreeMap<String, Session>,
    #[serde(default)]
    tcons: BTreeMap<String, TreeConnect>,
    #[serde(default)]
    open_files: BTreeMap<String, Opened>,
}

#[derive(Deserialize)]
struct Session {
    username: Option<String>,
}

#[derive(Deserialize)]
struct TreeConnect {
    service: String,
    server_id: ServerId,
    session_id: String,
    machine: String,
}

#[derive(Deserialize)]
struct ServerId {
    pid: String,
}

#[derive(Deserialize)]
struct Opened {
    service_path: PathBuf,
    filename: String,
    #[serde(default)]
    opens: BTreeMap<String, Open>,
}

#[derive(Deserialize)]
struct Open {
    server_id: ServerId,
}

/// The share by which clients list the others.
const IPC: &str = "IPC$";

impl Status {
    /// Reads the text of smbstatus.
    pub(crate) fn parse(text: &str) -> Result<Self> {
        let status: StatusText = serde_json::from_str(text).map_err(|_| Error::Output {
            program: "smbstatus",
            text: text.chars().take(200).collect(),
        })?;
        let user = |session: &str| status.sessions.get(session)?.username.clone();
        let shares = status.tcons.into_values().filter(|tcon| tcon.service != IPC);
        let connections = shares.map(|tcon| Connection {
            user: user(&tcon.session_id),
            share: tcon.service,
            address: tcon.machine,
            process: tcon.server_id.pid,
        });
        let connections = connections.collect();
        let files = status.open_files.into_values().flat_map(|file| {
            let Opened { service_path, filename, opens } = file;
            opens.into_values().map(move |open| OpenFile {
                directory: service_path.clone(),
                path: filename.clone(),
                process: open.server_id.pid,
            })
        });
        Ok(Self { connections, files: files.collect() })
    }

    /// The open files below a directory of a share.
    pub fn files_in<'a>(&'a self, directory: &'a Path) -> impl Iterator<Item = &'a OpenFile> {
        self.files.iter().filter(move |file| file.directory == directory)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::Status;

    /// The output of Samba 4.17.12 for a client with an open file, shortened.
    const TEXT: &str = r#"{"version": "4.17.12-Debian", "smb_conf": "d/smb.conf",
      "sessions": {"154469211": {"session_id": "154469211", "server_id": {"pid": "16832"}, "uid": 0,
        "username": "root", "remote_machine": "127.0.0.1"}},
      "tcons": {"4030469830": {"service": "photos", "server_id": {"pid": "16832", "task_id": "0"},
        "tcon_id": "4030469830", "session_id": "154469211", "machine": "127.0.0.1"},
        "7": {"service": "IPC$", "server_id": {"pid": "16832"}, "session_id": "154469211", "machine": "127.0.0.1"}},
      "open_files": {"/srv/share/f": {"service_path": "/srv/share", "filename": "f",
        "opens": {"16832/3": {"server_id": {"pid": "16832"}, "uid": 0}}}}}"#;

    #[test]
    fn smbstatus_is_read() {
        let status = Status::parse(TEXT).unwrap();
        let [connection] = &status.connections[..] else { panic!("one share") };
        assert_eq!(
            (connection.share.as_str(), connection.address.as_str()),
            ("photos", "127.0.0.1")
        );
        assert_eq!(connection.user.as_deref(), Some("root"));
        assert_eq!(status.files_in(Path::new("/srv/share")).count(), 1);
        assert_eq!(status.files_in(Path::new("/srv")).count(), 0);
        assert_eq!(Status::parse("{\"sessions\": {}, \"tcons\": {}}"), Ok(Status::default()));
        assert!(Status::parse("no").is_err());
    }
}
