//! The text of smb.conf.
//!
//! In smb.conf a line is `name = value`. `%` begins a variable, which `%%` avoids; a backslash at the end of a line
//! continues it; spaces at the ends of values are removed.

use std::fmt::Write;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use ipnet::IpNet;

use crate::{Error, Folder, Result};

/// The addresses on which smbd listens.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listen {
    /// The addresses.
    pub addresses: Vec<IpAddr>,
    /// The port, which is the same on all addresses.
    pub port: u16,
}

/// A share.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is an option of its own")]
pub struct Share {
    /// The name for clients.
    pub name: String,
    /// The directory on which its file system is mounted.
    pub directory: PathBuf,
    /// The system users that may use it; none: all with a password.
    pub users: Vec<String>,
    /// The networks whose clients may use it.
    pub networks: Vec<IpNet>,
    /// Clients may not write.
    pub read_only: bool,
    /// It is not in the list of shares.
    pub hidden: bool,
    /// It can be used without a password.
    pub guest: bool,
    /// Permissions of Windows are the NFSv4 ACLs of the files.
    pub nfs4_acls: bool,
    /// It is a destination of Time Machine; none: an ordinary share.
    pub time_machine: Option<TimeMachine>,
}

/// How Macs may back up to a share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeMachine {
    /// The most bytes that a Mac may use; none: all space of the file system.
    pub max_size: Option<u64>,
}

/// The configuration of an smbd.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conf {
    /// The addresses.
    pub listen: Listen,
    /// The shares.
    pub shares: Vec<Share>,
    /// The system user that smbd serves; none: smbd runs as root and serves all.
    pub single_user: Option<String>,
}

/// Options that depend on nothing. Every share has the module fruit: a Mac queries its extensions
/// once, at the first share. Previous Versions are the snapshots in `.zfs/shadow`, also of file
/// systems mounted within a share.
const FIXED: &str = "
  server role = standalone server
  server string = Poolhouse
  disable netbios = yes
  server min protocol = SMB2_10
  load printers = no
  printing = bsd
  printcap name = /dev/null
  disable spoolss = yes
  usershare max shares = 0
  max log size = 1000
  restrict anonymous = 2
  store dos attributes = yes
  map archive = no
  map hidden = no
  map system = no
  map readonly = no
  strict sync = yes
  smb2 leases = yes
  kernel oplocks = no
  kernel share modes = no
  use sendfile = no
  fruit:aapl = yes
  fruit:nfs_aces = no
  fruit:copyfile = yes
  fruit:model = MacSamba
  fruit:zero_file_id = yes
  fruit:metadata = stream
  fruit:resource = file
  fruit:posix_rename = yes
  fruit:veto_appledouble = no
  fruit:wipe_intentionally_left_blank_rfork = yes
  fruit:delete_empty_adfiles = yes
  shadow:snapdir = .zfs/shadow
  shadow:format = @GMT-%Y.%m.%d-%H.%M.%S
  shadow:sort = desc
  shadow:snapdirseverywhere = yes
  shadow:crossmountpoints = yes
  nfs4acl_xattr:encoding = nfs
  nfs4acl_xattr:version = 40
  nfs4acl_xattr:nfs4_id_numeric = yes
  nfs4:chown = yes
";

impl Conf {
    /// The text of smb.conf.
    pub(crate) fn text(&self, folder: &Folder) -> Result<String> {
        let mut text = String::from("# written by poolhouse; changes are lost\n[global]");
        text.push_str(FIXED);
        let (state, run) = (value(&folder.state())?, value(folder.run())?);
        for name in ["state directory", "cache directory"] {
            add(&mut text, name, &state);
        }
        for name in ["lock directory", "pid directory"] {
            add(&mut text, name, &run);
        }
        add(&mut text, "ncalrpc dir", &format!("{run}/ncalrpc"));
        add(&mut text, "private dir", &value(&folder.private())?);
        let passdb = value(&folder.private().join("passdb.tdb"))?;
        add(&mut text, "passdb backend", &format!("tdbsam:{passdb}"));
        add(&mut text, "username map", &value(&folder.users_map())?);
        add(&mut text, "log file", &value(&folder.log())?);
        self.add_guests(&mut text)?;
        self.add_addresses(&mut text);
        for share in &self.shares {
            share.add(&mut text)?;
            add(&mut text, "vfs objects", &self.modules(share));
        }
        Ok(text)
    }

    /// The modules of a share, from the client's side to the file system's.
    fn modules(&self, share: &Share) -> String {
        let acls = if share.nfs4_acls {
            " nfs4acl_xattr"
        } else if self.single_user.is_none() {
            " acl_xattr"
        } else {
            // security descriptors are in an attribute that only root may write
            ""
        };
        format!("catia fruit streams_xattr{acls} shadow_copy2")
    }

    fn add_guests(&self, text: &mut String) -> Result<()> {
        let has_guests = self.shares.iter().any(|share| share.guest);
        add(text, "map to guest", if has_guests { "bad user" } else { "never" });
        if let Some(user) = &self.single_user {
            add(text, "guest account", &value(Path::new(user))?);
        }
        Ok(())
    }

