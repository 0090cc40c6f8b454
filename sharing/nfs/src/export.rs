//! Exports: file systems under the paths that clients mount, and the pseudo file system above them.
//!
//! ```text
//! /               pseudo directory
//! /tank           export of the file system tank, if it is shared; else a pseudo directory
//! /tank/photos    export of tank/photos: a crossing in the root of /tank
//! ```
//!
//! A pseudo directory leads to exports and shows nothing else. A client sees a crossing only if the rules of the
//! export below admit it. The directories between two exports are those of the upper one's file system, as far as they
//! exist there: with the exports `/tank` and `/tank/docs/photos`, a directory `docs` of the file system tank is shown.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::SocketAddr;
use std::sync::Arc;

use ipnet::IpNet;
use posix::{Credentials, Ino};
use units::Guid;
use vfs::{ClientId, DoorId, DynFileSystem, FileHandle};

use crate::hosts::{Clients, Host, HostCache};
use crate::wire::rpc;
use crate::{Error, Result};

/// A file system under the path that clients mount.
#[derive(Clone)]
pub struct Export {
    /// The path: absolute, `/` alone or without a `/` at its end.
    pub path: String,
    /// The file system. All doors into a dataset share one.
    pub filesystem: Arc<DynFileSystem>,
    /// The server's door into the file system.
    pub door: DoorId,
    /// The clients that may use it, and how: the first rule that fits counts. A client that no rule fits is refused.
    pub rules: Vec<ClientRule>,
}

/// The rights of clients of a network, or of a host.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClientRule {
    /// The clients.
    pub clients: Clients,
    /// Whether clients may change files.
    pub is_writable: bool,
    /// Which users become the anonymous user.
    pub squash: Squash,
    /// User and group of the anonymous user.
    pub anonymous: (u32, u32),
    /// Whether clients must use a port below 1024 (`secure`).
    pub needs_reserved_port: bool,
}

/// Which users become the anonymous user.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Squash {
    /// The superuser (`root_squash`).
    Root,
    /// Everybody (`all_squash`).
    All,
    /// No user (`no_root_squash`).
    Nobody,
}

impl ClientRule {
    /// The user and group of `nobody`.
    pub const NOBODY: (u32, u32) = (65_534, 65_534);

    /// A rule for a network with the defaults: read and write, the superuser is squashed, any port.
    pub fn new(network: IpNet) -> Self {
        Self {
            clients: Clients::Network(network),
            is_writable: true,
            squash: Squash::Root,
            anonymous: Self::NOBODY,
            needs_reserved_port: false,
        }
    }

    /// The identity that a client's user has in the file system.
    fn credentials(&self, claimed: &rpc::Credentials) -> Credentials {
        let anonymous = Credentials::new(self.anonymous.0, self.anonymous.1);
        let rpc::Credentials::System { uid, gid, groups } = claimed else { return anonymous };
        match self.squash {
            Squash::All => anonymous,
            Squash::Root if *uid == 0 => anonymous,
            Squash::Root => {
                let squash = |gid: u32| if gid == 0 { self.anonymous.1 } else { gid };
                let groups: Vec<u32> = groups.iter().copied().map(squash).collect();
                Credentials::new(*uid, squash(*gid)).with_groups(&groups)
            }
            Squash::Nobody => {
                let user = Credentials::new(*uid, *gid).with_groups(groups);
                if *uid == 0 { user.with_all_capabilities() } else { user }
            }
        }
    }
}

/// A rule that is served.
pub(crate) struct ServedRule {
    pub(crate) rule: ClientRule,
    /// The host, if the rule is about one.
    host: Option<Arc<Host>>,
}

impl ServedRule {
    fn new(rule: ClientRule, hosts: &HostCache) -> Self {
        let host = match &rule.clients {
            Clients::Network(_) => None,
            named => Some(hosts.host(named)),
        };
        Self { rule, host }
    }

    fn admits(&self, address: SocketAddr) -> bool {
        // a listener of IPv6 shows IPv4 clients by mapped addresses
        let ip = address.ip().to_canonical();
        let is_client = match (&self.rule.clients, &self.host) {
            (Clients::Network(network), _) => network.contains(&ip),
            (_, host) => host.as_ref().is_some_and(|host| host.has_address(ip)),
        };
        is_client && (!self.rule.needs_reserved_port || address.port() < 1024)
    }
}

