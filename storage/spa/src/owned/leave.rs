//! Taking a pool over from who had it, and leaving it to others.

use ondisk::label::PoolState;

use super::Owned;
use crate::Error;

impl Owned {
    /// From its next group on the pool says that this host has it.
    pub fn take_over(&self, host: (u64, String)) {
        let mut config = self.config.lock();
        config.now.state = PoolState::Active;
        config.now.host_id = Some(host.0);
        config.now.host_name = Some(host.1);
        config.changed = true;
    }

    /// Writes all that waits, and says in the labels that nobody has the pool any more, or that it
    /// was destroyed. Nothing can be changed afterwards.
    pub fn leave(&self, state: PoolState) -> Result<(), Error> {
        self.sync()?;
        {
            let mut config = self.config.lock();
            config.now.state = state;
            config.changed = true;
        }
        let done = self.sync();
        self.groups.stop();
        done
    }

    /// Whether anything waits to be written.
    pub fn is_dirty(&self) -> bool {
        let open = self.groups.open();
        self.config.lock().changed
            || !self.tasks.lock().is_empty()
            || self.sets.lock().values().any(|set| set.is_dirty(open))
    }

    /// Why the pool is suspended, if it is.
    pub fn trouble(&self) -> Option<Error> {
        self.trouble.read().clone()
    }

    /// Bytes that datasets may use together.
    pub fn usable(&self) -> u64 {
        self.usable
    }

    /// Bytes in all vdevs for data, and how many of them are in use, parity included.
    pub fn fullness(&self) -> (u64, u64) {
        let usage = self.space.allocator().usage(metaslab::Class::Normal);
        (usage.capacity, usage.allocated)
    }

    /// Whether so many bytes more have room, with all that waits to be written and what is kept
    /// back for frees.
    pub fn has_room(&self, bytes: u64) -> bool {
        let usage = self.space.allocator().usage(metaslab::Class::Normal);
        let kept = (usage.capacity >> 5).clamp(8 << 20, 128 << 30);
        let taken = usage.allocated.saturating_add(usage.deferred).saturating_add(kept);
        // data take up to a third more with parity, and metadata besides
        let wanted = bytes.saturating_add(self.groups.dirty()).saturating_mul(2);
        usage.capacity.saturating_sub(taken) >= wanted
    }
}
