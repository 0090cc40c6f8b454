//! One connection, which is one queue: threads that take turns at reading PDUs.
//!
//! A thread reads PDUs until a command of the I/O queue is ready, lets the next thread read, and carries the command
//! out. Commands of the admin queue and of fabrics are carried out by the thread that reads: each is short, and a host
//! sends them one after the other.

use std::io;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, OnceLock};
use std::thread::Scope;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tcp::{ConnectionShare, Incoming};

use crate::auth::Authentication;
use crate::buffers::Buffers;
use crate::client::Client;
use crate::controller::Controller;
use crate::fused::{FusedPairs, Ready};
use crate::io::{self as commands, IoContext, IoFailure, MAX_TRANSFER_BYTES};
use crate::sender::Sender;
use crate::server::Shared;
use crate::status::Counters;
use crate::transfer::{DataPlan, DataRequest, Task, Transfers, plan_data};
use crate::wire::command::{Command, SIZE as COMMAND_SIZE};
use crate::wire::completion::Status;
use crate::wire::pdu::{
    self, COMMON_SIZE, DIGEST_SIZE, Digests, FatalError, Header, HostData, InitializeRequest,
    Layout, MAX_HEADER_SIZE, PduType,
};
use crate::wire::{self};

/// Bytes of data in a capsule.
pub(crate) const MAX_CAPSULE_DATA: usize = 16 << 10;
/// The time after which a command to a suspended pool is tried again.
const RETRY_PAUSE: Duration = Duration::from_millis(100);
/// Commands on a connection before Connect.
const ENTRIES_BEFORE_CONNECT: usize = 1;

/// One connection.
pub(crate) struct Connection<'a> {
    pub(crate) shared: &'a Shared,
    pub(crate) client: &'a Arc<Client>,
    pub(crate) sender: Sender<'a>,
    pub(crate) attached: OnceLock<Attachment>,
    /// Locked by the thread that reads a PDU.
    reader: Mutex<Reader>,
    digests: Digests,
    transfers: Mutex<Transfers>,
    fused: Mutex<FusedPairs>,
    share: ConnectionShare,
    /// Commands that were read and not answered.
    outstanding: AtomicUsize,
    next_number: AtomicU64,
    threads: AtomicUsize,
    /// Threads that read a PDU, or wait for their turn.
    idle_threads: AtomicUsize,
    buffers: Buffers,
}

/// The queue that Connect has made of the connection.
pub(crate) struct Attachment {
    pub(crate) controller: Arc<Controller>,
    /// The number of the queue; 0: the admin queue.
    pub(crate) queue: u16,
    pub(crate) entries: u16,
    /// The proof of the host; none: it is believed its name.
    pub(crate) authentication: Option<Mutex<Authentication>>,
}

impl Attachment {
    /// Whether the host need not prove who it is, or has done so.
    pub(crate) fn is_authenticated(&self) -> bool {
        self.authentication.as_ref().is_none_or(|proof| proof.lock().is_authenticated())
    }
}

/// The reading side.
struct Reader {
    incoming: Incoming,
    /// The header that is being read, for the report of an error.
    header: [u8; MAX_HEADER_SIZE],
    header_size: usize,
    /// The time at which the host must have connected to a controller, and have proved who it is.
    connect_deadline: Instant,
}

/// The work of a thread after it let the next one read.
enum Work {
    Run(Box<Ready>),
    /// Nothing: it reads on.
    None,
    End,
}

/// The state of a command of the admin queue after it was run.
pub(crate) enum AdminStep {
    /// It was answered.
    Answered,
    /// It is answered by an event.
    Held,
    /// It was answered, and the connection ends.
    Last,
}

/// The end of a connection.
pub(crate) enum Failure {
    /// The connection broke, or the host was too slow.
    Io,
    /// The host broke a rule of the protocol.
    Protocol(FatalError),
}

impl From<io::Error> for Failure {
    fn from(_: io::Error) -> Self {
        Self::Io
    }
}

impl From<FatalError> for Failure {
    fn from(error: FatalError) -> Self {
        Self::Protocol(error)
    }
}

