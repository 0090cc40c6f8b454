//! The tasks of one session: their numbers, their order, the memory of their data, and how they are aborted.
//!
//! A task is in the table from the acceptance of its command until its response is about to be sent. It collects the
//! data of a write first (it has a [`Transfer`] then), waits in the queue of ready tasks if no thread is free or an
//! older task goes before it, and is carried out by a thread.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use parking_lot::{Condvar, Mutex};

use crate::scsi::{Command, Failure, LogicalUnit};
use crate::transfer::Transfer;
use crate::wire::request::{CommandNumber, ScsiCommand, TaskAttribute};

/// Commands for immediate delivery that a session may have at the same time, beside the window of CmdSN.
const MAX_IMMEDIATE: usize = 16;

/// A command that was accepted.
pub(crate) struct Task {
    pub(crate) request: ScsiCommand,
    /// The parsed command, or why it cannot be carried out.
    pub(crate) command: Result<Command, Failure>,
    pub(crate) logical: Option<Arc<LogicalUnit>>,
    /// Data of the initiator: the first [`Task::data_length`] bytes.
    pub(crate) data: Vec<u8>,
    pub(crate) data_length: usize,
    /// R2Ts that were sent.
    pub(crate) r2t_count: u32,
    is_aborted: Arc<AtomicBool>,
}

impl Task {
    pub(crate) fn new(
        request: ScsiCommand,
        command: Result<Command, Failure>,
        logical: Option<Arc<LogicalUnit>>,
    ) -> Self {
        let is_aborted = Arc::new(AtomicBool::new(false));
        Self {
            request,
            command,
            logical,
            data: Vec::new(),
            data_length: 0,
            r2t_count: 0,
            is_aborted,
        }
    }

    pub(crate) fn is_aborted(&self) -> bool {
        self.is_aborted.load(SeqCst)
    }

    /// Bytes of data that the command takes and the initiator has.
    pub(crate) fn wanted_data(&self) -> usize {
        let wanted = self.command.as_ref().map_or(0, Command::data_out_bytes);
        let offered = if self.request.is_write { self.request.expected_length.into() } else { 0 };
        usize::try_from(wanted.min(offered)).expect("the engine runs on 64 bits")
    }
}

/// The tasks of one session.
pub(crate) struct TaskSet {
    state: Mutex<State>,
    task_ended: Condvar,
    max_commands: u32,
    max_write_bytes: usize,
}

struct State {
    rows: BTreeMap<u32, Row>,
    ready: VecDeque<Task>,
    /// Transfers that wait for memory, by their tags.
    parked: VecDeque<u32>,
    next_order: u64,
    write_bytes: usize,
    /// ExpCmdSN.
    exp_cmd_sn: u32,
    /// Numbered commands that were accepted and are not done.
    outstanding: u32,
    immediate: usize,
}

struct Row {
    /// Counts tasks in the order of their arrival.
    order: u64,
    number: CommandNumber,
    attribute: TaskAttribute,
    logical: Option<Arc<LogicalUnit>>,
    is_aborted: Arc<AtomicBool>,
    /// Whether the task itself may wait for others to be aborted.
    may_abort: bool,
    transfer: Option<Transfer>,
    reserved: usize,
}

/// The handling of a request by its number.
#[derive(PartialEq, Eq, Debug)]
pub(crate) enum Acceptance {
    Accepted,
    /// The number is outside of the window: the request is ignored.
    Ignored,
    /// There are too many immediate commands.
    TooManyImmediate,
    /// Numbers are missing, or a task with the same tag is there.
    ProtocolError,
}

/// The numbers that go into a response: ExpCmdSN and MaxCmdSN.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Window {
    pub(crate) exp_cmd_sn: u32,
    pub(crate) max_cmd_sn: u32,
}

