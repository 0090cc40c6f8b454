//! The type of a file.

/// The type of a file (`S_IFMT`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum FileType {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A named pipe.
    Fifo,
    /// A socket.
    Socket,
    /// A character device.
    CharDevice,
    /// A block device.
    BlockDevice,
    /// A type that Linux does not have, by its type bits: a door or an event port of illumos, or damage.
    Other(u8),
}

impl FileType {
    /// The type with these type bits: bits 12 to 15 of a mode, and the upper 4 bits of a directory entry.
    pub const fn from_type_bits(bits: u8) -> Self {
        match bits {
            1 => Self::Fifo,
            2 => Self::CharDevice,
            4 => Self::Directory,
            6 => Self::BlockDevice,
            8 => Self::File,
            10 => Self::Symlink,
            12 => Self::Socket,
            other => Self::Other(other),
        }
    }

    /// The type bits of [`FileType::from_type_bits`].
    pub const fn type_bits(self) -> u8 {
        match self {
            Self::Fifo => 1,
            Self::CharDevice => 2,
            Self::Directory => 4,
            Self::BlockDevice => 6,
            Self::File => 8,
            Self::Symlink => 10,
            Self::Socket => 12,
            Self::Other(other) => other,
        }
    }

    /// The type in the upper bits of a mode.
    pub const fn from_mode(mode: u32) -> Self {
        Self::from_type_bits((mode >> 12 & 0xf) as u8)
    }

    /// The word for the type in a manifest of `rescue`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::File => "file",
            Self::Directory => "dir",
            Self::Symlink => "symlink",
            Self::Fifo => "fifo",
            Self::Socket => "socket",
            Self::CharDevice => "char",
            Self::BlockDevice => "block",
            Self::Other(_) => "other",
        }
    }

    /// The letter for the type in the output of `ls -l` and `find -type`.
    pub const fn letter(self) -> char {
        match self {
            Self::File => '-',
            Self::Directory => 'd',
            Self::Symlink => 'l',
            Self::Fifo => 'p',
            Self::Socket => 's',
            Self::CharDevice => 'c',
            Self::BlockDevice => 'b',
            Self::Other(_) => '?',
        }
    }

    /// Whether the type is a directory.
    pub const fn is_directory(self) -> bool {
        matches!(self, Self::Directory)
    }
}
