//! `headpond witness verify`.

use super::args::VerifyArgs;
use super::connect::Client;
use super::words;
use crate::telling::print_json;
use anyhow::Result;
use headpond_api::answers::Versioned;
use headpond_api::outcome::Exit;
use headpond_block::{BufferPool, PoolConfig};
use headpond_uring::{RingConfig, run_with_pool};
use headpond_witness::field::looker::look;
use headpond_witness::field::ruling::{Ruling, Verdict};
use headpond_witness::field::wire::Purpose;
use indicatif::ProgressBar;

/// # Errors
/// If there is no ruling.
pub fn run(args: &VerifyArgs) -> Result<Exit> {
    let pool = BufferPool::new(&PoolConfig::default());
    let (name, ruling) = run_with_pool(&RingConfig::default(), &pool, |ring, runtime| async {
        let client = Client::new(&args.device, ring, runtime)?;
        let ruling = verify(&client).await?;
        Ok::<_, anyhow::Error>((client.name().to_owned(), ruling))
    })??;
    if args.json {
        print_json(&Versioned::new(&ruling))?;
    } else {
        words::of(&name, &ruling).iter().for_each(|line| println!("{line}"));
    }
    Ok(exit(&ruling))
}

pub fn exit(ruling: &Ruling) -> Exit {
    match ruling.verdict {
        // A loss is not undone by a second verification.
        _ if ruling.before == Some(Verdict::Broken) => Exit::Error,
        Verdict::Kept => Exit::Ok,
        Verdict::Broken => Exit::Error,
        Verdict::NothingPromised | Verdict::Incomplete => Exit::Degraded,
    }
}

/// Reads the device and gets the witness's ruling.
///
/// # Errors
/// Where it does not.
pub async fn verify(client: &Client) -> Result<Ruling> {
    let device = client.target.open_to_read(client.ring(), &client.runtime).await?;
    let (link, welcome) = client.open(Purpose::Verify, &*device, None).await?;
    let bar = ProgressBar::new(welcome.region.blocks);
    let progress = |block| bar.set_position(block);
    let ruling = look(&*device, &client.runtime, &link, &welcome, &progress).await;
    bar.finish_and_clear();
    Ok(ruling?)
}
