//! The service of SMB: Samba's smbd over mounted file systems, and the users with their passwords.
//!
//! ```toml
//! [smb]
//! listen = "0.0.0.0:445"     # or a list with one port, or a port alone (loopback); without it nothing listens
//! ```
//!
//! smbd runs while there is an address and a share. Its files are in the folder `smb` of the state directory, and in
//! `smb-run` beside the daemon's socket.

use std::sync::Arc;

use ::samba::{Folder, Listen as SambaListen, Programs, Server, TimeMachine, UserName, Users};
use announce::MdnsService;
use api::{
    AddUser, ListUsers, Protocol, RemoveUser, Secret, SetUserPassword, ShareClient, ShareUser,
};
use parking_lot::Mutex;
use serde::Deserialize;

use super::Service;
use crate::config::{Config, Listen};
use crate::context::Context;
use crate::router::Router;
use crate::shares::smb::SmbOptions;
use crate::shares::{ReleaseReason, ServerReport, Share, ShareProblem, ShareServer, ShareSet};
use crate::{Error, Result};

/// The section `[smb]`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct SmbConfig {
    /// The addresses; none: nothing is served.
    listen: Listen,
}

/// The service of SMB.
pub(super) struct SmbService {
    context: Arc<Context>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    listen: SambaListen,
    shares: Vec<Share<SmbOptions>>,
    server: Option<Server>,
    /// The reason why there is no smbd, though addresses and shares are configured.
    problem: Option<String>,
}

impl SmbService {
    pub(super) fn new(context: &Arc<Context>) -> Self {
        Self { context: Arc::clone(context), state: Mutex::default() }
    }

    fn folder(&self) -> Result<Folder> {
        let state_dir = &self.context.state_dir;
        Ok(Folder::create(&state_dir.samba(), &state_dir.samba_run())?)
    }

    /// The users, with a configuration that Samba's programs can read.
    fn users(&self) -> Result<Users> {
        let (folder, programs) = (self.folder()?, Programs::find()?);
        let state = self.state.lock();
        if !folder.conf().exists() {
            Server::write_conf(&folder, &state.listen, &[])?;
        }
        Ok(Users::new(programs, folder))
    }

    fn add_user(&self, call: &AddUser) -> Result<()> {
        let name = UserName::new(&call.name)?;
        let system_user = call.system_user.clone().or_else(own_user);
        let system_user = system_user.as_deref().map_or_else(|| Ok(name.clone()), UserName::new);
        let users = self.users()?;
        users.add(&name, &system_user?, &text(&call.password)?)?;
        // shares may name the user already
        self.apply(&mut self.state.lock())
    }

    fn list_users(&self) -> Result<Vec<ShareUser>> {
        let all = self.users()?.list()?.into_iter();
        let user = |it: ::samba::User| ShareUser { name: it.name, system_user: it.system_user };
        Ok(all.map(user).collect())
    }

    /// Has smbd serve the present shares: writes its configuration, and starts, reloads or stops it.
    fn apply(&self, state: &mut State) -> Result<()> {
        state.problem = None;
        let applied = self.try_apply(state);
        if let Err(why) = &applied {
            state.problem = Some(why.to_string());
        }
        applied
    }

    fn try_apply(&self, state: &mut State) -> Result<()> {
        if state.listen.addresses.is_empty() || state.shares.is_empty() {
            state.server = None;
            return Ok(());
        }
        let (folder, programs) = (self.folder()?, Programs::find()?);
        let users = Users::new(programs.clone(), folder.clone());
        let shares: std::result::Result<Vec<_>, _> =
            state.shares.iter().map(|share| samba_share(share, &users)).collect();
        Server::write_conf(&folder, &state.listen, &shares?)?;
        if let Some(server) = &state.server {
            return server.reload().map_err(Error::from);
        }
        let log = Arc::clone(&self.context.log);
        let log = Arc::new(move |line: &str| log.write_line(line));
        let server = Server::start(programs, folder, state.listen.clone(), log)?;
        state.server = Some(server);
        Ok(())
    }
}

