//! The structures as the real system wrote them, against what its own tools say they are.

mod gang;
mod history;
mod l2arc;
mod label;
mod space;
mod uberblock;
