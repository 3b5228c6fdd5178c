//! The body of the fuzz target, with random inputs: errors are fine, panics and hangs are not.

use crate::damaged::images;
use crate::fuzz_body::{Sample, exercise, run, samples};
use tidegate_testing::fill::Rng;
use tidegate_vfs::ErrorKind;

/// The undamaged samples are seen whole, so the inputs really test damage.
#[test]
fn undamaged_samples_are_seen_whole() {
    assert_eq!(samples().each_ref().map(Sample::needs_recovery), [false, true]);
    for sample in samples() {
        let seen = exercise(sample.device(&[]));
        assert!(seen.mounted && seen.writable, "{seen:?}");
        assert_eq!(seen.errors.iter().filter(|k| **k != ErrorKind::NotFound).count(), 0, "{seen:?}");
        assert!(seen.entries > 200 && seen.attrs == 40 && seen.bytes > 100_000, "{seen:?}");
    }
}

#[test]
fn patches_of_chance_are_survived() {
    let (mut refused, mut told) = (0, 0);
    for seed in 0..images(300) {
        println!("seed {seed}");
        let mut rng = Rng::new(seed);
        let mut input = vec![rng.below(256) as u8];
        for _ in 0..1 + rng.below(8) {
            let len = 1 + rng.below(8) as u8;
            input.extend((rng.below(1 << 32) as u32).to_le_bytes());
            input.push(len);
            input.extend((0..len).map(|_| rng.below(256) as u8));
        }
        let seen = run(&input);
        refused += u64::from(!seen.mounted);
        told += u64::from(seen.errors.contains(&ErrorKind::Corrupt));
    }
    println!("{refused} refused, {told} found to be damaged");
    assert!(told > 0);
}
