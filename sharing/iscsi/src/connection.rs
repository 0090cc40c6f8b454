//! One connection in the full feature phase: threads that take turns at reading PDUs.
//!
//! A thread reads a PDU, lets the next one read, and carries out the command. One thread always stays at the socket:
//! if all others are busy, it queues commands that are ready and reads on, so that pings and aborts are answered while
//! commands wait for a suspended pool. It also answers short reads from memory itself, as that takes less time than to
//! wake another thread.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::thread::Scope;
use std::time::Duration;

use parking_lot::Mutex;
use tcp::{ConnectionShare, Incoming};

use crate::scsi::{AbortTasks, Failure, Path, SessionId, parse_unit_number};
use crate::sender::Sender;
use crate::server::Shared;
use crate::session::{Client, Session};
use crate::status::Counters;
use crate::tasks::{Acceptance, Task};
use crate::transfer::{ProtocolError, Transfer};
use crate::wire::header::{HEADER_SIZE, Header, MAX_AHS_SIZE};
use crate::wire::request::{CommandNumber, DataOut, Request, ScsiCommand, TaskManagement};
use crate::wire::response::Response;
use crate::wire::{self, padding};

/// The time after which a command to a suspended pool is tried again.
const RETRY_PAUSE: Duration = Duration::from_millis(100);
/// Bytes of a buffer that is kept between commands, and the number of such buffers.
const KEPT_BUFFER: usize = 1 << 20;
const KEPT_BUFFERS: usize = 8;
/// The kind of the error that a wrong data digest is.
const DATA_DIGEST: io::ErrorKind = io::ErrorKind::InvalidData;
/// Reasons of a Reject.
const REJECT_SNACK: u8 = 3;
const REJECT_OPCODE: u8 = 5;
const REJECT_IMMEDIATE: u8 = 6;

/// The full feature phase of one connection.
pub(crate) struct Connection<'a> {
    pub(crate) shared: &'a Shared,
    pub(crate) client: &'a Client,
    pub(crate) session: &'a Session,
    /// Locked by the thread that reads a PDU.
    reader: Mutex<Reader>,
    pub(crate) sender: Sender<'a>,
    pub(crate) share: ConnectionShare,
    threads: AtomicUsize,
    /// Threads that read a PDU, or wait for their turn.
    idle_threads: AtomicUsize,
    buffers: Mutex<Vec<Vec<u8>>>,
}

/// The reading side.
pub(crate) struct Reader {
    incoming: Incoming,
    /// The rest of the answer to a text request.
    pub(crate) text_rest: Vec<u8>,
}

/// The next action of a thread after it let the next one read.
enum Work {
    Run(Task),
    Manage(TaskManagement),
    /// None: it reads again.
    None,
    End,
}

impl From<ProtocolError> for io::Error {
    fn from(_: ProtocolError) -> Self {
        Self::other("the initiator broke a rule of the protocol")
    }
}

impl<'a> Connection<'a> {
    pub(crate) fn new(
        shared: &'a Shared,
        client: &'a Client,
        session: &'a Session,
        (incoming, stat_sn): (Incoming, u32),
    ) -> Self {
        let stall_timeout = shared.options.stall_timeout;
        Self {
            shared,
            client,
            session,
            reader: Mutex::new(Reader { incoming, text_rest: Vec::new() }),
            sender: Sender::new(&client.stream, session, stat_sn, stall_timeout),
            share: ConnectionShare::default(),
            threads: AtomicUsize::new(1),
            idle_threads: AtomicUsize::new(0),
            buffers: Mutex::default(),
        }
    }

    /// Returns when the connection ended and no task is carried out any more.
    pub(crate) fn run(&self) {
        std::thread::scope(|scope| {
            let thread = std::thread::Builder::new().name("iscsi-notice".to_owned());
            // without the thread, unit attentions alone tell of changes
            let _ = thread.spawn_scoped(scope, || self.send_notices());
            self.take_turns(scope);
            self.session.notices.close();
        });
    }

    /// Sends the notices of the session until it ends.
    fn send_notices(&self) {
        while let Some(notice) = self.session.notices.wait() {
            let (response, data) = notice.encode();
            if self.sender.send(&response, &data).is_err() {
                self.client.abort();
                return;
            }
        }
    }

