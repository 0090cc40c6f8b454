//! Keeps freed blocks from being reused, for a walk over the state of a txg while others
//! are synced: all its blocks stay in place, and can be read and repaired.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::{Condvar, Mutex};
use units::Txg;

/// The pins there are.
#[derive(Debug, Default)]
pub(crate) struct Pins {
    table: Mutex<PinTable>,
    release_requested: AtomicBool,
    dropped: Condvar,
}

#[derive(Debug, Default)]
struct PinTable {
    next_id: u64,
    /// The pinned txgs, the older pins first.
    txgs: BTreeMap<u64, Txg>,
}

/// While this exists, no block freed after its txg is reused.
#[derive(Debug)]
pub struct Pin {
    pins: Arc<Pins>,
    id: u64,
}

impl Pins {
    pub(crate) fn add_pin(this: &Arc<Self>, synced: Txg) -> Pin {
        // Rule W1: the pin is set while `synced` is the last synced txg. A later one would find blocks of that txg
        // reused, and a repair in place would overwrite another block.
        let mut kept = this.table.lock();
        let number = kept.next_id;
        kept.next_id += 1;
        if kept.txgs.is_empty() {
            this.release_requested.store(false, Ordering::Release);
        }
        kept.txgs.insert(number, synced);
        Pin { pins: Arc::clone(this), id: number }
    }

    /// Pins the blocks freed after that txg.
    pub(crate) fn min_pinned_txg(&self) -> Option<Txg> {
        self.table.lock().txgs.values().min().copied()
    }

    /// Requests the release of the pins.
    pub(crate) fn request_release(&self) {
        self.release_requested.store(true, Ordering::Release);
    }

    /// The same, and waits for that.
    pub(crate) fn wait_for_release(&self) {
        let mut kept = self.table.lock();
        let later = kept.next_id;
        while kept.txgs.range(..later).next().is_some() {
            self.request_release();
            self.dropped.wait(&mut kept);
        }
    }
}

impl Pin {
    /// Whether space is short, so that the pin should be dropped soon.
    pub fn is_release_requested(&self) -> bool {
        self.pins.release_requested.load(Ordering::Acquire)
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        let pinned = self.pins.table.lock().txgs.remove(&self.id);
        assert!(pinned.is_some() || std::thread::panicking(), "a pin is released once");
        self.pins.dropped.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use units::Txg;

    use super::Pins;

    #[test]
    fn only_the_oldest_pin_blocks_reuse() {
        let pins = Arc::new(Pins::default());
        let [old, new] = [7, 9].map(|txg| Pins::add_pin(&pins, Txg::new(txg)));
        assert_eq!(pins.min_pinned_txg(), Some(Txg::new(7)));
        pins.request_release();
        assert!(old.is_release_requested() && new.is_release_requested());
        drop(old);
        assert_eq!(pins.min_pinned_txg(), Some(Txg::new(9)));
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| pins.wait_for_release());
            let later = Pins::add_pin(&pins, Txg::new(11));
            drop(new);
            // it may have begun to wait when the later one was there
            drop(later);
            waiting.join().unwrap();
        });
        assert_eq!(pins.min_pinned_txg(), None);
    }
}
