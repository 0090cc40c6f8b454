//! System attributes: how a file's attributes are laid out in a bonus buffer.
