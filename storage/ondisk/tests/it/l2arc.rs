//! The header of a cache drive, as OpenZFS wrote it.

use ondisk::l2arc::{Header, LogPointer, entries_per_log};
use units::Guid;

#[test]
fn golden_cache_header() {
    let bytes = include_bytes!("../golden/cache-header.bin");
    let header = Header::parse(bytes).expect("a header");
    let fields = header.encode();
    assert_eq!(fields[..], bytes[..fields.len()]);
    assert_eq!(header.pool, Guid::new(12_362_157_253_729_027_228));
    assert_eq!((header.start, header.end, header.evict), (4_198_400, 66_584_576, 4_198_400));
    assert!(header.first_sweep);
    assert_eq!(header.log_entries, entries_per_log(header.start, header.end));
    assert_eq!((header.log_entries, header.log_count, header.log_bytes), (0, 0, 0));
    assert_eq!(header.logs, [LogPointer::NONE; 2]);
}
