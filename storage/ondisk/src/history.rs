//! The pool's command history and its error logs.
