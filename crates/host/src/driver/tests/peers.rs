//! Members of a cluster on the other end of real sockets.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::net::{UnixListener, UnixStream};

use weir_server::effect::{Framing, TlsSettings};
use weir_server::event::Bytes;
use weir_testkit::pki::{LEAF, Pki, Shape};

use super::*;
use crate::driver::incoming::links::{PEER_LINKS_MAX, PEER_READ_BYTES_MAX};

const PORT: PeerPortId = PeerPortId(5);
const FIRST: LinkId = LinkId(1);

/// More than a socket's buffers hold.
const MUCH: usize = 8 << 20;

impl Stand {
    /// Listens, with success.
    fn listen(&mut self, address: &str) {
        self.execute([listen(address)]);
        let event = self.next();
        assert!(matches!(event, Event::PeerPort { port: PORT, result: Ok(()) }), "{event:?}");
    }

    /// A program connects that is none of ours.
    fn call(&mut self, socket: &str) -> (LinkId, UnixStream) {
        let stream = UnixStream::connect(self.path(socket)).unwrap();
        match self.next() {
            Event::LinkAccepted { port: PORT, link, name } => {
                assert!(name.starts_with("unix#"), "{name}");
                assert!(link.is_accepted());
                (link, stream)
            }
            other => panic!("{other:?}"),
        }
    }

    /// Connects to its own port: our end, and the one that was accepted.
    fn pair(&mut self, link: LinkId, address: &str) -> (LinkId, LinkId) {
        self.execute([connect(link, address)]);
        let events = self.until(|events| events.len() >= 2);
        let mut accepted = None;
        for event in events {
            match event {
                Event::LinkUp { link: up } => assert_eq!(up, link),
                Event::LinkAccepted { link, .. } => accepted = Some(link),
                other => panic!("{other:?}"),
            }
        }
        (link, accepted.unwrap())
    }

    /// The next `len` bytes that come on a link, and nothing else happens.
    fn receive(&mut self, from: LinkId, len: usize) -> Vec<u8> {
        let mut all = Vec::new();
        while all.len() < len {
            for event in self.until(|events| !events.is_empty()) {
                match event {
                    Event::LinkBytes { link, bytes } if link == from => {
                        assert!(!bytes.is_empty() && bytes.len() <= PEER_READ_BYTES_MAX);
                        all.extend(bytes);
                    }
                    other => panic!("{other:?}"),
                }
            }
        }
        all
    }
}

fn listen(address: &str) -> Effect {
    Effect::ListenForPeers { port: PORT, address: address.to_owned() }
}

fn connect(link: LinkId, target: &str) -> Effect {
    let (target, framing) = (target.to_owned(), Framing::Bytes);
    Effect::Connect { link, target, dscp: None, framing }
}

fn send(link: LinkId, bytes: &Bytes) -> Effect {
    Effect::SendTo { link, bytes: Arc::clone(bytes) }
}

/// Bytes of which no two pieces are alike.
fn pattern(len: usize) -> Bytes {
    Arc::new(
        (0..len as u32)
            .flat_map(|n| (n.wrapping_mul(2_654_435_761)).to_le_bytes())
            .take(len)
            .collect(),
    )
}

/// The failure of a link that ends next.
fn end(stand: &mut Stand, of: LinkId) -> Option<String> {
    match stand.next() {
        Event::LinkDown { link, error } if link == of => error,
        other => panic!("{other:?}"),
    }
}

/// A port that was free a moment ago.
fn free_address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

#[test]
fn bytes_come_as_they_were_sent_one_by_one_or_many() {
    let mut stand = Stand::new("bytes");
    stand.listen("unix:raft");
    let (link, mut peer) = stand.call("raft");
    for byte in b"{\0]\xff" {
        peer.write_all(&[*byte]).unwrap();
        assert_eq!(stand.receive(link, 1), [*byte]);
    }
    let much = pattern(MUCH);
    let sent = Arc::clone(&much);
    let writer = std::thread::spawn(move || {
        peer.write_all(&sent).unwrap();
        peer
    });
    assert_eq!(stand.receive(link, MUCH), *much);
    drop(writer.join().unwrap());
    assert_eq!(end(&mut stand, link), None);
}

