//! What travels between a witness and its clients, and what a witness keeps on its own disk: any
//! body, entry and sealed snapshot.

#![no_main]

use headpond_fuzz::seal;
use headpond_witness::field::snapshot::{self, Entry};
use headpond_witness::field::wire::{FromWitness, ToWitness};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    if let Ok(message) = ToWitness::decode(data) {
        assert_eq!(ToWitness::decode(&message.encode()), Ok(message));
    }
    if let Ok(message) = FromWitness::decode(data) {
        assert_eq!(FromWitness::decode(&message.encode()), Ok(message));
    }
    if let Ok(entry) = Entry::decode(data) {
        assert_eq!(Entry::decode(&entry.encode()), Ok(entry));
    }
    let (mut bytes, at) = (data.to_vec(), data.len());
    bytes.extend([0; 4]);
    seal(&mut bytes, at, 0..at);
    if let Ok((header, book)) = snapshot::decode(&bytes) {
        let again = snapshot::encode(&header, &book);
        assert_eq!(snapshot::decode(&again), Ok((header, book)));
    }
});
