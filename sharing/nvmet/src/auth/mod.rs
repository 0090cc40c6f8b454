//! DH-HMAC-CHAP: hosts prove that they know a secret, and the controller does, too, if the host asks for it.
//!
//! ```text
//! host                                    controller
//! Send  Negotiate: hashes, groups    →
//!       ← Receive  Challenge: hash, group, S1, C1, public number
//! Send  Reply: response, S2, C2 if it wants a proof, public number →
//!       ← Receive  Success1: the controller's response, or Failure1
//! Send  Success2 or Failure2         →
//! ```
//! A message begins with its type (1), its id (1), 2 bytes, and the number of the exchange (2); see [`Message`]. The
//! response of the host is an HMAC by its key of the challenge, S1, the number of the exchange, and both names; that of
//! the controller is made alike. With a group, the challenge is replaced by its HMAC by the hash of the shared number.
//!
//! Learnt from: NVM Express Base Specification 2.0, section 8.13.5; the code of Linux's host was compared in a virtual
//! machine, see `tools/clients/nvme.sh`.

mod group;
mod hash;
mod message;
mod secret;

use std::collections::BTreeMap;
use std::fmt;

use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

pub use secret::Secret;

use crate::{Error, Result};
use group::{GROUPS, Group, KeyPair};
use hash::Hash;
use message::{Challenge, Failure, Message, Reply};

/// How hosts of a subsystem prove who they are.
#[derive(Clone)]
pub struct DhChap {
    hosts: HostSecrets,
    controller: Option<Secret>,
}

/// The secrets of hosts.
#[derive(Clone)]
pub enum HostSecrets {
    /// All hosts have the same.
    Shared(Secret),
    /// Each host has its own, by its name. Other hosts are refused.
    Own(BTreeMap<String, Secret>),
}

impl DhChap {
    /// Hosts prove that they know their secret. The controller proves that it knows `controller`, if there is one and
    /// the host asks for it; it must not be the secret of a host.
    pub fn new(hosts: HostSecrets, controller: Option<Secret>) -> Result<Self> {
        let is_same = |secret: &Secret| {
            controller.as_ref().is_some_and(|controller| controller.is_same(secret))
        };
        let is_repeated = match &hosts {
            HostSecrets::Shared(secret) => is_same(secret),
            HostSecrets::Own(secrets) => secrets.values().any(is_same),
        };
        if is_repeated {
            return Err(Error::SameSecret);
        }
        Ok(Self { hosts, controller })
    }

    /// The secret of a host.
    pub(crate) fn secret_of(&self, host: &str) -> Option<&Secret> {
        match &self.hosts {
            HostSecrets::Shared(secret) => Some(secret),
            HostSecrets::Own(secrets) => secrets.get(host),
        }
    }
}

/// The secrets are not shown.
impl fmt::Debug for DhChap {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("DhChap").finish_non_exhaustive()
    }
}

/// Fills a buffer with random bytes.
pub(crate) type RandomBytes = fn(&mut [u8]) -> std::io::Result<()>;

/// The names of both sides of a connection.
#[derive(Clone)]
pub(crate) struct Names {
    pub(crate) host: String,
    pub(crate) subsystem: String,
}

/// The authentication of one connection.
pub(crate) struct Authentication {
    names: Names,
    secret: Secret,
    controller: Option<Secret>,
    random: RandomBytes,
    state: State,
}

enum State {
    /// The host begins.
    Begin,
    /// The host fetches the challenge.
    Negotiated(Box<Exchange>),
    /// The host sends its reply.
    Challenged(Box<Exchange>),
    /// The host fetches the success, with the controller's response.
    Verified { exchange: u16, hash: Hash, response: Option<Zeroizing<Vec<u8>>> },
    /// The host accepts the controller's response.
    Proving { exchange: u16 },
    /// The host is the one it says, and nothing is to be sent.
    Done,
    /// The host fetches the reason of the failure.
    Refused { exchange: u16, why: Failure },
    /// The connection ends.
    Failed,
}

/// An exchange that has begun.
struct Exchange {
    number: u16,
    hash: Hash,
    group: Option<(Group, KeyPair)>,
    sequence: u32,
    challenge: Zeroizing<Vec<u8>>,
}

/// The effect of a message of the host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Progress {
    /// The exchange goes on.
    Continues,
    /// The host has failed: it is not the one it says, or breaks the rules.
    Refused,
}

impl Authentication {
    /// An authentication of a host. None: the host has no secret here.
    pub(crate) fn new(dh_chap: &DhChap, names: Names, random: RandomBytes) -> Option<Self> {
        let secret = dh_chap.secret_of(&names.host)?.clone();
        let controller = dh_chap.controller.clone();
        Some(Self { names, secret, controller, random, state: State::Begin })
    }

    /// Whether the host has proved who it is.
    pub(crate) fn is_authenticated(&self) -> bool {
        matches!(self.state, State::Done | State::Verified { response: None, .. })
    }

    /// Whether the connection is to end.
    pub(crate) fn has_failed(&self) -> bool {
        matches!(self.state, State::Failed)
    }

