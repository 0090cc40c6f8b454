//! Structures that OpenZFS wrote, compared with the output of its own tools.

mod gang;
mod history;
mod l2arc;
mod label;
mod space;
mod uberblock;
