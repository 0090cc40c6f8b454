//! Size and offset of every fixed structure, asserted on one page.
