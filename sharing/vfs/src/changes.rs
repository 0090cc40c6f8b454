//! The bus of changes: notifies all doors of a change by another door.
//!
//! A FUSE mount invalidates the kernel's caches, an SMB server answers CHANGE_NOTIFY, an NFS server
//! updates its change attribute. Each has a [`Subscription`]: a queue of bounded length. A
//! subscriber that does not keep up loses the queue and is notified once that everything may have
//! changed; no publisher waits for it.
//!
//! A change is published after it was made and before the door that made it answers its client. A door whose
//! clients expect others to see the change at once, over other doors too, then calls
//! [`ChangeBus::wait_until_handled`]. **A door that answers a kernel must not wait**: its client may hold an inode
//! lock in the kernel that the other mount's invalidation waits for.
//!
//! The bus keeps nothing for changes that have no subscriber.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use parking_lot::{Condvar, Mutex, RwLock};
use posix::Ino;

use crate::DoorId;

/// The kind of a change of a file or directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ChangeKind {
    /// Its content, and perhaps its size.
    Data,
    /// Its attributes, extended attributes or access list.
    Attributes,
    /// A name was added to the directory.
    EntryAdded {
        /// The name.
        name: Vec<u8>,
    },
    /// A name was removed from the directory.
    EntryRemoved {
        /// The name.
        name: Vec<u8>,
    },
    /// A name of the directory was moved, and may have replaced another.
    EntryRenamed {
        /// The old name.
        name: Vec<u8>,
        /// Inode number of its present directory.
        to_dir: Ino,
        /// The new name.
        to_name: Vec<u8>,
    },
    /// Two names were exchanged.
    EntriesExchanged {
        /// The name in this directory.
        name: Vec<u8>,
        /// Inode number of the other directory.
        to_dir: Ino,
        /// The name there.
        to_name: Vec<u8>,
    },
}

/// A change of a file or directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Change {
    /// Inode number of the file or directory.
    pub ino: Ino,
    /// The kind of the change.
    pub kind: ChangeKind,
    /// The version that the change gave to the file (see [`crate::change_version`]).
    pub version: u64,
    /// The door by which the change came.
    pub door: DoorId,
}

/// Changes that a subscriber takes at once.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ChangeBatch {
    /// Changes were lost: everything may have changed before these were made.
    pub is_overflow: bool,
    /// The changes, oldest first.
    pub changes: Vec<Change>,
}

/// The bus of one file system.
#[derive(Default)]
pub struct ChangeBus {
    queues: RwLock<Vec<Arc<Queue>>>,
    /// The number of subscribers, so that publishing without subscribers takes no lock.
    count: AtomicUsize,
}

struct Queue {
    door: DoorId,
    capacity: usize,
    wake: Box<dyn Fn() + Send + Sync>,
    state: Mutex<QueueState>,
    /// Wakes the subscriber.
    published: Condvar,
    /// Wakes publishers that wait until it has handled all.
    handled: Condvar,
}

#[derive(Default)]
struct QueueState {
    waiting: VecDeque<Change>,
    is_overflow: bool,
    is_closed: bool,
    /// Changes published so far, and how many of them the subscriber has handled.
    published: u64,
    taken: u64,
    handled: u64,
}

/// A subscriber's end of the bus. Dropping it ends the subscription.
pub struct Subscription {
    bus: Arc<ChangeBus>,
    queue: Arc<Queue>,
}

/// Ends a subscription from another thread.
#[derive(Clone)]
pub struct SubscriptionCloser(Arc<Queue>);

impl ChangeBus {
    /// Subscribes a door to the changes of all others. At most `capacity` changes wait in its queue. `wake` is
    /// called when the queue gets its first change, by the thread that publishes it: it must neither wait nor use
    /// the bus.
    pub fn subscribe(
        self: &Arc<Self>,
        door: DoorId,
        capacity: usize,
        wake: impl Fn() + Send + Sync + 'static,
    ) -> Subscription {
        let (published, handled) = (Condvar::new(), Condvar::new());
        let (state, wake) = (Mutex::default(), Box::new(wake));
        let queue = Queue { door, capacity, wake, state, published, handled };
        let queue = Arc::new(queue);
        let mut queues = self.queues.write();
        queues.push(Arc::clone(&queue));
        self.count.store(queues.len(), Ordering::SeqCst);
        Subscription { bus: Arc::clone(self), queue }
    }