    fn add_addresses(&self, text: &mut String) {
        let Listen { addresses, port } = &self.listen;
        add(text, "smb ports", &port.to_string());
        if !addresses.iter().any(IpAddr::is_unspecified) {
            let addresses: Vec<_> = addresses.iter().map(ToString::to_string).collect();
            add(text, "interfaces", &addresses.join(" "));
            add(text, "bind interfaces only", "yes");
        }
    }
}

impl Share {
    fn add(&self, text: &mut String) -> Result<()> {
        // a name in brackets has no variables
        if self.name.is_empty() || self.name.contains(['[', ']', '\n', '\r', '\0']) {
            return Err(Error::Value { value: self.name.clone() });
        }
        // writing to a string cannot fail
        let _ = writeln!(text, "[{}]", self.name);
        add(text, "path", &value(&self.directory)?);
        add(text, "read only", word(self.read_only));
        add(text, "browseable", word(!self.hidden));
        add(text, "guest ok", word(self.guest));
        if let Some(TimeMachine { max_size }) = self.time_machine {
            add(text, "fruit:time machine", "yes");
            if let Some(bytes) = max_size {
                add(text, "fruit:time machine max size", &bytes.to_string());
            }
        }
        if !self.users.is_empty() {
            let users = self.users.iter().map(|user| value(Path::new(user)));
            add(text, "valid users", &users.collect::<Result<Vec<_>>>()?.join(" "));
        }
        let is_open = self.networks.iter().any(|network| network.prefix_len() == 0);
        if self.networks.is_empty() {
            add(text, "hosts deny", "ALL");
        } else if !is_open {
            let networks: Vec<_> = self.networks.iter().map(ToString::to_string).collect();
            add(text, "hosts allow", &networks.join(" "));
        }
        Ok(())
    }
}

fn add(text: &mut String, name: &str, value: &str) {
    // writing to a string cannot fail
    let _ = writeln!(text, "  {name} = {value}");
}

const fn word(is_on: bool) -> &'static str {
    if is_on { "yes" } else { "no" }
}

/// A path or name as a value.
fn value(path: &Path) -> Result<String> {
    let refused = || Error::Value { value: path.display().to_string() };
    let text = path.to_str().ok_or_else(refused)?;
    if text.is_empty()
        || text.trim() != text
        || text.ends_with('\\')
        || text.chars().any(char::is_control)
    {
        return Err(refused());
    }
    Ok(text.replace('%', "%%"))
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};
    use std::path::{Path, PathBuf};

    use super::{Conf, Listen, Share, TimeMachine};
    use crate::Folder;

    fn share(name: &str, directory: &str) -> Share {
        Share {
            name: name.to_owned(),
            directory: PathBuf::from(directory),
            users: Vec::new(),
            networks: vec!["0.0.0.0/0".parse().unwrap()],
            read_only: false,
            hidden: false,
            guest: false,
            nfs4_acls: false,
            time_machine: None,
        }
    }

    fn text(test: &str, share: Share) -> Result<String, crate::Error> {
        let dir = format!("poolhouse-conf-{test}-{}", std::process::id());
        let dir = std::env::temp_dir().join(dir);
        let folder = Folder::create(&dir, &dir.join("run")).unwrap();
        let listen = Listen { addresses: vec![IpAddr::V4(Ipv4Addr::LOCALHOST)], port: 4450 };
        let text = Conf { listen, shares: vec![share], single_user: None }.text(&folder);
        std::fs::remove_dir_all(dir).unwrap();
        text
    }

    #[test]
    fn shares_are_sections() {
        let limited = Share {
            users: vec!["anna".to_owned(), "ben".to_owned()],
            networks: vec!["10.0.0.0/24".parse().unwrap()],
            read_only: true,
            time_machine: Some(TimeMachine { max_size: Some(1 << 40) }),
            ..share("photos", "/tank/100% photos")
        };
        let text = text("sections", limited).unwrap();
        for line in [
            "interfaces = 127.0.0.1",
            "bind interfaces only = yes",
            "smb ports = 4450",
            "map to guest = never",
            "[photos]",
            "path = /tank/100%% photos",
            "read only = yes",
            "valid users = anna ben",
            "hosts allow = 10.0.0.0/24",
            "fruit:time machine = yes",
            "fruit:time machine max size = 1099511627776",
        ] {
            assert!(text.lines().any(|found| found.trim() == line), "{line}: {text}");
        }
        assert!(!text.contains("/etc/samba"));
    }

    #[test]
    fn no_name_can_add_options() {
        for bad in [
            share("a]\nguest ok = yes", "/tank"),
            share("a", "/tank\nguest ok = yes"),
            share("a", "/tank\\"),
            share("a", " /tank"),
            Share { users: vec!["x\ny".to_owned()], ..share("a", "/tank") },
        ] {
            assert!(text("options", bad.clone()).is_err(), "{bad:?}");
        }
        // an empty list of users must not mean everybody
        let closed =
            Share { networks: Vec::new(), ..share("a", Path::new("/tank").to_str().unwrap()) };
        assert!(text("options", closed).unwrap().contains("hosts deny = ALL"));
    }
}
