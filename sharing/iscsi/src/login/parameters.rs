//! The parameters of a session and its connection, negotiated by keys (RFC 7143, chapter 13).
//!
//! Each key has a rule by which both offers give the result: the smaller number, the larger number, both agree (and),
//! one asks for it (or), the first of a list that both know. A value that cannot be is answered with Reject.

use crate::wire::text::Text;

/// Bytes of the largest data segment that the target takes.
pub(crate) const MAX_DATA_SEGMENT: usize = 1 << 20;
/// Bytes of data that the target asks for, or sends, at once.
const MAX_BURST: usize = 1 << 20;
/// Bytes of data that an initiator sends without being asked.
const FIRST_BURST: usize = 64 << 10;
/// Bytes of a data segment where nothing is declared.
const DEFAULT_DATA_SEGMENT: usize = 8192;

/// Parts of PDUs that are protected by CRC32C.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Digests {
    pub(crate) header: bool,
    pub(crate) data: bool,
}

/// The parameters that are in force.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Parameters {
    pub(crate) digests: Digests,
    /// Bytes of the largest data segment that the initiator takes.
    pub(crate) max_send_segment: usize,
    pub(crate) max_burst: usize,
    pub(crate) first_burst: usize,
    /// Whether data is only sent for an R2T.
    pub(crate) initial_r2t: bool,
    pub(crate) immediate_data: bool,
}

impl Default for Parameters {
    /// The values where nothing is negotiated.
    fn default() -> Self {
        Self {
            digests: Digests::default(),
            max_send_segment: DEFAULT_DATA_SEGMENT,
            max_burst: 256 << 10,
            first_burst: FIRST_BURST,
            initial_r2t: true,
            immediate_data: true,
        }
    }
}

/// The largest lengths have 24 bits.
const LENGTHS: std::ops::RangeInclusive<u32> = 512..=(1 << 24) - 1;

impl Parameters {
    /// Takes a key of the login, and adds the answer.
    pub(crate) fn negotiate(&mut self, key: &str, value: &str, answer: &mut Text) {
        let result = match key {
            "HeaderDigest" => choose_digest(value, &mut self.digests.header),
            "DataDigest" => choose_digest(value, &mut self.digests.data),
            "MaxRecvDataSegmentLength" => {
                let Some(length) = parse_number(value).filter(|length| LENGTHS.contains(length))
                else {
                    return answer.push(key, "Reject");
                };
                // declared, and not answered
                self.max_send_segment = bytes(length);
                return;
            }
            "MaxBurstLength" => least(value, MAX_BURST, &mut self.max_burst),
            "FirstBurstLength" => least(value, FIRST_BURST, &mut self.first_burst),
            // the target leaves it to the initiator
            "InitialR2T" => choose_flag(value, &mut self.initial_r2t),
            "ImmediateData" => choose_flag(value, &mut self.immediate_data),
            "MaxConnections" | "MaxOutstandingR2T" => answer_number(value, 1..=65535, |_| 1),
            "DefaultTime2Wait" => answer_number(value, 0..=3600, |offered| offered),
            // a session does not outlast its connection
            "DefaultTime2Retain" => answer_number(value, 0..=3600, |_| 0),
            "ErrorRecoveryLevel" => answer_number(value, 0..=2, |_| 0),
            "DataPDUInOrder" | "DataSequenceInOrder" => match value {
                "Yes" | "No" => "Yes".to_owned(),
                _ => "Reject".to_owned(),
            },
            "OFMarker" | "IFMarker" => "No".to_owned(),
            "OFMarkInt" | "IFMarkInt" => "Irrelevant".to_owned(),
            "TaskReporting" => choose_listed(value, "RFC3720"),
            "iSCSIProtocolLevel" => answer_number(value, 0..=31, |offered| offered.min(1)),
            _ => "NotUnderstood".to_owned(),
        };
        answer.push(key, &result);
        // an initiator may offer a first burst that is longer than a burst
        self.first_burst = self.first_burst.min(self.max_burst);
    }
}

fn bytes(length: u32) -> usize {
    usize::try_from(length).expect("the engine runs on 64 bits")
}

