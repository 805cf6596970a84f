//! Waiting for several futures of one caller.

use std::future::Future;
use std::pin::Pin;
use std::task::Poll;

/// All outputs, in the order of the futures. Each wake-up polls every future that is still pending:
/// meant for the members of an array, not for thousands.
pub async fn join_all<F: Future + Unpin>(futures: Vec<F>) -> Vec<F::Output> {
    let mut pending: Vec<Option<F>> = futures.into_iter().map(Some).collect();
    let mut outputs: Vec<Option<F::Output>> = pending.iter().map(|_| None).collect();
    std::future::poll_fn(|context| {
        let mut waiting = false;
        for (future, output) in pending.iter_mut().zip(&mut outputs) {
            let Some(running) = future else { continue };
            match Pin::new(running).poll(context) {
                Poll::Ready(value) => {
                    *output = Some(value);
                    *future = None;
                }
                Poll::Pending => waiting = true,
            }
        }
        if waiting { Poll::Pending } else { Poll::Ready(()) }
    })
    .await;
    outputs.into_iter().map(|output| output.expect("every future is done")).collect()
}
