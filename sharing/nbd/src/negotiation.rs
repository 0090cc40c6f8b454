//! The handshake after the greeting: options of a client to replies, without a socket.

use std::sync::Arc;

use lun::Nexus;

use crate::encryption::EncryptionState;
use crate::export::{Export, ExportTable};
use crate::wire::handshake::{ClientFlags, export_name_answer};
use crate::wire::option::{
    BlockSizes, ClientOption, InfoRequest, MetaContextQuery, OptionError, OptionReply, code, info,
};

/// The only metadata context: which parts of a volume are mapped.
const BASE_ALLOCATION: &str = "base:allocation";
/// A query for all contexts of the namespace "base".
const BASE_NAMESPACE: &str = "base:";
/// The number of the context in replies.
pub(crate) const BASE_ALLOCATION_ID: u32 = 1;

/// The agreement with which the transmission starts.
#[derive(Clone)]
pub(crate) struct Session {
    pub(crate) export: Arc<Export>,
    /// Bytes of the export, as the client was told.
    pub(crate) size: u64,
    pub(crate) sizes: BlockSizes,
    /// Whether replies are structured.
    pub(crate) is_structured: bool,
    /// Whether the client selected the context "base:allocation".
    pub(crate) has_block_status: bool,
    /// The name of NBD clients in persistent reservations. They cannot register, so one name is enough.
    pub(crate) nexus: Nexus,
}

/// The next step of a connection.
pub(crate) enum Step {
    /// Read the next option.
    NextOption,
    /// Start TLS, and begin the negotiation again.
    StartTls,
    /// Start the transmission.
    Transmit(Box<Session>),
    /// Close the connection.
    Close,
}

/// The state of a handshake.
pub(crate) struct Negotiation {
    flags: ClientFlags,
    max_request_bytes: u32,
    encryption: EncryptionState,
    is_structured: bool,
    /// The export for which the context "base:allocation" was selected last.
    block_status_of: Option<String>,
}

impl Negotiation {
    pub(crate) fn new(
        flags: ClientFlags,
        max_request_bytes: u32,
        encryption: EncryptionState,
    ) -> Self {
        let (is_structured, block_status_of) = (false, None);
        Self { flags, max_request_bytes, encryption, is_structured, block_status_of }
    }

    /// The negotiation of the same client after it has started TLS. Nothing of the unprotected one holds.
    pub(crate) fn encrypted(&self) -> Self {
        Self::new(self.flags, self.max_request_bytes, EncryptionState::Active)
    }

    /// Appends the replies to an option.
    pub(crate) fn answer(
        &mut self,
        exports: &ExportTable,
        (option, payload): (u32, &[u8]),
        out: &mut Vec<u8>,
    ) -> Step {
        let is_exempt = matches!(option, code::STARTTLS | code::ABORT);
        if self.encryption == EncryptionState::Required && !is_exempt {
            if option == code::EXPORT_NAME {
                return Step::Close;
            }
            let message =
                "this server requires TLS: use nbds:// or the option of your client for TLS";
            reply_error(option, OptionError::TlsRequired, message, out);
            return Step::NextOption;
        }
        let parsed = match ClientOption::parse(option, payload) {
            Ok(parsed) => parsed,
            // EXPORT_NAME has no reply for an error
            Err(_) if option == code::EXPORT_NAME => return Step::Close,
            Err(why) => {
                reply_error(option, OptionError::Invalid, &why.to_string(), out);
                return Step::NextOption;
            }
        };
        let is_export_name = matches!(parsed, ClientOption::ExportName(_));
        if !self.flags.is_fixed_newstyle && !is_export_name {
            return Step::Close;
        }
        match parsed {
            ClientOption::ExportName(name) => return self.start_by_name(exports, &name, out),
            ClientOption::Abort => {
                OptionReply::Ack.encode(option, out);
                return Step::Close;
            }
            ClientOption::List => list(exports, option, out),
            ClientOption::StructuredReply => {
                self.is_structured = true;
                OptionReply::Ack.encode(option, out);
            }
            ClientOption::Info(request) => drop(self.describe(exports, option, &request, out)),
            ClientOption::Go(request) => {
                if let Some(session) = self.describe(exports, option, &request, out) {
                    return Step::Transmit(Box::new(session));
                }
            }
            ClientOption::ListMetaContext(query) => {
                self.answer_contexts(exports, option, &query, out);
            }
            ClientOption::SetMetaContext(query) => {
                // the option replaces the selection also if it fails
                self.block_status_of = None;
                if self.answer_contexts(exports, option, &query, out) {
                    self.block_status_of = Some(query.export);
                }
            }
            ClientOption::StartTls => return self.start_tls(option, out),
            ClientOption::Unknown => {
                reply_error(option, OptionError::Unsupported, "unknown option", out);
            }
        }
        Step::NextOption
    }