impl TaskSet {
    pub(crate) fn new(first_cmd_sn: u32, max_commands: usize, max_write_bytes: usize) -> Self {
        let state = State {
            rows: BTreeMap::new(),
            ready: VecDeque::new(),
            parked: VecDeque::new(),
            next_order: 0,
            write_bytes: 0,
            exp_cmd_sn: first_cmd_sn,
            outstanding: 0,
            immediate: 0,
        };
        let max_commands = u32::try_from(max_commands).expect("the options were checked");
        Self { state: Mutex::new(state), task_ended: Condvar::new(), max_commands, max_write_bytes }
    }

    /// Accepts a request that is not a task, or a task with [`TaskSet::add`] after it.
    pub(crate) fn accept(&self, number: CommandNumber) -> Acceptance {
        let mut state = self.state.lock();
        if number.is_immediate {
            if state.immediate == MAX_IMMEDIATE {
                return Acceptance::TooManyImmediate;
            }
            state.immediate += 1;
            return Acceptance::Accepted;
        }
        let ahead = number.cmd_sn.wrapping_sub(state.exp_cmd_sn);
        // `outstanding` never exceeds the limit, as commands above it are ignored
        if ahead >= self.max_commands - state.outstanding {
            return Acceptance::Ignored;
        }
        if ahead > 0 {
            // a connection delivers in order, and each session has one
            return Acceptance::ProtocolError;
        }
        state.exp_cmd_sn = state.exp_cmd_sn.wrapping_add(1);
        state.outstanding += 1;
        Acceptance::Accepted
    }

    /// Adds an accepted task. False: its tag is taken.
    pub(crate) fn add(&self, task: &Task) -> bool {
        let mut state = self.state.lock();
        if state.rows.contains_key(&task.request.tag) {
            return false;
        }
        let order = state.next_order;
        state.next_order += 1;
        let row = Row {
            order,
            number: task.request.number,
            attribute: task.request.attribute,
            logical: task.logical.clone(),
            is_aborted: Arc::clone(&task.is_aborted),
            may_abort: matches!(task.command, Ok(Command::ReserveOut { .. })),
            transfer: None,
            reserved: 0,
        };
        state.rows.insert(task.request.tag, row);
        true
    }

    /// Marks a request that is not a task as done.
    pub(crate) fn complete(&self, number: CommandNumber) {
        self.state.lock().complete(number);
    }

    /// Marks a task as done. Returns whether its response is to be sent.
    pub(crate) fn finish(&self, tag: u32) -> bool {
        let mut state = self.state.lock();
        let is_aborted = state.remove(tag);
        drop(state);
        self.task_ended.notify_all();
        is_aborted == Some(false)
    }

    pub(crate) fn window(&self) -> Window {
        let state = self.state.lock();
        let free = self.max_commands - state.outstanding;
        let max_cmd_sn = state.exp_cmd_sn.wrapping_add(free).wrapping_sub(1);
        Window { exp_cmd_sn: state.exp_cmd_sn, max_cmd_sn }
    }

    /// Tasks that are not done.
    pub(crate) fn count(&self) -> usize {
        self.state.lock().rows.len()
    }

    /// Takes the transfer of a task, to add data to it.
    pub(crate) fn take_transfer(&self, tag: u32) -> Option<Transfer> {
        self.state.lock().rows.get_mut(&tag)?.transfer.take()
    }

    /// Puts the transfer of a task back. It is dropped if the task was aborted meanwhile.
    pub(crate) fn put_transfer(&self, transfer: Transfer) {
        let mut state = self.state.lock();
        let tag = transfer.task().request.tag;
        let row = state.rows.get_mut(&tag).filter(|row| !row.is_aborted.load(SeqCst));
        if let Some(row) = row {
            row.transfer = Some(transfer);
        } else {
            state.remove(tag);
            drop(state);
            self.task_ended.notify_all();
        }
    }

    /// Reserves memory for all data of a transfer, or parks it until there is some.
    pub(crate) fn reserve(&self, tag: u32, bytes: usize) -> bool {
        let mut state = self.state.lock();
        let has_room = state.write_bytes == 0 || state.write_bytes + bytes <= self.max_write_bytes;
        if !has_room || !state.parked.is_empty() {
            state.parked.push_back(tag);
            return false;
        }
        if let Some(row) = state.rows.get_mut(&tag) {
            row.reserved = bytes;
            state.write_bytes += bytes;
        }
        true
    }

