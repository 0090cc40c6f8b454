//! Set Features and Get Features.
//!
//! ```text
//! 0x01 arbitration, 0x02 power, 0x04 temperature, 0x05 error recovery, 0x0a atomicity: 0, and cannot be changed
//! 0x06 volatile write cache      1: on, of one controller
//! 0x07 number of queues          granted submission and completion queues, less 1
//! 0x0b asynchronous events       the notices that the host wants
//! 0x0f keep-alive timeout        milliseconds
//! 0x81 host identifier           of Connect
//! 0x83 reservation persistence   1: reservations outlast a restart, of one namespace
//! ```
//! Learnt from: NVM Express Base Specification 2.0, section 5.27; NVM Command Set Specification 1.0, section 4.1.3.

use std::time::Duration;

use super::{AdminContext, Response};
use crate::wire::command::Command;
use crate::wire::completion::Status;

const WRITE_CACHE: u8 = 0x06;
const QUEUES: u8 = 0x07;
const EVENTS: u8 = 0x0b;
const KEEP_ALIVE: u8 = 0x0f;
const HOST_ID: u8 = 0x81;
const RESERVATION_PERSISTENCE: u8 = 0x83;
/// Features without an effect here.
const FIXED: [u8; 5] = [0x01, 0x02, 0x04, 0x05, 0x0a];

pub(super) fn set(context: &AdminContext<'_>, command: &Command) -> Result<u64, Status> {
    let [feature, ..] = command.dword(10).to_le_bytes();
    if command.dword(10) >> 31 != 0 {
        return Err(Status::NOT_SAVEABLE);
    }
    let value = command.dword(11);
    let (controller, is_discovery) = (context.controller, context.controller.subsystem.is_none());
    match feature {
        EVENTS => {
            controller.enable_events(value);
            Ok(0)
        }
        KEEP_ALIVE => {
            controller.set_keep_alive(context.shared.keep_alive(value));
            Ok(0)
        }
        _ if is_discovery => Err(Status::INVALID_FIELD),
        WRITE_CACHE => set_write_cache(context, value & 1 != 0),
        QUEUES => Ok(queues(context, value)),
        // the host gave it with Connect
        HOST_ID => Err(Status::COMMAND_SEQUENCE),
        RESERVATION_PERSISTENCE => {
            let namespaces = controller.namespaces();
            let namespace =
                namespaces.get(&command.namespace()).ok_or(Status::INVALID_NAMESPACE)?;
            if !namespace.unit.reservations().can_persist() {
                return Err(Status::NOT_CHANGEABLE);
            }
            let done = namespace.unit.reservations().set_persistence(value & 1 != 0);
            done.map(|()| 0).map_err(|_| Status::INTERNAL)
        }
        _ if FIXED.contains(&feature) => Err(Status::NOT_CHANGEABLE),
        _ => Err(Status::INVALID_FIELD),
    }
}

/// Turns the write cache of a controller on or off. Its content is committed before it is off.
fn set_write_cache(context: &AdminContext<'_>, is_on: bool) -> Result<u64, Status> {
    context.controller.set_write_cache(is_on);
    if !is_on {
        for namespace in context.controller.namespaces().values() {
            namespace.unit.flush().map_err(|_| Status::INTERNAL)?;
        }
    }
    Ok(0)
}

/// The queues that a host gets that asks for some, less one.
fn queues(context: &AdminContext<'_>, asked: u32) -> u64 {
    let most = u64::from(context.shared.options.max_queues) - 1;
    let submission = u64::from(asked & 0xffff).min(most);
    let completion = u64::from(asked >> 16).min(most);
    submission | completion << 16
}

pub(super) fn get(context: &AdminContext<'_>, command: &Command) -> Result<Response, Status> {
    let [feature, selected, ..] = command.dword(10).to_le_bytes();
    let (controller, is_discovery) = (context.controller, context.controller.subsystem.is_none());
    // supported capabilities: whether it can be changed (4), and whether it is of a namespace (2)
    if selected & 7 == 3 {
        let is_changeable = matches!(feature, WRITE_CACHE | QUEUES | EVENTS | KEEP_ALIVE);
        let of_namespace = feature == RESERVATION_PERSISTENCE;
        let capabilities = u64::from(is_changeable) << 2 | if of_namespace { 6 } else { 0 };
        return Ok(Response::result(capabilities));
    }
    let result = match feature {
        EVENTS => controller.enabled_events().into(),
        KEEP_ALIVE => milliseconds(controller.keep_alive()),
        _ if is_discovery => return Err(Status::INVALID_FIELD),
        WRITE_CACHE => controller.has_write_cache().into(),
        QUEUES => queues(context, u32::MAX),
        HOST_ID => return Ok(Response::data(controller.host_id.to_vec())),
        RESERVATION_PERSISTENCE => {
            let namespaces = controller.namespaces();
            let namespace =
                namespaces.get(&command.namespace()).ok_or(Status::INVALID_NAMESPACE)?;
            namespace.unit.reservations().is_persistent().into()
        }
        _ if FIXED.contains(&feature) => 0,
        _ => return Err(Status::INVALID_FIELD),
    };
    Ok(Response::result(result))
}

fn milliseconds(time: Option<Duration>) -> u64 {
    // timeouts come as 32 bits of milliseconds, or from the options
    time.map_or(0, |time| u64::try_from(time.as_millis()).unwrap_or(u32::MAX.into()))
}
