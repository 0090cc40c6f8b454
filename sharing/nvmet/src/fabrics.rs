//! The commands of fabrics: Connect, Property Get and Set, Disconnect; and the way of all commands that the reading
//! thread carries out.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::thread::Scope;

use parking_lot::Mutex;

use crate::admin::{self, AdminContext, Response};
use crate::auth::{Authentication, Names, Progress};
use crate::connection::{AdminStep, Attachment, Connection, Failure};
use crate::controller::{Controller, NewController};
use crate::subsystem::ActiveSubsystem;
use crate::transfer::Task;
use crate::wire::command::{Command, DataPlace, Fuse};
use crate::wire::completion::Status;
use crate::wire::connect::{Connect, DISCOVERY_NQN, InvalidField, NEW_CONTROLLER, Property};

/// Types of commands of fabrics.
const PROPERTY_SET: u8 = 0x00;
const CONNECT: u8 = 0x01;
const PROPERTY_GET: u8 = 0x04;
const AUTHENTICATION_SEND: u8 = 0x05;
const AUTHENTICATION_RECEIVE: u8 = 0x06;
const DISCONNECT: u8 = 0x08;

/// The protocol of authentication commands: DH-HMAC-CHAP.
const SECURITY_PROTOCOL: [u8; 3] = [1, 1, 0xe9];
/// The bit of the result of Connect by which the host has to authenticate.
const AUTHENTICATION_REQUIRED: u64 = 1 << 17;

/// Offsets of properties.
const CAPABILITIES: u32 = 0x00;
const VERSION: u32 = 0x08;
const CONFIGURATION: u32 = 0x14;
const CONTROLLER_STATUS: u32 = 0x1c;
const READY_TIMEOUTS: u32 = 0x68;

/// NVMe 2.0.
pub(crate) const NVME_VERSION: u32 = 2 << 16;
/// The time in which a controller becomes ready, in units of 500 ms.
const READY_TIMEOUT: u64 = 15;
/// Entries that the smallest queue has.
const LEAST_ENTRIES: u16 = 2;

/// Bytes of the longest message of an authentication that hosts ask for.
const MAX_MESSAGE: usize = 4096;

/// Why a Connect fails: the status, and the result that names a field.
struct Refusal {
    status: Status,
    result: u64,
}

impl From<Status> for Refusal {
    fn from(status: Status) -> Self {
        Self { status, result: 0 }
    }
}

impl From<InvalidField> for Refusal {
    fn from(field: InvalidField) -> Self {
        Self { status: Status::CONNECT_PARAMETER, result: field.result() }
    }
}

const fn in_command(at: u16) -> InvalidField {
    InvalidField { at, is_in_data: false }
}

const fn in_data(at: u16) -> InvalidField {
    InvalidField { at, is_in_data: true }
}

