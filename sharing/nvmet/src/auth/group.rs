//! The Diffie-Hellman groups of DH-HMAC-CHAP: ffdhe2048 to ffdhe8192 of RFC 7919, by their numbers in the protocol.
//!
//! Numbers are big-endian and have as many bytes as the prime. The generator is 2.

use crypto_bigint::modular::{BoxedMontyForm, BoxedMontyParams};
use crypto_bigint::{BoxedUint, Odd};
use zeroize::Zeroizing;

/// Bytes of a private number: more than twice the strength of the largest group.
const PRIVATE_SIZE: usize = 64;

/// A group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Group {
    /// The number in the protocol.
    pub(super) code: u8,
    /// The prime, as hexadecimal digits.
    prime: &'static str,
}

/// The groups, the one that is wanted most first.
pub(super) const GROUPS: [Group; 5] = [
    Group { code: 2, prime: FFDHE3072 },
    Group { code: 3, prime: FFDHE4096 },
    Group { code: 1, prime: FFDHE2048 },
    Group { code: 4, prime: FFDHE6144 },
    Group { code: 5, prime: FFDHE8192 },
];

/// One side of an exchange.
pub(super) struct KeyPair {
    private: Zeroizing<[u8; PRIVATE_SIZE]>,
    /// The number that the other side gets.
    pub(super) public: Vec<u8>,
}

impl Group {
    fn parameters(&self) -> BoxedMontyParams {
        let bytes = self.prime_bytes();
        let prime = BoxedUint::from_be_slice(&bytes, bits(bytes.len()));
        let prime = prime.expect("the digits of a prime");
        BoxedMontyParams::new(Odd::new(prime).expect("an odd prime"))
    }

    fn prime_bytes(&self) -> Vec<u8> {
        let digit = |letter: u8| {
            let value = char::from(letter).to_digit(16).expect("a hexadecimal digit");
            u8::try_from(value).expect("a digit")
        };
        self.prime.as_bytes().chunks(2).map(|pair| digit(pair[0]) << 4 | digit(pair[1])).collect()
    }

    fn power(&self, base: &[u8], exponent: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
        let size = self.prime.len() / 2;
        let base = BoxedUint::from_be_slice(base, bits(size)).ok()?;
        let exponent = BoxedUint::from_be_slice(exponent, bits(exponent.len())).ok()?;
        let power = BoxedMontyForm::new(base, self.parameters()).pow(&exponent).retrieve();
        Some(Zeroizing::new(power.to_be_bytes().to_vec()))
    }

    /// A pair from random bytes.
    pub(super) fn key_pair(&self, private: Zeroizing<[u8; PRIVATE_SIZE]>) -> Option<KeyPair> {
        let mut generator = vec![0; self.prime.len() / 2];
        *generator.last_mut()? = 2;
        let public = self.power(&generator, &*private)?.to_vec();
        Some(KeyPair { private, public })
    }

    /// The number that both sides know after the exchange. None: the number of the other side has none.
    pub(super) fn shared(&self, pair: &KeyPair, other: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
        let prime = self.prime_bytes();
        if other.len() != prime.len() {
            return None;
        }
        // 0, 1 and the prime less 1 give away what is shared
        let is_small = other.iter().rev().skip(1).all(|byte| *byte == 0)
            && other.last().is_some_and(|byte| *byte < 2);
        let mut largest = prime;
        *largest.last_mut()? -= 1;
        if is_small || other >= &largest[..] {
            return None;
        }
        self.power(other, &*pair.private)
    }
}

fn bits(bytes: usize) -> u32 {
    u32::try_from(bytes * 8).expect("numbers are short")
}

const FFDHE2048: &str = "\
    ffffffffffffffffadf85458a2bb4a9aafdc5620273d3cf1d8b9c583ce2d3695a9e13641146433fbcc939dce\
    249b3ef97d2fe363630c75d8f681b202aec4617ad3df1ed5d5fd65612433f51f5f066ed0856365553ded1af3\
    b557135e7f57c935984f0c70e0e68b77e2a689daf3efe8721df158a136ade73530acca4f483a797abc0ab182\
    b324fb61d108a94bb2c8e3fbb96adab760d7f4681d4f42a3de394df4ae56ede76372bb190b07a7c8ee0a6d70\
    9e02fce1cdf7e2ecc03404cd28342f619172fe9ce98583ff8e4f1232eef28183c3fe3b1b4c6fad733bb5fcbc\
    2ec22005c58ef1837d1683b2c6f34a26c1b2effa886b423861285c97ffffffffffffffff";

