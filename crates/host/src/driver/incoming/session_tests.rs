//! Clients on the other end of real sockets, and what the core is told of them.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use weir_net::{Address, Progress, Tls};
use weir_testkit::pki::Pki;

use super::*;
use crate::driver::incoming::unfinished::{PERIOD_BYTES_MIN, PERIOD_ROUNDS_MIN, PERIOD_US};

/// More than anybody sends here.
pub(super) const INPUT_BYTES: usize = 64 << 20;

/// More than a Unix socket's buffers hold.
const MUCH: usize = 4 << 20;

pub(super) struct Shell {
    pub(super) poller: Poller,
    pub(super) sessions: Sessions,
    pub(super) coverage: Coverage,
    pub(super) now_us: u64,
    has_stood_still: bool,
}

impl Shell {
    pub(super) fn new(input_bytes_max: usize) -> Self {
        Self {
            poller: Poller::new().unwrap(),
            sessions: Sessions::new(input_bytes_max, usize::MAX),
            coverage: Coverage::default(),
            now_us: 0,
            has_stood_still: false,
        }
    }

    /// A client connects; its end of the socket blocks.
    pub(super) fn connect(&mut self) -> (SessionId, UnixStream) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        let stream = Stream::Unix(ours.into());
        self.sessions.accept(&self.poller, stream, RemoteId(1), "unix#0".to_owned());
        let events = self.events();
        let [event] = events.as_slice() else { panic!("{events:?}") };
        let id = event.strip_prefix("accepted ").unwrap();
        (SessionId(id.parse().unwrap()), theirs)
    }

    /// One round; what the core is told.
    fn round(&mut self) -> Vec<String> {
        self.run_round();
        self.events()
    }

    /// One round, of which the core is told nothing yet.
    pub(super) fn run_round(&mut self) {
        let mut ready = Vec::new();
        self.poller.wait(Some(Duration::ZERO), &mut ready).unwrap();
        self.now_us += 1;
        self.sessions.note_late(self.has_stood_still, &self.poller);
        self.sessions.begin_round(self.now_us, &mut self.coverage);
        self.sessions.put_in_turn(&mut ready);
        for ready in ready {
            let Token::Session(id) = Token::decode(ready.token) else { panic!("{ready:?}") };
            let (poller, coverage) = (&self.poller, &mut self.coverage);
            self.sessions.on_ready(poller, SessionId(id), ready, coverage);
        }
        self.sessions.expire(&self.poller, self.now_us);
        self.sessions.resume_paused(&self.poller);
    }

    /// What the core is told when clients have been behind for longer than a moment.
    fn after_a_while(&mut self) -> Vec<String> {
        let mut events = Vec::new();
        for _ in 0..2 {
            self.now_us += 1_000_000;
            events.extend(self.round());
        }
        events
    }

    /// Rounds until the turn of one who sends nothing has ended.
    fn end_turn(&mut self) -> Vec<String> {
        self.now_us += PERIOD_US;
        (0..PERIOD_ROUNDS_MIN)
            .flat_map(|_| self.round())
            .filter(|event| event != "activity")
            .collect()
    }

    /// Rounds until nothing happens any more.
    fn rounds(&mut self) -> Vec<Vec<String>> {
        let mut rounds = Vec::new();
        loop {
            let events = self.round();
            if events.is_empty() && !self.sessions.has_work() {
                return rounds;
            }
            rounds.push(events);
        }
    }

    fn events(&mut self) -> Vec<String> {
        let mut events = Vec::new();
        self.sessions.take_events(&mut events);
        events.iter().map(describe).collect()
    }

    fn send(&mut self, id: SessionId, text: &str) {
        let (head, body) = (Arc::default(), Arc::new(text.as_bytes().to_vec()));
        self.sessions.send(id, &head, &body);
        self.sessions.flush_dirty(&self.poller, &mut self.coverage);
    }

    fn disconnect(&mut self, id: SessionId) {
        self.sessions.disconnect(&self.poller, id, self.now_us, &mut self.coverage);
    }
}

fn describe(event: &Event) -> String {
    match event {
        Event::Accepted { session, .. } => format!("accepted {}", session.0),
        Event::Message { bytes, .. } if bytes.len() > 50 => format!("message of {}", bytes.len()),
        Event::Message { bytes, .. } => {
            format!("message {}", String::from_utf8_lossy(bytes).trim())
        }
        Event::Activity { .. } => "activity".to_owned(),
        Event::BadStream { .. } => "bad stream".to_owned(),
        Event::TooLong { .. } => "too long".to_owned(),
        Event::Refused { outline, .. } => {
            format!("refused {}", String::from_utf8_lossy(outline).trim())
        }
        Event::Closed { error: None, .. } => "closed".to_owned(),
        Event::Closed { error: Some(error), .. } => format!("closed: {error}"),
        Event::Blocked { .. } => "blocked".to_owned(),
        Event::Drained { .. } => "drained".to_owned(),
        other => format!("{other:?}"),
    }
}

