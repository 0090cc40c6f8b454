//! A running smbd and the thread that watches it.

use std::fs::OpenOptions;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use crate::folder::file_error;
use crate::{Conf, Connection, Error, Folder, Listen, Programs, Result, Status};

/// Takes a line for the log of the daemon.
pub type LogLine = Arc<dyn Fn(&str) + Send + Sync>;

/// A running smbd. It is stopped when this is dropped.
pub struct Server {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

struct Shared {
    programs: Programs,
    folder: Folder,
    listen: Listen,
    log: LogLine,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    process: Option<Pid>,
    is_listening: bool,
    is_stopping: bool,
    /// Why smbd does not run now.
    problem: Option<String>,
}

/// The pauses before smbd is started again: the first one, and the longest.
const PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_mins(1));
/// An smbd that ran as long as this is started again after the first pause.
const STABLE: Duration = Duration::from_mins(1);
/// The time that smbd has to listen, or to end.
const LIMIT: Duration = Duration::from_secs(10);
/// The time between two looks at something that comes soon.
const POLL: Duration = Duration::from_millis(20);
/// The files with the process ids of smbd and of its helper for lists of shares.
const PID_FILES: [&str; 2] = ["smbd.pid", "samba-dcerpcd.pid"];

/// The system user that smbd serves alone; none: this process is root.
pub(crate) fn single_user() -> Option<String> {
    (!nix::unistd::geteuid().is_root()).then(own_user)
}

/// The name of the user that this process runs as.
pub fn own_user() -> String {
    let uid = nix::unistd::geteuid();
    let name = nix::unistd::User::from_uid(uid).ok().flatten().map(|user| user.name);
    name.unwrap_or_else(|| uid.to_string())
}

impl Server {
    /// Writes smb.conf for these shares. Programs that manage users need it, too.
    pub fn write_conf(folder: &Folder, listen: &Listen, shares: &[crate::Share]) -> Result<()> {
        let conf =
            Conf { listen: listen.clone(), shares: shares.to_vec(), single_user: single_user() };
        let map = folder.users_map();
        if !map.exists() {
            Folder::write(&map, "")?;
        }
        Folder::write(&folder.conf(), &conf.text(folder)?)
    }

    /// Starts smbd with the present smb.conf, and waits until it listens. If it does not, it is
    /// restarted repeatedly: [`Self::problem`] has the reason.
    pub fn start(programs: Programs, folder: Folder, listen: Listen, log: LogLine) -> Result<Self> {
        if single_user().is_none() {
            folder.check_reachable()?;
        }
        end_strays(&folder);
        let state = Mutex::default();
        let changed = Condvar::new();
        let shared = Arc::new(Shared { programs, folder, listen, log, state, changed });
        let own = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("smbd".to_owned());
        let thread = thread.spawn(move || own.supervise());
        let thread =
            thread.map_err(|why| Error::Program { program: "smbd", why: why.to_string() })?;
        let server = Self { shared, thread: Mutex::new(Some(thread)) };
        server.wait_listening();
        Ok(server)
    }

    fn wait_listening(&self) {
        let mut state = self.shared.state.lock();
        let last = Instant::now() + LIMIT;
        while !state.is_listening && state.problem.is_none() {
            if self.shared.changed.wait_until(&mut state, last).timed_out() {
                return;
            }
        }
    }