impl Connection<'_> {
    /// Carries out a command of the admin queue or of fabrics, or refuses an I/O command that comes too early.
    pub(crate) fn execute_admin<'scope>(
        &'scope self,
        task: &Task,
        scope: &'scope Scope<'scope, '_>,
    ) -> Result<AdminStep, Failure> {
        let command = &task.command;
        let refused = task.refused.or((task.fuse != Fuse::None).then_some(Status::INVALID_FIELD));
        if let Some(status) = refused {
            return self.answer(command, Err(status));
        }
        let attached = self.attached.get();
        match (command.fabrics_type(), attached) {
            (Some(CONNECT), None) => self.run_connect(task, scope),
            (_, None) => self.answer(command, Err(Status::COMMAND_SEQUENCE)),
            (Some(kind @ (AUTHENTICATION_SEND | AUTHENTICATION_RECEIVE)), Some(attached)) => {
                self.authenticate(kind, attached, task)
            }
            (_, Some(attached)) if !attached.is_authenticated() => {
                self.answer(command, Err(Status::AUTHENTICATION_REQUIRED))
            }
            (Some(PROPERTY_GET), Some(attached)) if attached.queue == 0 => {
                self.answer(command, self.read_property(&attached.controller, command))
            }
            (Some(PROPERTY_SET), Some(attached)) if attached.queue == 0 => {
                self.answer(command, write_property(&attached.controller, command).map(|()| 0))
            }
            (Some(DISCONNECT), Some(attached)) if attached.queue > 0 => {
                self.answer(command, Ok(0))?;
                Ok(AdminStep::Last)
            }
            (Some(_), Some(_)) => self.answer(command, Err(Status::INVALID_FIELD)),
            (None, Some(attached)) if attached.queue > 0 => {
                self.answer(command, Err(Status::COMMAND_SEQUENCE))
            }
            (None, Some(attached)) => self.run_admin_command(&attached.controller, task),
        }
    }

    fn answer(
        &self,
        command: &Command,
        outcome: Result<u64, Status>,
    ) -> Result<AdminStep, Failure> {
        self.sender.complete(command.id(), outcome, &[])?;
        Ok(AdminStep::Answered)
    }

    /// Takes a message of an authentication from the host, or gives it one.
    fn authenticate(
        &self,
        kind: u8,
        attached: &Attachment,
        task: &Task,
    ) -> Result<AdminStep, Failure> {
        let command = &task.command;
        let Some(proof) = &attached.authentication else {
            return self.answer(command, Err(Status::COMMAND_SEQUENCE));
        };
        if command.0[41..44] != SECURITY_PROTOCOL {
            return self.answer(command, Err(Status::INVALID_FIELD));
        }
        if kind == AUTHENTICATION_SEND {
            let progress = proof.lock().receive(&task.data);
            if progress == Progress::Refused {
                let controller = &attached.controller;
                let name = controller.subsystem.as_ref().map_or("", |subsystem| &subsystem.name);
                self.shared.delay_failed_login(self.client, &controller.host, name);
            }
            self.answer(command, Ok(0))?;
        } else {
            let message = proof.lock().send();
            let Some(mut message) = message else {
                return self.answer(command, Err(Status::COMMAND_SEQUENCE));
            };
            let space = usize::try_from(command.data_length()).map_err(|_| Failure::Io)?;
            if message.len() > space || command.data_place() != DataPlace::Transport {
                return self.answer(command, Err(Status::INVALID_FIELD));
            }
            // hosts get as many bytes as they ask for
            message.resize(space.min(MAX_MESSAGE), 0);
            self.sender.complete(command.id(), Ok(0), &message)?;
        }
        let has_failed = proof.lock().has_failed();
        Ok(if has_failed { AdminStep::Last } else { AdminStep::Answered })
    }

    fn run_admin_command(
        &self,
        controller: &Arc<Controller>,
        task: &Task,
    ) -> Result<AdminStep, Failure> {
        let context = AdminContext { shared: self.shared, controller, client: self.client };
        let id = task.command.id();
        match admin::execute(&context, task) {
            Ok(Response::Held) => return Ok(AdminStep::Held),
            Ok(Response::Done { result, mut data }) => {
                let space = usize::try_from(task.command.data_length());
                data.truncate(space.map_err(|_| Failure::Io)?);
                self.sender.complete(id, Ok(result), &data)?;
            }
            Err(status) => self.sender.complete(id, Err(status), &[])?,
        }
        Ok(AdminStep::Answered)
    }

    fn run_connect<'scope>(
        &'scope self,
        task: &Task,
        scope: &'scope Scope<'scope, '_>,
    ) -> Result<AdminStep, Failure> {
        let id = task.command.id();
        let attachment = match self.connect(task) {
            Ok(attachment) => attachment,
            Err(Refusal { status, result }) => {
                self.sender.complete_with_result(id, result, Some(status))?;
                return Ok(AdminStep::Last);
            }
        };
        let (controller, queue) = (Arc::clone(&attachment.controller), attachment.queue);
        let result = u64::from(controller.id)
            | if attachment.authentication.is_some() { AUTHENTICATION_REQUIRED } else { 0 };
        // this command counts from now on
        controller.in_flight.fetch_add(1, SeqCst);
        if self.attached.set(attachment).is_err() {
            return Err(Failure::Io);
        }
        if queue == 0 {
            let (thread, sent) = (std::thread::Builder::new(), Arc::clone(&controller));
            let thread = thread.name("nvme-events".to_owned());
            let started = thread.spawn_scoped(scope, move || self.send_events(&sent));
            started.map_err(io::Error::other)?;
        }
        self.sender.complete_with_result(id, result, None)?;
        Ok(AdminStep::Answered)
    }

    fn connect(&self, task: &Task) -> Result<Attachment, Refusal> {
        let connect = Connect::parse(&task.command, &task.data)?;
        if connect.format != 0 {
            return Err(Status::CONNECT_FORMAT.into());
        }
        let entries = connect.last_entry.checked_add(1).ok_or(in_command(44))?;
        if !(LEAST_ENTRIES..=self.shared.options.queue_entries).contains(&entries) {
            return Err(in_command(44).into());
        }
        let subsystem = self.find_subsystem(&connect)?;
        let is_of_host =
            |found: &Controller| found.host == connect.host && found.host_id == connect.host_id;
        if !self.shared.wait_for_ended(is_of_host) {
            return Err(Status::CONNECT_BUSY.into());
        }
        let authentication = match &subsystem {
            Some(subsystem) => authentication(subsystem, &connect)?.map(Mutex::new),
            // discovery shows names alone
            None => None,
        };
        let controller = if connect.queue == 0 {
            self.make_controller(&connect, subsystem)?
        } else {
            self.find_controller(&connect, subsystem.as_ref())?
        };
        self.sender.set_queue(entries, connect.is_without_flow_control);
        Ok(Attachment { controller, queue: connect.queue, entries, authentication })
    }

    /// The subsystem of a Connect; none: discovery.
    fn find_subsystem(&self, connect: &Connect) -> Result<Option<Arc<ActiveSubsystem>>, Refusal> {
        if connect.subsystem == DISCOVERY_NQN {
            return Ok(None);
        }
        let table = self.shared.subsystems.read();
        let address = self.client.address.ip();
        let subsystem = table.find(&connect.subsystem, address).ok_or(in_data(256))?;
        if !subsystem.admits_host(&connect.host) {
            return Err(Status::CONNECT_HOST.into());
        }
        Ok(Some(Arc::clone(subsystem)))
    }

    fn make_controller(
        &self,
        connect: &Connect,
        subsystem: Option<Arc<ActiveSubsystem>>,
    ) -> Result<Arc<Controller>, Refusal> {
        // controllers are made for each host, and have no numbers before
        if connect.controller != NEW_CONTROLLER {
            return Err(in_data(16).into());
        }
        let new = NewController {
            host: connect.host.clone(),
            host_id: connect.host_id,
            subsystem,
            keep_alive: self.shared.keep_alive(connect.keep_alive),
            admin: Arc::clone(self.client),
        };
        self.shared.add_controller(new).ok_or(Status::CONNECT_BUSY.into())
    }

    fn find_controller(
        &self,
        connect: &Connect,
        subsystem: Option<&Arc<ActiveSubsystem>>,
    ) -> Result<Arc<Controller>, Refusal> {
        let controller = self.shared.controller(connect.controller).ok_or(in_data(16))?;
        if controller.host != connect.host || controller.host_id != connect.host_id {
            return Err(in_data(16).into());
        }
        let is_same = match (&controller.subsystem, subsystem) {
            (Some(one), Some(other)) => Arc::ptr_eq(one, other),
            // a discovery controller has no I/O queues
            _ => false,
        };
        if !is_same {
            return Err(in_data(256).into());
        }
        if !controller.is_ready() {
            return Err(Status::CONNECT_BUSY.into());
        }
        if connect.queue > self.shared.options.max_queues
            || !controller.add_queue(connect.queue, self.client)
        {
            return Err(in_command(42).into());
        }
        Ok(controller)
    }

    fn read_property(&self, controller: &Controller, command: &Command) -> Result<u64, Status> {
        let property = Property::parse(command);
        let (configuration, status) = controller.properties();
        let value = match (property.offset, property.is_long) {
            (CAPABILITIES, true) => {
                let last_entry = u64::from(self.shared.options.queue_entries - 1);
                let (contiguous, nvm_commands) = (1 << 16, 1 << 37);
                last_entry | contiguous | READY_TIMEOUT << 24 | nvm_commands
            }
            (VERSION, false) => NVME_VERSION.into(),
            (CONFIGURATION, false) => configuration.into(),
            (CONTROLLER_STATUS, false) => status.into(),
            (READY_TIMEOUTS, false) => READY_TIMEOUT,
            _ => return Err(Status::INVALID_FIELD),
        };
        Ok(value)
    }
}