#[test]
fn what_a_round_queues_leaves_in_one_write() {
    let mut stand = Stand::new("writev");
    stand.listen("unix:raft");
    let (link, mut peer) = stand.call("raft");
    let parts = ["one", "two", "three"].map(|part| Arc::new(part.as_bytes().to_vec()));
    stand.execute(parts.iter().map(|part| send(link, part)));
    assert_eq!(stand.count(Counter::Writes), 1);
    let mut bytes = [0; 11];
    peer.read_exact(&mut bytes).unwrap();
    assert_eq!(&bytes, b"onetwothree");
}

#[test]
fn two_of_ours_speak_over_tcp_with_each_other() {
    let mut stand = Stand::new("tcp");
    let address = format!("tcp:{}", free_address());
    stand.listen(&address);
    let (ours, theirs) = stand.pair(FIRST, &address);
    let bytes = pattern(MUCH);
    for (from, to) in [(ours, theirs), (theirs, ours)] {
        stand.execute([send(from, &bytes)]);
        assert_eq!(stand.receive(to, MUCH), *bytes);
    }
    stand
        .execute([send(ours, &Arc::new(b"last words".to_vec())), Effect::CloseLink { link: ours }]);
    assert_eq!(stand.receive(theirs, 10), b"last words");
    assert_eq!(end(&mut stand, theirs), None);
}

#[test]
fn a_member_listens_where_a_name_is_and_is_found_by_it() {
    let mut stand = Stand::new("name");
    // A name that the system's resolver knows without asking anybody.
    let address = format!("tcp:127.1:{}", free_address().port());
    stand.listen(&address);
    let (ours, theirs) = stand.pair(FIRST, &address);
    stand.execute([send(ours, &pattern(5))]);
    assert_eq!(stand.receive(theirs, 5), *pattern(5));
}

#[test]
fn a_peer_that_does_not_read_loses_nothing_and_holds_up_nobody() {
    let mut stand = Stand::new("slow");
    stand.listen("unix:raft");
    let (slow, mut slow_peer) = stand.call("raft");
    let (quick, mut quick_peer) = stand.call("raft");
    let much = pattern(MUCH);
    stand.execute([send(slow, &much), send(quick, &Arc::new(b"beat".to_vec()))]);
    let mut beat = [0; 4];
    quick_peer.read_exact(&mut beat).unwrap();
    assert_eq!(&beat, b"beat");
    let waiting = stand.outside.links.peer_backlog();
    assert!(waiting > MUCH / 2 && waiting < MUCH, "{waiting}");
    // What it says is heard all the same.
    slow_peer.write_all(b"busy").unwrap();
    assert_eq!(stand.receive(slow, 4), b"busy");
    let reader = std::thread::spawn(move || {
        let mut all = vec![0; MUCH];
        slow_peer.read_exact(&mut all).unwrap();
        all
    });
    let limit = Instant::now() + PATIENCE;
    while stand.outside.links.peer_backlog() > 0 {
        assert!(Instant::now() < limit);
        assert!(stand.round().is_empty());
    }
    assert_eq!(reader.join().unwrap(), *much);
}

#[test]
fn who_sends_much_leaves_others_their_share_of_a_round() {
    let mut stand = Stand::new("fair");
    stand.listen("unix:raft");
    let (much, mut much_peer) = stand.call("raft");
    let (little, mut little_peer) = stand.call("raft");
    let writer = std::thread::spawn(move || {
        much_peer.write_all(&pattern(MUCH)).unwrap();
        much_peer
    });
    let (mut bytes_of_much, mut beats) = (0, 0);
    while bytes_of_much < MUCH {
        if bytes_of_much > 0 {
            little_peer.write_all(b"x").unwrap();
        }
        let (mut of_much, mut is_heard) = (0, bytes_of_much == 0);
        for event in stand.round() {
            match event {
                Event::LinkBytes { link, bytes } if link == much => of_much += bytes.len(),
                Event::LinkBytes { link, .. } if link == little => is_heard = true,
                other => panic!("{other:?}"),
            }
        }
        assert!(of_much <= PEER_READ_BYTES_MAX && is_heard, "{of_much} bytes, {is_heard}");
        bytes_of_much += of_much;
        beats += 1;
    }
    assert!(beats >= MUCH / PEER_READ_BYTES_MAX);
    drop(writer.join().unwrap());
}

