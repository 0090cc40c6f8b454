//! A place in the listing of a table, and the number that stands for it outside.

/// A position in a listing: a hash, and a collision number among the entries that share it.
/// Listings return entries in the order of cursors.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct ZapCursor {
    /// The hash.
    pub hash: u64,
    /// Which of the entries of this hash (cd).
    pub collision: u32,
}

impl ZapCursor {
    /// Before the first entry.
    pub const START: Self = Self { hash: 0, collision: 0 };
    /// Behind the last entry.
    pub const END: Self = Self { hash: u64::MAX, collision: u32::MAX };

    /// The place behind the entry that is here.
    #[must_use]
    pub const fn after(self) -> Self {
        match self.collision.checked_add(1) {
            Some(collision) => Self { hash: self.hash, collision },
            None => match self.hash.checked_add(1) {
                Some(hash) => Self { hash, collision: 0 },
                None => Self::END,
            },
        }
    }

    /// The cursor as one number, the form of directory cookies, in a table whose hashes have
    /// `hash_bits` bits (28 or 48).
    pub const fn to_cookie(self, hash_bits: u32) -> u64 {
        if self.hash == u64::MAX {
            return u64::MAX;
        }
        let hash = match self.hash.checked_shr(64 - hash_bits) {
            Some(hash) => hash,
            None => 0,
        };
        match (self.collision as u64).checked_shl(hash_bits) {
            Some(collision) => hash | collision,
            None => hash,
        }
    }

    /// The cursor that a number stands for.
    pub fn from_cookie(cookie: u64, hash_bits: u32) -> Self {
        if cookie == u64::MAX {
            return Self::END;
        }
        let hash = cookie.checked_shl(64 - hash_bits).unwrap_or(0);
        let collision = cookie.checked_shr(hash_bits).unwrap_or(0);
        Self { hash, collision: u32::try_from(collision).unwrap_or(u32::MAX) }
    }
}

#[cfg(test)]
mod tests {
    use super::ZapCursor;

    proptest::proptest! {
        #[test]
        fn cookies_and_cursors_are_the_same(hash in 0_u64..1 << 28, collision in 0_u32..1 << 30) {
            let cursor = ZapCursor { hash: hash << 36, collision };
            assert_eq!(ZapCursor::from_cookie(cursor.to_cookie(28), 28), cursor);
            let cursor = ZapCursor { hash: hash << 36, collision: collision & 0xffff };
            assert_eq!(ZapCursor::from_cookie(cursor.to_cookie(48), 48), cursor);
        }
    }

    #[test]
    fn the_end_is_behind_everything() {
        assert_eq!(ZapCursor::END.to_cookie(28), u64::MAX);
        assert_eq!(ZapCursor::from_cookie(u64::MAX, 28), ZapCursor::END);
        assert!(
            ZapCursor { hash: 5, collision: u32::MAX }.after()
                > ZapCursor { hash: 5, collision: 9 }
        );
    }
}