const FFDHE3072: &str = "\
    ffffffffffffffffadf85458a2bb4a9aafdc5620273d3cf1d8b9c583ce2d3695a9e13641146433fbcc939dce\
    249b3ef97d2fe363630c75d8f681b202aec4617ad3df1ed5d5fd65612433f51f5f066ed0856365553ded1af3\
    b557135e7f57c935984f0c70e0e68b77e2a689daf3efe8721df158a136ade73530acca4f483a797abc0ab182\
    b324fb61d108a94bb2c8e3fbb96adab760d7f4681d4f42a3de394df4ae56ede76372bb190b07a7c8ee0a6d70\
    9e02fce1cdf7e2ecc03404cd28342f619172fe9ce98583ff8e4f1232eef28183c3fe3b1b4c6fad733bb5fcbc\
    2ec22005c58ef1837d1683b2c6f34a26c1b2effa886b4238611fcfdcde355b3b6519035bbc34f4def99c0238\
    61b46fc9d6e6c9077ad91d2691f7f7ee598cb0fac186d91caefe130985139270b4130c93bc437944f4fd4452\
    e2d74dd364f2e21e71f54bff5cae82ab9c9df69ee86d2bc522363a0dabc521979b0deada1dbf9a42d5c4484e\
    0abcd06bfa53ddef3c1b20ee3fd59d7c25e41d2b66c62e37ffffffffffffffff";

const FFDHE4096: &str = "\
    ffffffffffffffffadf85458a2bb4a9aafdc5620273d3cf1d8b9c583ce2d3695a9e13641146433fbcc939dce\
    249b3ef97d2fe363630c75d8f681b202aec4617ad3df1ed5d5fd65612433f51f5f066ed0856365553ded1af3\
    b557135e7f57c935984f0c70e0e68b77e2a689daf3efe8721df158a136ade73530acca4f483a797abc0ab182\
    b324fb61d108a94bb2c8e3fbb96adab760d7f4681d4f42a3de394df4ae56ede76372bb190b07a7c8ee0a6d70\
    9e02fce1cdf7e2ecc03404cd28342f619172fe9ce98583ff8e4f1232eef28183c3fe3b1b4c6fad733bb5fcbc\
    2ec22005c58ef1837d1683b2c6f34a26c1b2effa886b4238611fcfdcde355b3b6519035bbc34f4def99c0238\
    61b46fc9d6e6c9077ad91d2691f7f7ee598cb0fac186d91caefe130985139270b4130c93bc437944f4fd4452\
    e2d74dd364f2e21e71f54bff5cae82ab9c9df69ee86d2bc522363a0dabc521979b0deada1dbf9a42d5c4484e\
    0abcd06bfa53ddef3c1b20ee3fd59d7c25e41d2b669e1ef16e6f52c3164df4fb7930e9e4e58857b6ac7d5f42\
    d69f6d187763cf1d5503400487f55ba57e31cc7a7135c886efb4318aed6a1e012d9e6832a907600a918130c4\
    6dc778f971ad0038092999a333cb8b7a1a1db93d7140003c2a4ecea9f98d0acc0a8291cdcec97dcf8ec9b55a\
    7f88a46b4db5a851f44182e1c68a007e5e655f6affffffffffffffff";

const FFDHE6144: &str = "\
    ffffffffffffffffadf85458a2bb4a9aafdc5620273d3cf1d8b9c583ce2d3695a9e13641146433fbcc939dce\
    249b3ef97d2fe363630c75d8f681b202aec4617ad3df1ed5d5fd65612433f51f5f066ed0856365553ded1af3\
    b557135e7f57c935984f0c70e0e68b77e2a689daf3efe8721df158a136ade73530acca4f483a797abc0ab182\
    b324fb61d108a94bb2c8e3fbb96adab760d7f4681d4f42a3de394df4ae56ede76372bb190b07a7c8ee0a6d70\
    9e02fce1cdf7e2ecc03404cd28342f619172fe9ce98583ff8e4f1232eef28183c3fe3b1b4c6fad733bb5fcbc\
    2ec22005c58ef1837d1683b2c6f34a26c1b2effa886b4238611fcfdcde355b3b6519035bbc34f4def99c0238\
    61b46fc9d6e6c9077ad91d2691f7f7ee598cb0fac186d91caefe130985139270b4130c93bc437944f4fd4452\
    e2d74dd364f2e21e71f54bff5cae82ab9c9df69ee86d2bc522363a0dabc521979b0deada1dbf9a42d5c4484e\
    0abcd06bfa53ddef3c1b20ee3fd59d7c25e41d2b669e1ef16e6f52c3164df4fb7930e9e4e58857b6ac7d5f42\
    d69f6d187763cf1d5503400487f55ba57e31cc7a7135c886efb4318aed6a1e012d9e6832a907600a918130c4\
    6dc778f971ad0038092999a333cb8b7a1a1db93d7140003c2a4ecea9f98d0acc0a8291cdcec97dcf8ec9b55a\
    7f88a46b4db5a851f44182e1c68a007e5e0dd9020bfd64b645036c7a4e677d2c38532a3a23ba4442caf53ea6\
    3bb454329b7624c8917bdd64b1c0fd4cb38e8c334c701c3acdad0657fccfec719b1f5c3e4e46041f388147fb\
    4cfdb477a52471f7a9a96910b855322edb6340d8a00ef092350511e30abec1fff9e3a26e7fb29f8c183023c3\
    587e38da0077d9b4763e4e4b94b2bbc194c6651e77caf992eeaac0232a281bf6b3a739c1226116820ae8db58\
    47a67cbef9c9091b462d538cd72b03746ae77f5e62292c311562a846505dc82db854338ae49f5235c95b9117\
    8ccf2dd5cacef403ec9d1810c6272b045b3b71f9dc6b80d63fdd4a8e9adb1e6962a69526d43161c1a41d570d\
    7938dad4a40e329cd0e40e65ffffffffffffffff";

