//! Questions to a running mount.

use super::address;
use super::protocol::{self, Answer, Ask, Found, Record, VERSION, What, Why};
use std::ffi::OsString;
use std::io::{self, BufReader};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tidegate::error::path_bytes;
use tidegate::observe::why::Report;
use tidegate::{Error, Result, Sample};
use tidegate_rt::{clock, thread, wait};

/// A mount that does not answer for so long is taken for dead.
const PATIENCE: Duration = Duration::from_secs(20);

/// A client that stays connected asks at least so often: a mount hangs up on a client that asks nothing for a
/// minute.
pub const OFTEN: Duration = Duration::from_secs(20);

/// The time within which the kernel releases a volume that is mounted nowhere else.
const LET_GO: Duration = Duration::from_secs(5);

/// Connects to a socket, if there is one, and if the owner of its directory serves it.
fn connect(socket: &Path) -> io::Result<UnixStream> {
    let is_socket = std::fs::symlink_metadata(socket)?.file_type().is_socket();
    let owner = socket.parent().map(std::fs::symlink_metadata).transpose()?.map(|d| d.uid());
    if !is_socket {
        return Err(io::ErrorKind::NotFound.into());
    }
    let stream = UnixStream::connect(socket)?;
    let served_by = rustix::net::sockopt::socket_peercred(&stream)?.uid.as_raw();
    match Some(served_by) == owner {
        true => Ok(stream),
        false => Err(io::ErrorKind::NotFound.into()),
    }
}

/// A mount that is about to end.
pub struct Ending(Client);

impl Ending {
    /// Waits until the serving process ends, however long it writes. If the process goes on, since the volume is
    /// mounted elsewhere, too, waits some seconds and returns false.
    ///
    /// # Errors
    /// The failure at the end; the process ended without an answer.
    pub fn wait(mut self) -> Result<bool> {
        let within = |c: &Client, limit| c.stream.get_ref().set_read_timeout(limit).map_err(|e| c.error(e));
        within(&self.0, Some(LET_GO))?;
        match protocol::read_answer(&mut self.0.stream) {
            Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                return Ok(false);
            }
            answer => _ = self.0.told(answer)?,
        }
        within(&self.0, None)?;
        let told = self.0.answer();
        // Only the end of the stream follows.
        let _ = io::copy(&mut self.0.stream, &mut io::sink());
        told.map(|_| true)
    }
}

/// A connection to a running mount.
pub struct Client {
    stream: BufReader<UnixStream>,
    place: Vec<u8>,
}

impl Client {
    /// Connects to the mount of an image, or of a directory that is mounted or in a mount.
    ///
    /// # Errors
    /// No Tidegate volume is mounted there, or its owner does not admit this user.
    pub fn connect(place: &Path) -> Result<Client> {
        let about = |e: io::Error| Error::os(path_bytes(place), e);
        let sockets = address::to_ask(place).map_err(about)?;
        let mut why = None;
        for socket in sockets {
            match connect(&socket) {
                Ok(stream) => {
                    stream.set_read_timeout(Some(PATIENCE)).map_err(about)?;
                    stream.set_write_timeout(Some(PATIENCE)).map_err(about)?;
                    return Ok(Client { stream: BufReader::new(stream), place: path_bytes(place).to_vec() });
                }
                Err(e) if e.kind() == io::ErrorKind::PermissionDenied => why = Some(e),
                Err(_) => {}
            }
        }
        Err(why.map_or_else(|| about(io::Error::other("not mounted by Tidegate, or by another user")), about))
    }

    /// The volume's present activity. With `locks`, lock statistics are collected from the first such call
    /// on, as long as the connection lasts. A mount hangs up on a client that asks nothing for a minute: then
    /// this connects again, and lock statistics begin anew.
    ///
    /// # Errors
    /// The mount has ended, or refuses.
    pub fn sample(&mut self, locks: bool) -> Result<Sample> {
        let answer = match self.exchange(What::Sample { locks }) {
            Err(e) if is_gone(&e) => {
                let place = PathBuf::from(OsString::from_vec(self.place.clone()));
                *self = Client::connect(&place).map_err(|_| self.error(e))?;
                self.ask(What::Sample { locks })?
            }
            answer => self.told(answer)?,
        };
        answer.sample.map(|s| *s).ok_or_else(|| self.error(io::ErrorKind::InvalidData.into()))
    }

    /// Has the mount make a recording, and writes the parts that `record` asks for to `to`, in the order of
    /// its fields.
    ///
    /// # Errors
    /// The mount has ended, or refuses because another recording is running. Those of writing.
    pub fn record(&mut self, record: Record, to: &mut [&mut dyn io::Write]) -> Result<Found> {
        self.wait_longer(record.seconds)?;
        let answer = self.ask(What::Record(record))?;
        for part in to {
            protocol::copy_chunks(&mut self.stream, part).map_err(|e| self.error(e))?;
        }
        answer.recorded.ok_or_else(|| self.error(io::ErrorKind::InvalidData.into()))
    }

