//! The classes of I/O at a leaf, and their limits.

use std::cell::Cell;

use device::IoKind;

/// The class of the I/O of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum IoClass {
    /// Of users and of the txg sync: somebody waits for what is read, and nobody for what is written.
    #[default]
    User,
    /// Somebody waits for what is written, too: log blocks, labels.
    Sync,
    /// Nobody waits for what is read, either.
    Async,
    /// Of scrubs and resilvers.
    Scan,
    /// Of sequential rebuilds, which awaited their turn at the leaf before they locked the range.
    Rebuild,
    /// Of the removal of a vdev.
    Removal,
    /// Of an expansion, which awaited its turn at the leaf before it locked the range.
    Expansion,
    /// Of writing free space.
    Initialize,
}

impl IoClass {
    /// Whether its I/O awaits its turn before a lock that users wait for, and not when it is issued.
    pub(super) const fn awaits_turn_first(self) -> bool {
        matches!(self, Self::Rebuild | Self::Expansion)
    }
}

/// The class of one I/O at a leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueClass {
    /// A read for which somebody waits.
    SyncRead,
    /// A write for which somebody waits.
    SyncWrite,
    /// A read ahead of its use.
    AsyncRead,
    /// A write of the txg sync.
    AsyncWrite,
    /// Of a scrub or resilver.
    Scan,
    /// A request to discard free space.
    Trim,
    /// Of a sequential rebuild.
    Rebuild,
    /// Of the removal of a vdev, or of the expansion of a raidz, as with OpenZFS.
    Removal,
    /// Of initializing.
    Initialize,
}

/// When an I/O of a class is issued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Limit {
    /// At once: its thread waits for it, and has no other.
    None,
    /// While so many of its class are active at most.
    Users(u32),
    /// When it is its turn; on an idle leaf, while so many of its class are active at most.
    Background(u32),
}

impl QueueClass {
    /// All of them, in their order.
    pub const ALL: [Self; 9] = [
        Self::SyncRead,
        Self::SyncWrite,
        Self::AsyncRead,
        Self::AsyncWrite,
        Self::Scan,
        Self::Trim,
        Self::Rebuild,
        Self::Removal,
        Self::Initialize,
    ];

    /// The class of an I/O of a thread of that class.
    pub(super) const fn new(class: IoClass, kind: IoKind) -> Self {
        let is_read = matches!(kind, IoKind::Read);
        match class {
            _ if matches!(kind, IoKind::Trim) => Self::Trim,
            IoClass::User | IoClass::Sync if is_read => Self::SyncRead,
            IoClass::Async if is_read => Self::AsyncRead,
            IoClass::Sync => Self::SyncWrite,
            IoClass::User | IoClass::Async => Self::AsyncWrite,
            IoClass::Scan => Self::Scan,
            IoClass::Rebuild => Self::Rebuild,
            IoClass::Removal | IoClass::Expansion => Self::Removal,
            IoClass::Initialize => Self::Initialize,
        }
    }

    pub(super) const fn limit(self) -> Limit {
        match self {
            Self::SyncRead | Self::SyncWrite => Limit::None,
            Self::AsyncRead => Limit::Users(8),
            Self::AsyncWrite => Limit::Users(10),
            Self::Scan => Limit::Background(10),
            Self::Rebuild => Limit::Background(4),
            Self::Trim | Self::Removal => Limit::Background(2),
            Self::Initialize => Limit::Background(1),
        }
    }

    /// Whether it gives way to others.
    pub(super) const fn is_background(self) -> bool {
        matches!(self.limit(), Limit::Background(_))
    }
}

thread_local! {
    static CLASS: Cell<IoClass> = const { Cell::new(IoClass::User) };
}

/// The class of the I/O of this thread.
pub(crate) fn thread_class() -> IoClass {
    CLASS.get()
}

/// Does something, and counts the I/O of this thread as of that class meanwhile.
pub fn with_class<R>(class: IoClass, work: impl FnOnce() -> R) -> R {
    struct Restore(IoClass);
    impl Drop for Restore {
        fn drop(&mut self) {
            CLASS.set(self.0);
        }
    }
    let _restore = Restore(CLASS.replace(class));
    work()
}