    /// Takes a message of the host.
    pub(crate) fn receive(&mut self, bytes: &[u8]) -> Progress {
        let number = message::exchange_number(bytes);
        let state = std::mem::replace(&mut self.state, State::Failed);
        let next = match (Message::parse(bytes), state) {
            (Ok(Message::Negotiate(offer)), State::Begin) => self.negotiate(number, &offer),
            (Ok(Message::Reply(reply)), State::Challenged(exchange))
                if exchange.number == number =>
            {
                self.verify(&exchange, &reply)
            }
            (Ok(Message::Success2), State::Proving { exchange }) if exchange == number => {
                Ok(State::Done)
            }
            // the controller has not proved itself to the host
            (Ok(Message::Failure2), _) => Ok(State::Failed),
            (Ok(_), _) => Err(Failure::IncorrectMessage),
            (Err(why), _) => Err(why),
        };
        match next {
            Ok(State::Failed) => Progress::Refused,
            Ok(state) => {
                self.state = state;
                Progress::Continues
            }
            Err(why) => {
                self.state = State::Refused { exchange: number, why };
                Progress::Refused
            }
        }
    }

    /// The message that the host fetches. None: there is none in this state.
    pub(crate) fn send(&mut self) -> Option<Vec<u8>> {
        match std::mem::replace(&mut self.state, State::Failed) {
            State::Negotiated(exchange) => {
                let public =
                    exchange.group.as_ref().map(|(group, pair)| (group.code, &pair.public));
                let message = Challenge {
                    exchange: exchange.number,
                    hash: exchange.hash,
                    group: public.map_or((0, &[][..]), |(code, public)| (code, public)),
                    sequence: exchange.sequence,
                    value: &exchange.challenge,
                }
                .encode();
                self.state = State::Challenged(exchange);
                Some(message)
            }
            State::Verified { exchange, hash, response } => {
                let message = message::encode_success(exchange, hash, response.as_deref());
                self.state =
                    if response.is_some() { State::Proving { exchange } } else { State::Done };
                Some(message)
            }
            State::Refused { exchange, why } => Some(message::encode_failure(exchange, why)),
            state => {
                self.state = state;
                None
            }
        }
    }

    fn negotiate(
        &self,
        number: u16,
        offer: &message::Offer<'_>,
    ) -> std::result::Result<State, Failure> {
        if offer.wants_secure_channel {
            return Err(Failure::SecureChannel);
        }
        let hash = Hash::ALL.into_iter().find(|hash| offer.hashes.contains(&(*hash as u8)));
        let hash = hash.ok_or(Failure::Hash)?;
        let group = GROUPS.into_iter().find(|group| offer.groups.contains(&group.code));
        let group = match group {
            Some(group) => {
                let mut private = Zeroizing::new([0; 64]);
                (self.random)(&mut *private).map_err(|_| Failure::Authentication)?;
                let pair = group.key_pair(private).ok_or(Failure::Authentication)?;
                Some((group, pair))
            }
            None if offer.groups.contains(&0) => None,
            None => return Err(Failure::Group),
        };
        let mut challenge = Zeroizing::new(vec![0; hash.size()]);
        let mut sequence = [0; 4];
        (self.random)(&mut challenge).map_err(|_| Failure::Authentication)?;
        (self.random)(&mut sequence).map_err(|_| Failure::Authentication)?;
        // 0 has a meaning of its own
        let sequence = u32::from_le_bytes(sequence).max(1);
        Ok(State::Negotiated(Box::new(Exchange { number, hash, group, sequence, challenge })))
    }

    fn verify(
        &self,
        exchange: &Exchange,
        reply: &Reply<'_>,
    ) -> std::result::Result<State, Failure> {
        let hash = exchange.hash;
        if reply.response.len() != hash.size() {
            return Err(Failure::InvalidPayload);
        }
        let shared = match &exchange.group {
            Some((group, pair)) => {
                let shared = group.shared(pair, reply.public).ok_or(Failure::InvalidPayload)?;
                Some(hash.digest(&shared))
            }
            None => None,
        };
        let bind = |challenge: &[u8]| match &shared {
            Some(key) => hash.hmac(key, &[challenge]),
            None => Zeroizing::new(challenge.to_vec()),
        };
        let Names { host, subsystem } = &self.names;
        let number = exchange.number.to_le_bytes();
        let respond =
            |key: &[u8], challenge: &[u8], sequence: u32, role: &str, names: [&str; 2]| {
                let [first, second] = names.map(str::as_bytes);
                let parts: [&[u8]; 8] = [
                    &bind(challenge),
                    &sequence.to_le_bytes(),
                    &number,
                    // no secure channel
                    &[0],
                    role.as_bytes(),
                    first,
                    &[0],
                    second,
                ];
                hash.hmac(key, &parts)
            };
        let key = self.secret.key(host);
        let expected =
            respond(&key, &exchange.challenge, exchange.sequence, "HostHost", [host, subsystem]);
        if !bool::from(expected.as_slice().ct_eq(reply.response)) {
            return Err(Failure::Authentication);
        }
        let response = match (reply.challenge, &self.controller) {
            (None, _) => None,
            // a host that wants a proof is not to believe that there was one
            (Some(_), None) => return Err(Failure::Authentication),
            (Some(challenge), Some(secret)) => {
                if challenge == exchange.challenge.as_slice() {
                    return Err(Failure::InvalidPayload);
                }
                let key = secret.key(subsystem);
                Some(respond(&key, challenge, reply.sequence, "Controller", [subsystem, host]))
            }
        };
        Ok(State::Verified { exchange: exchange.number, hash, response })
    }
}

#[cfg(test)]
mod tests;
