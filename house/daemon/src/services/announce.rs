//! The service of announcements: clients show this computer and its shares by themselves.
//!
//! ```toml
//! [announce]
//! enabled = true             # false: nothing is announced
//! name = "nas"               # without it the host name
//! workgroup = "WORKGROUP"    # in the network folder of Windows
//! ```
//!
//! It announces the shares of SMB and NFS on the addresses on which they are served, and nothing on loopback. Windows
//! uses port 445 alone, so that WS-Discovery announces shares on no other port.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use ::announce::{Device, MdnsResponder, MdnsService, WsDiscovery, WsdPorts, reachable_ipv4};
use parking_lot::Mutex;
use serde::Deserialize;
use tokio::task::JoinHandle;

use super::Service;
use crate::context::Context;
use crate::router::Router;
use crate::{Result, state_file};

/// The interval at which the served shares are compared with the announcements.
const INTERVAL: Duration = Duration::from_secs(3);
/// The port that Windows uses for SMB.
const WINDOWS_PORT: u16 = 445;
/// The longest name of a computer, in bytes: a label of DNS.
const MAX_LABEL: usize = 63;

/// The section `[announce]`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct AnnounceConfig {
    /// Whether anything is announced.
    enabled: bool,
    /// The name of the computer; none: the host name.
    name: Option<String>,
    /// The workgroup that Windows shows.
    workgroup: String,
}

impl Default for AnnounceConfig {
    fn default() -> Self {
        Self { enabled: true, name: None, workgroup: "WORKGROUP".to_owned() }
    }
}

/// The service of announcements.
pub(super) struct AnnounceService {
    running: Arc<Mutex<Running>>,
    task: Mutex<Option<JoinHandle<()>>>,
}

/// The announcements that are made, or that failed and are not tried again before they change.
#[derive(Default)]
struct Running {
    plan: Plan,
    mdns: Option<MdnsResponder>,
    windows: Option<WsDiscovery>,
}

/// The announcements to make.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Plan {
    host: String,
    services: Vec<MdnsService>,
    /// The computer for Windows, and the addresses on which it is announced.
    windows: Option<(Device, Vec<Ipv4Addr>)>,
}

impl AnnounceService {
    pub(super) fn new(_context: &Arc<Context>) -> Self {
        Self { running: Arc::default(), task: Mutex::default() }
    }
}

impl Service for AnnounceService {
    fn name(&self) -> &'static str {
        "announce"
    }

    fn calls(self: Arc<Self>, _router: &mut Router) {}

    fn start(&self, context: &Arc<Context>) -> Result<()> {
        let (context, running) = (Arc::clone(context), Arc::clone(&self.running));
        let task = tokio::spawn(async move {
            loop {
                tokio::time::sleep(INTERVAL).await;
                let (context, running) = (Arc::clone(&context), Arc::clone(&running));
                let _ = tokio::task::spawn_blocking(move || update(&context, &running)).await;
            }
        });
        *self.task.lock() = Some(task);
        Ok(())
    }

    fn stop(&self) {
        if let Some(task) = self.task.lock().take() {
            task.abort();
        }
        let running = std::mem::take(&mut *self.running.lock());
        drop(running);
    }
}

/// Updates the announcements to the present shares.
fn update(context: &Context, running: &Mutex<Running>) {
    let config: AnnounceConfig = context.config.current().section("announce");
    let host = host_label(&config.name.clone().unwrap_or_else(node_name));
    let mut services = Vec::new();
    if config.enabled {
        for service in context.events.services() {
            let announced = service.share_server().map(|server| server.announced(&host));
            services.extend(announced.unwrap_or_default());
        }
    }
    let id = || state_file::load_or_create_secret(&context.state_dir.announce_id());
    let plan = match make_plan(&host, &config.workgroup, services, &id) {
        Ok(plan) => plan,
        Err(why) => return context.log.write_line(&format!("announcements: {why}")),
    };
    let mut running = running.lock();
    for why in running.follow(plan) {
        context.log.write_line(&why.to_string());
    }
}

