//! The end that keeps its power: hears writers, rules on what is found, tells agents what to do.
//!
//! 1. [`Server::serve`] accepts connections; each is one task: handshake, a hello, then what was
//!    asked for.
//! 2. Of one device one session lives at a time. A new one ends the old: the machine that lost its
//!    power did not say goodbye.
//!
//! **Invariants**: what a peer can make the witness hold is bounded by [`Limits`] and the sizes of
//! regions. A peer that does not prove the key within the time for it is cut off.
//!
//! **Not here**: sockets (a runtime makes listeners and streams), and when power is cut.

use super::auth::{Key, NONCE_BYTES};
use super::link::{Link, LinkError};
use super::subject::{Subject, SubjectError};
use super::wire::{FromWitness, Hello, Purpose, Task, ToWitness};
use headpond_block::sync::Notify;
use headpond_block::{Listener, Runtime, Stream};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

/// Bounds on what peers may hold.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    pub connections_max: usize,
    /// Devices that are watched.
    pub subjects_max: usize,
    pub handshake_time_max: Duration,
    /// A client that says nothing for so long is gone.
    pub silence_max: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections_max: 32,
            subjects_max: 16,
            handshake_time_max: Duration::from_secs(10),
            silence_max: Duration::from_secs(120),
        }
    }
}

/// What a server needs from outside: the time of day and numbers that nobody can guess.
pub trait Surroundings {
    /// Milliseconds since 1970.
    fn now_ms(&self) -> u64;

    fn random(&self) -> [u8; NONCE_BYTES];

    /// What happened, for whoever watches.
    fn note(&self, what: &str);
}

/// What agents are told to do, where somebody decides that.
pub trait Conductor {
    /// What the agent of this device does next, given what the witness knows of it.
    fn task(&self, name: &str, subject: Option<&Subject>) -> Task;
}

/// An agent without a campaign looks where that is due, and writes otherwise.
pub struct Endless;

impl Conductor for Endless {
    fn task(&self, _name: &str, subject: Option<&Subject>) -> Task {
        match subject {
            Some(subject) if subject.wants_a_look() => Task::Verify,
            _ => Task::Write,
        }
    }
}

/// A witness. Cloning shares it.
#[derive(Clone)]
pub struct Server(Rc<Shared>);

struct Shared {
    runtime: Runtime,
    key: Key,
    folder: PathBuf,
    limits: Limits,
    surroundings: Box<dyn Surroundings>,
    conductor: Box<dyn Conductor>,
    subjects: RefCell<BTreeMap<String, Subject>>,
    sessions: RefCell<BTreeMap<String, Session>>,
    connections: Cell<usize>,
    next_session: Cell<u64>,
    changed: Notify,
}

struct Session {
    number: u64,
    link: Rc<Link>,
}