    /// Whether any door but one is subscribed. Without subscribers a change need not be put together.
    pub fn has_subscribers_besides(&self, door: DoorId) -> bool {
        self.count.load(Ordering::SeqCst) > 0
            && self.queues.read().iter().any(|queue| queue.door != door)
    }

    /// Publishes a change to all doors but the one that made it.
    pub fn publish(&self, change: &Change) {
        if self.count.load(Ordering::SeqCst) > 0 {
            // without the lock: a subscriber that is woken may end its subscription
            let queues = self.queues.read().clone();
            let others = queues.iter().filter(|queue| queue.door != change.door);
            others.for_each(|queue| queue.push(Some(change)));
        }
    }

    /// Notifies all doors but one that everything may have changed, as after a rollback.
    pub fn publish_overflow(&self, door: DoorId) {
        let queues = self.queues.read().clone();
        queues.iter().filter(|queue| queue.door != door).for_each(|queue| queue.push(None));
    }

    /// Waits until all doors but one have handled all changes published so far; false: one has not
    /// by `deadline`.
    pub fn wait_until_handled(&self, door: DoorId, deadline: Instant) -> bool {
        if self.count.load(Ordering::SeqCst) == 0 {
            return true;
        }
        let queues = self.queues.read().clone();
        let mut others = queues.iter().filter(|queue| queue.door != door);
        others.all(|queue| queue.wait_until_handled(deadline))
    }
}

impl Queue {
    /// Adds a change; none: everything may have changed.
    fn push(&self, change: Option<&Change>) {
        let mut state = self.state.lock();
        if state.is_closed {
            return;
        }
        state.published += 1;
        let is_first = state.waiting.is_empty() && !state.is_overflow;
        match change {
            Some(change) if state.replace_last(change) => {}
            Some(change) if state.waiting.len() < self.capacity => {
                state.waiting.push_back(change.clone());
            }
            _ => {
                state.waiting.clear();
                state.is_overflow = true;
            }
        }
        drop(state);
        self.published.notify_one();
        if is_first {
            (self.wake)();
        }
    }

    fn wait_until_handled(&self, deadline: Instant) -> bool {
        let mut state = self.state.lock();
        let wanted = state.published;
        while state.handled < wanted && !state.is_closed {
            if self.handled.wait_until(&mut state, deadline).timed_out() {
                return state.handled >= wanted || state.is_closed;
            }
        }
        true
    }

    fn close(&self) {
        let mut state = self.state.lock();
        state.is_closed = true;
        state.waiting.clear();
        drop(state);
        self.published.notify_all();
        self.handled.notify_all();
    }
}

impl Subscription {
    /// Waits for changes and takes all of them; none: the subscription was closed. Taking the next batch says that
    /// the one before was handled.
    pub fn next_batch(&self) -> Option<ChangeBatch> {
        let mut state = self.queue.state.lock();
        state.handled = state.taken;
        self.queue.handled.notify_all();
        while state.waiting.is_empty() && !state.is_overflow {
            if state.is_closed {
                return None;
            }
            self.queue.published.wait(&mut state);
        }
        Some(state.take())
    }

    /// Takes the changes that wait, perhaps none.
    pub fn take_waiting(&self) -> ChangeBatch {
        let mut state = self.queue.state.lock();
        state.handled = state.taken;
        self.queue.handled.notify_all();
        state.take()
    }

    /// Ends the subscription while a thread waits in [`Subscription::next_batch`].
    pub fn closer(&self) -> SubscriptionCloser {
        SubscriptionCloser(Arc::clone(&self.queue))
    }
}

impl SubscriptionCloser {
    /// Ends the subscription: the subscriber gets no further batch, and no publisher waits for it.
    pub fn close(&self) {
        self.0.close();
    }
}

impl QueueState {
    /// Whether the last change that waits is of the same kind and file: appends in small pieces are one change.
    fn replace_last(&mut self, change: &Change) -> bool {
        let last = self.waiting.back_mut();
        let same = last.filter(|last| last.ino == change.ino && last.kind == change.kind);
        same.map(|last| last.version = change.version).is_some()
    }

