//! The connections of a server: their number is limited, and the end of a server waits for theirs.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

/// The connections of a server, in the order of their arrival.
pub struct ConnectionTable<C> {
    limit: usize,
    rows: Mutex<Rows<C>>,
    left: Condvar,
}

struct Rows<C> {
    by_number: BTreeMap<u64, Arc<C>>,
    next: u64,
    is_closed: bool,
}

impl<C> ConnectionTable<C> {
    /// A table for at most `limit` connections.
    pub fn new(limit: usize) -> Self {
        let rows = Rows { by_number: BTreeMap::new(), next: 0, is_closed: false };
        Self { limit, rows: Mutex::new(rows), left: Condvar::new() }
    }

    /// Adds a connection. None: the table is full or closed.
    pub fn add(self: &Arc<Self>, connection: Arc<C>) -> Option<Membership<C>> {
        let mut rows = self.rows.lock();
        if rows.by_number.len() >= self.limit || rows.is_closed {
            return None;
        }
        let number = rows.next;
        rows.next += 1;
        rows.by_number.insert(number, connection);
        Some(Membership { table: Arc::clone(self), number })
    }

    /// Adds no further connection.
    pub fn close(&self) {
        self.rows.lock().is_closed = true;
    }

    /// The connections now.
    pub fn list(&self) -> Vec<Arc<C>> {
        self.rows.lock().by_number.values().cloned().collect()
    }

    /// Waits for a time until all connections have ended. Returns the number of those that have not.
    pub fn wait_until_empty(&self, time: Duration) -> usize {
        let deadline = Instant::now() + time;
        let mut rows = self.rows.lock();
        while !rows.by_number.is_empty() {
            if self.left.wait_until(&mut rows, deadline).timed_out() {
                break;
            }
        }
        rows.by_number.len()
    }
}

/// A connection's row in a table, which is removed when this is dropped.
pub struct Membership<C> {
    table: Arc<ConnectionTable<C>>,
    number: u64,
}

impl<C> Drop for Membership<C> {
    fn drop(&mut self) {
        self.table.rows.lock().by_number.remove(&self.number);
        self.table.left.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_and_closed_tables_refuse() {
        let table = Arc::new(ConnectionTable::new(1));
        let first = table.add(Arc::new("first")).unwrap();
        assert!(table.add(Arc::new("second")).is_none());
        assert_eq!(table.wait_until_empty(Duration::ZERO), 1);
        drop(first);
        assert_eq!(table.wait_until_empty(Duration::ZERO), 0);
        let again = table.add(Arc::new("again"));
        assert_eq!(table.list(), [Arc::new("again")]);
        table.close();
        drop(again);
        assert!(table.add(Arc::new("late")).is_none());
    }
}