/// A number, decimal or hexadecimal.
fn parse_number(value: &str) -> Option<u32> {
    let digits = value.strip_prefix("0x").or_else(|| value.strip_prefix("0X"));
    match digits {
        Some(digits) => u32::from_str_radix(digits, 16).ok(),
        None => value.parse().ok(),
    }
}

fn answer_number(
    value: &str,
    range: std::ops::RangeInclusive<u32>,
    choose: impl Fn(u32) -> u32,
) -> String {
    match parse_number(value).filter(|number| range.contains(number)) {
        Some(number) => choose(number).to_string(),
        None => "Reject".to_owned(),
    }
}

fn least(value: &str, own: usize, chosen: &mut usize) -> String {
    let offered = parse_number(value).filter(|length| LENGTHS.contains(length));
    let Some(offered) = offered else { return "Reject".to_owned() };
    *chosen = bytes(offered).min(own);
    chosen.to_string()
}

fn choose_flag(value: &str, chosen: &mut bool) -> String {
    match value {
        "Yes" => *chosen = true,
        "No" => *chosen = false,
        _ => return "Reject".to_owned(),
    }
    value.to_owned()
}

/// The first digest of the initiator's list that there is here.
fn choose_digest(value: &str, chosen: &mut bool) -> String {
    let known = value.split(',').find(|name| matches!(*name, "CRC32C" | "None"));
    let Some(name) = known else { return "Reject".to_owned() };
    *chosen = name == "CRC32C";
    name.to_owned()
}

fn choose_listed(value: &str, own: &str) -> String {
    if value.split(',').any(|name| name == own) { own.to_owned() } else { "Reject".to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn negotiate(keys: &[(&str, &str)]) -> (Parameters, Text) {
        let (mut parameters, mut answer) = (Parameters::default(), Text::default());
        for (key, value) in keys {
            parameters.negotiate(key, value, &mut answer);
        }
        (parameters, answer)
    }

    #[test]
    fn offers_of_open_iscsi_are_answered() {
        let (parameters, answer) = negotiate(&[
            ("HeaderDigest", "CRC32C,None"),
            ("DataDigest", "None,CRC32C"),
            ("MaxRecvDataSegmentLength", "262144"),
            ("MaxBurstLength", "16776192"),
            ("FirstBurstLength", "262144"),
            ("InitialR2T", "No"),
            ("ImmediateData", "Yes"),
            ("MaxOutstandingR2T", "8"),
            ("DefaultTime2Retain", "20"),
            ("ErrorRecoveryLevel", "2"),
            ("X-com.example.key", "1"),
        ]);
        assert!(parameters.digests.header && !parameters.digests.data && !parameters.initial_r2t);
        assert_eq!((parameters.max_burst, parameters.first_burst), (MAX_BURST, FIRST_BURST));
        assert_eq!(parameters.max_send_segment, 262_144);
        for (key, value) in [
            ("MaxBurstLength", Some("1048576")),
            ("MaxRecvDataSegmentLength", None),
            ("MaxOutstandingR2T", Some("1")),
            ("DefaultTime2Retain", Some("0")),
            ("ErrorRecoveryLevel", Some("0")),
            ("X-com.example.key", Some("NotUnderstood")),
        ] {
            assert_eq!(answer.value(key), value, "{key}");
        }
    }

    #[test]
    fn values_that_cannot_be_are_rejected() {
        let keys = [
            ("HeaderDigest", "MD5"),
            ("MaxRecvDataSegmentLength", "0"),
            ("MaxBurstLength", "511"),
            ("FirstBurstLength", "0x1000000"),
            ("InitialR2T", "Maybe"),
            ("ErrorRecoveryLevel", "-1"),
        ];
        let (parameters, answer) = negotiate(&keys);
        assert_eq!(parameters, Parameters::default());
        assert!(answer.iter().all(|(_, value)| value == "Reject"), "{answer:?}");
        let (parameters, _) = negotiate(&[("MaxBurstLength", "0x400")]);
        assert_eq!((parameters.max_burst, parameters.first_burst), (1024, 1024));
    }
}