    /// The addresses on which smbd listens; none: it does not run now.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        if !self.shared.state.lock().is_listening {
            return Vec::new();
        }
        let Listen { addresses, port } = &self.shared.listen;
        addresses.iter().map(|address| SocketAddr::new(*address, *port)).collect()
    }

    /// Why smbd does not run now.
    pub fn problem(&self) -> Option<String> {
        self.shared.state.lock().problem.clone()
    }

    /// Has smbd read smb.conf again. Clients stay connected.
    pub fn reload(&self) -> Result<()> {
        if self.shared.state.lock().process.is_none() {
            return Ok(()); // it reads the file when it starts
        }
        self.shared.programs.control(&self.shared.folder, &["reload-config"])
    }

    /// Disconnects the clients of a share, and waits until they left its directory.
    pub fn close_share(&self, share: &str, directory: &Path) -> Result<()> {
        let Some(process) = self.shared.state.lock().process else { return Ok(()) };
        self.shared.programs.control(&self.shared.folder, &["close-share", share])?;
        let last = Instant::now() + LIMIT;
        let is_of = |connection: &Connection| connection.share.eq_ignore_ascii_case(share);
        let is_open = || {
            if single_user().is_some() {
                return Ok(is_any_child_in(process, directory));
            }
            Ok(self.status()?.connections.iter().any(is_of))
        };
        while is_open()? {
            if Instant::now() > last {
                return Err(Error::StillConnected { share: share.to_owned() });
            }
            std::thread::sleep(POLL);
        }
        Ok(())
    }

    /// The clients and their files. Samba shows them to root only: an ordinary user sees none.
    pub fn status(&self) -> Result<Status> {
        if self.shared.state.lock().process.is_none() || single_user().is_some() {
            return Ok(Status::default());
        }
        Status::parse(&self.shared.programs.status(&self.shared.folder)?)
    }

    /// Ends smbd with all its processes.
    pub fn stop(&self) {
        let Some(thread) = self.thread.lock().take() else { return };
        let mut state = self.shared.state.lock();
        state.is_stopping = true;
        self.shared.changed.notify_all();
        let process = state.process;
        if let Some(process) = process {
            let _ = kill_process(process, Signal::TERM);
            let last = Instant::now() + LIMIT;
            while state.process.is_some() {
                if self.shared.changed.wait_until(&mut state, last).timed_out() {
                    let _ = kill_process_group(process, Signal::KILL);
                    break;
                }
            }
        }
        drop(state);
        // a thread that panicked has printed why
        let _ = thread.join();
        end_strays(&self.shared.folder);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Shared {
    /// Starts smbd, and starts it again when it ends, until the server stops.
    fn supervise(&self) {
        let (first, longest) = PAUSES;
        let mut pause = first;
        loop {
            let begun = Instant::now();
            let ended = self.run();
            let mut state = self.state.lock();
            (state.process, state.is_listening) = (None, false);
            self.changed.notify_all();
            if state.is_stopping {
                return;
            }
            if begun.elapsed() > STABLE {
                pause = first;
            }
            let why = match ended {
                Ok(status) => format!("smbd ended ({status}): {}", self.folder.log_tail()),
                Err(why) => why.to_string(),
            };
            (self.log)(&format!("{why}; it is started again in {} s", pause.as_secs()));
            state.problem = Some(why);
            self.changed.notify_all();
            let last = Instant::now() + pause;
            while !state.is_stopping && !self.changed.wait_until(&mut state, last).timed_out() {}
            if state.is_stopping {
                return;
            }
            drop(state);
            pause = longest.min(pause * 2);
            end_strays(&self.folder);
        }
    }

    /// Runs smbd to its end.
    fn run(&self) -> Result<ExitStatus> {
        let failed = |why: std::io::Error| Error::Program { program: "smbd", why: why.to_string() };
        let mut child = self.spawn()?;
        let process = Pid::from_child(&child);
        {
            let mut state = self.state.lock();
            state.process = Some(process);
            if state.is_stopping {
                let _ = kill_process(process, Signal::TERM);
            }
        }
        while !self.is_reachable() {
            if let Some(status) = child.try_wait().map_err(failed)? {
                return Ok(status);
            }
            std::thread::sleep(POLL);
        }
        {
            let mut state = self.state.lock();
            (state.is_listening, state.problem) = (true, None);
            self.changed.notify_all();
        }
        (self.log)(&format!(
            "Samba {} serves SMB on port {}",
            self.programs.version(),
            self.listen.port
        ));
        child.wait().map_err(failed)
    }

    fn spawn(&self) -> Result<Child> {
        let path = self.folder.log();
        let log = OpenOptions::new().create(true).append(true).mode(0o600).open(&path);
        let log = log.map_err(|why| file_error(&path, &why))?;
        let mut command = Command::new(&self.programs.smbd);
        // smbd makes a process group of its own
        command.arg("-F").arg("-s").arg(self.folder.conf()).arg("-l").arg(self.folder.path());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        command.spawn().map_err(|why| Error::Program { program: "smbd", why: why.to_string() })
    }

    /// Whether something listens on the first address.
    fn is_reachable(&self) -> bool {
        let address = match self.listen.addresses.first() {
            Some(IpAddr::V4(any)) if any.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
            Some(IpAddr::V6(any)) if any.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
            Some(address) => *address,
            None => return true,
        };
        TcpStream::connect_timeout(&SocketAddr::new(address, self.listen.port), LIMIT).is_ok()
    }
}

/// Ends processes that an smbd of this folder left, as after a crash of the daemon.
pub fn end_strays(folder: &Folder) {
    for name in PID_FILES {
        let path = folder.run().join(name);
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        let Some(process) = text.trim().parse().ok().and_then(Pid::from_raw) else { continue };
        let last = Instant::now() + LIMIT;
        let mut signal = Signal::TERM;
        while belongs_to(process, &folder.conf()) {
            // each of them leads its group
            let _ = kill_process_group(process, signal);
            if Instant::now() > last {
                signal = Signal::KILL;
            }
            std::thread::sleep(POLL);
        }
        let _ = std::fs::remove_file(path);
    }
}

/// Whether a child of smbd works in a directory, which cannot be unmounted then.
fn is_any_child_in(smbd: Pid, directory: &Path) -> bool {
    let smbd = smbd.as_raw_nonzero();
    let children = std::fs::read_to_string(format!("/proc/{smbd}/task/{smbd}/children"));
    let children = children.unwrap_or_default();
    let mut working = children.split_whitespace().filter_map(|child| {
        // a child that ended meanwhile has none
        std::fs::read_link(format!("/proc/{child}/cwd")).ok()
    });
    working.any(|dir| dir.starts_with(directory))
}

/// Whether a process runs with a smb.conf. Its number may belong to another program by now.
fn belongs_to(process: Pid, conf: &Path) -> bool {
    let path = format!("/proc/{}/cmdline", process.as_raw_nonzero());
    let command = std::fs::read(path).unwrap_or_default();
    let conf = conf.as_os_str().as_encoded_bytes();
    command.split(|byte| *byte == 0).any(|word| word.ends_with(conf))
}
