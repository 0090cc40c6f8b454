//! Directories, datasets, bookmarks, deadlists: the layer of datasets and snapshots.