#[test]
fn a_peer_that_goes_in_mid_flush_ends_the_link_once() {
    let mut stand = Stand::new("gone");
    stand.listen("unix:raft");
    let (link, peer) = stand.call("raft");
    stand.execute([send(link, &pattern(MUCH))]);
    drop(peer);
    let error = end(&mut stand, link);
    assert!(error.is_some(), "bytes were lost");
    // The core may not know yet.
    stand.execute([send(link, &pattern(10)), Effect::CloseLink { link }]);
    assert!(stand.round().is_empty());
    assert_eq!(stand.outside.links.peer_backlog(), 0);
}

#[test]
fn a_peer_that_takes_nothing_is_let_go_at_the_limit() {
    let mut stand = Stand::new("overfull");
    stand.listen("unix:raft");
    let (link, _peer) = stand.call("raft");
    let piece = pattern(1 << 20);
    stand.execute((0..250).map(|_| send(link, &piece)));
    assert!(stand.round().is_empty());
    stand.execute((0..20).map(|_| send(link, &piece)));
    assert_eq!(end(&mut stand, link).as_deref(), Some("No buffer space available"));
    assert_eq!(stand.outside.links.peer_backlog(), 0);
}

#[test]
fn two_long_pieces_may_wait_whatever_may_wait_besides() {
    let mut stand = Stand::new("long");
    stand.listen("unix:raft");
    let (link, _peer) = stand.call("raft");
    let long = pattern(8 << 20);
    let limit = Effect::LimitLink { link, bytes_max: 1 << 20 };
    stand.execute([limit, send(link, &long), send(link, &long)]);
    assert!(stand.round().is_empty());
    stand.execute([send(link, &pattern(2 << 20))]);
    assert_eq!(end(&mut stand, link).as_deref(), Some("No buffer space available"));
}

#[test]
fn a_connection_that_cannot_be_is_a_link_that_is_down() {
    let mut stand = Stand::new("refused");
    let refused = format!("tcp:{}", free_address());
    let nowhere = "Address family not supported by protocol";
    let cases = [
        (refused.as_str(), "Connection refused"),
        ("unix:nobody", "No such file or directory"),
        ("tcp:127.0.0.1", nowhere),
        ("ptcp:6643:127.0.0.1", nowhere),
    ];
    for (number, (target, expected)) in (1..).zip(cases) {
        let link = LinkId(number);
        stand.execute([connect(link, target)]);
        assert_eq!(end(&mut stand, link).as_deref(), Some(expected), "{target}");
    }
}

#[test]
fn an_attempt_that_is_given_up_is_never_heard_of() {
    let mut stand = Stand::new("given-up");
    let listener = UnixListener::bind(stand.path("raft")).unwrap();
    stand.execute([connect(FIRST, "unix:raft"), Effect::CloseLink { link: FIRST }]);
    let (mut peer, _) = listener.accept().unwrap();
    peer.set_nonblocking(true).unwrap();
    let limit = Instant::now() + PATIENCE;
    while peer.read(&mut [0]).is_err() {
        assert!(Instant::now() < limit);
        assert!(stand.round().is_empty());
    }
}

#[test]
fn a_peer_that_does_not_answer_is_given_up_after_a_while() {
    let Some(pki) = Pki::usual("peers-silent") else { return };
    let mut stand = Stand::new("silent");
    stand.execute([tls(&pki, "server")]);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    stand.execute([connect(FIRST, &format!("ssl:{}", listener.local_addr().unwrap()))]);
    assert_eq!(end(&mut stand, FIRST).as_deref(), Some("Connection timed out"));
}

#[test]
fn a_port_that_is_taken_is_tried_again_until_it_is_free() {
    let mut stand = Stand::new("taken");
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("tcp:{}", taken.local_addr().unwrap());
    stand.execute([listen(&address)]);
    let Event::PeerPort { port: PORT, result: Err(error) } = stand.next() else { panic!() };
    assert_eq!(error, "Address already in use");
    stand.skipped_us += 1_000_000;
    assert!(stand.round().is_empty(), "the same failure is told once");
    drop(taken);
    stand.skipped_us += 1_000_000;
    assert!(matches!(stand.next(), Event::PeerPort { port: PORT, result: Ok(()) }));
    // Another address, and a closed port.
    stand.execute([Effect::CloseForPeers { port: PORT }]);
    stand.execute([connect(FIRST, &address)]);
    assert_eq!(end(&mut stand, FIRST).as_deref(), Some("Connection refused"));
}