#[test]
fn a_message_in_single_bytes_is_activity_until_its_end() {
    let mut shell = Shell::new(INPUT_BYTES);
    let (_, mut client) = shell.connect();
    let mut events = Vec::new();
    for byte in b"[1]" {
        client.write_all(&[*byte]).unwrap();
        events.extend(shell.round());
    }
    assert_eq!(events, ["activity", "activity", "message [1]"]);
}

#[test]
fn messages_sent_at_once_are_taken_one_a_round_from_each_client() {
    let mut shell = Shell::new(INPUT_BYTES);
    let (_, mut first) = shell.connect();
    let (_, mut second) = shell.connect();
    first.write_all(b"[1][2]\n[3]").unwrap();
    second.write_all(b"[9]").unwrap();
    let mut rounds = shell.rounds();
    rounds[0].sort();
    assert_eq!(rounds[0], ["message [1]", "message [9]"]);
    assert_eq!(rounds[1..], [vec!["message [2]"], vec!["message [3]"]]);
}

#[test]
fn a_half_closed_client_is_heard_to_the_end() {
    let mut shell = Shell::new(INPUT_BYTES);
    let (id, mut client) = shell.connect();
    client.write_all(b"[1][2]").unwrap();
    client.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(shell.round(), ["message [1]"]);
    shell.send(id, "[10]");
    assert_eq!(shell.round(), ["message [2]"]);
    shell.send(id, "[20]");
    assert_eq!(shell.round(), ["closed"]);
    let mut answers = String::new();
    client.read_to_string(&mut answers).unwrap();
    assert_eq!(answers, "[10][20]");
}

#[test]
fn who_has_gone_while_the_process_stood_still_is_not_heard() {
    let mut shell = Shell::new(INPUT_BYTES);
    let ((_, mut gone), (_, mut there)) = (shell.connect(), shell.connect());
    gone.write_all(b"[1]").unwrap();
    drop(gone);
    there.write_all(b"[2][3]").unwrap();
    shell.has_stood_still = true;
    let mut events = shell.round();
    events.sort();
    assert_eq!(events, ["closed", "message [2]"]);
    shell.has_stood_still = false;
    drop(there);
    assert_eq!(shell.rounds(), [["message [3]"], ["closed"]], "others have their say");
}

#[test]
fn who_was_behind_and_has_gone_while_the_process_stood_still_is_not_heard() {
    let mut shell = Shell::new(INPUT_BYTES);
    let (id, mut gone) = shell.connect();
    shell.send(id, &"x".repeat(MUCH));
    assert_eq!(shell.after_a_while(), ["blocked"]);
    gone.write_all(b"[1]").unwrap();
    gone.shutdown(std::net::Shutdown::Write).unwrap();
    gone.set_nonblocking(true).unwrap();
    shell.has_stood_still = true;
    let mut events = Vec::new();
    while events.is_empty() {
        let _ = gone.read_to_end(&mut Vec::new());
        events.extend(shell.round().into_iter().filter(|event| event != "activity"));
    }
    shell.has_stood_still = false;
    events.extend(shell.round());
    assert_eq!(events, ["drained", "closed"]);
}

#[test]
fn a_client_that_does_not_read_is_not_read_and_loses_nothing() {
    let mut shell = Shell::new(INPUT_BYTES);
    let (id, mut client) = shell.connect();
    shell.send(id, &"x".repeat(MUCH));
    client.write_all(b"[1]").unwrap();
    assert_eq!(shell.after_a_while(), ["blocked"]);
    shell.send(id, "end");
    client.set_nonblocking(true).unwrap();
    let (mut received, mut events) = (Vec::new(), Vec::new());
    while events.len() < 2 {
        let _ = client.read_to_end(&mut received);
        events.extend(shell.round().into_iter().filter(|event| event != "activity"));
    }
    assert_eq!(events, ["drained", "message [1]"]);
    let _ = client.read_to_end(&mut received);
    assert_eq!(received.len(), MUCH + 3);
    assert!(received.ends_with(b"xend"));
}

