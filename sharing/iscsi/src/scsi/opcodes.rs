//! The table of commands, and REPORT SUPPORTED OPERATION CODES.
//!
//! The answer for all commands is their length (32 bits), and of each:
//! ```text
//! offset  size  field
//!      0     1  operation code
//!      2     2  service action
//!      5     1  0x02 a descriptor of timeouts follows, 0x01 there are service actions
//!      6     2  bytes of the CDB
//! ```
//! The answer for one command:
//! ```text
//!      1     1  0x80 a descriptor of timeouts follows, 3 supported, 1 not supported
//!      2     2  bytes of the CDB
//!      4     -  a mask of the bits of the CDB that are looked at; its first byte is the operation code
//! ```
//! A descriptor of timeouts has its length (16 bits: 10) and no times.
//! Learnt from: SPC-4, 6.34.

use super::Sense;

/// Operation code, service action, and the mask of the CDB from its second byte on.
struct Known(u8, Option<u8>, &'static [u8]);

const FF: u8 = 0xff;
const TIMEOUTS: [u8; 12] = [0, 10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

const KNOWN: &[Known] = &[
    Known(0x00, None, &[0, 0, 0, 0, 4]),
    Known(0x03, None, &[1, 0, 0, FF, 4]),
    Known(0x08, None, &[0x1f, FF, FF, FF, 4]),
    Known(0x0a, None, &[0x1f, FF, FF, FF, 4]),
    Known(0x12, None, &[1, FF, FF, FF, 4]),
    Known(0x15, None, &[0x11, 0, 0, FF, 4]),
    Known(0x16, None, &[0x1f, 0, 0, 0, 4]),
    Known(0x17, None, &[0x1f, 0, 0, 0, 4]),
    Known(0x1a, None, &[0x08, FF, FF, FF, 4]),
    Known(0x1b, None, &[0x01, 0, 0x0f, 0xf1, 4]),
    Known(0x1e, None, &[0, 0, 0, 0x03, 4]),
    Known(0x25, None, &[0, 0, 0, 0, 0, 0, 0, 0, 4]),
    Known(0x28, None, &[0xf8, FF, FF, FF, FF, 0, FF, FF, 4]),
    Known(0x2a, None, &[0xf8, FF, FF, FF, FF, 0, FF, FF, 4]),
    Known(0x2e, None, &[0xf6, FF, FF, FF, FF, 0, FF, FF, 4]),
    Known(0x2f, None, &[0xf6, FF, FF, FF, FF, 0, FF, FF, 4]),
    Known(0x34, None, &[0x02, FF, FF, FF, FF, 0, FF, FF, 4]),
    Known(0x35, None, &[0x02, FF, FF, FF, FF, 0, FF, FF, 4]),
    Known(0x41, None, &[0xf8, FF, FF, FF, FF, 0, FF, FF, 4]),
    Known(0x42, None, &[0x01, 0, 0, 0, 0, 0, FF, FF, 4]),
    Known(0x4d, None, &[1, FF, FF, 0, FF, FF, FF, FF, 4]),
    Known(0x55, None, &[0x11, 0, 0, 0, 0, 0, FF, FF, 4]),
    Known(0x5a, None, &[0x08, FF, FF, 0, 0, 0, FF, FF, 4]),
    Known(0x5e, Some(0x00), &[0x1f, 0, 0, 0, 0, 0, FF, FF, 4]),
    Known(0x5e, Some(0x01), &[0x1f, 0, 0, 0, 0, 0, FF, FF, 4]),
    Known(0x5e, Some(0x02), &[0x1f, 0, 0, 0, 0, 0, FF, FF, 4]),
    Known(0x5e, Some(0x03), &[0x1f, 0, 0, 0, 0, 0, FF, FF, 4]),
    Known(0x5f, Some(0x00), &[0x1f, FF, 0, 0, FF, FF, FF, FF, 4]),
    Known(0x5f, Some(0x01), &[0x1f, FF, 0, 0, FF, FF, FF, FF, 4]),
    Known(0x5f, Some(0x02), &[0x1f, FF, 0, 0, FF, FF, FF, FF, 4]),
    Known(0x5f, Some(0x03), &[0x1f, FF, 0, 0, FF, FF, FF, FF, 4]),
    Known(0x5f, Some(0x04), &[0x1f, FF, 0, 0, FF, FF, FF, FF, 4]),
    Known(0x5f, Some(0x05), &[0x1f, FF, 0, 0, FF, FF, FF, FF, 4]),
    Known(0x5f, Some(0x06), &[0x1f, FF, 0, 0, FF, FF, FF, FF, 4]),
    Known(0x83, Some(0x00), &[0x1f, 0, 0, 0, 0, 0, 0, 0, 0, FF, FF, FF, FF, 0, 4]),
    Known(0x84, Some(0x00), &[0x1f, FF, 0, 0, 0, 0, 0, 0, 0, FF, FF, FF, FF, 0, 4]),
    Known(0x84, Some(0x03), &[0x1f, FF, 0, 0, 0, 0, 0, 0, 0, FF, FF, FF, FF, 0, 4]),
    Known(0x88, None, &[0xf8, FF, FF, FF, FF, FF, FF, FF, FF, FF, FF, FF, FF, 0, 4]),
    Known(0x89, None, &[0xf8, FF, FF, FF, FF, FF, FF, FF, FF, 0, 0, 0, FF, 0, 4]),
    Known(0x8a, None, &[0xf8, FF, FF, FF, FF, FF, FF, FF, FF, FF, FF, FF, FF, 0, 4]),
    Known(0x8e, None, &[0xf6, FF, FF, FF, FF, FF, FF, FF, FF, FF, FF, FF, FF, 0, 4]),
    Known(0x8f, None, &[0xf6, FF, FF, FF, FF, FF, FF, FF, FF, FF, FF, FF, FF, 0, 4]),
    Known(0x90, None, &[0x02, FF, FF, FF, FF, FF, FF, FF, FF, FF, FF, FF, FF, 0, 4]),
    Known(0x91, None, &[0x02, FF, FF, FF, FF, FF, FF, FF, FF, FF, FF, FF, FF, 0, 4]),
    Known(0x93, None, &[0xf9, FF, FF, FF, FF, FF, FF, FF, FF, FF, FF, FF, FF, 0, 4]),
    Known(0x9e, Some(0x10), &[0x1f, FF, FF, FF, FF, FF, FF, FF, FF, FF, FF, FF, FF, 0, 4]),
    Known(0x9e, Some(0x12), &[0x1f, FF, FF, FF, FF, FF, FF, FF, FF, FF, FF, FF, FF, 0, 4]),
    Known(0xa0, None, &[0, FF, 0, 0, 0, FF, FF, FF, FF, 0, 4]),
    Known(0xa3, Some(0x0c), &[0x1f, 0x87, FF, FF, FF, FF, FF, FF, FF, 0, 4]),
    Known(0xa8, None, &[0xf8, FF, FF, FF, FF, FF, FF, FF, FF, 0, 4]),
    Known(0xaa, None, &[0xf8, FF, FF, FF, FF, FF, FF, FF, FF, 0, 4]),
    Known(0xae, None, &[0xf6, FF, FF, FF, FF, FF, FF, FF, FF, 0, 4]),
    Known(0xaf, None, &[0xf6, FF, FF, FF, FF, FF, FF, FF, FF, 0, 4]),
];

impl Known {
    fn length(&self) -> u16 {
        u16::try_from(self.2.len() + 1).expect("CDBs are short")
    }
}

/// The answer to REPORT SUPPORTED OPERATION CODES.
pub(crate) fn report(
    with_timeouts: bool,
    option: u8,
    opcode: u8,
    action: u16,
) -> Result<Vec<u8>, Sense> {
    let has_actions = KNOWN.iter().any(|known| known.0 == opcode && known.1.is_some());
    match option {
        0 => Ok(report_all(with_timeouts)),
        // without, or with a service action; 3 takes both
        1 if has_actions => Err(Sense::invalid_field(2)),
        2 if !has_actions => Err(Sense::invalid_field(2)),
        1..=3 => {
            let known = KNOWN.iter().find(|known| {
                known.0 == opcode && known.1.is_none_or(|its| u16::from(its) == action)
            });
            Ok(report_one(known, with_timeouts))
        }
        _ => Err(Sense::invalid_field(2)),
    }
}

fn report_all(with_timeouts: bool) -> Vec<u8> {
    let mut body = Vec::new();
    for known in KNOWN {
        let flags = u8::from(with_timeouts) << 1 | u8::from(known.1.is_some());
        let [high, low] = known.length().to_be_bytes();
        body.extend([known.0, 0, 0, known.1.unwrap_or(0), 0, flags, high, low]);
        if with_timeouts {
            body.extend(TIMEOUTS);
        }
    }
    let length = u32::try_from(body.len()).expect("the table is short");
    [&length.to_be_bytes()[..], &body].concat()
}

fn report_one(known: Option<&Known>, with_timeouts: bool) -> Vec<u8> {
    let Some(known) = known else { return vec![0, 1, 0, 0] };
    let [high, low] = known.length().to_be_bytes();
    let mut bytes = vec![0, 3 | u8::from(with_timeouts) << 7, high, low, known.0];
    bytes.extend(known.2);
    if let Some(action) = known.1 {
        bytes[5] = action;
    }
    if with_timeouts {
        bytes.extend(TIMEOUTS);
    }
    bytes
}
