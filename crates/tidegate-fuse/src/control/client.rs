//! Asking a running mount.

use super::address;
use super::protocol::{self, Answer, Ask, Found, Record, VERSION, What, Why};
use std::io::{self, BufReader};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;
use tidegate::error::path_bytes;
use tidegate::observe::why::Report;
use tidegate::{Error, Result, Sample};

/// A mount that does not answer for so long is as good as gone.
const PATIENCE: Duration = Duration::from_secs(20);

/// Within this the kernel lets go of what is mounted nowhere else.
const LET_GO: Duration = Duration::from_secs(5);

/// Connects to a socket, if that is what is there, and whose directory it is serves it.
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

/// A mount that is to end.
pub struct Ending(Client);

impl Ending {
    /// Waits for the process that serves it to end, however long it writes; or for some seconds, if it goes on
    /// since it is mounted elsewhere, too: then false.
    ///
    /// # Errors
    /// The failure at the end; the process ended without a word.
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
        // Nothing follows but the end.
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
    /// Nothing of ours is mounted there, or whose it is does not let us ask.
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

    /// The volume's activity now. With `locks`, lock statistics are collected from the first such call on, as
    /// long as the connection lasts.
    ///
    /// # Errors
    /// The mount has ended, or refuses.
    pub fn sample(&mut self, locks: bool) -> Result<Sample> {
        let answer = self.ask(What::Sample { locks })?;
        answer.sample.map(|s| *s).ok_or_else(|| self.error(io::ErrorKind::InvalidData.into()))
    }

    /// Has the mount record, and writes the parts that `record` wants to `to`, in the order of its fields.
    ///
    /// # Errors
    /// The mount has ended, or refuses: somebody else is recording. Those of writing.
    pub fn record(&mut self, record: Record, to: &mut [&mut dyn io::Write]) -> Result<Found> {
        self.wait_longer(record.seconds)?;
        let answer = self.ask(What::Record(record))?;
        for part in to {
            protocol::copy_chunks(&mut self.stream, part).map_err(|e| self.error(e))?;
        }
        answer.recorded.ok_or_else(|| self.error(io::ErrorKind::InvalidData.into()))
    }

    /// Has the mount watch what it does, and say why the slowest operations were slow.
    ///
    /// # Errors
    /// The mount has ended, or refuses: somebody else is recording; it is of a version that cannot.
    pub fn why(&mut self, why: Why) -> Result<Report> {
        self.wait_longer(why.seconds)?;
        let answer = self.ask(What::Why(why))?;
        answer.why.map(|r| *r).ok_or_else(|| self.error(io::ErrorKind::InvalidData.into()))
    }

    /// The next answer comes so much later.
    fn wait_longer(&self, seconds: f64) -> Result<()> {
        let long = Duration::try_from_secs_f64(seconds).unwrap_or_default();
        self.stream.get_ref().set_read_timeout(Some(PATIENCE + long)).map_err(|e| self.error(e))
    }

    /// Has the mount tell how it ends. To be called before it is unmounted.
    ///
    /// # Errors
    /// The mount has ended, or is of a version that does not tell.
    pub fn end(mut self) -> Result<Ending> {
        self.ask(What::End)?;
        Ok(Ending(self))
    }

    fn ask(&mut self, what: What) -> Result<Answer> {
        protocol::write(self.stream.get_mut(), &Ask { v: VERSION, what }).map_err(|e| self.error(e))?;
        self.answer()
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
        let gone = [io::ErrorKind::UnexpectedEof, io::ErrorKind::BrokenPipe, io::ErrorKind::ConnectionReset];
        let e = if gone.contains(&e.kind()) { io::Error::other("the mount has ended") } else { e };
        Error::os(&self.place, e)
    }
}
