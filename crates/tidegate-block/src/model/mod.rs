//! Devices that keep their data in memory and take as much time as real ones.
//!
//! It does: store writes, compute when each command is done ([`Timing`]), and end requests then, with only
//! the clock and the threads of `tidegate_rt`, so that one model serves in real and in simulated time. It
//! does not: lose data, or fail, except for writes that a zoned device refuses. [`crate::Faulty`] and
//! [`crate::Recorder`] are wrapped around it for that.
//!
//! | module | holds |
//! |---|---|
//! | [`preset`] | the devices by name, and their figures |
//! | [`figures`] | the sources of these figures |
//! | [`timing`] | commands in a device's queue, from submission to completion |
//! | [`flash`] | channels and links |
//! | [`disk`], [`arm`], `cache` | disks, striped or alone, their mechanics, their write cache |
//!
//! Lock owned: `model->timing` 982. In real time a request ends as late as the host's timers are coarse
//! (about 50 µs on Linux).

pub mod arm;
mod cache;
pub mod disk;
pub mod figures;
pub mod flash;
pub mod preset;
pub mod timing;

#[cfg(test)]
mod closed_form;
#[cfg(test)]
mod tests;

use crate::bio::{BioFlags, Op};
use crate::bytes::{self, Bytes};
use crate::zones::Zones;
pub use crate::zones::{Zone, ZoneSpec, ZoneState};
use crate::{Device, DeviceInfo, Errno, MemoryDevice, Request};
pub use figures::Figure;
pub use preset::{Preset, Spec};
use std::collections::BTreeMap;
use std::sync::Arc;
use tidegate_rt::{Condvar, LockClass, Mutex, MutexGuard, Nanos, clock, sim, thread};
pub use timing::{Command, Kind, Timing};

static CLASS: LockClass = LockClass::new("model->timing", 982);

/// The waiter for the end of a command.
enum Waiter {
    /// A request, to be ended.
    Request(Request),
    /// The thread that submitted it. True when the command is done.
    Thread(bool),
}

struct State {
    timing: Timing,
    zones: Option<Zones>,
    waiters: BTreeMap<u64, Waiter>,
    next_id: u64,
    stop: bool,
}

struct Shared {
    name: String,
    memory: MemoryDevice,
    state: Mutex<State>,
    /// Signalled when something was submitted, or when the device goes away.
    work: Condvar,
    /// Signalled when a command of a waiting thread is done.
    done: Condvar,
    /// The submitting thread executes its command: the device takes any number of commands at once.
    quick: bool,
}

/// A device in memory that takes as much time as a real one.
pub struct Model {
    shared: Arc<Shared>,
    spec: Spec,
    server: Option<thread::JoinHandle<()>>,
}

impl Model {
    /// A device of `size` bytes, all zeros.
    pub fn new(preset: Preset, size: u64) -> Arc<Self> {
        Self::with_spec(preset.name(), preset.spec(), size)
    }

    /// A device with other figures. A zoned device has only whole zones.
    pub fn with_spec(name: &str, spec: Spec, size: u64) -> Arc<Self> {
        let size = spec.zones.map_or(size, |z| size / z.size * z.size);
        let state = State {
            timing: Timing::new(&spec, size),
            zones: spec.zones.map(|z| Zones::new(z, size)),
            waiters: BTreeMap::new(),
            next_id: 0,
            stop: false,
        };
        let shared = Arc::new(Shared {
            name: name.to_string(),
            memory: MemoryDevice::new(size),
            state: Mutex::new(&CLASS, state),
            work: Condvar::new(),
            done: Condvar::new(),
            quick: spec.depth == usize::MAX,
        });
        let serve = shared.clone();
        let server = (!shared.quick).then(|| thread::spawn("tg-model", move || serve.run()).ok()).flatten();
        Arc::new(Model { shared, spec, server })
    }

    /// Its figures.
    pub fn spec(&self) -> &Spec {
        &self.spec
    }

    /// The bytes of the device. Access to them takes no time of the model.
    pub fn memory(&self) -> &MemoryDevice {
        &self.shared.memory
    }

    /// The number of commands in the device, and the most there ever were.
    pub fn queued(&self) -> (usize, usize) {
        self.shared.state.lock().timing.queued()
    }

    /// All zones; none when it is not zoned.
    pub fn zones(&self) -> Vec<Zone> {
        self.shared.state.lock().zones.as_ref().map(Zones::report).unwrap_or_default()
    }

    /// Makes zone `n` full: nothing more can be written to it before it is reset.
    ///
    /// # Errors
    /// EINVAL: there is no such sequential zone.
    pub fn finish_zone(&self, n: usize) -> Result<(), Errno> {
        self.shared.state.lock().zones.as_mut().ok_or(Errno::INVAL)?.finish(n)
    }
}

impl Shared {
    /// Ends requests when their time has come.
    fn run(&self) {
        let mut st = self.state.lock();
        loop {
            st = self.end_finished(st, clock::now());
            if st.stop && st.waiters.is_empty() {
                return;
            }
            match st.timing.next() {
                None => self.work.wait(&mut st),
                Some(at) => {
                    let left = at.since(clock::now()).duration();
                    if !left.is_zero() {
                        self.work.wait_for(&mut st, left);
                    }
                }
            }
        }
    }