    fn take(&mut self) -> ChangeBatch {
        self.taken = self.published;
        let changes = std::mem::take(&mut self.waiting).into();
        ChangeBatch { is_overflow: std::mem::take(&mut self.is_overflow), changes }
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.queue.close();
        let mut queues = self.bus.queues.write();
        queues.retain(|queue| !Arc::ptr_eq(queue, &self.queue));
        self.bus.count.store(queues.len(), Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::{Duration, Instant};

    use posix::Ino;
    use proptest::prelude::*;

    use super::{Change, ChangeBus, ChangeKind};
    use crate::DoorId;

    const CAPACITY: usize = 4;

    fn change(ino: u64, version: u64, door: DoorId) -> Change {
        Change { ino: Ino::new(ino), kind: ChangeKind::Data, version, door }
    }

    fn soon() -> Instant {
        Instant::now() + Duration::from_mins(1)
    }

    proptest! {
        /// A subscriber that invalidates the objects of a batch knows the newest version of
        /// everything else.
        #[test]
        fn subscribers_miss_no_change_of_others(
            steps in prop::collection::vec((0..6_u64, 0..3_u8), 1..60),
        ) {
            let (bus, doors) = (Arc::new(ChangeBus::default()), [1, 2].map(|_| DoorId::new_unique()));
            let subscription = bus.subscribe(doors[0], CAPACITY, || {});
            let (mut truth, mut known) = ([0_u64; 6], [Some(0_u64); 6]);
            for (version, (ino, what)) in (1..).zip(steps) {
                let at = usize::try_from(ino).unwrap();
                if what < 2 {
                    let door = doors[usize::from(what)];
                    bus.publish(&change(ino, version, door));
                    truth[at] = version;
                    if what == 0 {
                        known[at] = Some(version);
                    }
                    continue;
                }
                let batch = subscription.take_waiting();
                prop_assert!(batch.changes.len() <= CAPACITY);
                if batch.is_overflow {
                    known = [None; 6];
                }
                for change in batch.changes {
                    prop_assert_eq!(change.door, doors[1]);
                    known[usize::try_from(change.ino.get()).unwrap()] = None;
                }
                for (known, truth) in known.iter_mut().zip(truth) {
                    prop_assert_eq!(known.unwrap_or(truth), truth);
                    *known = Some(truth);
                }
            }
        }
    }

    #[test]
    fn publishers_wait_until_others_have_handled() {
        let (bus, door) = (Arc::new(ChangeBus::default()), DoorId::new_unique());
        let woken = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&woken);
        let wake = move || {
            count.fetch_add(1, Ordering::SeqCst);
        };
        let subscription = bus.subscribe(door, CAPACITY, wake);
        let closer = subscription.closer();
        bus.publish(&change(1, 1, DoorId::DAEMON));
        bus.publish(&change(3, 1, DoorId::DAEMON));
        assert_eq!(woken.load(Ordering::SeqCst), 1);
        assert!(!bus.wait_until_handled(DoorId::DAEMON, Instant::now()));
        // its own changes a door need not handle
        assert!(bus.wait_until_handled(door, Instant::now()));
        let handled = std::thread::spawn(move || {
            let mut count = 0;
            while let Some(batch) = subscription.next_batch() {
                count += batch.changes.len();
            }
            count
        });
        assert!(bus.wait_until_handled(DoorId::DAEMON, soon()));
        bus.publish(&change(2, 2, DoorId::DAEMON));
        assert!(bus.wait_until_handled(DoorId::DAEMON, soon()));
        closer.close();
        assert_eq!(handled.join().unwrap(), 3);
        assert!(!bus.has_subscribers_besides(DoorId::DAEMON));
    }

    #[test]
    fn overflow_is_reported_once() {
        let (bus, door) = (Arc::new(ChangeBus::default()), DoorId::new_unique());
        let subscription = bus.subscribe(door, CAPACITY, || {});
        bus.publish(&change(1, 1, DoorId::DAEMON));
        bus.publish_overflow(door);
        assert!(!subscription.take_waiting().is_overflow);
        bus.publish(&change(1, 1, DoorId::DAEMON));
        bus.publish_overflow(DoorId::DAEMON);
        bus.publish(&change(2, 2, DoorId::DAEMON));
        let batch = subscription.take_waiting();
        assert!(batch.is_overflow && batch.changes == [change(2, 2, DoorId::DAEMON)]);
        assert_eq!(subscription.take_waiting(), super::ChangeBatch::default());
    }

    #[test]
    fn closed_subscriber_blocks_no_publisher() {
        let bus = Arc::new(ChangeBus::default());
        let subscription = bus.subscribe(DoorId::new_unique(), CAPACITY, || {});
        bus.publish(&change(1, 1, DoorId::DAEMON));
        subscription.closer().close();
        assert!(bus.wait_until_handled(DoorId::DAEMON, soon()));
        bus.publish(&change(1, 2, DoorId::DAEMON));
        assert!(subscription.next_batch().is_none());
    }
}