/// Serves a host until its connection ends.
pub(crate) fn serve(shared: &Shared, client: &Arc<Client>) {
    let stall_timeout = shared.options.stall_timeout;
    let mut incoming = Incoming::new(Arc::clone(&client.stream));
    let configured = tcp::configure(&client.stream, stall_timeout).map_err(Failure::from);
    if let Ok((digests, alignment)) =
        configured.and_then(|()| initialize(client, &mut incoming, shared))
    {
        let connection = Connection::new(shared, client, (digests, alignment), incoming);
        connection.run();
        if let Some(attachment) = connection.attached.get() {
            if attachment.queue > 0 {
                // commands whose data did not come
                let left = connection.outstanding.load(SeqCst);
                attachment.controller.in_flight.fetch_sub(number(left), SeqCst);
            }
            shared.leave(&attachment.controller, attachment.queue);
        }
    }
    client.abort();
}

/// Initializes the connection. Returns the digests, and the alignment of data in bytes.
fn initialize(
    client: &Client,
    incoming: &mut Incoming,
    shared: &Shared,
) -> Result<(Digests, usize), Failure> {
    let time = shared.options.stall_timeout;
    let mut bytes = [0; MAX_HEADER_SIZE];
    let (common, rest) = bytes.split_at_mut(COMMON_SIZE);
    incoming.read_exact(common, time)?;
    let common = *common.first_chunk().ok_or(Failure::Io)?;
    let sender = Sender::new(&client.stream, time, Digests::default(), 4);
    let parsed = Header::parse(common).and_then(|header| match header.kind {
        PduType::InitializeRequest => header.layout(Digests::default(), 0).map(drop),
        _ => Err(FatalError::Sequence),
    });
    if let Err(error) = parsed {
        sender.terminate(error, &common)?;
        return Err(error.into());
    }
    incoming.read_exact(rest, time)?;
    let request = match InitializeRequest::parse(&bytes) {
        Ok(request) => request,
        Err(error) => {
            sender.terminate(error, &bytes)?;
            return Err(error.into());
        }
    };
    let limit = u32::try_from(MAX_TRANSFER_BYTES).expect("32 bits");
    let response = pdu::encode_initialize_response(request.digests, limit);
    tcp::send(&client.stream, &mut [io::IoSlice::new(&response)], time)?;
    Ok((request.digests, request.alignment))
}

impl<'a> Connection<'a> {
    fn new(
        shared: &'a Shared,
        client: &'a Arc<Client>,
        (digests, alignment): (Digests, usize),
        incoming: Incoming,
    ) -> Self {
        let stall_timeout = shared.options.stall_timeout;
        let reader = Reader {
            incoming,
            header: [0; MAX_HEADER_SIZE],
            header_size: 0,
            connect_deadline: Instant::now() + stall_timeout,
        };
        Self {
            shared,
            client,
            sender: Sender::new(&client.stream, stall_timeout, digests, alignment),
            attached: OnceLock::new(),
            reader: Mutex::new(reader),
            digests,
            transfers: Mutex::new(Transfers::new(shared.options.max_write_bytes)),
            fused: Mutex::default(),
            share: ConnectionShare::default(),
            outstanding: AtomicUsize::new(0),
            next_number: AtomicU64::new(0),
            threads: AtomicUsize::new(1),
            idle_threads: AtomicUsize::new(0),
            buffers: Buffers::default(),
        }
    }

    /// Returns when the connection ended and no command is carried out any more.
    fn run(&self) {
        std::thread::scope(|scope| {
            self.take_turns(scope);
            // the thread that sends events ends with its controller
            if let Some(attachment) = self.attached.get().filter(|attached| attached.queue == 0) {
                attachment.controller.end();
            }
        });
    }