    /// The next parked transfer for which there is memory now.
    pub(crate) fn next_parked(&self) -> Option<Transfer> {
        let mut state = self.state.lock();
        loop {
            let tag = *state.parked.front()?;
            let parked = state.rows.get(&tag).and_then(|row| row.transfer.as_ref());
            let Some(bytes) = parked.map(|transfer| transfer.task().wanted_data()) else {
                // it was aborted
                state.parked.pop_front();
                continue;
            };
            if state.write_bytes > 0 && state.write_bytes + bytes > self.max_write_bytes {
                return None;
            }
            state.parked.pop_front();
            state.write_bytes += bytes;
            let row = state.rows.get_mut(&tag)?;
            row.reserved = bytes;
            return row.transfer.take();
        }
    }

    /// Whether a task may be carried out now. An ordered task waits for older ones, and younger ones wait for it.
    pub(crate) fn may_run(&self, task: &Task) -> bool {
        self.state.lock().may_run(task)
    }

    /// Adds a task that no thread can carry out now.
    pub(crate) fn push_ready(&self, task: Task) {
        self.state.lock().ready.push_back(task);
    }

    /// The oldest ready task that may be carried out.
    pub(crate) fn next_ready(&self) -> Option<Task> {
        let mut state = self.state.lock();
        let at = (0..state.ready.len()).find(|at| state.may_run(&state.ready[*at]))?;
        state.ready.remove(at)
    }

    /// Aborts the tasks that fulfil a condition, given their tags and units. Returns their number when none of them
    /// does anything any more.
    pub(crate) fn abort(
        &self,
        condition: impl Fn(u32, Option<&Arc<LogicalUnit>>) -> bool,
    ) -> usize {
        let mut state = self.state.lock();
        let aborted: Vec<(u32, u64)> = state
            .rows
            .iter()
            .filter(|(tag, row)| condition(**tag, row.logical.as_ref()))
            .map(|(tag, row)| (*tag, row.order))
            .collect();
        for (tag, _) in &aborted {
            let Some(row) = state.rows.get_mut(tag) else { continue };
            row.is_aborted.store(true, SeqCst);
            let is_collecting = row.transfer.take().is_some();
            let is_ready = state.ready.iter().position(|task| task.request.tag == *tag);
            if let Some(at) = is_ready {
                state.ready.remove(at);
            }
            if is_collecting || is_ready.is_some() {
                state.remove(*tag);
            }
        }
        let runs = |state: &State| {
            aborted.iter().any(|(tag, order)| {
                state.rows.get(tag).is_some_and(|row| row.order == *order && !row.may_abort)
            })
        };
        while runs(&state) {
            self.task_ended.wait(&mut state);
        }
        aborted.len()
    }
}

impl State {
    fn complete(&mut self, number: CommandNumber) {
        if number.is_immediate {
            self.immediate -= 1;
        } else {
            self.outstanding -= 1;
        }
    }

    /// Removes a task. Returns whether it was aborted; none: it is not there.
    fn remove(&mut self, tag: u32) -> Option<bool> {
        let row = self.rows.remove(&tag)?;
        self.write_bytes -= row.reserved;
        self.complete(row.number);
        Some(row.is_aborted.load(SeqCst))
    }

    fn may_run(&self, task: &Task) -> bool {
        // a task whose row is gone was aborted, and ends at once
        let Some(own) = self.rows.get(&task.request.tag) else { return true };
        if own.attribute == TaskAttribute::HeadOfQueue {
            return true;
        }
        let is_ordered = own.attribute == TaskAttribute::Ordered;
        let same_unit = |other: &Row| match (&own.logical, &other.logical) {
            (Some(own), Some(other)) => Arc::ptr_eq(own, other),
            _ => false,
        };
        !self.rows.values().any(|other| {
            other.order < own.order
                && (is_ordered || other.attribute == TaskAttribute::Ordered)
                && same_unit(other)
        })
    }
}
