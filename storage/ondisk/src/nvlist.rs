//! Name-value lists, XDR and native.
