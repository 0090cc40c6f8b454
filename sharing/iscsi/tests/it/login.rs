//! Logins: names, stages, CHAP both ways, discovery, and refusals.

use std::sync::Arc;

use iscsi::{Chap, ChapUser, Discovery, FailedLogin, Server, Target};
use md5::{Digest, Md5};
use parking_lot::Mutex;

use crate::initiator::{INITIATOR, Initiator, Pdu};
use crate::served_pool::{ServedPool, TARGET, options, target};

const INITIATOR_SECRET: &[u8] = b"secret of the initiator";
const TARGET_SECRET: &[u8] = b"secret of the target";

fn chap() -> Chap {
    let user = |name, secret| ChapUser::new(name, secret).unwrap();
    Chap::new(user("alice", INITIATOR_SECRET), Some(user("disk", TARGET_SECRET))).unwrap()
}

fn chap_target(served: &ServedPool) -> Target {
    Target { chap: Some(chap()), ..target(&served.unit) }
}

fn names() -> [(&'static str, &'static str); 2] {
    [("InitiatorName", INITIATOR), ("TargetName", TARGET)]
}

fn hash(identifier: &str, secret: &[u8], challenge: &str) -> String {
    let byte = |at: usize| u8::from_str_radix(&challenge[at..at + 2], 16).unwrap();
    let challenge: Vec<u8> = (2..challenge.len()).step_by(2).map(byte).collect();
    let mut hash = Md5::new();
    hash.update([identifier.parse::<u8>().unwrap()]);
    hash.update(secret);
    hash.update(challenge);
    let digits: String = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    format!("0x{digits}")
}

/// Logs in by CHAP up to the proof. Returns the response to it, and the response that has the challenge.
fn prove(initiator: &mut Initiator, secret: &[u8], more: &[(&str, &str)]) -> (Pdu, Pdu) {
    prove_as(initiator, &names(), secret, more)
}

/// The same with the names of the first request.
fn prove_as(
    initiator: &mut Initiator,
    names: &[(&str, &str)],
    secret: &[u8],
    more: &[(&str, &str)],
) -> (Pdu, Pdu) {
    let keys = [names, &[("AuthMethod", "CHAP,None")]].concat();
    let chosen = initiator.login_step(0, 4, &keys);
    assert_eq!(chosen.key("AuthMethod").as_deref(), Some("CHAP"));
    let challenge = initiator.login_step(0, 4, &[("CHAP_A", "5")]);
    let identifier = challenge.key("CHAP_I").unwrap();
    let proof = hash(&identifier, secret, &challenge.key("CHAP_C").unwrap());
    let keys = [&[("CHAP_N", "alice"), ("CHAP_R", &proof)][..], more].concat();
    (initiator.login_step(0, 1, &keys), challenge)
}

#[test]
fn chap_proves_both_sides() {
    let served = ServedPool::start();
    served.server.set_targets(vec![chap_target(&served)]).unwrap();
    let mut initiator = Initiator::connect(served.address());
    let mine = [("CHAP_I", "77"), ("CHAP_C", "0x00112233445566778899aabbccddeeff")];
    let (proved, _) = prove(&mut initiator, INITIATOR_SECRET, &mine);
    assert_eq!((proved.login_status(), proved.header[1]), (0, 0x81));
    assert_eq!(proved.key("CHAP_N").as_deref(), Some("disk"));
    assert_eq!(proved.key("CHAP_R").unwrap(), hash("77", TARGET_SECRET, mine[1].1));
    let done = initiator.login_step(1, 3, &[("HeaderDigest", "None")]);
    assert_eq!((done.login_status(), done.header[1]), (0, 0x87));
    assert_eq!(initiator.attentions().len(), 1);
}

