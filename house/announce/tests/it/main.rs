//! Announcements, as clients on this computer find them.

mod wsd;
