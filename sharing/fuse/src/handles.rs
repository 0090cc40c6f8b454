//! What is open, by the number that the kernel knows it by.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::RwLock;

/// What is open.
pub(crate) struct Handles<T> {
    next: AtomicU64,
    open: RwLock<HashMap<u64, Arc<T>>>,
}

impl<T> Handles<T> {
    pub(crate) fn new() -> Self {
        Self { next: AtomicU64::new(1), open: RwLock::default() }
    }

    pub(crate) fn add(&self, what: Arc<T>) -> u64 {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        self.open.write().insert(number, what);
        number
    }

    pub(crate) fn find(&self, number: u64) -> Option<Arc<T>> {
        self.open.read().get(&number).cloned()
    }

    pub(crate) fn remove(&self, number: u64) {
        self.open.write().remove(&number);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::Handles;

    #[test]
    fn a_closed_handle_is_gone_and_its_number_does_not_come_again() {
        let handles = Handles::new();
        let first = handles.add(Arc::new("a"));
        assert_eq!(handles.find(first).as_deref(), Some(&"a"));
        handles.remove(first);
        assert!(handles.find(first).is_none() && handles.add(Arc::new("b")) != first);
    }
}
