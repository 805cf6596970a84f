//! Members that change what they hold, and say nothing.

use super::Machine;
use headpond_sim::Random;

const SECTOR_BYTES: u64 = 512;
/// Bands that are rotted at a time, at most.
const BANDS_MAX: u64 = 4;

impl Machine {
    /// Flips a bit of a sector on as many members as may be lost, or fewer, in some bands of rows
    /// where the window lies; answers with the number of sectors.
    pub fn rot_members(&self, random: &mut Random) -> u64 {
        let topology = &self.topology;
        let window = topology.window_on_member();
        let band_bytes = topology.band_bytes();
        let end = window.end().min(topology.member_bytes());
        let bands = (end - window.start()) / band_bytes;
        let mut order: Vec<u64> = (0..bands).collect();
        random.shuffle(&mut order);
        let mut rotted = 0;
        for band in order.into_iter().take(1 + random.below(BANDS_MAX) as usize) {
            let mut members = self.belonging_members();
            random.shuffle(&mut members);
            let most = topology.redundancy() as u64;
            for member in members.into_iter().take(1 + random.below(most) as usize) {
                let sector = random.below(band_bytes / SECTOR_BYTES) * SECTOR_BYTES;
                let at = window.start() + band * band_bytes + sector + random.below(SECTOR_BYTES);
                let byte = self.members[member].peek(at, 1)[0];
                self.members[member].poke(at, &[byte ^ 1 << random.below(8)]);
                rotted += 1;
            }
        }
        rotted
    }
}
