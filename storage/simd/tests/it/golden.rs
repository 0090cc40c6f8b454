//! Values made by OpenZFS.
