//! Sealed JSON: the form of heads, manifests and the repository's own object.
//!
//! The object is the JSON text in UTF-8, a line feed, the BLAKE3 of the text as 64 hexadecimal
//! digits, and a line feed. `b3sum` verifies it, and a person can read it.

use serde::Serialize;
use serde::de::DeserializeOwned;

const SEAL_SIZE: usize = 66;

pub(crate) fn seal<T: Serialize>(value: &T) -> Result<Vec<u8>, String> {
    let mut out = serde_json::to_vec_pretty(value).map_err(|why| why.to_string())?;
    let sum = blake3::hash(&out);
    out.push(b'\n');
    out.extend_from_slice(sum.to_hex().as_bytes());
    out.push(b'\n');
    Ok(out)
}

/// Returns the value; the error is the rule that the object breaks.
pub(crate) fn open<T: DeserializeOwned>(object: &[u8]) -> Result<T, String> {
    let short = || "it is too short".to_owned();
    let split = object.len().checked_sub(SEAL_SIZE).ok_or_else(short)?;
    let (text, seal) = object.split_at_checked(split).ok_or_else(short)?;
    let expected = blake3::hash(text).to_hex();
    let digits = seal.get(1..SEAL_SIZE - 1);
    if seal.first() != Some(&b'\n') || digits != Some(expected.as_bytes()) {
        return Err("its checksum is wrong".to_owned());
    }
    serde_json::from_slice(text).map_err(|why| why.to_string())
}

#[cfg(test)]
mod tests {
    #[test]
    fn damaged_seals_are_refused() {
        let sealed = super::seal(&vec![1, 2, 3]).unwrap();
        assert_eq!(super::open::<Vec<u8>>(&sealed).unwrap(), [1, 2, 3]);
        for at in 0..sealed.len() - 1 {
            let mut wrong = sealed.clone();
            wrong[at] ^= 1;
            assert!(super::open::<Vec<u8>>(&wrong).is_err(), "{at}");
            assert!(super::open::<Vec<u8>>(&sealed[..at]).is_err(), "{at}");
        }
    }
}
