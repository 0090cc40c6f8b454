//! A host of this test against the controller's side.

use base64ct::Encoding;

use super::*;
use crate::wire::{le16, le32};

const HOST: &str = "nqn.2026-01.org.example:host";
const SUBSYSTEM: &str = "nqn.2026-01.org.example:disk";
const EXCHANGE: u16 = 7;

fn secret(seed: u8) -> Secret {
    let bytes = [seed; 32];
    let sum = crc32fast::hash(&bytes).to_le_bytes();
    let text = base64ct::Base64::encode_string(&[&bytes[..], &sum].concat());
    Secret::parse(&format!("DHHC-1:01:{text}:")).unwrap()
}

#[allow(clippy::unnecessary_wraps)] // the type of a source of random bytes
fn random(into: &mut [u8]) -> std::io::Result<()> {
    into.fill(0x5a);
    Ok(())
}

fn start(controller: Option<Secret>) -> Authentication {
    let dh_chap = DhChap::new(HostSecrets::Shared(secret(1)), controller).unwrap();
    let names = Names { host: HOST.to_owned(), subsystem: SUBSYSTEM.to_owned() };
    Authentication::new(&dh_chap, names, random).unwrap()
}

fn negotiate(hashes: &[u8], groups: &[u8]) -> Vec<u8> {
    let count = |ids: &[u8]| u8::try_from(ids.len()).unwrap();
    let mut bytes = vec![0; 72];
    bytes[4..6].copy_from_slice(&EXCHANGE.to_le_bytes());
    bytes[7] = 1;
    bytes[8..12].copy_from_slice(&[1, 0, count(hashes), count(groups)]);
    bytes[12..12 + hashes.len()].copy_from_slice(hashes);
    bytes[42..42 + groups.len()].copy_from_slice(groups);
    bytes
}

/// The host's side: replies to a challenge. Returns the reply, and the response that the controller has to give.
fn reply(challenge: &[u8], own: &Secret, controller: Option<&Secret>) -> (Vec<u8>, Vec<u8>) {
    let hash = Hash::ALL.into_iter().find(|hash| *hash as u8 == challenge[8]).unwrap();
    let size = hash.size();
    let (c1, public) = challenge[16..].split_at(size);
    let group = GROUPS.into_iter().find(|group| group.code == challenge[9]);
    let pair = group.map(|group| group.key_pair(Zeroizing::new([9; 64])).unwrap());
    let shared = group.map(|group| group.shared(pair.as_ref().unwrap(), public).unwrap());
    let bind = |challenge: &[u8]| match &shared {
        Some(shared) => hash.hmac(&hash.digest(shared), &[challenge]).to_vec(),
        None => challenge.to_vec(),
    };
    let respond = |key: &[u8], challenge: &[u8], sequence: u32, text: &str| {
        let tail = [&EXCHANGE.to_le_bytes()[..], &[0], text.as_bytes()].concat();
        hash.hmac(key, &[&bind(challenge), &sequence.to_le_bytes(), &tail]).to_vec()
    };
    let text = format!("HostHost{HOST}\0{SUBSYSTEM}");
    let response = respond(&own.key(HOST), c1, le32(challenge, 12), &text);
    let c2 = vec![0x33; size];
    let text = format!("Controller{SUBSYSTEM}\0{HOST}");
    let expected = controller.map(|secret| respond(&secret.key(SUBSYSTEM), &c2, 5, &text));
    let public = pair.map(|pair| pair.public).unwrap_or_default();
    let mut bytes = vec![0; 16];
    bytes[..2].copy_from_slice(&[1, 2]);
    bytes[4..6].copy_from_slice(&EXCHANGE.to_le_bytes());
    bytes[6] = u8::try_from(size).unwrap();
    bytes[8] = u8::from(controller.is_some());
    bytes[10..12].copy_from_slice(&u16::try_from(public.len()).unwrap().to_le_bytes());
    bytes[12] = 5;
    bytes.extend(response);
    bytes.extend(c2);
    bytes.extend(public);
    (bytes, expected.unwrap_or_default())
}

