//! The four labels of a leaf vdev.
