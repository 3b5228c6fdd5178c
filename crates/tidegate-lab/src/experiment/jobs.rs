//! Runs side by side, in processes of their own: statistics of locks and recordings belong to a process, and
//! a simulated world keeps one CPU busy.
//!
//! A run in simulated time depends only on its seed, so it is equal in any process, beside any others. Runs
//! in real time have the machine for themselves.

use super::excerpt::Excerpt;
use super::{Experiment, Opening, Plan, Where};
use crate::error::{Error, Result};
use crate::result::RunResult;
use rustix::process::{Signal, set_parent_process_death_signal};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};
use std::io::{self, BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use tidegate::observe::Wanted;
use tidegate::observe::why::Slow;
use tidegate_rt::{Condvar, LockClass, Mutex, thread};
use tidegate_vfs::MemoryLimits;

/// The command with which the running program makes runs that it reads from its standard input.
pub const RUN: &str = "lab-run";

/// This program, even if its file was replaced.
const THIS: &str = "/proc/self/exe";

/// The lock of threads that wait for runs in other processes.
pub(super) static JOBS: LockClass = LockClass::new("lab->runs", 12);

/// The identification of a run.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct Job {
    experiment: String,
    /// The number of its setting, from 1.
    setting: usize,
    position: usize,
    seed: u64,
    quick: bool,
    device: Option<Where>,
    options: String,
    /// Bytes of cache, dirty bytes, background bytes, and number of inodes.
    memory: Option<(u64, u64, u64, usize)>,
    /// The run is recorded.
    looked_at: bool,
}

/// The parts of a recording that are kept with the results.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Seen {
    /// As in [`Position`](super::outcome::Position).
    pub call_tree: String,
    pub excerpt: Option<Excerpt>,
    pub slow_commits: Vec<Slow>,
    pub lost_events: u64,
}

/// The result of a run, and the kept parts of its recording.
pub(super) type Answer = (RunResult, Option<Seen>);

impl Job {
    /// A run in one position, by its number from 0, of an experiment's setting, by its number from 1.
    pub fn new(
        (experiment, setting): (&str, usize),
        position: usize,
        seed: u64,
        plan: &Plan,
        looked_at: bool,
    ) -> Job {
        let memory = |m: MemoryLimits| (m.cache, m.dirty, m.background, m.inodes);
        Job {
            experiment: experiment.to_owned(),
            setting,
            position,
            seed,
            quick: plan.quick,
            device: plan.device.clone(),
            options: plan.opening.options.clone(),
            memory: plan.opening.memory.map(memory),
            looked_at,
        }
    }

    fn plan(&self) -> Plan {
        let memory = self.memory.map(|(cache, dirty, background, inodes)| MemoryLimits {
            cache,
            dirty,
            background,
            inodes,
        });
        let opening = Opening { options: self.options.clone(), memory, ..Opening::default() };
        Plan { quick: self.quick, device: self.device.clone(), seed: self.seed, opening, ..Plan::default() }
    }

    /// Makes the run in this process.
    fn run(&self) -> Result<Answer> {
        let plan = self.plan();
        let settings = (Experiment::named(&self.experiment)?.settings)(self.quick);
        let there_is_none = || Error::spec(format!("{} has no such run", self.experiment));
        let setting = settings.get(self.setting.wrapping_sub(1)).ok_or_else(there_is_none)?;
        let position = setting.positions.get(self.position).ok_or_else(there_is_none)?;
        let wanted = if self.looked_at { setting.looks(&plan, Wanted::default()) } else { None };
        let (result, observed) = setting.once(&plan, position, self.seed, wanted.unwrap_or_default())?;
        Ok((result, observed.map(|o| setting.seen(&o))))
    }
}

/// A process of this program that makes runs, one after the other.
struct Apart {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
}

