//! Owners in the names of properties: users write `userused@anna`, the engine has numbers only.

use crate::outcome::Failure;

/// The properties of owners: `user`, `group` and `project`, with `obj` or without, `used` or `quota`.
pub(super) fn is_owner_property(property: &str) -> bool {
    let Some((kind, _)) = property.split_once('@') else { return false };
    let kind = kind.strip_suffix("used").or_else(|| kind.strip_suffix("quota"));
    let kind = kind.map(|kind| kind.strip_suffix("obj").unwrap_or(kind));
    matches!(kind, Some("user" | "group" | "project"))
}

/// A property with its owner's number in place of a name; others as they are.
pub(super) fn with_owner_id(property: &str) -> Result<String, Failure> {
    let Some((kind, owner)) = property.split_once('@') else { return Ok(property.to_owned()) };
    if !is_owner_property(property) || owner.parse::<u64>().is_ok() {
        return Ok(property.to_owned());
    }
    let failed = |what: &str| Failure::usage(format!("{property}: {what}"));
    let number = match kind.get(..4) {
        Some("user") => nix::unistd::User::from_name(owner)
            .map_err(|why| failed(&why.to_string()))?
            .ok_or_else(|| failed("this user does not exist"))?
            .uid
            .as_raw(),
        Some("grou") => nix::unistd::Group::from_name(owner)
            .map_err(|why| failed(&why.to_string()))?
            .ok_or_else(|| failed("this group does not exist"))?
            .gid
            .as_raw(),
        _ => return Err(failed("projects go by their numbers")),
    };
    Ok(format!("{kind}@{number}"))
}

#[cfg(test)]
mod tests {
    use super::with_owner_id;

    #[test]
    fn owners_are_found_by_name() {
        let number = |text| with_owner_id(text).map_err(|_| ());
        assert_eq!(number("userused@root").unwrap(), "userused@0");
        assert_eq!(number("groupobjquota@root").unwrap(), "groupobjquota@0");
        assert_eq!(number("userquota@1000").unwrap(), "userquota@1000");
        assert_eq!(number("compression").unwrap(), "compression");
        assert!(number("userquota@nobody of that name").is_err());
        assert!(number("projectquota@house").is_err());
    }
}
