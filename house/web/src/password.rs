//! The password: hashed with Argon2id, and compared.

use argon2::password_hash::phc::PasswordHash;
use argon2::password_hash::{PasswordHasher, PasswordVerifier};
use argon2::{Algorithm, Argon2, Params, Version};

/// The shortest password, in characters.
const MIN_LENGTH: usize = 10;
/// The longest password, in bytes: hashing a longer one costs time before it is known to be wrong.
pub(crate) const MAX_BYTES: usize = 1024;
/// The bytes of a salt.
pub(crate) const SALT_BYTES: usize = 16;

/// A hash that no password has, for names without a user.
pub(crate) const NO_HASH: &str = "$argon2id$v=19$m=19456,t=2,p=1$AAAAAAAAAAAAAAAAAAAAAA$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";

/// Refuses a password that is too short or too long.
pub(crate) fn check_new(password: &str, repeated: &str) -> Result<(), String> {
    if password != repeated {
        return Err("The passwords differ. Type the same one twice.".to_owned());
    }
    if password.chars().count() < MIN_LENGTH {
        return Err(format!("The password is too short. Use {MIN_LENGTH} characters or more."));
    }
    if password.len() > MAX_BYTES {
        return Err(format!("The password is too long. Use {MAX_BYTES} bytes or fewer."));
    }
    Ok(())
}

fn argon2() -> Argon2<'static> {
    Argon2::new(Algorithm::Argon2id, Version::V0x13, Params::default())
}

/// The hash of a password in PHC form. It takes some 20 ms and 19 MiB.
pub(crate) fn hash(password: &str, salt: &[u8; SALT_BYTES]) -> Result<String, String> {
    let hash = argon2().hash_password_with_salt(password.as_bytes(), salt);
    hash.map(|hash| hash.to_string())
        .map_err(|why| format!("The password cannot be hashed: {why}."))
}

/// Whether a password has this hash.
pub(crate) fn matches(password: &str, hash: &str) -> bool {
    let Ok(hash) = PasswordHash::new(hash) else { return false };
    argon2().verify_password(password.as_bytes(), &hash).is_ok()
}

#[cfg(test)]
mod tests {
    use super::{NO_HASH, check_new, hash, matches};

    #[test]
    fn only_the_password_matches_its_hash() {
        let stored = hash("correct horse", &[7; 16]).unwrap();
        assert!(stored.starts_with("$argon2id$v=19$m=19456,t=2,p=1$"), "{stored}");
        assert!(matches("correct horse", &stored));
        assert!(!matches("correct hors", &stored) && !matches("", &stored));
        assert!(super::PasswordHash::new(NO_HASH).is_ok() && !matches("", NO_HASH));
        assert!(!matches("correct horse", "") && !matches("", ""));
        assert_ne!(stored, hash("correct horse", &[8; 16]).unwrap());
    }

    #[test]
    fn short_and_differing_passwords_are_refused() {
        assert!(check_new("correct horse", "correct horse").is_ok());
        assert!(check_new("correct horse", "correct hors").is_err());
        assert!(check_new("short", "short").is_err());
        let long = "x".repeat(1025);
        assert!(check_new(&long, &long).is_err());
    }
}
