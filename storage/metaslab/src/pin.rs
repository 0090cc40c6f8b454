//! Keeping what is freed from being used again, for who walks over the state of a txg while others
//! are written: all that it leads to stays where it is, and can be read, and written in its place.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::{Condvar, Mutex};
use units::Txg;

/// The pin, if there is one.
#[derive(Debug, Default)]
pub(crate) struct Pins {
    kept: Mutex<Option<Txg>>,
    pressed: AtomicBool,
    dropped: Condvar,
}

/// As long as this is there, nothing that is freed after its txg is used again.
#[derive(Debug)]
pub struct Pin(Arc<Pins>);

impl Pins {
    pub(crate) fn pin(this: &Arc<Self>, synced: Txg) -> Pin {
        let mut kept = this.kept.lock();
        while kept.is_some() {
            this.dropped.wait(&mut kept);
        }
        *kept = Some(synced);
        this.pressed.store(false, Ordering::Release);
        Pin(Arc::clone(this))
    }

    /// What is freed after that txg is kept.
    pub(crate) fn kept(&self) -> Option<Txg> {
        *self.kept.lock()
    }

    /// Asks for the pin to be dropped.
    pub(crate) fn press(&self) {
        self.pressed.store(true, Ordering::Release);
    }

    /// The same, and waits for that.
    pub(crate) fn wait(&self) {
        let mut kept = self.kept.lock();
        let Some(this) = *kept else { return };
        self.press();
        while *kept == Some(this) {
            self.dropped.wait(&mut kept);
        }
    }
}

impl Pin {
    /// Whether others are short of room, so that it should be dropped soon.
    pub fn is_pressed(&self) -> bool {
        self.0.pressed.load(Ordering::Acquire)
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        *self.0.kept.lock() = None;
        self.0.dropped.notify_all();
    }
}