/// The announcements of services. `id`: the identifier of the computer, as hexadecimal digits.
fn make_plan(
    host: &str,
    workgroup: &str,
    mut services: Vec<MdnsService>,
    id: &dyn Fn() -> Result<String>,
) -> Result<Plan> {
    services.retain(|service| service.listening.iter().any(|address| !address.is_loopback()));
    let is_for_windows =
        |service: &&MdnsService| service.kind == "_smb._tcp" && service.port == WINDOWS_PORT;
    let listening: Option<&Vec<IpAddr>> =
        services.iter().find(is_for_windows).map(|service| &service.listening);
    let addresses = listening.map(|listening| reachable_ipv4(listening)).unwrap_or_default();
    let windows = if addresses.is_empty() {
        None
    } else {
        let (name, workgroup) = (host.to_owned(), workgroup.to_owned());
        Some((Device { name, id: first_bytes(&id()?), workgroup }, addresses))
    };
    Ok(Plan { host: host.to_owned(), services, windows })
}

impl Running {
    /// Changes the announcements to those of a plan. Returns the reasons why some could not be made.
    fn follow(&mut self, plan: Plan) -> Vec<::announce::Error> {
        let mut failed = Vec::new();
        if (&plan.host, &plan.services) != (&self.plan.host, &self.plan.services) {
            // the old names are withdrawn first
            self.mdns = None;
            if !plan.services.is_empty() {
                let started = MdnsResponder::start(&plan.host, &plan.services);
                self.mdns = started.map_err(|why| failed.push(why)).ok();
            }
        }
        if plan.windows != self.plan.windows {
            self.windows = None;
            if let Some((device, addresses)) = &plan.windows {
                let started = WsDiscovery::start(device, addresses, WsdPorts::default());
                self.windows = started.map_err(|why| failed.push(why)).ok();
            }
        }
        self.plan = plan;
        failed
    }
}

/// The name of the system.
fn node_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// A host name without its domain, if it is valid in DNS.
fn host_label(name: &str) -> String {
    let label = name.split('.').next().unwrap_or_default();
    let is_label = !label.is_empty() && label.len() <= MAX_LABEL;
    if is_label { label } else { "poolhouse" }.to_owned()
}

/// The first bytes of hexadecimal digits.
fn first_bytes(digits: &str) -> [u8; 16] {
    let mut bytes = [0; 16];
    for (to, pair) in bytes.iter_mut().zip(digits.as_bytes().chunks(2)) {
        let pair = std::str::from_utf8(pair).unwrap_or_default();
        // the file was checked to have digits
        *to = u8::from_str_radix(pair, 16).unwrap_or_default();
    }
    bytes
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use announce::MdnsService;

    use super::{first_bytes, host_label, make_plan};

    fn smb(listening: &[IpAddr], port: u16) -> MdnsService {
        let (kind, instance) = ("_smb._tcp", "nas".to_owned());
        MdnsService { kind, instance, port, facts: Vec::new(), listening: listening.to_vec() }
    }

    #[test]
    fn nothing_is_announced_on_loopback() {
        let plan = |services| {
            let id = || Ok("00".repeat(32));
            make_plan("nas", "WORKGROUP", services, &id).unwrap()
        };
        let loopback = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let closed = plan(vec![smb(&[loopback], 445)]);
        assert!(closed.services.is_empty() && closed.windows.is_none(), "{closed:?}");
        let any = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
        assert_eq!(plan(vec![smb(&[any], 445)]).services.len(), 1);
        // Windows cannot reach another port
        let high = plan(vec![smb(&[any], 4450)]);
        assert!(high.services.len() == 1 && high.windows.is_none(), "{high:?}");
        // an address that this computer does not have
        let foreign = plan(vec![smb(&["203.0.113.9".parse().unwrap()], 445)]);
        assert!(foreign.windows.is_none(), "{foreign:?}");
    }

    #[test]
    fn host_names_are_labels_of_dns() {
        let long = "x".repeat(64);
        for (name, label) in [("nas.lan", "nas"), ("", "poolhouse"), (&long, "poolhouse")] {
            assert_eq!(host_label(name), label);
        }
    }

    #[test]
    fn identifiers_are_the_first_digits() {
        let bytes = first_bytes(&format!("0f{}", "10".repeat(31)));
        assert_eq!((bytes[0], bytes[1], bytes[15]), (0x0f, 0x10, 0x10));
    }
}