fn write_property(controller: &Controller, command: &Command) -> Result<(), Status> {
    let property = Property::parse(command);
    if property.offset != CONFIGURATION || property.is_long {
        return Err(Status::INVALID_FIELD);
    }
    let configuration = u32::try_from(property.value & u64::from(u32::MAX));
    let configuration = configuration.map_err(|_| Status::INVALID_FIELD)?;
    let is_shutdown = configuration >> 14 & 3 != 0;
    if is_shutdown {
        for namespace in controller.namespaces().values() {
            // a host that needs its data flushes them; a pool that is suspended must not keep it from going
            let _ = namespace.unit.flush();
        }
    }
    controller.configure(configuration);
    Ok(())
}

/// The proof that a host has to give. A host without a secret is refused.
fn authentication(
    subsystem: &ActiveSubsystem,
    connect: &Connect,
) -> Result<Option<Authentication>, Refusal> {
    let Some(dh_chap) = subsystem.authentication() else { return Ok(None) };
    let names = Names { host: connect.host.clone(), subsystem: connect.subsystem.clone() };
    let found = Authentication::new(&dh_chap, names, random_bytes);
    found.map(Some).ok_or(Status::CONNECT_HOST.into())
}

fn random_bytes(into: &mut [u8]) -> io::Result<()> {
    let mut rest = into;
    while !rest.is_empty() {
        let count = rustix::rand::getrandom(&mut *rest, rustix::rand::GetRandomFlags::empty())?;
        rest = &mut rest[count..];
    }
    Ok(())
}