#[test]
fn logins_without_proof_are_refused() {
    let served = ServedPool::start();
    served.server.set_targets(vec![chap_target(&served)]).unwrap();
    let connect = || Initiator::connect(served.address());
    let refused = 0x0201;
    assert_eq!(prove(&mut connect(), b"another secret", &[]).0.login_status(), refused);
    let none = [&names()[..], &[("AuthMethod", "None")]].concat();
    assert_eq!(connect().login_step(0, 1, &none).login_status(), refused);
    // past the security stage, and on from its start
    assert_eq!(connect().login_step(1, 3, &names()).login_status(), refused);
    let skipped = connect().login_step(0, 3, &names());
    assert!(skipped.login_status() == refused || skipped.header[1] & 0x80 == 0, "{skipped:?}");
    let mut early = connect();
    early.login_step(0, 4, &names());
    assert_eq!(early.login_step(1, 3, &[]).login_status(), 0x0200);
    // the target's own challenge comes back
    let mut initiator = connect();
    let (_, challenge) = prove(&mut connect(), INITIATOR_SECRET, &[]);
    drop(challenge);
    initiator.login_step(0, 4, &[&names()[..], &[("AuthMethod", "CHAP")]].concat());
    let challenge = initiator.login_step(0, 4, &[("CHAP_A", "5")]);
    let (identifier, bytes) = (challenge.key("CHAP_I").unwrap(), challenge.key("CHAP_C").unwrap());
    let reflected =
        [("CHAP_N", "alice"), ("CHAP_R", "0x00"), ("CHAP_I", &identifier), ("CHAP_C", &bytes)];
    let answer = initiator.login_step(0, 1, &reflected);
    assert_eq!((answer.login_status(), answer.key("CHAP_R")), (refused, None));
    assert!(initiator.is_closed());
    assert!(served.server.status().failed_logins >= 5);
}

#[test]
fn names_and_networks_are_checked() {
    let served = ServedPool::start();
    let login = |keys: &[(&str, &str)]| {
        Initiator::connect(served.address()).login_step(1, 3, keys).login_status()
    };
    assert_eq!(login(&names()), 0);
    assert_eq!(login(&[names()[0]]), 0x0207, "no target");
    assert_eq!(login(&[names()[1]]), 0x0207, "no initiator");
    assert_eq!(login(&[names()[0], ("TargetName", "iqn.2026-01.org.example:other")]), 0x0203);
    assert_eq!(login(&[names()[0], ("SessionType", "Other")]), 0x0209);
    let mut restricted = target(&served.unit);
    restricted.initiators = vec!["iqn.2026-01.org.example:other".to_owned()];
    served.server.set_targets(vec![restricted.clone()]).unwrap();
    assert_eq!(login(&names()), 0x0202);
    restricted.initiators.clear();
    restricted.networks = vec!["192.0.2.0/24".parse().unwrap()];
    served.server.set_targets(vec![restricted]).unwrap();
    assert_eq!(login(&names()), 0x0203, "a target of another network is not there");
}

#[test]
fn discovery_lists_targets_that_admit() {
    let served = ServedPool::start();
    let other = |name: &str| Target { name: format!("{TARGET}-{name}"), ..target(&served.unit) };
    let mut hidden = other("hidden");
    hidden.networks = vec!["192.0.2.0/24".parse().unwrap()];
    let mut foreign = other("foreign");
    foreign.initiators = vec!["iqn.2026-01.org.example:other".to_owned()];
    let many = (0..40).map(|number| other(&format!("{number:02}")));
    let targets = [target(&served.unit), hidden, foreign].into_iter().chain(many).collect();
    served.server.set_targets(targets).unwrap();
    let mut initiator = Initiator::connect(served.address());
    let keys = [names()[0], ("SessionType", "Discovery"), ("MaxRecvDataSegmentLength", "512")];
    assert_eq!(initiator.login_step(1, 3, &keys).login_status(), 0);
    // the answer is longer than a segment
    let mut text = Vec::new();
    let mut question = b"SendTargets=All\0".to_vec();
    loop {
        let tag = initiator.take_tag();
        let pdu = Pdu::new(0x04, 0x80, &question)
            .u32(16, tag)
            .u32(20, u32::MAX)
            .u32(24, initiator.cmd_sn);
        initiator.cmd_sn += 1;
        initiator.send(&pdu);
        let answer = initiator.receive().unwrap();
        assert!(answer.data.len() <= 512);
        text.extend(&answer.data);
        if answer.header[1] & 0x40 == 0 {
            assert_eq!(answer.header[1], 0x80);
            break;
        }
        question.clear();
    }
    let text = String::from_utf8(text).unwrap();
    assert_eq!(text.matches("TargetName=").count(), 41, "{text}");
    assert!(text.contains(&format!("TargetAddress={},1\0", served.address())));
    assert!(!text.contains("hidden") && !text.contains("foreign"));
    // a discovery session has no commands
    let command = initiator.command_pdu(0xc1, &[0; 6], 0, &[]);
    initiator.send(&command);
    assert!(initiator.is_closed());
}

