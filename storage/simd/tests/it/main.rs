//! Every kernel against the specification, on all kinds of lengths and alignments.

mod against_naive;
mod golden;