    /// The loop of each thread: carry out a command, or read one.
    fn take_turns<'scope>(&'scope self, scope: &'scope Scope<'scope, '_>) {
        let mut data_in = Vec::new();
        loop {
            if let Some(task) = self.session.tasks.next_ready() {
                self.run_task(task, &mut data_in);
                continue;
            }
            match self.receive(scope) {
                Work::Run(task) => self.run_task(task, &mut data_in),
                Work::Manage(request) => self.manage(&request),
                Work::None => {}
                Work::End => break,
            }
        }
        // the commands that were read are finished
        while let Some(task) = self.session.tasks.next_ready() {
            self.run_task(task, &mut data_in);
        }
    }

    fn start_thread<'scope>(&'scope self, scope: &'scope Scope<'scope, '_>) -> bool {
        let limit = self.shared.options.threads_per_connection;
        let next = |count: usize| (count < limit).then(|| count + 1);
        if self.threads.fetch_update(SeqCst, SeqCst, next).is_err() {
            return false;
        }
        let thread = std::thread::Builder::new().name("iscsi".to_owned());
        let is_started = thread.spawn_scoped(scope, || self.take_turns(scope)).is_ok();
        if !is_started {
            // the threads that there are continue
            self.threads.fetch_sub(1, SeqCst);
        }
        is_started
    }

    /// Waits for this thread's turn, and reads until there is work for it.
    fn receive<'scope>(&'scope self, scope: &'scope Scope<'scope, '_>) -> Work {
        self.idle_threads.fetch_add(1, SeqCst);
        let work = self.receive_idle(scope);
        self.idle_threads.fetch_sub(1, SeqCst);
        work
    }

    fn receive_idle<'scope>(&'scope self, scope: &'scope Scope<'scope, '_>) -> Work {
        // a task may have been queued while this thread looked busy
        if let Some(task) = self.session.tasks.next_ready() {
            return Work::Run(task);
        }
        let mut reader = self.reader.lock();
        let work = self.read_until_work(&mut reader, scope);
        if self.sender.send_delayed().is_err() {
            self.client.abort();
        }
        work
    }

    fn read_until_work<'scope>(
        &'scope self,
        reader: &mut Reader,
        scope: &'scope Scope<'scope, '_>,
    ) -> Work {
        loop {
            if self.client.is_ended() {
                return Work::End;
            }
            let work = self.read_pdu(reader).unwrap_or(Work::End);
            match work {
                Work::Run(task) => {
                    let Some(task) = self.answer_short_read(task) else { continue };
                    // this thread is one of the idle ones
                    let is_replaced =
                        self.idle_threads.load(SeqCst) > 1 || self.start_thread(scope);
                    if is_replaced && self.session.tasks.may_run(&task) {
                        return Work::Run(task);
                    }
                    self.session.tasks.push_ready(task);
                    if self.idle_threads.load(SeqCst) > 1
                        && let Some(task) = self.session.tasks.next_ready()
                    {
                        return Work::Run(task);
                    }
                }
                Work::None => {}
                Work::Manage(request) => return Work::Manage(request),
                Work::End => {
                    // an initiator that breaks the protocol, or stalls, gets no reason
                    self.client.end();
                    return Work::End;
                }
            }
        }
    }

    fn allowance(&self, bytes: usize) -> Duration {
        tcp::allowance(self.shared.options.stall_timeout, bytes)
    }

    /// Reads a PDU. An error ends the connection.
    fn read_pdu(&self, reader: &mut Reader) -> io::Result<Work> {
        let time = self.shared.options.stall_timeout;
        if reader.incoming.unread_bytes() < HEADER_SIZE {
            // the initiator may wait for these before it sends more
            self.sender.send_delayed()?;
        }
        let Some(bytes) = reader.incoming.read_message::<HEADER_SIZE>(time)? else {
            return Ok(Work::End);
        };
        let header = Header(bytes);
        let mut segments = [0; MAX_AHS_SIZE];
        let segments = &mut segments[..header.ahs_length()];
        reader.incoming.read_exact(segments, time)?;
        if self.session.parameters.digests.header {
            let mut digest = [0; 4];
            reader.incoming.read_exact(&mut digest, time)?;
            if digest != wire::digest(&[&header.0, segments]) {
                // the lengths cannot be believed: the place of the next PDU is lost
                return Err(io::Error::other("header digest"));
            }
        }
        if header.data_length() > crate::login::MAX_DATA_SEGMENT {
            return Err(ProtocolError.into());
        }
        match Request::parse(&header) {
            Ok(Request::Command(command)) => self.read_command(reader, &header, command),
            Ok(Request::DataOut(data)) => self.read_data(reader, &header, data),
            Ok(request) => {
                let data = self.read_segment(reader, &header)?;
                self.answer(reader, &request, &data)
            }
            Err(_) => {
                self.read_segment(reader, &header)?;
                let is_snack = header.opcode() == 0x10;
                self.reject(if is_snack { REJECT_SNACK } else { REJECT_OPCODE }, &header)?;
                Ok(Work::None)
            }
        }
    }

    fn reject(&self, reason: u8, header: &Header) -> io::Result<()> {
        self.sender.send(&Response::Reject { reason }, &header.0)
    }

    /// Reads a data segment into memory of its own.
    fn read_segment(&self, reader: &mut Reader, header: &Header) -> io::Result<Vec<u8>> {
        let mut data = vec![0; header.data_length()];
        self.read_into(reader, &mut data, 0)?;
        Ok(data)
    }

    /// Reads a data segment: its start into a buffer, the other bytes nowhere; then the padding, and the digest.
    fn read_into(&self, reader: &mut Reader, into: &mut [u8], other: usize) -> io::Result<()> {
        let length = into.len() + other;
        if length == 0 {
            return Ok(());
        }
        if reader.incoming.unread_bytes() < length {
            self.sender.send_delayed()?;
        }
        let time = self.allowance(length);
        reader.incoming.read_exact(into, time)?;
        let mut rest = vec![0; other + padding(length)];
        reader.incoming.read_exact(&mut rest, time)?;
        if self.session.parameters.digests.data {
            let mut digest = [0; 4];
            reader.incoming.read_exact(&mut digest, time)?;
            if digest != wire::digest(&[into, &rest]) {
                return Err(DATA_DIGEST.into());
            }
        }
        Ok(())
    }

    /// Accepts a request by its number. None: it was ignored or rejected.
    fn accept(&self, header: &Header, number: CommandNumber) -> io::Result<Option<()>> {
        match self.session.tasks.accept(number) {
            Acceptance::Accepted => Ok(Some(())),
            Acceptance::Ignored => Ok(None),
            Acceptance::TooManyImmediate => {
                self.reject(REJECT_IMMEDIATE, header)?;
                Ok(None)
            }
            Acceptance::ProtocolError => Err(ProtocolError.into()),
        }
    }

    fn answer(&self, reader: &mut Reader, request: &Request, data: &[u8]) -> io::Result<Work> {
        let number = match request {
            Request::NopOut(nop) => nop.number,
            Request::TaskManagement(request) => request.number,
            Request::Text(text) => text.number,
            Request::Logout(logout) => logout.number,
            // a login is over
            _ => return Err(ProtocolError.into()),
        };
        let is_ping = !matches!(request, Request::NopOut(nop) if nop.tag == wire::NO_TAG);
        match self.session.tasks.accept(number) {
            Acceptance::Accepted => {}
            Acceptance::Ignored => return Ok(Work::None),
            // there is always space for an abort: the number of tasks is bounded by the window
            Acceptance::TooManyImmediate | Acceptance::ProtocolError => {
                return Err(ProtocolError.into());
            }
        }
        match request {
            Request::TaskManagement(request) => return Ok(Work::Manage(*request)),
            Request::NopOut(nop) => {
                self.session.tasks.complete(number);
                if is_ping {
                    let length = data.len().min(self.session.parameters.max_send_segment);
                    let response = Response::NopIn { lun: nop.lun, tag: nop.tag };
                    self.sender.send(&response, &data[..length])?;
                }
            }
            Request::Text(text) => {
                self.session.tasks.complete(number);
                self.answer_text(reader, text, data)?;
            }
            Request::Logout(logout) => {
                self.session.tasks.complete(number);
                return self.log_out(logout);
            }
            _ => {}
        }
        Ok(Work::None)
    }

    fn log_out(&self, logout: &wire::request::LogoutRequest) -> io::Result<Work> {
        // 2: recovery of a connection is not supported
        if logout.reason > 1 {
            self.sender.send(&Response::Logout { tag: logout.tag, response: 2 }, &[])?;
            return Ok(Work::None);
        }
        self.session.tasks.abort(|_, _| true);
        self.session.leave_units();
        self.sender.send(&Response::Logout { tag: logout.tag, response: 0 }, &[])?;
        Ok(Work::End)
    }

    fn read_command(
        &self,
        reader: &mut Reader,
        header: &Header,
        request: ScsiCommand,
    ) -> io::Result<Work> {
        let length = header.data_length();
        if self.session.target.is_none() {
            return Err(ProtocolError.into());
        }
        if self.accept(header, request.number)?.is_none() {
            self.read_segment(reader, header)?;
            return Ok(Work::None);
        }
        let task = self.prepare(request);
        if !self.session.tasks.add(&task) {
            return Err(ProtocolError.into());
        }
        let (tag, wanted) = (request.tag, task.wanted_data());
        let parameters = &self.session.parameters;
        let mut transfer = Transfer::begin(task, length, parameters)?;
        if wanted > 0 {
            // more is only reserved when there is memory for it
            let first = if request.is_final { length } else { parameters.first_burst };
            self.return_buffer(transfer.grow(self.take_buffer(), first.min(wanted)));
        }
        let (part, other) = transfer.next_part(length);
        self.read_into(reader, part, other)?;
        debug_assert_eq!(tag, transfer.task().request.tag);
        self.go_on(transfer)
    }

    /// Parses a command and checks what can be checked before its data is there.
    fn prepare(&self, request: ScsiCommand) -> Task {
        let units = self.session.target.as_ref().map(|target| target.units()).unwrap_or_default();
        let logical = parse_unit_number(request.lun).and_then(|number| units.get(&number)).cloned();
        if let Some(logical) = &logical {
            let notices = (request.lun, &self.session.notices);
            logical.add_session(self.session.id, &self.session.nexus, notices);
        }
        let command = self.with_path(&units, logical.as_deref(), |path| path.prepare(&request.cdb));
        let command = command.and_then(|command| {
            let offered = if request.is_write { request.expected_length.into() } else { 0 };
            command.check_data_length(offered)?;
            Ok(command)
        });
        Task::new(request, command, logical)
    }

    pub(crate) fn with_path<T>(
        &self,
        units: &std::collections::BTreeMap<u16, std::sync::Arc<crate::scsi::LogicalUnit>>,
        logical: Option<&crate::scsi::LogicalUnit>,
        work: impl FnOnce(&Path<'_>) -> T,
    ) -> T {
        let abort_tasks: &AbortTasks<'_> = &|logical, sessions: &[SessionId]| {
            self.shared.abort_tasks(|session| sessions.contains(&session.id), logical);
        };
        work(&Path {
            session: self.session.id,
            nexus: &self.session.nexus,
            target: self.session.target.as_ref().map_or("", |target| target.name.as_str()),
            units,
            logical,
            abort_tasks,
            space_warning: self.shared.space_warning(),
        })
    }

    fn read_data(&self, reader: &mut Reader, header: &Header, data: DataOut) -> io::Result<Work> {
        let length = header.data_length();
        let Some(mut transfer) = self.session.tasks.take_transfer(data.tag) else {
            // data of a task that was aborted
            self.read_segment(reader, header)?;
            return Ok(Work::None);
        };
        let accepted = transfer.accept(&data, length);
        let read = accepted.map_err(io::Error::from).and_then(|()| {
            let (part, other) = transfer.next_part(length);
            self.read_into(reader, part, other)
        });
        if matches!(&read, Err(error) if error.kind() == DATA_DIGEST) {
            transfer.set_broken();
        } else if let Err(error) = read {
            // the thread that aborts the task waits for it
            self.session.tasks.finish(data.tag);
            return Err(error);
        }
        self.go_on(transfer)
    }

    /// Waits for more data, requests it, or lets the task run.
    fn go_on(&self, transfer: Transfer) -> io::Result<Work> {
        if transfer.is_complete() {
            return Ok(Work::Run(transfer.into_task()));
        }
        let needs_r2t = !transfer.is_open();
        let (tag, wanted) = (transfer.task().request.tag, transfer.task().wanted_data());
        let has_memory = transfer.task().r2t_count > 0;
        if !needs_r2t {
            self.session.tasks.put_transfer(transfer);
        } else if has_memory {
            self.ask_for_data(transfer)?;
        } else {
            self.session.tasks.put_transfer(transfer);
            if self.session.tasks.reserve(tag, wanted)
                && let Some(transfer) = self.session.tasks.take_transfer(tag)
            {
                self.ask_for_data(transfer)?;
            }
        }
        Ok(Work::None)
    }

    /// Sends an R2T. The transfer is put back before, as the data comes at once.
    fn ask_for_data(&self, mut transfer: Transfer) -> io::Result<()> {
        if transfer.task().r2t_count == 0 {
            let wanted = transfer.task().wanted_data();
            self.return_buffer(transfer.grow(self.take_buffer(), wanted));
        }
        let response = transfer.next_r2t(&self.session.parameters);
        self.session.tasks.put_transfer(transfer);
        self.sender.send(&response, &[])
    }

    fn take_buffer(&self) -> Vec<u8> {
        self.buffers.lock().pop().unwrap_or_default()
    }

    fn return_buffer(&self, mut buffer: Vec<u8>) {
        buffer.truncate(KEPT_BUFFER);
        buffer.shrink_to(KEPT_BUFFER);
        let mut buffers = self.buffers.lock();
        if buffers.len() < KEPT_BUFFERS && buffer.capacity() > 0 {
            buffers.push(buffer);
        }
    }

    /// Runs a task and sends its response.
    fn run_task(&self, mut task: Task, data_in: &mut Vec<u8>) {
        if task.is_aborted() || !self.answer_from_memory(&task, false) {
            let outcome = self.execute(&task, data_in);
            self.conclude(&task, &outcome, &[data_in], false);
        }
        self.return_buffer(std::mem::take(&mut task.data));
        data_in.truncate(KEPT_BUFFER);
        data_in.shrink_to(KEPT_BUFFER);
        if let Some(logical) = task.logical.as_deref().filter(|_| task.is_write()) {
            let interval = self.shared.options.space_check_interval;
            logical.check_space(self.shared.space_warning(), interval);
        }
        self.ask_parked();
    }

    /// Sends the response of a task, at once or with later ones, and counts it.
    pub(crate) fn conclude(
        &self,
        task: &Task,
        outcome: &Result<(), Failure>,
        data_in: &[&[u8]],
        is_delayed: bool,
    ) {
        let read = data_in.iter().map(|slice| slice.len()).sum();
        let counters = counters(task, outcome, read);
        self.session.counters.add(&counters);
        self.shared.totals.add(&counters);
        if self.sender.respond(task, outcome, data_in, is_delayed).is_err() {
            self.client.abort();
        }
    }

    /// Asks for the data of writes for which there is memory now.
    fn ask_parked(&self) {
        let mut asked = Ok(());
        while asked.is_ok()
            && let Some(transfer) = self.session.tasks.next_parked()
        {
            asked = self.ask_for_data(transfer);
        }
        if asked.is_err() {
            self.client.abort();
        }
    }

    /// On a suspended pool with failmode=wait the initiator waits, as programs do on a mounted file
    /// system, until the pool is resumed, the task is aborted, or the connection ends.
    fn execute(&self, task: &Task, data_in: &mut Vec<u8>) -> Result<(), Failure> {
        let command = task.command.clone()?;
        let units = self.session.target.as_ref().map(|target| target.units()).unwrap_or_default();
        let logical = task.logical.as_deref();
        loop {
            if task.is_aborted() {
                return Ok(());
            }
            let reserved = self.shared.budget.reserve(&self.share, command.data_in_bytes());
            let outcome = self.with_path(&units, logical, |path| {
                path.execute(&command, &task.data[..task.data_length], data_in)
            });
            drop(reserved);
            let waits = logical.is_some_and(|logical| logical.unit.waits_while_suspended());
            let is_over = outcome != Err(Failure::Suspended)
                || !waits
                || tcp::wait_for_hangup(&self.client.stream, RETRY_PAUSE);
            if is_over {
                return outcome;
            }
        }
    }
}

fn counters(task: &Task, outcome: &Result<(), Failure>, read: usize) -> Counters {
    let bytes = |count: usize| u64::try_from(count).expect("usize has 64 bits at most");
    Counters {
        commands: 1,
        errors: u64::from(outcome.is_err()),
        read_bytes: if task.is_read() && outcome.is_ok() { bytes(read) } else { 0 },
        written_bytes: if task.is_write() && outcome.is_ok() { bytes(task.data_length) } else { 0 },
    }
}