/// A client reads all that it is sent, and there is always more than there is room for.
#[test]
fn a_client_that_is_sent_more_than_its_socket_takes_is_heard_in_between() {
    let mut shell = Shell::new(INPUT_BYTES);
    let (id, mut client) = shell.connect();
    client.set_nonblocking(true).unwrap();
    shell.send(id, &"x".repeat(MUCH));
    client.write_all(b"{}").unwrap();
    let mut text = vec![0; MUCH];
    for _ in 0..1000 {
        while client.read(&mut text).is_ok_and(|count| count > 0) {}
        let events = shell.round();
        if events.iter().any(|event| event.starts_with("message")) {
            return;
        }
        if shell.sessions.backlog() == 0 {
            shell.send(id, &"x".repeat(MUCH));
        }
    }
    panic!("it is not heard");
}

#[test]
fn a_client_that_reads_slowly_is_not_silent() {
    let mut shell = Shell::new(INPUT_BYTES);
    let (id, mut client) = shell.connect();
    shell.send(id, &"x".repeat(MUCH));
    assert_eq!(shell.after_a_while(), ["blocked"]);
    client.set_nonblocking(true).unwrap();
    let (mut received, mut events) = (Vec::new(), Vec::new());
    while received.len() < MUCH / 4 {
        let _ = client.read_to_end(&mut received);
        events.extend(shell.round());
    }
    assert_eq!(events.iter().find(|event| *event != "activity"), None);
    assert!(!events.is_empty());
}

#[test]
fn a_client_that_is_behind_for_a_moment_is_sent_more() {
    let mut shell = Shell::new(INPUT_BYTES);
    let (id, mut client) = shell.connect();
    let (mut events, mut buffer) = (Vec::new(), vec![0; MUCH]);
    for _ in 0..5 {
        shell.send(id, &"x".repeat(MUCH));
        shell.now_us += 1_000_000;
        events.extend(shell.round());
        shell.send(id, "more");
        // It takes everything before the next tick, again and again.
        client.set_nonblocking(true).unwrap();
        let mut left = MUCH + 4;
        while left > 0 {
            left -= client.read(&mut buffer).unwrap_or(0);
            events.extend(shell.round());
        }
        events.extend(shell.round());
    }
    assert!(events.iter().all(|event| event == "activity"), "{events:?}");
}

#[test]
fn when_too_much_waits_for_all_who_is_behind_is_blocked_at_once() {
    let mut shell = Shell::new(INPUT_BYTES);
    let clients: Vec<_> = (0..3).map(|_| shell.connect()).collect();
    shell.round();
    for (id, _) in &clients {
        shell.send(*id, &"x".repeat(MUCH));
    }
    // The same for all counts once.
    let shared = Arc::new(vec![b'y'; MUCH]);
    let mut events = Vec::new();
    for megabytes in (10..=80).step_by(10) {
        clients.iter().for_each(|(id, _)| shell.sessions.send(*id, &Arc::default(), &shared));
        clients.iter().for_each(|(id, _)| shell.send(*id, &"x".repeat(MUCH / 2)));
        events.extend(shell.round());
        assert_eq!(events.is_empty(), megabytes < 32, "after {megabytes} MB");
    }
    assert_eq!(events, ["blocked"; 3]);
}

#[test]
fn a_blocked_client_that_vanishes_is_closed() {
    let mut shell = Shell::new(INPUT_BYTES);
    let (id, client) = shell.connect();
    shell.send(id, &"x".repeat(MUCH));
    drop(client);
    shell.events();
    assert_eq!(shell.round(), ["closed: Broken pipe"]);
    assert_eq!(shell.round(), [] as [&str; 0]);
}

#[test]
fn what_is_no_json_is_said_once() {
    let mut shell = Shell::new(INPUT_BYTES);
    let (id, mut client) = shell.connect();
    client.write_all(b"[1]hello[2]").unwrap();
    assert_eq!(shell.round(), ["message [1]"]);
    assert_eq!(shell.round(), ["bad stream"]);
    client.write_all(b"[3]").unwrap();
    assert_eq!(shell.round(), [] as [&str; 0]);
    shell.disconnect(id);
    assert_eq!(client.read(&mut [0; 9]).unwrap_or(0), 0);
}