const FFDHE8192: &str = "\
    ffffffffffffffffadf85458a2bb4a9aafdc5620273d3cf1d8b9c583ce2d3695a9e13641146433fbcc939dce\
    249b3ef97d2fe363630c75d8f681b202aec4617ad3df1ed5d5fd65612433f51f5f066ed0856365553ded1af3\
    b557135e7f57c935984f0c70e0e68b77e2a689daf3efe8721df158a136ade73530acca4f483a797abc0ab182\
    b324fb61d108a94bb2c8e3fbb96adab760d7f4681d4f42a3de394df4ae56ede76372bb190b07a7c8ee0a6d70\
    9e02fce1cdf7e2ecc03404cd28342f619172fe9ce98583ff8e4f1232eef28183c3fe3b1b4c6fad733bb5fcbc\
    2ec22005c58ef1837d1683b2c6f34a26c1b2effa886b4238611fcfdcde355b3b6519035bbc34f4def99c0238\
    61b46fc9d6e6c9077ad91d2691f7f7ee598cb0fac186d91caefe130985139270b4130c93bc437944f4fd4452\
    e2d74dd364f2e21e71f54bff5cae82ab9c9df69ee86d2bc522363a0dabc521979b0deada1dbf9a42d5c4484e\
    0abcd06bfa53ddef3c1b20ee3fd59d7c25e41d2b669e1ef16e6f52c3164df4fb7930e9e4e58857b6ac7d5f42\
    d69f6d187763cf1d5503400487f55ba57e31cc7a7135c886efb4318aed6a1e012d9e6832a907600a918130c4\
    6dc778f971ad0038092999a333cb8b7a1a1db93d7140003c2a4ecea9f98d0acc0a8291cdcec97dcf8ec9b55a\
    7f88a46b4db5a851f44182e1c68a007e5e0dd9020bfd64b645036c7a4e677d2c38532a3a23ba4442caf53ea6\
    3bb454329b7624c8917bdd64b1c0fd4cb38e8c334c701c3acdad0657fccfec719b1f5c3e4e46041f388147fb\
    4cfdb477a52471f7a9a96910b855322edb6340d8a00ef092350511e30abec1fff9e3a26e7fb29f8c183023c3\
    587e38da0077d9b4763e4e4b94b2bbc194c6651e77caf992eeaac0232a281bf6b3a739c1226116820ae8db58\
    47a67cbef9c9091b462d538cd72b03746ae77f5e62292c311562a846505dc82db854338ae49f5235c95b9117\
    8ccf2dd5cacef403ec9d1810c6272b045b3b71f9dc6b80d63fdd4a8e9adb1e6962a69526d43161c1a41d570d\
    7938dad4a40e329ccff46aaa36ad004cf600c8381e425a31d951ae64fdb23fcec9509d43687feb69edd1cc5e\
    0b8cc3bdf64b10ef86b63142a3ab8829555b2f747c932665cb2c0f1cc01bd70229388839d2af05e454504ac7\
    8b7582822846c0ba35c35f5c59160cc046fd8251541fc68c9c86b022bb7099876a460e7451a8a93109703fee\
    1c217e6c3826e52c51aa691e0e423cfc99e9e31650c1217b624816cdad9a95f9d5b8019488d9c0a0a1fe3075\
    a577e23183f81d4a3f2fa4571efc8ce0ba8a4fe8b6855dfe72b0a66eded2fbabfbe58a30fafabe1c5d71a87e\
    2f741ef8c1fe86fea6bbfde530677f0d97d11d49f7a8443d0822e506a9f4614e011e2a94838ff88cd68c8bb7\
    c5c6424cffffffffffffffff";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_sides_share_a_number() {
        for group in GROUPS.iter().filter(|group| group.code < 3) {
            let pair = |seed: u8| group.key_pair(Zeroizing::new([seed; PRIVATE_SIZE])).unwrap();
            let (one, other) = (pair(1), pair(2));
            let shared = group.shared(&one, &other.public).unwrap();
            assert_eq!(shared.len(), group.prime.len() / 2);
            assert_eq!(shared, group.shared(&other, &one.public).unwrap());
        }
    }

    #[test]
    fn numbers_that_give_the_secret_away_are_refused() {
        let group = GROUPS[2];
        let pair = group.key_pair(Zeroizing::new([7; PRIVATE_SIZE])).unwrap();
        let size = group.prime.len() / 2;
        let mut one = vec![0; size];
        assert!(group.shared(&pair, &one).is_none());
        one[size - 1] = 1;
        assert!(group.shared(&pair, &one).is_none());
        let mut largest = group.prime_bytes();
        assert!(group.shared(&pair, &largest).is_none());
        largest[size - 1] -= 1;
        assert!(group.shared(&pair, &largest).is_none());
        assert!(group.shared(&pair, &one[1..]).is_none());
    }
}