    fn start_tls(&self, option: u32, out: &mut Vec<u8>) -> Step {
        match self.encryption {
            EncryptionState::Offered | EncryptionState::Required => {
                OptionReply::Ack.encode(option, out);
                return Step::StartTls;
            }
            EncryptionState::Unavailable => {
                let message =
                    "this server has no TLS: set nbd.tls to \"allow\" or \"require\" on it";
                reply_error(option, OptionError::Unsupported, message, out);
            }
            EncryptionState::Active => {
                reply_error(option, OptionError::Invalid, "TLS is active already", out);
            }
        }
        Step::NextOption
    }

    fn session(&self, export: &Arc<Export>, asked_name: &str) -> Session {
        Session {
            size: export.unit.geometry().size(),
            sizes: export.block_sizes(self.max_request_bytes),
            is_structured: self.is_structured,
            has_block_status: self.block_status_of.as_deref() == Some(asked_name),
            export: Arc::clone(export),
            nexus: Nexus(b"nbd".to_vec()),
        }
    }

    /// EXPORT_NAME: starts the transmission, or ends the connection.
    fn start_by_name(&self, exports: &ExportTable, name: &str, out: &mut Vec<u8>) -> Step {
        let Some(export) = exports.find(name) else { return Step::Close };
        let session = self.session(export, name);
        let flags = export.transmission_flags(self.is_structured);
        out.extend(export_name_answer(session.size, flags, self.flags));
        Step::Transmit(Box::new(session))
    }

    /// INFO and GO: describes an export. Returns the session that GO starts.
    fn describe(
        &self,
        exports: &ExportTable,
        option: u32,
        request: &InfoRequest,
        out: &mut Vec<u8>,
    ) -> Option<Session> {
        let export = find_or_refuse(exports, option, &request.export, out)?;
        let session = self.session(export, &request.export);
        let flags = export.transmission_flags(self.is_structured);
        OptionReply::Export { size: session.size, flags }.encode(option, out);
        // block sizes are always sent: those of a volume are not the protocol's defaults
        OptionReply::BlockSize(session.sizes).encode(option, out);
        if request.kinds.contains(&info::NAME) {
            OptionReply::Name(&export.name).encode(option, out);
        }
        if request.kinds.contains(&info::DESCRIPTION) {
            OptionReply::Description(&export.description).encode(option, out);
        }
        OptionReply::Ack.encode(option, out);
        Some(session)
    }

    /// LIST_META_CONTEXT and SET_META_CONTEXT. Returns whether the context is among the replies.
    fn answer_contexts(
        &self,
        exports: &ExportTable,
        option: u32,
        query: &MetaContextQuery,
        out: &mut Vec<u8>,
    ) -> bool {
        if !self.is_structured {
            let message = "metadata contexts need structured replies: negotiate those first";
            reply_error(option, OptionError::Invalid, message, out);
            return false;
        }
        if find_or_refuse(exports, option, &query.export, out).is_none() {
            return false;
        }
        let is_list = option == code::LIST_META_CONTEXT;
        let is_found = query
            .queries
            .iter()
            .any(|query| query == BASE_ALLOCATION || is_list && query == BASE_NAMESPACE)
            || is_list && query.queries.is_empty();
        if is_found {
            let id = if is_list { 0 } else { BASE_ALLOCATION_ID };
            OptionReply::MetaContext { id, name: BASE_ALLOCATION }.encode(option, out);
        }
        OptionReply::Ack.encode(option, out);
        is_found
    }
}

fn list(exports: &ExportTable, option: u32, out: &mut Vec<u8>) {
    for export in exports.iter() {
        let (name, description) = (&export.name, &export.description);
        OptionReply::Server { name, description }.encode(option, out);
    }
    OptionReply::Ack.encode(option, out);
}

fn find_or_refuse<'a>(
    exports: &'a ExportTable,
    option: u32,
    name: &str,
    out: &mut Vec<u8>,
) -> Option<&'a Arc<Export>> {
    let found = exports.find(name);
    if found.is_none() {
        let message = format!("export '{name}' does not exist: list the exports of this server");
        reply_error(option, OptionError::UnknownExport, &message, out);
    }
    found
}

pub(crate) fn reply_error(option: u32, why: OptionError, message: &str, out: &mut Vec<u8>) {
    OptionReply::Error { why, message }.encode(option, out);
}