impl Apart {
    fn start() -> Result<Apart> {
        let told = |e: io::Error| Error::host(Path::new(THIS), e);
        let mut command = Command::new(THIS);
        let mut child =
            command.arg(RUN).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().map_err(told)?;
        match (child.stdin.take(), child.stdout.take()) {
            (Some(to), Some(from)) => Ok(Apart { child, to, from: BufReader::new(from) }),
            _ => Err(told(io::ErrorKind::BrokenPipe.into())),
        }
    }

    fn run(&mut self, job: &Job) -> Result<Answer> {
        let mut line = String::new();
        let asked = write_line(&mut self.to, job);
        let answer = asked
            .and_then(|()| self.from.read_line(&mut line))
            .and_then(|_| Ok(serde_json::from_str::<std::result::Result<Answer, String>>(&line)?));
        answer.map_err(|e| self.broken(&e))?.map_err(Error::Spec)
    }

    /// The reason why there is no answer; the end of the process explains it best.
    fn broken(&mut self, e: &io::Error) -> Error {
        // The kill does not change the status of a process that has already ended.
        let _ = self.child.kill();
        let ended = self.child.wait().ok();
        let why = ended.map_or_else(|| e.to_string(), |status| status.to_string());
        Error::spec(format!("a run in a process of its own failed: {why}"))
    }
}

impl Drop for Apart {
    fn drop(&mut self) {
        // The process may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn write_line(to: &mut dyn Write, value: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(value)?;
    line.push(b'\n');
    to.write_all(&line)?;
    to.flush()
}

/// The loop of a process that makes runs: reads one from each line, and writes a line with its answer.
///
/// # Errors
/// A line is not a run, or the answer cannot be written. A failed run is an answer. If the answer has no reader, the
/// parent has ended, and has told why.
pub fn work(from: &mut dyn BufRead, to: &mut dyn Write) -> Result<()> {
    // The process ends when its parent does.
    let _ = set_parent_process_death_signal(Some(Signal::KILL));
    let failed = |e: io::Error| Error::spec(e.to_string());
    for line in from.lines() {
        let job: Job = serde_json::from_str(&line.map_err(failed)?).map_err(|e| failed(e.into()))?;
        match write_line(to, &job.run().map_err(|e| e.to_string())) {
            Err(e) if e.kind() == io::ErrorKind::BrokenPipe => break,
            r => r.map_err(failed)?,
        }
    }
    Ok(())
}

/// The runs that are made at once. Unless [started](Jobs::start), there is one at a time, in this process.
#[derive(Clone, Default)]
pub struct Jobs(Option<Arc<Workers>>);

impl std::fmt::Debug for Jobs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Jobs({})", self.0.as_ref().map_or(1, |c| c.shared.most))
    }
}

/// Threads that wait for processes; they end with the last user.
struct Workers {
    shared: Arc<Shared>,
}

struct Shared {
    most: usize,
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    queue: VecDeque<Job>,
    /// The requested runs, with their answers once there are any.
    answers: BTreeMap<Job, Option<Result<Answer>>>,
    running: usize,
    /// Number of threads that wait to do something in this process: no other run begins before.
    held_up: usize,
    over: bool,
}

impl Jobs {
    /// Begins all runs of these experiments in simulated time, `most` at once, in as many processes: for
    /// programs that do [`work`] when they are called with [`RUN`].
    ///
    /// # Errors
    /// A thread cannot be started.
    pub fn start(most: usize, experiments: &[&Experiment], plan: &Plan) -> Result<Jobs> {
        if most <= 1 {
            return Ok(Jobs::default());
        }
        let queue: VecDeque<Job> = experiments.iter().flat_map(|e| e.jobs(plan)).collect();
        let answers = queue.iter().map(|job| (job.clone(), None)).collect();
        let state = State { queue, answers, running: 0, held_up: 0, over: false };
        let shared = Shared { most, state: Mutex::new(&JOBS, state), changed: Condvar::new() };
        let workers = Workers { shared: Arc::new(shared) };
        for _ in 0..most {
            let shared = workers.shared.clone();
            thread::spawn("tg-lab-runs", move || shared.work()).map_err(Error::Thread)?;
        }
        Ok(Jobs(Some(Arc::new(workers))))
    }

