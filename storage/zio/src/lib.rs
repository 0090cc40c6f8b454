//! One block's journey down to the drives and back.
#![forbid(unsafe_code)]
