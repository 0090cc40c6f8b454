//! Courtesy: a client that was silent for longer than its lease keeps its state until somebody else needs it.
//!
//! ```text
//! alive ── silent for a lease ──▶ courteous ── heard of again ──▶ alive
//!                                    │
//!                                    └─ a lock, open or delegation of it is in another's way,
//!                                       or it is silent for a day ──▶ gone
//! ```
//!
//! A laptop that slept finds its files open and locked as before. The tables of the file system let the locks and opens of
//! courteous clients give way, whatever door the other one came by; the client is gone as a whole then. It is not in the
//! list of clients meanwhile, so that a restart of the server waits for clients that are alive only.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use vfs::ClientId;

use super::clients::Client;
use super::{Removed, StateTable, Tables};
use crate::export::ServedExport;
use crate::request::Result;
use crate::wire::status::Status;

/// The time that a silent client keeps its state.
const COURTESY: Duration = Duration::from_hours(24);

impl StateTable {
    /// Lets the state of silent clients give way to that of others, and frees what has given way.
    pub(crate) fn expire_silent_clients(&self) {
        let mut removed = Removed::default();
        let mut tables = self.lock();
        let (now, lease) = (Instant::now(), self.limits.lease);
        let silence = |client: &Client| now.saturating_duration_since(client.renewed);
        let is_silent = |client: &Client| silence(client) > lease;
        let silent: Vec<u64> = tables
            .clients
            .iter()
            .filter(|(_, client)| is_silent(client) && !tables.is_busy(client))
            .map(|(number, _)| *number)
            .collect();
        for number in silent {
            let Ok(client) = tables.client(number) else { continue };
            let is_over = silence(client) > COURTESY || !client.has_state();
            if is_over || tables.has_given_way(number) {
                tables.remove_client(number, &mut removed);
            } else if !client.is_courteous {
                tables.begin_courtesy(number);
            }
        }
        tables.forget_idle_owners(lease);
        drop(tables);
    }
}

impl Tables {
    /// A client in the file systems that it has files open in.
    fn holders(&self, number: u64) -> Vec<(Arc<ServedExport>, ClientId)> {
        let mut all: Vec<(Arc<ServedExport>, ClientId)> = Vec::new();
        let opens = self.clients.get(&number).into_iter().flat_map(|it| it.opens.values());
        for open in opens.filter_map(|number| self.opens.get(number)) {
            let export = &open.node.export;
            let holder = export.client_id(number);
            if all.iter().all(|(_, known)| *known != holder) {
                all.push((Arc::clone(export), holder));
            }
        }
        all
    }

    fn begin_courtesy(&mut self, number: u64) {
        for (export, holder) in self.holders(number) {
            export.filesystem.locks().begin_courtesy(holder);
            export.filesystem.opens().begin_courtesy(holder);
        }
        let Some(client) = self.clients.get_mut(&number) else { return };
        client.is_courteous = true;
        let owner = client.owner.clone();
        self.list.remove(&owner);
    }

    fn has_given_way(&self, number: u64) -> bool {
        self.holders(number).iter().any(|(export, holder)| {
            let fs = &export.filesystem;
            fs.locks().has_given_way(*holder) || fs.opens().has_given_way(*holder)
        })
    }

    /// Removes a client whose state gave way: when it makes itself known again, it is a new one. Returns whether it is
    /// gone.
    pub(super) fn remove_if_given_way(&mut self, number: u64, removed: &mut Removed) -> bool {
        let is_gone = self.has_given_way(number);
        if is_gone {
            self.remove_client(number, removed);
        }
        is_gone
    }

    /// A client is alive. An error: its state gave way while it was silent, and it is gone.
    pub(super) fn renew(
        &mut self,
        number: u64,
        address: SocketAddr,
        removed: &mut Removed,
    ) -> Result<()> {
        let client = self.client_mut(number)?;
        client.renew(address);
        if !client.is_courteous {
            return Ok(());
        }
        let owner = client.owner.clone();
        let mut is_intact = true;
        for (export, holder) in self.holders(number) {
            is_intact &= export.filesystem.locks().end_courtesy(holder);
            is_intact &= export.filesystem.opens().end_courtesy(holder);
        }
        if !is_intact {
            self.remove_client(number, removed);
            return Err(Status::EXPIRED);
        }
        self.client_mut(number)?.is_courteous = false;
        // a client that is not in the list could not reclaim its locks, and others would get them
        self.list.add(&owner).map_err(|_| Status::SERVERFAULT)
    }

    /// Removes a courteous client whose delegation is in another's way. False: the client is alive.
    pub(super) fn remove_if_courteous(&mut self, number: u64, removed: &mut Removed) -> bool {
        let is_courteous = self.clients.get(&number).is_some_and(|client| client.is_courteous);
        if is_courteous {
            self.remove_client(number, removed);
        }
        is_courteous
    }
}