#[test]
fn a_disconnected_client_gets_what_was_queued_but_not_for_ever() {
    let mut shell = Shell::new(INPUT_BYTES);
    let (id, mut client) = shell.connect();
    shell.send(id, &"x".repeat(MUCH));
    shell.disconnect(id);
    // As a core might that has not heard of it yet.
    shell.disconnect(id);
    shell.send(id, "too late");
    let reader = std::thread::spawn(move || {
        let mut received = Vec::new();
        client.read_to_end(&mut received).map(|_| received.len())
    });
    while shell.sessions.deadline_us().is_some() {
        shell.round();
    }
    assert_eq!(reader.join().unwrap().unwrap(), MUCH);

    let (id, mut client) = shell.connect();
    shell.send(id, &"x".repeat(MUCH));
    shell.disconnect(id);
    shell.now_us = shell.sessions.deadline_us().unwrap();
    shell.round();
    assert_eq!(shell.sessions.deadline_us(), None);
    let mut received = Vec::new();
    client.read_to_end(&mut received).unwrap();
    assert!(received.len() < MUCH);
}

#[test]
fn numbers_of_sessions_are_not_used_again() {
    let mut shell = Shell::new(INPUT_BYTES);
    let (first, _client) = shell.connect();
    shell.disconnect(first);
    let (second, _client) = shell.connect();
    assert!(second > first);
    shell.send(first, "nobody");
    assert!(!shell.sessions.has_output());
}

#[test]
fn beyond_the_budget_big_messages_arrive_one_by_one_and_small_ones_as_ever() {
    let big = format!("[\"{}\"]", "x".repeat(3 * READ_BYTES));
    // Half of it is for all, the rest for one after another.
    let mut shell = Shell::new(8 * READ_BYTES);
    let mut clients: Vec<_> = (0..4).map(|_| shell.connect().1).collect();
    let mut unsent: Vec<&[u8]> = vec![big.as_bytes(); 3];
    let mut messages = Vec::new();
    let mut held_most = 0;
    while messages.len() < 3 {
        for (client, unsent) in clients.iter_mut().zip(&mut unsent) {
            client.set_nonblocking(true).unwrap();
            if let Ok(sent) = client.write(unsent) {
                *unsent = &unsent[sent..];
            }
        }
        messages.extend(shell.round().into_iter().filter(|event| event != "activity"));
        held_most = held_most.max(shell.sessions.admission.held_bytes());
    }
    assert_eq!(messages, vec![format!("message of {}", big.len()); 3]);
    assert!(held_most < 2 * big.len() + 4 * READ_BYTES, "{held_most} bytes at once");
    assert_eq!(shell.sessions.admission.held_bytes(), 0);
    clients[3].write_all(b"[1]").unwrap();
    assert_eq!(shell.round(), ["message [1]"]);
}

/// Clients that send as much as they can, in turn, until nothing happens any more.
fn pump(shell: &mut Shell, clients: &mut [(UnixStream, &[u8])]) -> Vec<String> {
    let mut events = Vec::new();
    let mut quiet = 0;
    while quiet < 3 {
        let mut moved = false;
        for (client, unsent) in clients.iter_mut() {
            client.set_nonblocking(true).unwrap();
            if let Ok(sent @ 1..) = client.write(unsent) {
                *unsent = &unsent[sent..];
                moved = true;
            }
        }
        let round = shell.round();
        quiet = if moved || !round.is_empty() { 0 } else { quiet + 1 };
        events.extend(round.into_iter().filter(|event| event != "activity"));
    }
    events
}