    /// The loop of each thread: read commands, carry one out.
    fn take_turns<'scope>(&'scope self, scope: &'scope Scope<'scope, '_>) {
        while let Some(ready) = self.receive(scope) {
            self.start_thread_if_all_are_busy(scope);
            match ready {
                Ready::One(task) => self.run_task(&task),
                Ready::Pair(first, second) => self.run_pair(&first, &second),
                Ready::Nothing => {}
            }
        }
    }

    fn start_thread_if_all_are_busy<'scope>(&'scope self, scope: &'scope Scope<'scope, '_>) {
        let limit = self.shared.options.threads_per_queue;
        let next = |count: usize| (count < limit).then(|| count + 1);
        if self.idle_threads.load(SeqCst) > 0
            || self.threads.fetch_update(SeqCst, SeqCst, next).is_err()
        {
            return;
        }
        let thread = std::thread::Builder::new().name("nvme".to_owned());
        if thread.spawn_scoped(scope, || self.take_turns(scope)).is_err() {
            // the threads that there are go on
            self.threads.fetch_sub(1, SeqCst);
        }
    }

    /// Waits for this thread's turn, and reads until there is work for it. None: the connection ends.
    fn receive<'scope>(&'scope self, scope: &'scope Scope<'scope, '_>) -> Option<Ready> {
        self.idle_threads.fetch_add(1, SeqCst);
        let mut reader = self.reader.lock();
        let received = loop {
            if self.client.is_ended() {
                break None;
            }
            match self.read_pdu(&mut reader, scope) {
                Ok(Work::Run(ready)) => match *ready {
                    Ready::One(task) if self.answer_short_read(&task) => {}
                    ready => break Some(ready),
                },
                Ok(Work::None) => {}
                Ok(Work::End) | Err(Failure::Io) => break None,
                Err(Failure::Protocol(error)) => {
                    // the connection ends in any case
                    let _ = self.sender.terminate(error, &reader.header[..reader.header_size]);
                    break None;
                }
            }
        };
        if self.sender.send_delayed().is_err() {
            self.client.abort();
        }
        self.idle_threads.fetch_sub(1, SeqCst);
        if received.is_none() {
            self.client.end();
        }
        received
    }

    fn allowance(&self, bytes: usize) -> Duration {
        tcp::allowance(self.shared.options.stall_timeout, bytes)
    }

    /// Reads a PDU.
    fn read_pdu<'scope>(
        &'scope self,
        reader: &mut Reader,
        scope: &'scope Scope<'scope, '_>,
    ) -> Result<Work, Failure> {
        let time = self.shared.options.stall_timeout;
        if reader.incoming.unread_bytes() < COMMON_SIZE + COMMAND_SIZE {
            // the host may wait for these before it sends more
            self.sender.send_delayed()?;
        }
        let common = if self.attached.get().is_some_and(Attachment::is_authenticated) {
            match reader.incoming.read_message::<COMMON_SIZE>(time)? {
                Some(common) => common,
                None => return Ok(Work::End),
            }
        } else {
            let mut common = [0; COMMON_SIZE];
            reader.incoming.read_exact_until(&mut common, reader.connect_deadline)?;
            common
        };
        reader.header[..COMMON_SIZE].copy_from_slice(&common);
        reader.header_size = COMMON_SIZE;
        let header = Header::parse(common)?;
        reader.incoming.read_exact(&mut reader.header[COMMON_SIZE..header.size], time)?;
        reader.header_size = header.size;
        if header.has_digest(self.digests) {
            let mut digest = [0; DIGEST_SIZE];
            reader.incoming.read_exact(&mut digest, time)?;
            if digest != wire::digest(&[&reader.header[..header.size]]) {
                return Err(FatalError::HeaderDigest.into());
            }
        }
        match header.kind {
            PduType::Command => self.read_command(reader, &header, scope),
            PduType::HostData => self.read_data(reader, &header, scope),
            PduType::HostTerminate => Ok(Work::End),
            _ => Err(FatalError::Sequence.into()),
        }
    }

    /// Reads the data of a PDU to the end of a buffer. Returns whether their digest is right.
    fn read_into(
        &self,
        reader: &mut Reader,
        layout: &Layout,
        into: &mut Vec<u8>,
    ) -> Result<bool, Failure> {
        let time = self.allowance(layout.data);
        if reader.incoming.unread_bytes() < layout.padding + layout.data {
            self.sender.send_delayed()?;
        }
        reader.incoming.skip(layout.padding, time)?;
        let start = into.len();
        into.resize(start + layout.data, 0);
        reader.incoming.read_exact(&mut into[start..], time)?;
        if !layout.has_data_digest {
            return Ok(true);
        }
        let mut digest = [0; DIGEST_SIZE];
        reader.incoming.read_exact(&mut digest, time)?;
        Ok(digest == wire::digest(&[&into[start..]]))
    }

    /// Counts a command that was read. A host that sends more than its queue has breaks the protocol.
    fn count_command(&self) -> Result<(), FatalError> {
        let entries = self.attached.get().map_or(ENTRIES_BEFORE_CONNECT, |attached| {
            attached.controller.touch();
            attached.entries.into()
        });
        if self.outstanding.fetch_add(1, SeqCst) >= entries {
            return Err(FatalError::Sequence);
        }
        self.count_in_flight(true);
        Ok(())
    }

    /// Counts a command that is carried out, or is so no more.
    fn count_in_flight(&self, is_begun: bool) {
        let Some(attached) = self.attached.get() else { return };
        let in_flight = &attached.controller.in_flight;
        if is_begun {
            in_flight.fetch_add(1, SeqCst);
        } else {
            in_flight.fetch_sub(1, SeqCst);
        }
    }

    fn read_command<'scope>(
        &'scope self,
        reader: &mut Reader,
        header: &Header,
        scope: &'scope Scope<'scope, '_>,
    ) -> Result<Work, Failure> {
        let entry: [u8; COMMAND_SIZE] =
            *reader.header[COMMON_SIZE..].first_chunk().ok_or(FatalError::Sequence)?;
        let layout = header.layout(self.digests, MAX_CAPSULE_DATA)?;
        let mut capsule = Vec::new();
        let is_intact = self.read_into(reader, &layout, &mut capsule)?;
        self.count_command()?;
        let mut task = Task::new(self.next_number.fetch_add(1, SeqCst), Command(entry));
        let mut transfer = None;
        match plan_data(&task.command, capsule) {
            _ if !is_intact => task.refused = Some(Status::TRANSIENT_TRANSPORT),
            Ok(DataPlan::Complete(data)) => task.data = data,
            Ok(DataPlan::Transfer(length)) => transfer = Some(length),
            Err(status) => task.refused = Some(status),
        }
        let is_fabrics = task.command.fabrics_type().is_some();
        match self.attached.get() {
            Some(attached) if attached.is_authenticated() => {
                task.is_io = attached.queue > 0 && !is_fabrics && attached.controller.is_ready();
            }
            // hosts that are not known send no data but those of fabrics
            _ if !is_fabrics => transfer = None,
            _ => {}
        }
        if task.is_io
            && let Some(failed) = self.fused.lock().arrive(&mut task)
        {
            self.run_task(&failed);
        }
        match transfer {
            Some(length) if task.refused.is_none() => {
                let request = self.transfers.lock().add(task, length);
                self.request_data(request)?;
                Ok(Work::None)
            }
            _ => self.proceed(task, scope),
        }
    }

    fn request_data(&self, request: Option<DataRequest>) -> io::Result<()> {
        let Some(DataRequest { command, transfer, length }) = request else { return Ok(()) };
        let length = u32::try_from(length).expect("transfers are bounded");
        self.sender.request_data(command, transfer, length)
    }

    fn read_data<'scope>(
        &'scope self,
        reader: &mut Reader,
        header: &Header,
        scope: &'scope Scope<'scope, '_>,
    ) -> Result<Work, Failure> {
        let data = HostData::parse(&reader.header);
        let layout = header.layout(self.digests, MAX_TRANSFER_BYTES)?;
        if u32::try_from(layout.data) != Ok(data.length) {
            return Err(FatalError::HeaderField { at: 16 }.into());
        }
        let (mut task, length) = self.transfers.lock().take(&data)?;
        if !self.read_into(reader, &layout, &mut task.data)? {
            task.refused = Some(Status::TRANSIENT_TRANSPORT);
        }
        if task.data.len() == length {
            return self.proceed(task, scope);
        }
        if header.is_last() {
            return Err(FatalError::DataOutOfRange.into());
        }
        self.transfers.lock().put_back(data.transfer, task, length);
        Ok(Work::None)
    }

    /// Goes on with a command whose data are complete.
    fn proceed<'scope>(
        &'scope self,
        task: Task,
        scope: &'scope Scope<'scope, '_>,
    ) -> Result<Work, Failure> {
        if task.is_io {
            return Ok(Work::Run(Box::new(self.fused.lock().complete(task))));
        }
        self.run_admin(&task, scope)
    }

    /// Carries out a command of the admin queue or of fabrics.
    fn run_admin<'scope>(
        &'scope self,
        task: &Task,
        scope: &'scope Scope<'scope, '_>,
    ) -> Result<Work, Failure> {
        match self.execute_admin(task, scope)? {
            AdminStep::Answered => self.finish(task)?,
            AdminStep::Held => self.count_in_flight(false),
            AdminStep::Last => {
                self.finish(task)?;
                return Ok(Work::End);
            }
        }
        Ok(Work::None)
    }

    /// Frees what a command that was answered had.
    pub(crate) fn finish(&self, task: &Task) -> io::Result<()> {
        let request = {
            let mut transfers = self.transfers.lock();
            transfers.release(task);
            transfers.start_next()
        };
        self.outstanding.fetch_sub(1, SeqCst);
        self.count_in_flight(false);
        self.request_data(request)
    }

    /// Sends the events of a controller until it ends.
    pub(crate) fn send_events(&self, controller: &Controller) {
        while let Some(event) = controller.wait_for_event() {
            if self.sender.complete(event.request, Ok(event.result), &[]).is_err() {
                self.client.abort();
            }
            self.outstanding.fetch_sub(1, SeqCst);
        }
    }

    /// Carries out a command of an I/O queue.
    fn run_task(&self, task: &Task) {
        let Some(attached) = self.attached.get() else { return };
        let context = IoContext { controller: &attached.controller };
        let length = commands::data_in_length(task);
        let bytes = length.max(commands::scratch_bytes(task));
        let reserved = self.shared.budget.reserve(&self.share, bytes);
        if self.answer_from_memory(task, false) {
            return;
        }
        let mut data_in = self.buffers.take(length);
        let outcome = self.execute_until_resumed(|| match task.refused {
            Some(status) => Err(IoFailure::Status(status)),
            None => commands::execute(&context, task, &mut data_in),
        });
        let data = if outcome.is_ok() { &data_in[..length] } else { &[] };
        let counters = Counters {
            commands: 1,
            errors: u64::from(outcome.is_err()),
            read_bytes: number(data.len()),
            written_bytes: if outcome.is_ok() { number(task.data.len()) } else { 0 },
        };
        attached.controller.counters.add(&counters);
        let sent = self.sender.complete(task.command.id(), outcome, data);
        let is_lost = sent.and_then(|()| self.finish(task)).is_err();
        self.buffers.keep(data_in);
        drop(reserved);
        if is_lost {
            self.client.abort();
        }
    }

    /// Carries out a fused Compare and Write.
    fn run_pair(&self, first: &Task, second: &Task) {
        let Some(attached) = self.attached.get() else { return };
        let context = IoContext { controller: &attached.controller };
        let reserved = self.shared.budget.reserve(&self.share, first.data.len());
        let outcome =
            self.execute_until_resumed(|| commands::compare_and_write(&context, first, second));
        drop(reserved);
        let of_second = outcome.map_err(|_| Status::FAILED_FUSED);
        let written = if outcome.is_ok() { number(second.data.len()) } else { 0 };
        let errors = if outcome.is_err() { 2 } else { 0 };
        let counters = Counters { commands: 2, errors, read_bytes: 0, written_bytes: written };
        attached.controller.counters.add(&counters);
        let sent = self
            .sender
            .complete(first.command.id(), outcome, &[])
            .and_then(|()| self.sender.complete(second.command.id(), of_second, &[]))
            .and_then(|()| self.finish(first))
            .and_then(|()| self.finish(second));
        if sent.is_err() {
            self.client.abort();
        }
    }

    /// Carries out a command. On a suspended pool with failmode=wait the host waits, as programs do on a mounted file
    /// system, until the pool goes on or the connection ends.
    fn execute_until_resumed(
        &self,
        mut execute: impl FnMut() -> Result<u64, IoFailure>,
    ) -> Result<u64, Status> {
        loop {
            match execute() {
                Ok(result) => return Ok(result),
                Err(IoFailure::Status(status)) => return Err(status),
                Err(IoFailure::Suspended) => {
                    if tcp::wait_for_hangup(&self.client.stream, RETRY_PAUSE) {
                        return Err(Status::NOT_READY);
                    }
                }
            }
        }
    }
}

pub(crate) fn number(count: usize) -> u64 {
    u64::try_from(count).expect("64 bits")
}
