//! The open handles, by the number that the kernel knows.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::RwLock;

/// The table of open handles.
pub(crate) struct HandleTable<T> {
    next_handle: AtomicU64,
    entries: RwLock<HashMap<u64, Arc<T>>>,
}

impl<T> HandleTable<T> {
    pub(crate) fn new() -> Self {
        Self { next_handle: AtomicU64::new(1), entries: RwLock::default() }
    }

    pub(crate) fn insert(&self, what: Arc<T>) -> u64 {
        let number = self.next_handle.fetch_add(1, Ordering::Relaxed);
        self.entries.write().insert(number, what);
        number
    }

    pub(crate) fn get(&self, number: u64) -> Option<Arc<T>> {
        self.entries.read().get(&number).cloned()
    }

    /// Shows each open entry to `visit`.
    pub(crate) fn for_each(&self, visit: impl Fn(&T)) {
        self.entries.read().values().for_each(|entry| visit(entry));
    }

    pub(crate) fn remove(&self, number: u64) {
        let gone = self.entries.write().remove(&number);
        // to free a file takes its time, and others are not to wait for that
        drop(gone);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, OnceLock};

    use super::HandleTable;

    /// Something that takes its time to go.
    struct SlowDrop(Arc<OnceLock<HandleTable<SlowDrop>>>, Arc<OnceLock<bool>>);

    impl Drop for SlowDrop {
        fn drop(&mut self) {
            let others = self.0.get().is_some_and(|handles| handles.entries.try_read().is_some());
            self.1.set(others).unwrap();
        }
    }

    #[test]
    fn removal_does_not_wait_for_the_drop() {
        let (handles, could_look) = (Arc::new(OnceLock::new()), Arc::new(OnceLock::new()));
        let all = handles.get_or_init(HandleTable::new);
        let slow = all.insert(Arc::new(SlowDrop(Arc::clone(&handles), Arc::clone(&could_look))));
        all.remove(slow);
        assert_eq!(could_look.get(), Some(&true));
    }

    #[test]
    fn handle_numbers_are_never_reused() {
        let handles = HandleTable::new();
        let first = handles.insert(Arc::new("a"));
        assert_eq!(handles.get(first).as_deref(), Some(&"a"));
        handles.remove(first);
        let second = handles.insert(Arc::new("b"));
        assert!(handles.get(first).is_none() && second != first);
        let third = handles.insert(Arc::new("c"));
        let found = [second, third].map(|handle| handles.get(handle));
        assert_eq!(found, [Some(Arc::new("b")), Some(Arc::new("c"))]);
    }
}