#[test]
fn discovery_requires_its_chap() {
    let served = ServedPool::start();
    served.server.set_discovery(Discovery::Chap(chap()));
    let discovery = [names()[0], ("SessionType", "Discovery")];
    let connect = || Initiator::connect(served.address());
    assert_eq!(connect().login_step(1, 3, &discovery).login_status(), 0x0201);
    let wrong = prove_as(&mut connect(), &discovery, b"another secret", &[]).0;
    assert_eq!(wrong.login_status(), 0x0201);
    let mine = [("CHAP_I", "77"), ("CHAP_C", "0x00112233445566778899aabbccddeeff")];
    let (proved, _) = prove_as(&mut connect(), &discovery, INITIATOR_SECRET, &mine);
    assert_eq!(proved.login_status(), 0);
    assert_eq!(proved.key("CHAP_R").unwrap(), hash("77", TARGET_SECRET, mine[1].1));
    served.server.set_discovery(Discovery::Closed);
    assert_eq!(connect().login_step(1, 3, &discovery).login_status(), 0x0301);
    // targets have proofs of their own
    assert_eq!(connect().login_step(1, 3, &names()).login_status(), 0);
}

#[test]
fn failed_logins_are_reported() {
    let served = ServedPool::start();
    let mut restricted = target(&served.unit);
    restricted.initiators = vec!["iqn.2026-01.org.example:other".to_owned()];
    restricted.name = format!("{TARGET}-restricted");
    let (failed, targets) =
        (Arc::<Mutex<Vec<FailedLogin>>>::default(), vec![chap_target(&served), restricted]);
    let report = Arc::clone(&failed);
    let server = Server::start(
        &options(),
        targets,
        Discovery::Chap(chap()),
        Arc::new(move |login| report.lock().push(login.clone())),
    );
    let server = server.unwrap();
    let connect = || Initiator::connect(server.addresses()[0]);
    prove(&mut connect(), b"another secret", &[]);
    let restricted = format!("{TARGET}-restricted");
    connect().login_step(1, 3, &[names()[0], ("TargetName", &restricted)]);
    connect().login_step(1, 3, &[names()[0], ("SessionType", "Discovery")]);
    // a target that is not there is no attempt to get in
    connect().login_step(1, 3, &[names()[0], ("TargetName", "iqn.2026-01.org.example:none")]);
    prove(&mut connect(), INITIATOR_SECRET, &[]);
    let failed = failed.lock();
    let found: Vec<_> =
        failed.iter().map(|login| (login.target.as_deref(), login.lacks_proof)).collect();
    assert_eq!(found, [(Some(TARGET), true), (Some(restricted.as_str()), false), (None, true)]);
    assert!(
        failed.iter().all(|login| login.initiator == INITIATOR && login.address.ip().is_loopback())
    );
}

#[test]
fn a_second_login_ends_the_first_session() {
    let served = ServedPool::start();
    let (mut first, mut other) = (served.initiator(), served.initiator_with(2, &[]));
    let mut again = served.initiator();
    assert!(first.is_closed());
    assert!(again.attentions().is_empty() && other.attentions().is_empty());
    assert_eq!(served.server.status().sessions.len(), 2);
}

#[test]
fn logout_is_answered() {
    let served = ServedPool::start();
    let mut initiator = served.initiator();
    let recovery = Pdu::new(0x46, 0x82, &[]).u32(16, 90).u32(24, initiator.cmd_sn);
    initiator.send(&recovery);
    assert_eq!(initiator.receive().unwrap().header[2], 2, "no recovery of connections");
    let logout = Pdu::new(0x06, 0x80, &[]).u32(16, 91).u32(24, initiator.cmd_sn);
    initiator.send(&logout);
    let answer = initiator.receive().unwrap();
    assert_eq!((answer.opcode(), answer.at(16), answer.header[2]), (0x26, 91, 0));
    assert!(initiator.is_closed());
}