/// A session is over.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    #[error(transparent)]
    Link(#[from] LinkError),
    #[error(transparent)]
    Subject(#[from] SubjectError),
    #[error("the other end has said nothing for too long")]
    Silent,
    #[error("another session of the same device has begun")]
    Replaced,
}

impl Server {
    /// A witness that keeps each device in a folder of its own below `folder`.
    pub fn new(
        runtime: &Runtime,
        key: Key,
        folder: PathBuf,
        limits: Limits,
        surroundings: Box<dyn Surroundings>,
        conductor: Box<dyn Conductor>,
    ) -> Self {
        Self(Rc::new(Shared {
            runtime: runtime.clone(),
            key,
            folder,
            limits,
            surroundings,
            conductor,
            subjects: RefCell::default(),
            sessions: RefCell::default(),
            connections: Cell::new(0),
            next_session: Cell::new(0),
            changed: Notify::new(),
        }))
    }

    /// Accepts connections for ever.
    ///
    /// # Errors
    /// What the listener says.
    pub async fn serve(&self, listener: Rc<dyn Listener>) -> io::Result<()> {
        loop {
            let stream = listener.accept().await?;
            if self.0.connections.get() >= self.0.limits.connections_max {
                self.0.surroundings.note("a connection too many is closed");
                stream.shutdown();
                continue;
            }
            self.0.connections.set(self.0.connections.get() + 1);
            let server = self.clone();
            drop(self.0.runtime.spawn(async move { server.connection(stream).await }));
        }
    }

    /// Waits until something has happened to a device.
    pub async fn changed(&self) {
        self.0.changed.wait().await;
    }

    /// Looks at a device that was heard of since the witness started.
    pub fn with_subject<T>(&self, name: &str, look: impl FnOnce(Option<&mut Subject>) -> T) -> T {
        let _ = self.load(name);
        look(self.0.subjects.borrow_mut().get_mut(name))
    }

    /// Has the writer of a device end in order, where one writes.
    pub async fn stop_writer(&self, name: &str) {
        let link = self.0.sessions.borrow().get(name).map(|session| Rc::clone(&session.link));
        if let Some(link) = link {
            let _ = link.answer(&FromWitness::Stop).await;
        }
    }

    async fn connection(&self, stream: Rc<dyn Stream>) {
        let peer = stream.peer();
        if let Err(error) = self.session(stream).await {
            self.0.surroundings.note(&format!("{peer}: {error}"));
        }
        self.0.connections.set(self.0.connections.get() - 1);
        self.0.changed.notify_all();
    }

    async fn session(&self, stream: Rc<dyn Stream>) -> Result<(), SessionError> {
        let shared = &self.0;
        let accept = {
            let (stream, key) = (Rc::clone(&stream), shared.key.clone());
            let nonce = shared.surroundings.random();
            async move { Link::accept(stream, &key, nonce).await }
        };
        let at = shared.runtime.now() + shared.limits.handshake_time_max;
        let link = match shared.runtime.deadline(at, accept).await {
            Ok(link) => Rc::new(link?),
            Err(_) => {
                stream.shutdown();
                return Err(SessionError::Silent);
            }
        };
        let ToWitness::Hello(hello) = self.receive(&link).await? else {
            return Err(SubjectError::OutOfPlace("a message before the hello").into());
        };
        if let Err(error) = self.carry_out(&link, &hello).await {
            if let SessionError::Subject(reason) = &error {
                let _ = link.answer(&FromWitness::Refused(reason.to_string())).await;
            }
            return Err(error);
        }
        Ok(())
    }

    async fn carry_out(&self, link: &Rc<Link>, hello: &Hello) -> Result<(), SessionError> {
        if hello.purpose == Purpose::Ask {
            self.load(&hello.name)?;
            let task = {
                let subjects = self.0.subjects.borrow();
                self.0.conductor.task(&hello.name, subjects.get(&hello.name))
            };
            return Ok(link.answer(&FromWitness::Task(task)).await?);
        }
        if hello.purpose != Purpose::WriteAnew {
            // Who begins anew does not ask whether what is there can be read.
            self.load(&hello.name)?;
        }
        let number = self.replace_session(link, &hello.name)?;
        let outcome = match hello.purpose {
            Purpose::Verify => self.look(link, hello, number).await,
            _ => self.write(link, hello, number).await,
        };
        if self.is_current(&hello.name, number) {
            self.0.sessions.borrow_mut().remove(&hello.name);
            self.lose(&hello.name, &outcome)?;
        }
        self.0.changed.notify_all();
        outcome
    }

    /// What a session leaves behind: a writer that did not end in order was cut off.
    fn lose(&self, name: &str, outcome: &Result<(), SessionError>) -> Result<(), SubjectError> {
        let mut subjects = self.0.subjects.borrow_mut();
        let is_doubtful = matches!(
            outcome,
            Err(SessionError::Subject(SubjectError::Untrue(_) | SubjectError::Store(_)))
        );
        if is_doubtful {
            // What is in memory may be ahead of the files; they are what was confirmed.
            subjects.remove(name);
        } else if let Some(subject) = subjects.get_mut(name) {
            subject.lose(self.0.surroundings.now_ms())?;
        }
        Ok(())
    }

    /// Ends the session that this device has, as a cut where it is a writer's.
    fn replace_session(&self, link: &Rc<Link>, name: &str) -> Result<u64, SubjectError> {
        let number = self.0.next_session.replace(self.0.next_session.get() + 1);
        let session = Session { number, link: Rc::clone(link) };
        if let Some(before) = self.0.sessions.borrow_mut().insert(name.to_owned(), session) {
            before.link.close();
        }
        if let Some(subject) = self.0.subjects.borrow_mut().get_mut(name) {
            subject.lose(self.0.surroundings.now_ms())?;
        }
        Ok(number)
    }

    fn is_current(&self, name: &str, number: u64) -> bool {
        self.0.sessions.borrow().get(name).is_some_and(|session| session.number == number)
    }

    /// Reads what the witness's disk has of a device, where that was not done yet.
    fn load(&self, name: &str) -> Result<(), SubjectError> {
        let mut subjects = self.0.subjects.borrow_mut();
        if subjects.contains_key(name) {
            return Ok(());
        }
        if let Some(subject) = Subject::open(&self.0.folder.join(name))? {
            self.check_room(&subjects)?;
            subjects.insert(name.to_owned(), subject);
        }
        Ok(())
    }

    fn check_room(&self, subjects: &BTreeMap<String, Subject>) -> Result<(), SubjectError> {
        if subjects.len() >= self.0.limits.subjects_max {
            return Err(SubjectError::OutOfPlace("one more device than this witness watches"));
        }
        Ok(())
    }

    async fn write(&self, link: &Rc<Link>, hello: &Hello, number: u64) -> Result<(), SessionError> {
        let welcome = self.open_write(hello)?;
        link.answer(&FromWitness::Welcome(welcome)).await?;
        self.0.surroundings.note(&format!("{}: a writer begins ({})", hello.name, link.peer()));
        let mut heard = 0;
        loop {
            let ToWitness::Events(events) = self.receive(link).await? else {
                return Err(SubjectError::OutOfPlace("something else than reports").into());
            };
            if !self.is_current(&hello.name, number) {
                return Err(SessionError::Replaced);
            }
            heard += events.len() as u64;
            let is_over = {
                let mut subjects = self.0.subjects.borrow_mut();
                let subject = subjects.get_mut(&hello.name).expect("it was opened");
                subject.report(self.0.surroundings.now_ms(), events)?;
                !subject.is_writing()
            };
            self.0.changed.notify_all();
            link.answer(&FromWitness::Stored { events: heard }).await?;
            if is_over {
                self.0.surroundings.note(&format!("{}: the writer ends in order", hello.name));
                return Ok(());
            }
        }
    }

    fn open_write(&self, hello: &Hello) -> Result<super::wire::Welcome, SubjectError> {
        let mut subjects = self.0.subjects.borrow_mut();
        if hello.purpose == Purpose::WriteAnew || !subjects.contains_key(&hello.name) {
            if !subjects.contains_key(&hello.name) {
                self.check_room(&subjects)?;
            }
            let random = self.0.surroundings.random();
            let seed = u64::from_le_bytes(random[..8].try_into().expect("eight bytes"));
            let subject = Subject::create(&self.0.folder.join(&hello.name), hello, seed)?;
            subjects.insert(hello.name.clone(), subject);
        }
        subjects.get_mut(&hello.name).expect("it is there").open_write(hello)
    }

    async fn look(&self, link: &Rc<Link>, hello: &Hello, number: u64) -> Result<(), SessionError> {
        let welcome = {
            let mut subjects = self.0.subjects.borrow_mut();
            let subject = subjects.get_mut(&hello.name).ok_or(SubjectError::NothingWritten)?;
            subject.open_look(hello)?
        };
        link.answer(&FromWitness::Welcome(welcome)).await?;
        loop {
            let message = self.receive(link).await?;
            if !self.is_current(&hello.name, number) {
                return Err(SessionError::Replaced);
            }
            let ruling = {
                let mut subjects = self.0.subjects.borrow_mut();
                let subject = subjects.get_mut(&hello.name).expect("it was opened");
                match message {
                    ToWitness::Findings(findings) => {
                        subject.look(&findings)?;
                        continue;
                    }
                    ToWitness::Looked { was_flushed } => {
                        subject.rule(self.0.surroundings.now_ms(), was_flushed)?
                    }
                    _ => {
                        return Err(
                            SubjectError::OutOfPlace("something else than a finding").into()
                        );
                    }
                }
            };
            self.0.surroundings.note(&format!("{}: {}", hello.name, ruling.verdict));
            return Ok(link.answer(&FromWitness::Ruling(Box::new(ruling))).await?);
        }
    }

    async fn receive(&self, link: &Rc<Link>) -> Result<ToWitness, SessionError> {
        let at = self.0.runtime.now() + self.0.limits.silence_max;
        let link = Rc::clone(link);
        let received = {
            let link = Rc::clone(&link);
            async move { link.receive().await }
        };
        match self.0.runtime.deadline(at, received).await {
            Ok(message) => Ok(message?),
            Err(_) => {
                link.close();
                Err(SessionError::Silent)
            }
        }
    }
}