    /// Has the mount record its work, and explain why the slowest operations were slow.
    ///
    /// # Errors
    /// The mount has ended, or refuses because another recording is running or because its version cannot
    /// explain.
    pub fn why(&mut self, why: Why) -> Result<Report> {
        self.wait_longer(why.seconds)?;
        let answer = self.ask(What::Why(why))?;
        answer.why.map(|r| *r).ok_or_else(|| self.error(io::ErrorKind::InvalidData.into()))
    }

    /// Sets switches of the mounted volume, spelled as in a list of mount options.
    ///
    /// # Errors
    /// The mount has ended; an option is no switch, cannot be changed, or has a wrong value: nothing is changed then.
    pub fn set(&mut self, switches: &str) -> Result<()> {
        self.ask(What::Set { switches: switches.into() }).map(drop)
    }

    /// Waits longer for the next answer, which comes so many seconds later.
    fn wait_longer(&self, seconds: f64) -> Result<()> {
        let long = Duration::try_from_secs_f64(seconds).unwrap_or_default();
        self.stream.get_ref().set_read_timeout(Some(PATIENCE + long)).map_err(|e| self.error(e))
    }

    /// Asks the mount to report how it ends. To be called before it is unmounted.
    ///
    /// # Errors
    /// The mount has ended, or is of a version that does not report.
    pub fn end(mut self) -> Result<Ending> {
        self.ask(What::End)?;
        Ok(Ending(self))
    }

    /// Sleeps for `time`, and asks often enough for the mount to keep the connection.
    ///
    /// # Errors
    /// Those of [`Client::sample`].
    pub fn sleep(&mut self, time: Duration, locks: bool) -> Result<()> {
        let start = clock::now();
        while let Some(left) = wait::remaining(start, time) {
            if left < OFTEN {
                thread::sleep(left);
                break;
            }
            thread::sleep(OFTEN);
            self.sample(locks)?;
        }
        Ok(())
    }

    fn ask(&mut self, what: What) -> Result<Answer> {
        let answer = self.exchange(what);
        self.told(answer)
    }

    fn exchange(&mut self, what: What) -> io::Result<Answer> {
        protocol::write(self.stream.get_mut(), &Ask { v: VERSION, what })?;
        protocol::read_answer(&mut self.stream)
    }

    fn answer(&mut self) -> Result<Answer> {
        let answer = protocol::read_answer(&mut self.stream);
        self.told(answer)
    }

    fn told(&self, answer: io::Result<Answer>) -> Result<Answer> {
        let answer = answer.map_err(|e| self.error(e))?;
        match answer.error {
            Some(why) => Err(self.error(io::Error::other(why))),
            None => Ok(answer),
        }
    }

    fn error(&self, e: io::Error) -> Error {
        let e = if is_gone(&e) { io::Error::other("the mount has ended") } else { e };
        Error::os(&self.place, e)
    }
}

/// Whether the other end has hung up.
fn is_gone(e: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
    matches!(e.kind(), UnexpectedEof | BrokenPipe | ConnectionReset)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    /// A mount that answers once on each connection and then hangs up, `times` in all.
    fn serve(listener: &UnixListener, times: u64) {
        for at_ns in 1..=times {
            let Ok((stream, _)) = listener.accept() else { return };
            let asked = protocol::read_question(&mut BufReader::new(&stream));
            assert!(matches!(asked, Ok(Some(Ok(_)))), "{asked:?}");
            let sample = Some(Box::new(Sample { at_ns, ..Sample::default() }));
            protocol::write(&mut &stream, &Answer { v: VERSION, sample, ..Answer::default() }).unwrap();
        }
    }

    #[test]
    fn a_client_that_was_hung_up_on_comes_again() {
        let dir = tempfile::tempdir().unwrap();
        let image = dir.path().join("v.img");
        std::fs::write(&image, "").unwrap();
        let socket = address::to_serve(&image).unwrap();
        let listener = UnixListener::bind(&socket).unwrap();
        let server = thread::spawn("server", move || serve(&listener, 3)).unwrap();
        let mut client = Client::connect(&image).unwrap();
        let samples: Vec<u64> = (0..3).map(|_| client.sample(true).unwrap().at_ns).collect();
        server.join();
        std::fs::remove_file(&socket).unwrap();
        assert_eq!(samples, [1, 2, 3]);
        let e = client.sample(true).unwrap_err().to_string();
        assert!(e.contains("v.img") && e.contains("the mount has ended"), "{e}");
    }
}
