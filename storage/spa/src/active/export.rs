//! The pool's state in the labels besides its vdevs: its host, whether it is exported, its comment.

use ondisk::label::PoolState;

use super::ActivePool;
use crate::Error;

impl ActivePool {
    /// From its next txg on the labels name this host.
    pub fn set_host(&self, host: (u64, String)) {
        let mut config = self.config.lock();
        config.current.state = PoolState::Active;
        config.current.host_id = Some(host.0);
        config.current.host_name = Some(host.1);
        config.is_dirty = true;
    }

    /// From its next group on the pool's configuration has this comment.
    pub fn set_comment(&self, comment: Option<String>) {
        let mut config = self.config.lock();
        config.current.comment = comment;
        config.is_dirty = true;
    }

    /// Gives it another name in its labels: it is called as it is now until it is left.
    pub fn set_label_name(&self, name: &str) {
        let mut config = self.config.lock();
        config.current.name = Some(name.to_owned());
        config.is_dirty = true;
    }

    /// Sets, or removes, the names of the sets of features that the pool is kept to.
    pub fn set_compatibility(&self, sets: Option<String>) {
        let mut config = self.config.lock();
        config.current.compatibility = sets;
        config.is_dirty = true;
    }

    /// Syncs everything, and marks the pool in the labels as exported or destroyed. Nothing can be
    /// changed afterwards; if drives fail, dirty data is lost.
    pub fn export(&self, state: PoolState) -> Result<(), Error> {
        // Rule W3: a txg of its own marks the pool as exported. Two labels are written before the uberblock: after a
        // cut in between, a pool that counts as exported must lack no change.
        let written = self.sync().and_then(|()| {
            let mut config = self.config.lock();
            config.current.state = state;
            config.is_dirty = true;
            drop(config);
            self.sync()
        });
        self.abort_txgs();
        written
    }

    /// Whether anything waits to be written.
    pub fn is_dirty(&self) -> bool {
        let open = self.txgs.open_txg();
        self.config.lock().is_dirty
            || !self.tasks.is_empty()
            || self.open_datasets.all().iter().any(|set| set.is_dirty(open))
    }

    /// Why the pool is suspended, if it is.
    pub fn suspend_error(&self) -> Option<Error> {
        self.fatal_error.reason().or_else(|| self.suspension.suspend_error())
    }
}