#[test]
fn hosts_with_the_secret_are_let_in() {
    for (hashes, groups) in [(&[1][..], &[0][..]), (&[1, 2], &[0, 1]), (&[1, 2, 3], &[0, 1, 2])] {
        let mut controller = start(None);
        assert_eq!(controller.receive(&negotiate(hashes, groups)), Progress::Continues);
        let challenge = controller.send().unwrap();
        assert_eq!(
            (challenge[8], challenge[9]),
            (*hashes.last().unwrap(), *groups.last().unwrap())
        );
        assert!(!controller.is_authenticated());
        let (reply, _) = reply(&challenge, &secret(1), None);
        assert_eq!(controller.receive(&reply), Progress::Continues);
        assert!(controller.is_authenticated());
        let success = controller.send().unwrap();
        assert_eq!((success[0], success[1], success[8]), (1, 3, 0));
        assert!(controller.is_authenticated() && !controller.has_failed());
    }
}

#[test]
fn the_controller_proves_itself() {
    let mut controller = start(Some(secret(2)));
    controller.receive(&negotiate(&[2], &[1]));
    let challenge = controller.send().unwrap();
    let (reply, expected) = reply(&challenge, &secret(1), Some(&secret(2)));
    assert_eq!(controller.receive(&reply), Progress::Continues);
    assert!(!controller.is_authenticated());
    let success = controller.send().unwrap();
    assert_eq!((success[8], &success[16..]), (1, &expected[..]));
    assert!(!controller.is_authenticated());
    let mut end = vec![0; 16];
    end[..2].copy_from_slice(&[1, 4]);
    end[4..6].copy_from_slice(&EXCHANGE.to_le_bytes());
    assert_eq!(controller.receive(&end), Progress::Continues);
    assert!(controller.is_authenticated());
}

/// The reason of the failure that a host fetches.
fn reason(controller: &mut Authentication) -> u8 {
    let failure = controller.send().unwrap();
    assert_eq!((failure[0], failure[1], le16(&failure, 4), failure[6]), (0, 0xf0, EXCHANGE, 1));
    assert!(controller.has_failed() && !controller.is_authenticated());
    assert_eq!(controller.send(), None);
    failure[7]
}

#[test]
fn hosts_without_the_secret_are_refused() {
    let mut controller = start(None);
    controller.receive(&negotiate(&[1], &[0]));
    let challenge = controller.send().unwrap();
    let (reply, _) = reply(&challenge, &secret(3), None);
    assert_eq!(controller.receive(&reply), Progress::Refused);
    assert_eq!(reason(&mut controller), 1);
}

#[test]
fn a_proof_without_a_secret_fails() {
    let mut controller = start(None);
    controller.receive(&negotiate(&[1], &[0]));
    let challenge = controller.send().unwrap();
    let (reply, _) = reply(&challenge, &secret(1), Some(&secret(2)));
    assert_eq!(controller.receive(&reply), Progress::Refused);
    assert_eq!(reason(&mut controller), 1);
}

#[test]
fn offers_without_a_common_choice_fail() {
    for (offer, why) in [
        (negotiate(&[9], &[0]), 4),
        (negotiate(&[1], &[9]), 5),
        (negotiate(&[1], &[]), 5),
        (negotiate(&[1], &[0])[..70].to_vec(), 6),
        (vec![1, 2, 0, 0, 7, 0], 6),
        (vec![3, 3, 0, 0, 7, 0], 7),
    ] {
        let mut controller = start(None);
        assert_eq!(controller.receive(&offer), Progress::Refused);
        assert_eq!(reason(&mut controller), why);
    }
    let mut secure = negotiate(&[1], &[0]);
    secure[6] = 1;
    let mut controller = start(None);
    assert_eq!(controller.receive(&secure), Progress::Refused);
    assert_eq!(reason(&mut controller), 3);
}

#[test]
fn one_secret_for_both_sides_is_refused() {
    assert!(DhChap::new(HostSecrets::Shared(secret(1)), Some(secret(1))).is_err());
    let own = BTreeMap::from([(HOST.to_owned(), secret(4))]);
    let dh_chap = DhChap::new(HostSecrets::Own(own), Some(secret(1))).unwrap();
    assert!(dh_chap.secret_of(HOST).is_some() && dh_chap.secret_of(SUBSYSTEM).is_none());
    assert!(!format!("{dh_chap:?}").contains('4'));
}

proptest::proptest! {
    #[test]
    fn any_message_is_survived(
        messages in proptest::collection::vec(
            (0_u8..2, 0_u8..6, proptest::collection::vec(proptest::prelude::any::<u8>(), 0..200)),
            1..6,
        ),
    ) {
        let mut controller = start(Some(secret(2)));
        for (kind, id, rest) in messages {
            controller.receive(&[&[kind, id], &rest[..]].concat());
            let _ = controller.send();
            proptest::prop_assert!(!controller.is_authenticated());
        }
    }
}