impl Service for SmbService {
    fn name(&self) -> &'static str {
        "smb"
    }

    fn calls(self: Arc<Self>, router: &mut Router) {
        let own = Arc::clone(&self);
        router.add(move |_: &ListUsers, _| own.list_users());
        let own = Arc::clone(&self);
        router.add(move |call: &AddUser, _| own.add_user(call));
        let own = Arc::clone(&self);
        router.add(move |call: &SetUserPassword, _| {
            let (name, password) = (UserName::new(&call.name), text(&call.password)?);
            own.users()?.set_password(&name?, &password).map_err(Error::from)
        });
        let own = Arc::clone(&self);
        router.add(move |call: &RemoveUser, _| {
            own.users()?.remove(&UserName::new(&call.name)?).map_err(Error::from)
        });
    }

    fn start(&self, context: &Arc<Context>) -> Result<()> {
        if context.state_dir.samba().exists() {
            // an smbd outlives a daemon that was killed
            ::samba::end_strays(&self.folder()?);
        }
        self.configure(&context.config.current())
    }

    fn configure(&self, config: &Config) -> Result<()> {
        let SmbConfig { listen } = config.section("smb");
        let listen = samba_listen(&listen)?;
        let mut state = self.state.lock();
        if state.listen == listen {
            return Ok(());
        }
        state.listen = listen;
        state.server = None;
        self.apply(&mut state)
    }

    fn share_server(&self) -> Option<&dyn ShareServer> {
        Some(self)
    }

    fn stop(&self) {
        let state = std::mem::take(&mut *self.state.lock());
        drop(state);
    }
}

impl ShareServer for SmbService {
    fn protocol(&self) -> Protocol {
        Protocol::Smb
    }

    fn set_shares(&self, shares: &ShareSet) -> Vec<ShareProblem> {
        let mut state = self.state.lock();
        let key = |share: &Share<SmbOptions>| {
            (share.name.clone(), share.directory.clone(), share.options.clone())
        };
        let is_same = state.shares.iter().map(key).eq(shares.smb.iter().map(key));
        if is_same && state.problem.is_none() {
            return Vec::new();
        }
        let before = std::mem::replace(&mut state.shares, shares.smb.clone());
        let applied = self.apply(&mut state);
        let is_gone = |old: &&Share<SmbOptions>| {
            !state
                .shares
                .iter()
                .any(|new| (&new.name, &new.directory) == (&old.name, &old.directory))
        };
        for old in before.iter().filter(is_gone) {
            let closed = state.server.as_ref().map(|server| close_share(server, old));
            if let Some(Err(why)) = closed {
                self.context.log.write_line(&why.to_string());
            }
        }
        let failed = |why: Error| {
            shares.smb.iter().map(|share| share.problem(Protocol::Smb, &why)).collect()
        };
        applied.err().map_or_else(Vec::new, failed)
    }

    fn release(
        &self,
        datasets: &dyn Fn(&str) -> bool,
        _reason: ReleaseReason,
        force: bool,
    ) -> Result<()> {
        let mut state = self.state.lock();
        if !state.shares.iter().any(|share| datasets(&share.dataset)) {
            return Ok(());
        }
        if !force && let Some(server) = &state.server {
            let status = server.status()?;
            for share in state.shares.iter().filter(|share| datasets(&share.dataset)) {
                let files =
                    share.directory.as_deref().map_or(0, |dir| status.files_in(dir).count());
                if files > 0 {
                    return Err(in_use(&share.dataset, files));
                }
            }
        }
        let (gone, kept) = std::mem::take(&mut state.shares)
            .into_iter()
            .partition(|share| datasets(&share.dataset));
        state.shares = kept;
        let gone: Vec<Share<SmbOptions>> = gone;
        self.apply(&mut state)?;
        for share in &gone {
            if let Some(server) = &state.server {
                close_share(server, share)?;
            }
        }
        Ok(())
    }

    fn report(&self) -> ServerReport {
        let state = self.state.lock();
        let Some(server) = &state.server else {
            return ServerReport { problem: state.problem.clone(), ..ServerReport::default() };
        };
        let status = match server.status() {
            Ok(status) => status,
            Err(why) => {
                let problem = Some(why.to_string());
                return ServerReport { problem, ..ServerReport::default() };
            }
        };
        let client = |connection: &::samba::Connection| {
            let of = |file: &&::samba::OpenFile| file.process == connection.process;
            let files = status.files.iter().filter(of).count();
            let client = ShareClient {
                address: connection.address.clone(),
                user: connection.user.clone(),
                open: u64::try_from(files).ok(),
                ..ShareClient::default()
            };
            (connection.share.clone(), client)
        };
        ServerReport {
            listening: server.addresses(),
            problem: server.problem(),
            clients: status.connections.iter().map(client).collect(),
            ..ServerReport::default()
        }
    }