    /// Whether runs in simulated time have processes of their own.
    pub(super) fn apart(&self) -> bool {
        self.0.is_some()
    }

    /// Moves these runs before all others.
    pub(super) fn hurry(&self, jobs: &[Job]) {
        let Some(workers) = &self.0 else { return };
        let state = &mut *workers.shared.state.lock();
        for job in jobs.iter().rev() {
            if !state.answers.contains_key(job) {
                state.answers.insert(job.clone(), None);
                state.queue.push_front(job.clone());
            }
        }
        workers.shared.changed.notify_all();
    }

    /// Waits for a run's answer, which only one caller gets.
    pub(super) fn answer(&self, job: &Job) -> Result<Answer> {
        let Some(workers) = &self.0 else { return job.run() };
        self.hurry(std::slice::from_ref(job));
        let mut state = workers.shared.state.lock();
        loop {
            if let Some(answer) = state.answers.get_mut(job).and_then(Option::take) {
                state.answers.remove(job);
                return answer;
            }
            workers.shared.changed.wait(&mut state);
        }
    }

    /// Does something in this process, beside other runs or `alone`.
    pub(super) fn here<R>(&self, alone: bool, f: impl FnOnce() -> R) -> R {
        let Some(workers) = &self.0 else { return f() };
        let takes = if alone { workers.shared.most } else { 1 };
        let mut state = workers.shared.state.lock();
        state.held_up += 1;
        while state.running + takes > workers.shared.most {
            workers.shared.changed.wait(&mut state);
        }
        state.held_up -= 1;
        state.running += takes;
        drop(state);
        let done = f();
        workers.shared.state.lock().running -= takes;
        workers.shared.changed.notify_all();
        done
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.shared.state.lock().over = true;
        self.shared.changed.notify_all();
    }
}

impl Shared {
    fn work(&self) {
        let mut apart = None;
        while let Some(job) = self.next() {
            let answer = match apart.take().map_or_else(Apart::start, Ok) {
                Ok(process) => apart.insert(process).run(&job),
                Err(e) => Err(e),
            };
            if answer.is_err() {
                apart = None;
            }
            let mut state = self.state.lock();
            state.running -= 1;
            state.answers.insert(job, Some(answer));
            drop(state);
            self.changed.notify_all();
        }
    }

    /// Waits for a run that may begin; none at the end.
    fn next(&self) -> Option<Job> {
        let mut state = self.state.lock();
        loop {
            if state.over {
                return None;
            }
            if state.held_up == 0
                && state.running < self.most
                && let Some(job) = state.queue.pop_front()
            {
                state.running += 1;
                return Some(job);
            }
            self.changed.wait(&mut state);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;
    use tidegate_block::Preset;

    /// Each device reaches the process of a run unchanged.
    #[test]
    fn a_run_is_told_and_read_alike() {
        let models = Preset::ALL.into_iter();
        let devices = models.flat_map(|p| [Where::Preset(p), Where::Zoned(p), Where::Real(p)]);
        let devices = devices.chain([Where::File(PathBuf::from("/x, zoned:y"))]).map(Some);
        for device in devices.chain([None]) {
            let memory = Some(MemoryLimits { cache: 1, dirty: 2, background: 3, inodes: 4 });
            let opening = Opening { options: "a=b,c".into(), memory, ..Opening::default() };
            let plan = Plan { quick: true, device, seed: 5, opening, ..Plan::default() };
            let job = Job::new(("m4", 2), 3, 7, &plan, true);
            let mut line = Vec::new();
            write_line(&mut line, &job).unwrap();
            let read: Job = serde_json::from_slice(&line).unwrap();
            assert_eq!(read, job);
            assert_eq!(read.plan().device, plan.device);
        }
    }
}
