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

    /// Puts others in the place of those for which `again` gives one.
    pub(crate) fn renew(&self, again: impl Fn(&T) -> Option<T>) {
        for what in self.open.write().values_mut() {
            if let Some(other) = again(what) {
                *what = Arc::new(other);
            }
        }
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
        let second = handles.add(Arc::new("b"));
        assert!(handles.find(first).is_none() && second != first);
        let third = handles.add(Arc::new("c"));
        handles.renew(|what| (*what == "b").then_some("d"));
        let found = [second, third].map(|handle| handles.find(handle));
        assert_eq!(found, [Some(Arc::new("d")), Some(Arc::new("c"))], "only those that change");
    }
}
