//! Dnode: what an object is: its type, its tree of blocks, its bonus and spill.
