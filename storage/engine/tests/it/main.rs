//! Pools through the door: made, filled, left and taken over again.

mod held;
mod own;
mod shared;
