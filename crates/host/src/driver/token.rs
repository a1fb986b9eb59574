//! What an epoll token stands for: the kind in the upper bits, a number in the others.

use weir_server::event::LinkId;

/// Bits of the number.
const NUMBER_BITS: u32 = 60;

/// Whose descriptor is ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Token {
    /// A client, by its session number.
    Session(u64),
    /// A listener, by its remote's number.
    Listener(u64),
    /// An admin connection.
    Admin(u64),
    /// The admin socket.
    AdminListener,
    /// A fatal signal.
    Signal,
    /// A helper has finished something.
    Jobs,
    /// A connection to another server, made by the core or accepted from a peer.
    Link(u64),
    /// A listener for the other members of a cluster.
    PeerPort(u64),
    /// A connection is made, or not.
    Dialling,
    /// A thread has opened a listener, or has not.
    Opened,
}

impl Token {
    pub(crate) fn encode(self) -> u64 {
        let (kind, number) = match self {
            Self::Session(number) => (0, number),
            Self::Listener(number) => (1, number),
            Self::Admin(number) => (2, number),
            Self::AdminListener => (3, 0),
            Self::Signal => (4, 0),
            Self::Jobs => (5, 0),
            Self::Link(number) if LinkId(number).is_accepted() => {
                (8, number - LinkId::ACCEPTED_MIN)
            }
            Self::Link(number) => (6, number),
            Self::PeerPort(number) => (9, number),
            Self::Dialling => (7, 0),
            Self::Opened => (10, 0),
        };
        kind << NUMBER_BITS | number
    }

    pub(crate) fn decode(token: u64) -> Self {
        let number = token & ((1 << NUMBER_BITS) - 1);
        match token >> NUMBER_BITS {
            0 => Self::Session(number),
            1 => Self::Listener(number),
            2 => Self::Admin(number),
            3 => Self::AdminListener,
            4 => Self::Signal,
            5 => Self::Jobs,
            6 => Self::Link(number),
            8 => Self::Link(LinkId::ACCEPTED_MIN + number),
            9 => Self::PeerPort(number),
            10 => Self::Opened,
            _ => Self::Dialling,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_survive_the_kernel() {
        let number = (1 << 60) - 1;
        let numbered = [
            Token::Session(number),
            Token::Listener(7),
            Token::Admin(0),
            Token::Link(9),
            Token::Link(LinkId::ACCEPTED_MIN),
            Token::Link(LinkId::ACCEPTED_MIN + number),
            Token::PeerPort(3),
        ];
        let plain =
            [Token::AdminListener, Token::Signal, Token::Jobs, Token::Dialling, Token::Opened];
        for token in numbered.into_iter().chain(plain) {
            assert_eq!(Token::decode(token.encode()), token);
        }
    }
}