#[test]
fn a_message_beyond_the_budget_is_passed_over_and_the_next_one_is_taken() {
    let mut shell = Shell::new(4 * READ_BYTES);
    let (_, client) = shell.connect();
    let long = "x".repeat(20 * READ_BYTES);
    let stream = format!(r#"{{"id":1,"method":"echo","params":["{long}"]}}[2]"#);
    let events = pump(&mut shell, &mut [(client, stream.as_bytes())]);
    let refused = r#"refused {"id":1,"method":"echo","params":[]}"#;
    assert_eq!(events, ["too long", refused, "message [2]"]);
    assert_eq!(shell.sessions.admission.held_bytes(), 0);
}

#[test]
fn who_is_silent_in_mid_message_loses_its_turn_but_not_its_message() {
    let mut shell = Shell::new(32 * READ_BYTES);
    let half = format!("[\"{}", "x".repeat(12 * READ_BYTES));
    let whole = format!("[\"{}\"]", "x".repeat(6 * READ_BYTES));
    let (first, second, other) = (shell.connect().1, shell.connect().1, shell.connect().1);
    let mut clients = [first, second, other].map(|client| (client, half.as_bytes()));
    clients[2].1 = whole.as_bytes();
    for count in 1..=3 {
        assert_eq!(pump(&mut shell, &mut clients[..count]), [] as [&str; 0]);
    }
    assert_eq!(shell.end_turn(), [] as [&str; 0]);
    assert_eq!(pump(&mut shell, &mut clients), [format!("message of {}", whole.len())]);
    clients[0].1 = b"\"]";
    clients[1].1 = b"\"]";
    assert_eq!(pump(&mut shell, &mut clients), vec![format!("message of {}", half.len() + 2); 2]);
    assert_eq!(shell.sessions.deadline_us(), None);
}

#[test]
fn who_drips_into_a_big_message_does_not_hold_up_the_others() {
    let mut shell = Shell::new(64 << 20);
    let begun = format!("[\"{}", "x".repeat(7 << 20));
    let mut drips = Vec::new();
    for _ in 0..5 {
        drips.push((shell.connect().1, begun.as_bytes()));
    }
    assert_eq!(pump(&mut shell, &mut drips), [] as [&str; 0]);
    assert!(shell.sessions.admission.has_paused(), "there is no crowd");
    let short = format!("[\"{}\"]", "y".repeat(100 << 10));
    let mut victim = [(shell.connect().1, short.as_bytes())];
    assert_eq!(pump(&mut shell, &mut victim), [format!("message of {}", short.len())]);
    // A byte each in every 0.4 s; a message that is longer than short ones are waits for a turn.
    let long = format!("[\"{}\"]", "y".repeat(3 << 20));
    let mut victim = [(shell.connect().1, long.as_bytes())];
    let (mut events, begun_us) = (Vec::new(), shell.now_us);
    while events.is_empty() {
        shell.now_us += 100_000;
        if (shell.now_us / 100_000).is_multiple_of(4) {
            // What has not been read of them may be all that their sockets take.
            drips.iter_mut().for_each(|(client, _)| drop(client.write(b"x")));
        }
        events = pump(&mut shell, &mut victim);
        events.extend((0..PERIOD_ROUNDS_MIN).flat_map(|_| shell.round()));
        events.retain(|event| event != "activity");
    }
    assert_eq!(events, [format!("message of {}", long.len())]);
    // For each of the others a period with what its socket held, and one with next to nothing.
    let (waited_us, period_us) = (shell.now_us - begun_us, PERIOD_US + 100_000);
    assert!(waited_us < 5 * 2 * period_us, "{waited_us} us");
    // All of them are heard to the end when there is nobody else.
    let (mut ended, mut endings) = (Vec::new(), [b"\"]" as &[u8]; 5]);
    while ended.len() < 5 {
        for ((_, unsent), ending) in drips.iter_mut().zip(&mut endings) {
            if unsent.is_empty() {
                *unsent = mem::take(ending);
            }
        }
        ended.extend(pump(&mut shell, &mut drips));
        ended.extend(shell.end_turn());
    }
    assert!(ended.iter().all(|event| event.starts_with("message of ")), "{ended:?}");
}

#[test]
fn hundreds_with_big_messages_are_read_in_several_rounds_and_in_turn() {
    let mut shell = Shell::new(1 << 30);
    let half = format!("[\"{}", "x".repeat(FREE_BYTES));
    let rest = vec![b'x'; 200 << 10];
    let mut clients: Vec<(SessionId, UnixStream)> = (0..100).map(|_| shell.connect()).collect();
    for (_, client) in &mut clients {
        pump(&mut shell, &mut [(client.try_clone().unwrap(), half.as_bytes())]);
    }
    let held = |shell: &Shell, id| shell.sessions.get(id).unwrap().channel.inbox.held_bytes();
    let mut least = vec![half.len(); clients.len()];
    let mut rounds = 0;
    while least.contains(&half.len()) {
        clients.iter_mut().for_each(|(_, client)| _ = client.write(&rest));
        let before = shell.sessions.admission.held_bytes();
        shell.round();
        let read = shell.sessions.admission.held_bytes() - before;
        assert!(read < ROUND_READ_BYTES_MAX + (1 << 20), "{read} bytes in a round");
        least = clients.iter().map(|(id, _)| held(&shell, *id)).collect();
        rounds += 1;
        assert!(rounds < 100, "somebody is never read");
    }
    assert!((2..6).contains(&rounds), "{rounds} rounds, {least:?}");
    // Who has little to say is heard in each of them.
    let (_, mut client) = shell.connect();
    clients.iter_mut().for_each(|(_, client)| _ = client.write(&rest));
    client.write_all(b"[1]").unwrap();
    assert!(shell.round().contains(&"message [1]".to_owned()));
}

#[test]
fn while_as_much_is_read_and_written_as_may_be_all_have_their_turn() {
    let mut shell = Shell::new(1 << 30);
    let half = format!("[\"{}", "x".repeat(FREE_BYTES));
    let rest = vec![b'x'; 200 << 10];
    let mut senders: Vec<_> = (0..100).map(|_| shell.connect()).collect();
    let mut takers: Vec<_> = (0..30).map(|_| shell.connect()).collect();
    for (_, client) in &mut senders {
        pump(&mut shell, &mut [(client.try_clone().unwrap(), half.as_bytes())]);
    }
    let much = "y".repeat(MUCH);
    takers.iter().for_each(|(id, _)| shell.send(*id, &much));
    let channel = |shell: &Shell, id| {
        let channel = &shell.sessions.get(id).unwrap().channel;
        (channel.inbox.held_bytes(), channel.outbox.bytes())
    };
    let untaken: Vec<usize> = takers.iter().map(|(id, _)| channel(&shell, *id).1).collect();
    let (mut rounds, mut cut, mut taken) = (0, 0, vec![0; 1 << 20]);
    while senders.iter().any(|(id, _)| channel(&shell, *id).0 == half.len())
        || takers.iter().zip(&untaken).any(|((id, _), bytes)| channel(&shell, *id).1 == *bytes)
    {
        assert!(rounds < 10, "somebody has no turn");
        senders.iter_mut().for_each(|(_, client)| _ = client.write(&rest));
        for (_, client) in &mut takers {
            client.set_nonblocking(true).unwrap();
            _ = client.read(&mut taken);
        }
        shell.round();
        rounds += 1;
        let Sessions { round_bytes, round_read_bytes, .. } = shell.sessions;
        cut +=
            u32::from(round_bytes >= ROUND_BYTES_MAX && round_read_bytes >= ROUND_READ_BYTES_MAX);
    }
    assert!(cut > 1, "{cut} of {rounds} rounds had too much of both");
}

#[test]
fn a_slow_line_gets_its_message_through() {
    let mut shell = Shell::new(64 << 20);
    let message = format!("[\"{}\"]", "x".repeat(20 << 20));
    let begun = format!("[\"{}", "x".repeat(30 << 20));
    let mut slow = [(shell.connect().1, &message.as_bytes()[..3 << 20])];
    let mut others = [(shell.connect().1, begun.as_bytes())];
    assert_eq!(pump(&mut shell, &mut slow), [] as [&str; 0]);
    assert_eq!(pump(&mut shell, &mut others), [] as [&str; 0]);
    // 0.5 MB/s for longer than a turn, and another waits.
    let mut events = Vec::new();
    let mut end = 3 << 20;
    while events.is_empty() {
        let sent = end - slow[0].1.len();
        end = message.len().min(end + 2 * PERIOD_BYTES_MIN);
        slow[0].1 = &message.as_bytes()[sent..end];
        events = pump(&mut shell, &mut slow);
        events.extend(pump(&mut shell, &mut others));
        events.extend(shell.end_turn());
    }
    assert_eq!(events, [format!("message of {}", message.len())]);
}

#[test]
fn many_who_are_silent_in_mid_message_hold_no_more_than_the_budget() {
    let mut shell = Shell::new(32 * READ_BYTES);
    let half = format!("[\"{}", "x".repeat(12 * READ_BYTES));
    let mut silent: Vec<(UnixStream, &[u8])> = Vec::new();
    let mut events = Vec::new();
    for _ in 0..20 {
        silent.push((shell.connect().1, half.as_bytes()));
        for _ in 0..3 {
            silent.retain(|(client, _)| is_open(client));
            events.extend(pump(&mut shell, &mut silent));
            events.extend(shell.end_turn());
        }
        assert!(
            shell.sessions.admission.held_bytes() < 48 * READ_BYTES,
            "{}",
            shell.sessions.admission.held_bytes()
        );
    }
    let closed = "closed: no memory for a message that comes too slowly";
    assert!(!events.is_empty() && events.iter().all(|event| event == closed), "{events:?}");
}

/// Whether the other end of a client's socket is there.
fn is_open(mut client: &UnixStream) -> bool {
    client.set_nonblocking(true).unwrap();
    client.read(&mut [0]).is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock)
}

