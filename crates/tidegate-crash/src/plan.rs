//! The meaning of a seed.

use crate::Fault;
use crate::base::{Bases, Kind};
use crate::generate::{Profile, generate};
use crate::late::Pace;
use crate::ops::Step;
use crate::run::{Manner, Recording, Switches};
use crate::state::{Amount, State, states};
use tidegate_rt::rng::Rng;

/// The run of a seed: its operations, and how they are done.
pub struct Plan {
    /// The run's subject.
    pub profile: Profile,
    /// The volume that the run begins with.
    pub base: Kind,
    /// The operations.
    pub steps: Vec<Step>,
    /// The options, the device and the other threads of the run.
    pub manner: Manner,
    rng: Rng,
}

impl Plan {
    /// The plan of a seed.
    ///
    /// # Errors
    /// The volume it begins with cannot be made.
    pub fn new(seed: u64, bases: &Bases) -> Result<Plan, Fault> {
        let root = Rng::new(seed);
        let mut rng = root.fork(1);
        let profile = Profile::any(&mut rng);
        let aged = profile.is_aged();
        let switches = Switches::any(&mut root.fork(3), bases.format());
        let shape = bases.any_shape(&mut rng);
        let base = Kind { shape, aged, clean: aged && rng.one_in(3), roomy: switches.have_streams() };
        let manner = Manner {
            pressure: rng.one_in(6) && profile != Profile::Round,
            unmount: rng.one_in(3),
            switches,
            seed,
            pace: Pace::any(&mut root.fork(4)),
        };
        let count = profile.count(&mut rng);
        let mut steps = generate(&mut rng, count, profile, bases.get(base)?.model.clone());
        steps.retain(|s| bases.takes(base.shape, &s.op));
        Ok(Plan { profile, base, steps, manner, rng: root.fork(2) })
    }

    /// States of the recorded run; fewer where files are large, since judging those states takes longer.
    pub fn states(&self, run: &Recording, mut amount: Amount) -> Vec<State> {
        if !self.profile.is_small() {
            (amount.prefixes, amount.subsets) = (amount.prefixes / 3, amount.subsets / 3);
        }
        states(&run.tape, &mut self.rng.clone(), amount, 0, run.end)
    }
}