    /// Ends the commands that are done by `now`. The lock is released meanwhile.
    fn end_finished<'a>(&'a self, mut st: MutexGuard<'a, State>, now: Nanos) -> MutexGuard<'a, State> {
        st.timing.advance(now);
        let (mut over, mut awaited) = (Vec::new(), false);
        while let Some((_, id)) = st.timing.pop() {
            match st.waiters.get_mut(&id) {
                Some(Waiter::Thread(done)) => (*done, awaited) = (true, true),
                _ => over.extend(st.waiters.remove(&id)),
            }
        }
        if awaited {
            self.done.notify_all();
        }
        if over.is_empty() {
            return st;
        }
        drop(st);
        for waiter in over {
            if let Waiter::Request(mut rq) = waiter {
                let r = self.move_data(&mut rq);
                rq.complete(r);
            }
        }
        self.state.lock()
    }

    /// Moves the bytes of a request.
    fn move_data(&self, rq: &mut Request) -> Result<(), Errno> {
        match rq.op {
            Op::Discard if !self.clears(rq) => Ok(()),
            Op::ZoneFinish => Ok(()),
            Op::ZoneReset => {
                Bytes::zero(&self.memory, rq.sector.bytes(), rq.bytes);
                Ok(())
            }
            _ => bytes::execute(&self.memory, rq),
        }
    }

    /// Whether a discard clears its bytes. In a sequential zone only a reset does.
    fn clears(&self, rq: &Request) -> bool {
        let st = self.state.lock();
        st.zones.as_ref().is_none_or(|z| z.clears(rq.sector.bytes(), rq.bytes))
    }

    /// The command that the device gets. An error when the device refuses it at once.
    fn command(&self, st: &mut State, rq: &Request) -> Result<Command, Errno> {
        let pos = rq.sector.bytes();
        if pos.checked_add(rq.bytes).is_none_or(|end| end > Bytes::size(&self.memory)) {
            return Err(Errno::IO);
        }
        let zone = || st.zones.as_ref().and_then(|z| z.at(pos));
        let (kind, len) = match rq.op {
            Op::Read => (Kind::Read, rq.bytes),
            Op::Write | Op::WriteZeroes => (Kind::Write, rq.bytes),
            Op::Flush => (Kind::Flush, rq.bytes),
            Op::Discard => (Kind::Discard, rq.bytes),
            Op::ZoneReset => (Kind::Reset, zone().map_or(0, |z| z.pointer - z.start)),
            Op::ZoneFinish => (Kind::Finish, zone().map_or(0, |z| z.start + z.capacity - z.pointer)),
        };
        let command = Command {
            kind,
            pos,
            len,
            preflush: rq.flags.contains(BioFlags::PREFLUSH),
            fua: rq.flags.contains(BioFlags::FUA),
        };
        match &mut st.zones {
            Some(z) => z.take(rq)?,
            None if matches!(rq.op, Op::ZoneReset | Op::ZoneFinish) => return Err(Errno::OPNOTSUPP),
            None => {}
        }
        Ok(command)
    }

    /// Gives the command to the device, and returns its number. An error when the device refuses it at once.
    fn tell(&self, st: &mut State, rq: &Request) -> Result<u64, Errno> {
        let command = self.command(st, rq)?;
        let id = st.next_id;
        st.next_id += 1;
        st.timing.submit(clock::now(), id, command);
        Ok(id)
    }

    /// Executes a request in the calling thread, which spends the time: such a device is memory, and the
    /// thread that asks copies the bytes.
    fn serve_here(&self, rq: &mut Request) -> Result<(), Errno> {
        let mut st = self.state.lock();
        let command = self.command(&mut st, rq)?;
        let end = st.timing.at_once(clock::now(), command);
        drop(st);
        self.move_data(rq)?;
        let left = end.unwrap_or_default().since(clock::now());
        if sim::active() {
            sim::charge(left);
        } else if left > Nanos(0) {
            thread::sleep(left.duration());
        }
        Ok(())
    }
}

impl Device for Model {
    fn info(&self) -> DeviceInfo<'_> {
        DeviceInfo {
            name: &self.shared.name,
            size: Bytes::size(&self.shared.memory),
            read_only: false,
            backend: "model",
            zones: self.spec.zones.map(|z| Zones::new(z, 0).zoning()),
        }
    }

    fn report_zones(&self) -> Result<Vec<Zone>, Errno> {
        Ok(self.zones())
    }

    fn report_zone(&self, pos: u64) -> Result<Option<Zone>, Errno> {
        Ok(self.shared.state.lock().zones.as_ref().and_then(|z| z.at(pos)))
    }

    fn is_quick(&self, _: &Request) -> bool {
        self.shared.quick
    }

    fn execute(&self, rq: &mut Request) -> Result<(), Errno> {
        let s = &*self.shared;
        if self.server.is_none() {
            return s.serve_here(rq);
        }
        let mut st = s.state.lock();
        let id = s.tell(&mut st, rq)?;
        st.waiters.insert(id, Waiter::Thread(false));
        s.work.notify_one();
        while !matches!(st.waiters.get(&id), Some(Waiter::Thread(true))) {
            s.done.wait(&mut st);
        }
        st.waiters.remove(&id);
        drop(st);
        s.move_data(rq)
    }

    fn submit(&self, mut rq: Request) {
        let s = &*self.shared;
        if self.server.is_none() {
            let r = s.serve_here(&mut rq);
            return rq.complete(r);
        }
        let mut st = s.state.lock();
        match s.tell(&mut st, &rq) {
            Ok(id) => {
                st.waiters.insert(id, Waiter::Request(rq));
                s.work.notify_one();
            }
            Err(e) => {
                drop(st);
                rq.complete(Err(e));
            }
        }
    }
}

impl Drop for Model {
    fn drop(&mut self) {
        self.shared.state.lock().stop = true;
        self.shared.work.notify_one();
        if let Some(s) = self.server.take() {
            s.join();
        }
    }
}
