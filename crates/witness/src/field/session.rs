//! How a client comes to the witness: connect, say what is wanted, hear whether it may be.

use super::auth::{Key, NONCE_BYTES};
use super::link::{Link, LinkError};
use super::wire::{FromWitness, Hello, Purpose, Task, ToWitness, Welcome};
use headpond_block::{Runtime, Stream};
use std::rc::Rc;
use std::time::Duration;

/// The witness may have to read a long log first.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(60);

/// There is no session.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error(transparent)]
    Link(#[from] LinkError),
    #[error("the witness does not answer")]
    Silent,
    #[error("the witness refuses: {0}")]
    Refused(String),
    #[error("the witness answers something else than expected")]
    OutOfPlace,
}

/// Opens a session of a writer or a verifier.
///
/// # Errors
/// Where there is no witness, or it refuses.
pub async fn open(
    runtime: &Runtime,
    stream: Rc<dyn Stream>,
    key: &Key,
    nonce: [u8; NONCE_BYTES],
    hello: &Hello,
) -> Result<(Rc<Link>, Welcome), OpenError> {
    let (link, answer) = say_hello(runtime, stream, key, nonce, hello).await?;
    match answer {
        FromWitness::Welcome(welcome) => Ok((link, welcome)),
        FromWitness::Refused(reason) => Err(OpenError::Refused(reason)),
        _ => Err(OpenError::OutOfPlace),
    }
}

/// Asks what to do next about a device.
///
/// # Errors
/// As [`open`].
pub async fn ask(
    runtime: &Runtime,
    stream: Rc<dyn Stream>,
    key: &Key,
    nonce: [u8; NONCE_BYTES],
    hello: &Hello,
) -> Result<Task, OpenError> {
    assert_eq!(hello.purpose, Purpose::Ask, "a question");
    match say_hello(runtime, stream, key, nonce, hello).await?.1 {
        FromWitness::Task(task) => Ok(task),
        FromWitness::Refused(reason) => Err(OpenError::Refused(reason)),
        _ => Err(OpenError::OutOfPlace),
    }
}

async fn say_hello(
    runtime: &Runtime,
    stream: Rc<dyn Stream>,
    key: &Key,
    nonce: [u8; NONCE_BYTES],
    hello: &Hello,
) -> Result<(Rc<Link>, FromWitness), OpenError> {
    let (key, hello) = (key.clone(), hello.clone());
    let exchange = async move {
        let link = Link::connect(stream, &key, nonce).await?;
        link.send(&ToWitness::Hello(hello)).await?;
        let answer = link.receive_answer().await?;
        Ok::<_, LinkError>((Rc::new(link), answer))
    };
    match runtime.deadline(runtime.now() + ANSWER_TIME_MAX, exchange).await {
        Ok(answer) => Ok(answer?),
        Err(_) => Err(OpenError::Silent),
    }
}
