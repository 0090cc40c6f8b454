//! Keeping what is freed from being used again, for who walks over the state of a txg while others
//! are written: all that it leads to stays where it is, and can be read, and written in its place.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::{Condvar, Mutex};
use units::Txg;

/// The pins there are.
#[derive(Debug, Default)]
pub(crate) struct Pins {
    kept: Mutex<Kept>,
    pressed: AtomicBool,
    dropped: Condvar,
}

#[derive(Debug, Default)]
struct Kept {
    next: u64,
    /// What each pin keeps, the older pins first.
    by_pin: BTreeMap<u64, Txg>,
}

/// As long as this is there, nothing that is freed after its txg is used again.
#[derive(Debug)]
pub struct Pin {
    pins: Arc<Pins>,
    number: u64,
}

impl Pins {
    pub(crate) fn pin(this: &Arc<Self>, synced: Txg) -> Pin {
        let mut kept = this.kept.lock();
        let number = kept.next;
        kept.next += 1;
        if kept.by_pin.is_empty() {
            this.pressed.store(false, Ordering::Release);
        }
        kept.by_pin.insert(number, synced);
        Pin { pins: Arc::clone(this), number }
    }

    /// What is freed after that txg is kept.
    pub(crate) fn kept(&self) -> Option<Txg> {
        self.kept.lock().by_pin.values().min().copied()
    }

    /// Asks for the pins to be dropped.
    pub(crate) fn press(&self) {
        self.pressed.store(true, Ordering::Release);
    }

    /// The same, and waits for that.
    pub(crate) fn wait(&self) {
        let mut kept = self.kept.lock();
        let later = kept.next;
        while kept.by_pin.range(..later).next().is_some() {
            self.press();
            self.dropped.wait(&mut kept);
        }
    }
}

impl Pin {
    /// Whether others are short of room, so that it should be dropped soon.
    pub fn is_pressed(&self) -> bool {
        self.pins.pressed.load(Ordering::Acquire)
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        self.pins.kept.lock().by_pin.remove(&self.number);
        self.pins.dropped.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use units::Txg;

    use super::Pins;

    #[test]
    fn the_oldest_pin_counts_and_later_ones_keep_nobody_waiting() {
        let pins = Arc::new(Pins::default());
        let [old, new] = [7, 9].map(|txg| Pins::pin(&pins, Txg::new(txg)));
        assert_eq!(pins.kept(), Some(Txg::new(7)));
        pins.press();
        assert!(old.is_pressed() && new.is_pressed());
        drop(old);
        assert_eq!(pins.kept(), Some(Txg::new(9)));
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| pins.wait());
            let later = Pins::pin(&pins, Txg::new(11));
            drop(new);
            // it may have begun to wait when the later one was there
            drop(later);
            waiting.join().unwrap();
        });
        assert_eq!(pins.kept(), None);
    }
}