#[test]
fn who_waits_for_a_turn_is_not_silent() {
    let mut shell = Shell::new(8 * READ_BYTES);
    let half = format!("[\"{}", "x".repeat(3 * READ_BYTES));
    let mut clients = [(shell.connect().1, half.as_bytes()), (shell.connect().1, half.as_bytes())];
    pump(&mut shell, &mut clients);
    shell.sessions.admission.note_at_work(6 * READ_BYTES);
    clients[0].1 = b"x";
    clients[1].1 = b"x";
    pump(&mut shell, &mut clients);
    assert!(shell.sessions.admission.has_paused());
    for _ in 0..10 {
        let mut events = Vec::new();
        while events.is_empty() {
            let deadline_us = shell.sessions.deadline_us().expect("somebody waits");
            shell.now_us = shell.now_us.max(deadline_us);
            events = shell.round();
        }
        assert_eq!(events, ["activity"; 2]);
    }
}

#[test]
fn a_session_that_is_stopped_and_goes_on_has_one_message_taken_a_round() {
    let mut shell = Shell::new(INPUT_BYTES);
    let (id, mut client) = shell.connect();
    client.write_all(b"[1][2][3]").unwrap();
    assert_eq!(shell.round(), ["message [1]"]);
    for _ in 0..3 {
        shell.sessions.stop_reading(&shell.poller, id);
        shell.sessions.go_on_reading(&shell.poller, id);
    }
    assert_eq!(shell.round(), ["message [2]"]);
    assert_eq!(shell.round(), ["message [3]"]);
}