#[test]
fn an_address_without_a_port_is_none_to_listen_on() {
    let mut stand = Stand::new("no-port");
    for address in ["tcp:127.0.0.1", "ssl:no..name:6643", "punix:raft", "nonsense"] {
        stand.execute([listen(address)]);
        let Event::PeerPort { port: PORT, result: Err(error) } = stand.next() else { panic!() };
        assert_eq!(error, "Address family not supported by protocol", "{address}");
        stand.execute([Effect::CloseForPeers { port: PORT }]);
    }
}

#[test]
fn no_more_peers_come_in_than_there_may_be() {
    let mut stand = Stand::new("many");
    stand.listen("unix:raft");
    let mut open: Vec<_> = (0..PEER_LINKS_MAX).map(|_| stand.call("raft")).collect();
    let mut refused = UnixStream::connect(stand.path("raft")).unwrap();
    assert!(stand.round().is_empty());
    assert_eq!(refused.read(&mut [0]).unwrap(), 0);
    // Those of another database's port are others.
    let port = PeerPortId(6);
    stand.execute([Effect::ListenForPeers { port, address: "unix:other".to_owned() }]);
    assert!(matches!(stand.next(), Event::PeerPort { result: Ok(()), .. }));
    let _other = UnixStream::connect(stand.path("other")).unwrap();
    assert!(matches!(stand.next(), Event::LinkAccepted { port: PeerPortId(6), .. }));
    let (link, peer) = open.pop().unwrap();
    drop(peer);
    assert_eq!(end(&mut stand, link), None);
    let (next, _peer) = stand.call("raft");
    assert!(next > link, "numbers are never used again");
}

/// The options of somebody who shows this certificate.
fn tls(pki: &Pki, name: &str) -> Effect {
    let options = pki.options(name, "ca");
    Effect::Tls(Box::new(TlsSettings {
        private_key: options.private_key,
        certificate: options.certificate,
        ca_cert: options.ca_cert,
        ..TlsSettings::default()
    }))
}

#[test]
fn over_tls_both_sides_show_certificates_and_renewed_ones_count_for_who_comes_later() {
    let Some(pki) = Pki::usual("peers-tls") else { return };
    let mut stand = Stand::new("tls");
    stand.execute([tls(&pki, "server")]);
    let address = format!("ssl:{}", free_address());
    stand.listen(&address);
    let (ours, theirs) = stand.pair(FIRST, &address);
    let bytes = pattern(1 << 20);
    stand.execute([send(ours, &bytes)]);
    assert_eq!(receive_any(&mut stand, theirs, bytes.len()), *bytes);
    // A new authority, and a certificate of it in the same files.
    pki.authority("ca");
    pki.signed("server", "ca", "server", Shape { extensions: LEAF, ..Shape::default() });
    let (later, accepted_later) = stand.pair(LinkId(2), &address);
    for (from, to) in [(ours, theirs), (theirs, ours), (later, accepted_later)] {
        stand.execute([send(from, &bytes)]);
        assert_eq!(receive_any(&mut stand, to, bytes.len()), *bytes);
    }
    // Who is of another authority gets nowhere: his own side says so, ours hears of nobody.
    pki.authority("other");
    pki.signed("stranger", "other", "x", Shape { extensions: LEAF, ..Shape::default() });
    let mut stranger = Stand::new("tls-stranger");
    stranger.execute([tls(&pki, "stranger"), connect(FIRST, &address)]);
    let mut events = Vec::new();
    let limit = Instant::now() + PATIENCE;
    while events.is_empty() {
        assert!(Instant::now() < limit);
        assert!(stand.round().is_empty());
        events = stranger.round();
    }
    assert!(
        matches!(&events[..], [Event::LinkUp { .. } | Event::LinkDown { .. }, ..]),
        "{events:?}"
    );
}

/// As `receive`, where what TLS deciphers at once comes at once.
fn receive_any(stand: &mut Stand, from: LinkId, len: usize) -> Vec<u8> {
    let mut all = Vec::new();
    while all.len() < len {
        for event in stand.until(|events| !events.is_empty()) {
            match event {
                Event::LinkBytes { link, bytes } if link == from => all.extend(bytes),
                other => panic!("{other:?}"),
            }
        }
    }
    all
}
