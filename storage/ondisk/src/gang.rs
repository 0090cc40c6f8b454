//! Gang header: a block in several pieces.
