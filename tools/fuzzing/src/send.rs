//! Targets: records of send streams.

use ondisk::nvlist::Nvlist;
use ondisk::stream::{CryptKeydata, Package, RECORD_SIZE, RawRecord, Record, detect_order};

use crate::BYTE_ORDERS;

/// The records of a send stream, one after the other.
///
/// # Panics
/// If a record that was read is not written as it was.
pub fn send_stream(data: &[u8]) {
    let _ = detect_order(data);
    for order in BYTE_ORDERS {
        let mut rest = data;
        while let Some((record, after)) = rest.split_at_checked(RECORD_SIZE) {
            let Ok(raw) = RawRecord::parse(record, order) else { break };
            let begin_payload = u32::try_from(raw.payload_length).unwrap_or(0);
            let again = raw.record.encode(order, begin_payload);
            let again = RawRecord::parse(&again, order).map(|raw| raw.record);
            assert_eq!(
                again.as_ref(),
                Ok(&raw.record),
                "a record that was read is written as it was"
            );
            let payload = usize::try_from(raw.payload_length).unwrap_or(usize::MAX);
            let (payload, next) = after.split_at_checked(payload).unwrap_or((after, &[]));
            if matches!(raw.record, Record::Begin(_)) {
                check_keydata(payload);
            }
            if let (Record::Begin(_), Ok(Some(package))) = (&raw.record, Package::decode(payload)) {
                let again = Package::decode(&package.encode());
                assert_eq!(again, Ok(Some(package)), "a list that was read is written as it was");
            }
            rest = next;
        }
    }
}

/// The key in the list behind BEGIN of a raw stream.
fn check_keydata(payload: &[u8]) {
    let Ok(list) = Nvlist::decode(payload) else { return };
    let Some(Ok(keydata)) = list.nvlist(CryptKeydata::NAME).map(CryptKeydata::decode) else {
        return;
    };
    let again = CryptKeydata::decode(&keydata.encode());
    assert_eq!(again, Ok(keydata), "a key that was read is written as it was");
}
