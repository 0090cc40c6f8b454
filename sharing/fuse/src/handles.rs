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
        let gone = self.open.write().remove(&number);
        // to free a file takes its time, and others are not to wait for that
        drop(gone);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, OnceLock};

    use super::Handles;

    /// Something that takes its time to go.
    struct Slow(Arc<OnceLock<Handles<Slow>>>, Arc<OnceLock<bool>>);

    impl Drop for Slow {
        fn drop(&mut self) {
            let others = self.0.get().is_some_and(|handles| handles.open.try_read().is_some());
            self.1.set(others).unwrap();
        }
    }

    #[test]
    fn nobody_waits_for_what_is_closed_to_go() {
        let (handles, could_look) = (Arc::new(OnceLock::new()), Arc::new(OnceLock::new()));
        let all = handles.get_or_init(Handles::new);
        let slow = all.add(Arc::new(Slow(Arc::clone(&handles), Arc::clone(&could_look))));
        all.remove(slow);
        assert_eq!(could_look.get(), Some(&true));
    }

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