/// An answer is given, and what waited behind it has its turn, in one round.
#[test]
fn a_session_goes_on_though_something_is_queued_for_it() {
    let mut shell = Shell::new(INPUT_BYTES);
    let (id, mut client) = shell.connect();
    client.write_all(b"[1]").unwrap();
    assert_eq!(shell.round(), ["message [1]"]);
    shell.sessions.stop_reading(&shell.poller, id);
    shell.sessions.send(id, &Arc::default(), &Arc::new(b"{}".to_vec()));
    shell.sessions.go_on_reading(&shell.poller, id);
    client.write_all(b"[2]").unwrap();
    assert_eq!(shell.round(), ["message [2]"]);
}

#[test]
fn a_client_that_goes_while_it_is_not_heard_has_gone() {
    let mut shell = Shell::new(INPUT_BYTES);
    let (id, mut client) = shell.connect();
    client.write_all(b"[1][2][3]").unwrap();
    assert_eq!(shell.round(), ["message [1]"]);
    shell.sessions.stop_reading(&shell.poller, id);
    assert_eq!(shell.round(), [] as [&str; 0]);
    drop(client);
    assert_eq!(shell.round(), ["closed"]);
    // Nothing is ready any more: the loop sleeps.
    let mut ready = Vec::new();
    shell.poller.wait(Some(Duration::ZERO), &mut ready).unwrap();
    assert!(ready.is_empty() && !shell.sessions.has_work(), "{ready:?}");
}

/// Both ends of a connection over TLS, the server's first; `None` where nobody makes certificates.
fn tls_pair(name: &str) -> Option<(Stream, Stream)> {
    let pki = Pki::usual(name)?;
    let [mut ours, mut theirs] = ["server", "client"].map(|of| Tls::new(&pki.options(of, "ca")));
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("ssl:{}", listener.local_addr().unwrap());
    let address = Address::parse(&address, Path::new("/")).unwrap();
    let mut client = Stream::connect(&address, Some(&theirs.connector().unwrap())).unwrap();
    let (server, _) = listener.accept().unwrap();
    server.set_nonblocking(true).unwrap();
    let mut server = Stream::Tcp(server.into()).accept_tls(&ours.acceptor().unwrap()).unwrap();
    let mut is_done = [false; 2];
    while is_done != [true; 2] {
        for (stream, is_done) in [&mut server, &mut client].into_iter().zip(&mut is_done) {
            *is_done = *is_done || stream.finish_connect().unwrap() == Progress::Done;
        }
    }
    Some((server, client))
}

