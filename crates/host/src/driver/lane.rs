//! A thread that does one thing after the other, in the order in which they came: for what must
//! keep its order, or comes so often that a thread for each would cost more than the thing itself.

use std::sync::mpsc::{Sender, channel};

/// What the thread does.
pub(crate) type Task = Box<dyn FnOnce() + Send>;

/// The loop's end of the thread, which is started when it is first needed and ends when this is
/// dropped, behind what it has been given.
pub(crate) struct Lane {
    name: &'static str,
    sender: Option<Sender<Task>>,
}

impl Lane {
    /// A lane whose thread will be called `name`.
    pub(crate) fn new(name: &'static str) -> Self {
        Self { name, sender: None }
    }

    /// Does `task` behind what came before it, which must not panic. Where the system has no thread
    /// for us, it is done at once: better slowly than never.
    pub(crate) fn push(&mut self, task: Task) {
        if self.sender.is_none() {
            self.sender = self.start();
        }
        match &self.sender {
            None => task(),
            Some(sender) => {
                sender.send(task).expect("the thread takes tasks until this is dropped")
            }
        }
    }

    fn start(&self) -> Option<Sender<Task>> {
        let (sender, tasks) = channel::<Task>();
        let body = move || tasks.into_iter().for_each(|task| task());
        let thread = std::thread::Builder::new().name(self.name.to_owned());
        thread.spawn(body).ok().map(|_| sender)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn what_a_lane_is_given_is_done_in_order_by_one_thread() {
        let (told, heard) = channel();
        let mut lane = Lane::new("lane");
        for number in 0..100 {
            let told = told.clone();
            lane.push(Box::new(move || {
                let name = std::thread::current().name().map(str::to_owned);
                told.send((number, name)).unwrap();
            }));
        }
        drop((lane, told));
        let all: Vec<_> = heard.iter().collect();
        assert_eq!(all, (0..100).map(|n| (n, Some("lane".to_owned()))).collect::<Vec<_>>());
    }
}
