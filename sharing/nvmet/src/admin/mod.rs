//! The commands of the admin queue.

mod discovery;
mod feature;
mod identify;
mod log_page;

use std::sync::Arc;

use crate::client::Client;
use crate::controller::Controller;
use crate::server::Shared;
use crate::transfer::Task;
use crate::wire::command::{DataPlace, Direction};
use crate::wire::completion::Status;

const GET_LOG_PAGE: u8 = 0x02;
const IDENTIFY: u8 = 0x06;
const ABORT: u8 = 0x08;
const SET_FEATURES: u8 = 0x09;
const GET_FEATURES: u8 = 0x0a;
const REQUEST_EVENT: u8 = 0x0c;
const KEEP_ALIVE: u8 = 0x18;

/// The surroundings of a command.
pub(crate) struct AdminContext<'a> {
    pub(crate) shared: &'a Shared,
    pub(crate) controller: &'a Arc<Controller>,
    pub(crate) client: &'a Arc<Client>,
}

/// The answer to a command.
pub(crate) enum Response {
    /// The result, and data of which the host takes as many bytes as it has room for.
    Done {
        /// The first 8 bytes of the completion.
        result: u64,
        /// The data.
        data: Vec<u8>,
    },
    /// An event answers it.
    Held,
}

impl Response {
    fn result(result: u64) -> Self {
        Self::Done { result, data: Vec::new() }
    }

    fn data(data: Vec<u8>) -> Self {
        Self::Done { result: 0, data }
    }
}

/// Carries out a command.
pub(crate) fn execute(context: &AdminContext<'_>, task: &Task) -> Result<Response, Status> {
    let command = &task.command;
    let is_read = command.direction() == Direction::ToHost && command.data_length() > 0;
    if is_read && command.data_place() != DataPlace::Transport {
        return Err(Status::SGL_TYPE);
    }
    let is_discovery = context.controller.subsystem.is_none();
    match command.opcode() {
        GET_LOG_PAGE => log_page::read(context, command).map(Response::data),
        IDENTIFY => identify::identify(context, command).map(Response::data),
        // commands are short, or wait for a pool that no abort resumes: none is aborted
        ABORT if !is_discovery => Ok(Response::result(1)),
        SET_FEATURES => feature::set(context, command).map(Response::result),
        GET_FEATURES => feature::get(context, command),
        REQUEST_EVENT if context.controller.request_event(command.id()) => Ok(Response::Held),
        REQUEST_EVENT => Err(Status::EVENT_LIMIT),
        // the heartbeat was counted when the command was read
        KEEP_ALIVE => Ok(Response::result(0)),
        _ => Err(Status::INVALID_OPCODE),
    }
}