#[test]
fn what_tls_has_to_say_of_its_own_keeps_nobody_from_being_heard() {
    let Some((server, mut client)) = tls_pair("session-pending") else { return };
    let mut shell = Shell::new(INPUT_BYTES);
    shell.sessions.accept(&shell.poller, server, RemoteId(1), "ssl:client".to_owned());
    let id = shell.sessions.slots[0].as_ref().unwrap().id;
    shell.events();
    living(&mut shell.sessions.slots, id).channel.leave_pending();
    let sent = client.write_vectored(&[std::io::IoSlice::new(b"[1][2]")]).unwrap();
    assert_eq!(sent, 6);
    let (mut messages, mut taken) = (Vec::new(), Vec::new());
    for round in 0.. {
        assert!(round < 100_000, "{messages:?}");
        let events = shell.round();
        messages.extend(events.into_iter().filter(|event| event.starts_with("message")));
        if messages.len() == 2 {
            break;
        }
        // It takes what there is for it only when it has said all.
        if messages.len() == 1 && client.read_spare(&mut taken, &mut [0; 1 << 16]).is_err() {
            std::thread::yield_now();
        }
    }
    assert_eq!(messages, ["message [1]", "message [2]"]);
    // Nothing is ready any more: the loop sleeps.
    let mut ready = Vec::new();
    shell.poller.wait(Some(Duration::ZERO), &mut ready).unwrap();
    assert!(ready.is_empty() && !shell.sessions.has_work(), "{ready:?}");
}

#[test]
fn what_is_at_work_is_waited_for_before_anything_is_refused() {
    let mut shell = Shell::new(8 * READ_BYTES);
    shell.sessions.admission.note_at_work(6 * READ_BYTES);
    let message = format!("[\"{}\"]", "x".repeat(5 * READ_BYTES));
    let (_, client) = shell.connect();
    let mut clients = [(client, message.as_bytes())];
    assert_eq!(pump(&mut shell, &mut clients), [] as [&str; 0]);
    shell.sessions.admission.note_at_work(0);
    assert_eq!(pump(&mut shell, &mut clients), [format!("message of {}", message.len())]);
}

#[test]
fn without_a_turn_nobody_has_more_here_than_what_waits_for_nobody_and_a_read() {
    let mut shell = Shell::new(16 * READ_BYTES);
    shell.sessions.admission.note_at_work(16 * READ_BYTES);
    let (id, mut client) = shell.connect();
    client.write_all(b"[\"").unwrap();
    // What an inbox has room for depends on what came before.
    for bytes in [95 << 10, 32 << 10, 200 << 10, 200 << 10] {
        client.set_nonblocking(true).unwrap();
        _ = client.write(&vec![b'x'; bytes]);
        (0..4).for_each(|_| _ = shell.round());
    }
    let held = shell.sessions.get(id).unwrap().channel.inbox.held_bytes();
    assert!((FREE_BYTES..FREE_BYTES + READ_BYTES).contains(&held), "{held} bytes");
}

#[test]
fn who_takes_nothing_is_disconnected_in_the_end_unless_it_is_one_long_answer() {
    let mut shell = Shell::new(usize::MAX);
    let (patient, _theirs) = shell.connect();
    shell.send(patient, &"x".repeat(BACKLOG_BYTES_MAX + (1 << 20)));
    shell.send(patient, "y");
    assert_eq!(
        shell.events(),
        Vec::<String>::new(),
        "what it has asked for may be as long as that"
    );

    let (idle, _theirs) = shell.connect();
    let body = Arc::new(vec![b' '; 2 << 20]);
    let mut sent = 0;
    let events = loop {
        shell.sessions.send(idle, &Arc::default(), &body);
        shell.sessions.flush_dirty(&shell.poller, &mut shell.coverage);
        sent += body.len();
        let events = shell.events();
        if !events.is_empty() {
            break events;
        }
        assert!(sent < 2 * BACKLOG_BYTES_MAX, "it goes on for ever");
    };
    assert!(sent > BACKLOG_BYTES_MAX, "{sent}");
    assert!(events[0].contains("it has not read"), "{events:?}");
    shell.send(idle, "to nobody");
    assert_eq!(shell.events(), Vec::<String>::new());
}

#[test]
fn of_many_who_take_nothing_those_with_most_go() {
    let mut shell = Shell::new(usize::MAX);
    shell.sessions.backlog = Backlog::new(20 << 20);
    let clients: Vec<(SessionId, UnixStream)> = (0..10).map(|_| shell.connect()).collect();
    for (i, (id, _)) in clients.iter().enumerate() {
        shell.send(*id, &"x".repeat(((i + 1) << 20) + (i << 10)));
    }
    // 55 MiB: those with 10, 9, 8 and 7 go, and one more for what the sockets have taken.
    shell.after_a_while();
    shell.sessions.flush_dirty(&shell.poller, &mut shell.coverage);
    let events = shell.events();
    let gone = events.iter().filter(|event| event.contains("it has not read")).count();
    assert!((4..=5).contains(&gone), "{events:?}");
    let left = shell.sessions.backlogs();
    assert!(left.contains_key(&clients[0].0) && !left.contains_key(&clients[9].0), "{left:?}");
}
