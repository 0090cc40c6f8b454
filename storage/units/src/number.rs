//! The plain counters and identities of the format.

/// Makes a newtype over an integer with a named constructor, a getter and a decimal `Display`.
macro_rules! number {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        #[repr(transparent)]
        pub struct $name($inner);

        impl $name {
            /// Gives the bare number its name.
            pub const fn new(value: $inner) -> Self {
                Self(value)
            }

            /// The bare number.
            pub const fn get(self) -> $inner {
                self.0
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                std::fmt::Display::fmt(&self.0, f)
            }
        }

        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self.0)
            }
        }
    };
}
pub(crate) use number;

number!(
    /// A transaction group: the pool's clock. 0 means "never" or "before the first".
    Txg(u64)
);
number!(
    /// A random identity of a pool, a vdev or a dataset; never 0 for a real one.
    Guid(u64)
);
number!(
    /// An object within an object set: its index in the meta-dnode's array. 0 is the meta-dnode.
    ObjectId(u64)
);
number!(
    /// An object set: the object number of its dataset in the MOS; 0 is the MOS itself.
    ObjsetId(u64)
);
number!(
    /// The index of a block among those of its level in an object.
    BlockId(u64)
);
number!(
    /// Height of a block in its object's tree: 0 is data, above are indirect blocks.
    Level(u8)
);

impl Txg {
    /// No txg: the value of a field that was never set.
    pub const ZERO: Self = Self::new(0);

    /// Whether this is a txg at all.
    pub const fn is_zero(self) -> bool {
        self.get() == 0
    }

    /// The txg after this one.
    ///
    /// # Panics
    /// At the last number. A pool reaches none of it: import refuses uberblocks beyond half of the range.
    #[must_use]
    pub const fn next(self) -> Self {
        Self::new(self.get() + 1)
    }
}

impl ObjsetId {
    /// The pool's own object set (MOS), which belongs to no dataset.
    pub const MOS: Self = Self::new(0);
}

impl ObjectId {
    /// The meta-dnode, whose content is the array of all other dnodes.
    pub const META: Self = Self::new(0);

    /// Whether the field names an object (0 stands for "none").
    pub const fn exists(self) -> bool {
        self.get() != 0
    }
}
