//! What the labels say of a pool besides its vdevs: who has it, whether anybody has, its comment.

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

    /// From its next group on the pool's configuration has this comment.
    pub fn set_comment(&self, comment: Option<String>) {
        let mut config = self.config.lock();
        config.now.comment = comment;
        config.changed = true;
    }

    /// Gives it another name in its labels: it is called as it is now until it is left.
    pub fn name_in_labels(&self, name: &str) {
        let mut config = self.config.lock();
        config.now.name = Some(name.to_owned());
        config.changed = true;
    }

    /// Sets, or removes, the names of the sets of features that the pool is kept to.
    pub fn set_compatibility(&self, sets: Option<String>) {
        let mut config = self.config.lock();
        config.now.compatibility = sets;
        config.changed = true;
    }

    /// Writes all that waits, and says in the labels that nobody has the pool any more, or that it
    /// was destroyed. Nothing can be changed afterwards, and where drives fail what waits is lost.
    pub fn leave(&self, state: PoolState) -> Result<(), Error> {
        let written = self.sync().and_then(|()| {
            let mut config = self.config.lock();
            config.now.state = state;
            config.changed = true;
            drop(config);
            self.sync()
        });
        self.abandon();
        written
    }

    /// Whether anything waits to be written.
    pub fn is_dirty(&self) -> bool {
        let open = self.groups.open_txg();
        self.config.lock().changed
            || !self.tasks.is_empty()
            || self.sets.lock().values().any(|set| set.is_dirty(open))
    }

    /// Why the pool is suspended, if it is.
    pub fn trouble(&self) -> Option<Error> {
        self.trouble.read().clone().or_else(|| self.standstill.trouble())
    }
}
