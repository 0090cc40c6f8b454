//! Encryption: from what the user types to the plaintext of one block.
//!
//! ```text
//! passphrase, hex, raw --derive--> wrapping key --unwrap--> master key, code key
//! master key + the block's salt --HKDF--> block key
//! block key + the block's nonce --AES-CCM or AES-GCM--> plaintext, if its code holds
//! ```
//!
//! A block is compressed before it is encrypted. The encrypted and the only authenticated parts:
//!
//! * [`block`]: leaf blocks of user data whole; of dnode and log blocks only the private parts;
//! * [`mac`]: pointer blocks, object sets and the other leaf blocks are not encrypted but coded.
//!
//! Keys are wiped when dropped and never printed.

pub mod block;
mod cipher;
mod dnodes;
mod fields;
mod key;
mod log;
pub mod mac;
mod wrap;

pub use cipher::Suite;
pub use key::DatasetKey;
pub use wrap::{WrappedKey, WrappingKey, unwrap_key, wrap_key};