/// The rights of a caller in an export.
#[derive(Clone, Debug)]
pub(crate) struct Admission {
    pub(crate) credentials: Credentials,
    pub(crate) is_writable: bool,
}

/// An export that is served.
pub(crate) struct ServedExport {
    pub(crate) path: String,
    pub(crate) filesystem: Arc<DynFileSystem>,
    pub(crate) door: DoorId,
    pub(crate) rules: Vec<ServedRule>,
    pub(crate) root: Ino,
    pub(crate) root_handle: FileHandle,
}

impl ServedExport {
    /// The rights of a caller, if a rule admits it.
    pub(crate) fn admit(&self, caller: &Caller) -> Option<Admission> {
        let rule = &self.rules.iter().find(|rule| rule.admits(caller.address))?.rule;
        let credentials = rule.credentials(&caller.credentials);
        Some(Admission { credentials, is_writable: rule.is_writable })
    }

    pub(crate) fn admits(&self, address: SocketAddr) -> bool {
        self.rules.iter().any(|rule| rule.admits(address))
    }

    /// An NFSv4 client, as the file system knows it.
    pub(crate) fn client_id(&self, client: u64) -> ClientId {
        ClientId { door: self.door, client }
    }
}

/// The client of a request, and the user it claims to act for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Caller {
    pub(crate) address: SocketAddr,
    pub(crate) credentials: rpc::Credentials,
}

/// An export or a pseudo directory, as a path names it.
#[derive(Clone)]
pub(crate) enum PathNode {
    Export(Arc<ServedExport>),
    /// A pseudo directory with its path.
    Pseudo(String),
}

/// The exports, and the pseudo directories above them.
#[derive(Default)]
pub(crate) struct ExportTable {
    exports: BTreeMap<String, Arc<ServedExport>>,
    /// The names in pseudo directories and in the roots of exports, by path.
    children: BTreeMap<String, BTreeSet<String>>,
    by_filesystem: HashMap<(Guid, Guid), Arc<ServedExport>>,
    /// By path of an export, the paths below it that lead to further exports, without those of exports; a path comes
    /// after those above it.
    passages: HashMap<String, Vec<String>>,
    pseudo_by_id: HashMap<PseudoId, String>,
    /// The server's number for this table: pseudo directories change with it.
    pub(crate) version: u64,
}

/// The identity of a pseudo directory in handles: a hash of its path.
pub(crate) type PseudoId = [u8; 16];

pub(crate) fn pseudo_id(path: &str) -> PseudoId {
    let hash = blake3::hash(path.as_bytes());
    *hash.as_bytes().first_chunk().expect("a hash has 32 bytes")
}

fn is_valid_path(path: &str) -> bool {
    path == "/"
        || path.strip_prefix('/').is_some_and(|rest| {
            rest.split('/').all(|part| !part.is_empty() && part != "." && part != "..")
        })
}

/// The path of a name in a directory.
pub(crate) fn join(path: &str, name: &str) -> String {
    if path == "/" { format!("/{name}") } else { format!("{path}/{name}") }
}

/// The path above; none above the root.
pub(crate) fn parent(path: &str) -> Option<&str> {
    if path == "/" {
        return None;
    }
    let (above, _) = path.rsplit_once('/')?;
    Some(if above.is_empty() { "/" } else { above })
}

impl ExportTable {
    pub(crate) fn new(exports: Vec<Export>, version: u64, hosts: &HostCache) -> Result<Self> {
        let mut table = Self { version, ..Self::default() };
        table.add_pseudo("/");
        for export in exports {
            let Export { path, filesystem, door, rules } = export;
            if !is_valid_path(&path) {
                return Err(Error::BadPath { path });
            }
            if table.exports.contains_key(&path) {
                return Err(Error::DuplicatePath { path });
            }
            let root = filesystem.root();
            let root = root.and_then(|root| Ok((root, filesystem.handle(root)?)));
            let (root, root_handle) =
                root.map_err(|why| Error::BadRoot { path: path.clone(), why })?;
            let rules = rules.into_iter().map(|rule| ServedRule::new(rule, hosts)).collect();
            let guids = (root_handle.pool_guid, root_handle.filesystem_guid);
            let served = Arc::new(ServedExport {
                path: path.clone(),
                filesystem,
                door,
                rules,
                root,
                root_handle,
            });
            table.add_ancestors(&path);
            table.by_filesystem.insert(guids, Arc::clone(&served));
            table.exports.insert(path, served);
        }
        table.add_passages();
        Ok(table)
    }