    fn announced(&self, host: &str) -> Vec<MdnsService> {
        let state = self.state.lock();
        let listening = state.server.as_ref().map(Server::addresses).unwrap_or_default();
        let Some(port) = listening.first().map(std::net::SocketAddr::port) else {
            return Vec::new();
        };
        let listening: Vec<_> = listening.iter().map(std::net::SocketAddr::ip).collect();
        let service = |kind, port, facts| {
            let (instance, listening) = (host.to_owned(), listening.clone());
            MdnsService { kind, instance, port, facts, listening }
        };
        let model = vec![("model".to_owned(), "MacSamba".to_owned())];
        let mut services = vec![
            service("_smb._tcp", port, Vec::new()),
            service("_device-info._tcp", UNUSED_PORT, model),
        ];
        let backups = time_machine_facts(&state.shares);
        if !backups.is_empty() {
            services.push(service("_adisk._tcp", UNUSED_PORT, backups));
        }
        services
    }
}

/// The port "discard", to which no client connects.
const UNUSED_PORT: u16 = 9;

/// The destinations of Time Machine in the form of the record _adisk: `sys` for the computer,
/// `dk0`, `dk1` and so on for the shares. 0x80 of `adVF` marks a share for backups, 0x02 a share
/// over SMB.
fn time_machine_facts(shares: &[Share<SmbOptions>]) -> Vec<(String, String)> {
    let backups = shares.iter().filter(|share| share.options.time_machine && !share.options.hidden);
    let mut facts: Vec<_> = backups
        .enumerate()
        .map(|(at, share)| (format!("dk{at}"), format!("adVN={},adVF=0x82", share.name)))
        .collect();
    if !facts.is_empty() {
        facts.insert(0, ("sys".to_owned(), "waMa=0,adVF=0x100".to_owned()));
    }
    facts
}

impl From<::samba::Error> for Error {
    fn from(why: ::samba::Error) -> Self {
        Self::refused_error(why.to_string())
    }
}

/// Disconnects the clients of a share.
fn close_share(server: &Server, share: &Share<SmbOptions>) -> Result<()> {
    let Some(directory) = &share.directory else { return Ok(()) };
    Ok(server.close_share(&share.name, directory)?)
}

fn in_use(dataset: &str, files: usize) -> Error {
    Error::refused_error(format!(
        "'{dataset}' is in use: files that SMB clients have open: {files}; close them, or use -f"
    ))
}

/// The system user of a user without a name of one; none: the one of the same name.
fn own_user() -> Option<String> {
    let uid = rustix::process::geteuid();
    (!uid.is_root()).then(::samba::own_user)
}

fn text(password: &Secret) -> Result<String> {
    let text = String::from_utf8(password.0.clone());
    text.map_err(|_| Error::usage_error("the password is not text in UTF-8"))
}

/// The addresses of smbd, which has one port.
fn samba_listen(listen: &Listen) -> Result<SambaListen> {
    let all = listen.addresses();
    let Some(first) = all.first() else { return Ok(SambaListen::default()) };
    if all.iter().any(|address| address.port() != first.port()) {
        return Err(Error::usage_error("smb.listen: SMB has the same port on all addresses"));
    }
    let addresses = all.iter().map(std::net::SocketAddr::ip).collect();
    Ok(SambaListen { addresses, port: first.port() })
}

fn samba_share(
    share: &Share<SmbOptions>,
    users: &Users,
) -> std::result::Result<::samba::Share, ::samba::Error> {
    let SmbOptions {
        users: allowed,
        networks,
        read_only,
        hidden,
        guest,
        time_machine,
        nfs4_acls,
        max_size,
    } = &share.options;
    let allowed = allowed.iter().map(|name| users.system_user(name));
    Ok(::samba::Share {
        name: share.name.clone(),
        // shares of file systems that are not mounted are problems, and do not come here
        directory: share.directory.clone().unwrap_or_default(),
        users: allowed.collect::<std::result::Result<_, _>>()?,
        networks: networks.as_slice().to_vec(),
        read_only: *read_only,
        hidden: *hidden,
        guest: *guest,
        nfs4_acls: *nfs4_acls,
        time_machine: time_machine.then_some(TimeMachine { max_size: *max_size }),
    })
}