    fn add_passages(&mut self) {
        for path in self.children.keys().filter(|path| !self.exports.contains_key(*path)) {
            let Some(above) = self.export_above(path) else { continue };
            self.passages.entry(above.path.clone()).or_default().push(path.clone());
        }
    }

    /// The next export above a path, whoever may use it.
    pub(crate) fn export_above(&self, path: &str) -> Option<&Arc<ServedExport>> {
        let mut above = parent(path);
        while let Some(path) = above {
            if let Some(export) = self.exports.get(path) {
                return Some(export);
            }
            above = parent(path);
        }
        None
    }

    /// The paths below an export that lead to further ones.
    pub(crate) fn passages(&self, export: &ServedExport) -> &[String] {
        self.passages.get(&export.path).map_or(&[], Vec::as_slice)
    }

    /// Whether a path is that of an export, whoever may use it.
    pub(crate) fn is_export(&self, path: &str) -> bool {
        self.exports.contains_key(path)
    }

    fn add_pseudo(&mut self, path: &str) {
        self.pseudo_by_id.insert(pseudo_id(path), path.to_owned());
        self.children.entry(path.to_owned()).or_default();
    }

    fn add_ancestors(&mut self, path: &str) {
        let mut below = path;
        while let Some(above) = parent(below) {
            self.add_pseudo(above);
            let name = below.rsplit('/').next().expect("a path has a last part");
            self.children.entry(above.to_owned()).or_default().insert(name.to_owned());
            below = above;
        }
    }

    pub(crate) fn exports(&self) -> impl Iterator<Item = &Arc<ServedExport>> {
        self.exports.values()
    }

    /// Whether any export admits an address.
    pub(crate) fn admits(&self, address: SocketAddr) -> bool {
        self.exports.values().any(|export| export.admits(address))
    }

    /// The node of a path, as an address may see it.
    pub(crate) fn find(&self, path: &str, address: SocketAddr) -> Option<PathNode> {
        if let Some(export) = self.exports.get(path)
            && export.admits(address)
        {
            return Some(PathNode::Export(Arc::clone(export)));
        }
        let is_visible = path == "/" || self.leads_somewhere(path, address);
        is_visible.then(|| PathNode::Pseudo(path.to_owned()))
    }

    /// Whether there is an export below a path that admits an address.
    fn leads_somewhere(&self, path: &str, address: SocketAddr) -> bool {
        let below = join(path, "");
        let exports = self.exports.range(below.clone()..);
        let mut exports = exports.take_while(|(path, _)| path.starts_with(&below));
        exports.any(|(_, export)| export.admits(address))
    }

    /// The names below a path that an address may see.
    pub(crate) fn children(
        &self,
        path: &str,
        address: SocketAddr,
    ) -> impl Iterator<Item = (&str, PathNode)> {
        let names = self.children.get(path).into_iter().flatten();
        let path = path.to_owned();
        names.filter_map(move |name| Some((name.as_str(), self.find(&join(&path, name), address)?)))
    }

    /// The target of a name in a pseudo directory or in the root of an export, if it is a crossing.
    pub(crate) fn child(&self, path: &str, name: &[u8], address: SocketAddr) -> Option<PathNode> {
        let name = std::str::from_utf8(name).ok()?;
        if !self.children.get(path)?.contains(name) {
            return None;
        }
        self.find(&join(path, name), address)
    }

    /// The path of a pseudo directory.
    pub(crate) fn pseudo_path(&self, id: &PseudoId) -> Option<&str> {
        self.pseudo_by_id.get(id).map(String::as_str)
    }

    /// The export by which a client reached the file of a handle.
    pub(crate) fn by_handle(&self, handle: &FileHandle) -> Option<&Arc<ServedExport>> {
        self.by_filesystem.get(&(handle.pool_guid, handle.filesystem_guid))
    }
}
