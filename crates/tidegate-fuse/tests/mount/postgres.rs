//! A PostgreSQL cluster whose disk goes away: the serving process is killed under pgbench, the volume is
//! mounted again, and the server recovers every row that it reported as committed.

use crate::rig::{Rig, Rng, cannot_mount, number, seed};
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// PostgreSQL refuses to run as the superuser.
const NOBODY: u32 = 65534;
const CLIENTS: u64 = 3;
const PATIENCE: Duration = Duration::from_secs(60);

/// A program of PostgreSQL's, run as nobody.
fn program(name: &str) -> Command {
    let mut c = Command::new(tidegate_testing::oracle::require(name).unwrap());
    c.uid(NOBODY).gid(NOBODY).current_dir("/").env("LC_ALL", "C").env("PGUSER", "tide").stdin(Stdio::null());
    c
}

struct Cluster {
    data: PathBuf,
    /// The directory of its socket and log, which is not on the volume.
    beside: PathBuf,
    server: Option<Child>,
}

impl Cluster {
    fn init(rig: &Rig) -> Cluster {
        let own = |path: &Path| {
            std::fs::create_dir(path).unwrap();
            std::os::unix::fs::chown(path, Some(NOBODY), Some(NOBODY)).unwrap();
        };
        let (data, beside) = (rig.dir.join("pg"), rig.scratch.path().join("beside"));
        own(&data);
        own(&beside);
        let out = program("initdb")
            .args(["-U", "tide", "-A", "trust", "-k", "--wal-segsize=1", "-D"])
            .arg(&data)
            .output()
            .unwrap();
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        Cluster { data, beside, server: None }
    }

    fn start(&mut self) {
        let log = File::options().create(true).append(true).open(self.beside.join("log")).unwrap();
        let settings =
            ["listen_addresses=", "shared_buffers=16MB", "max_wal_size=32MB", "checkpoint_timeout=30s"];
        let server = program("postgres")
            .arg("-D")
            .arg(&self.data)
            .arg("-k")
            .arg(&self.beside)
            .args(settings.iter().flat_map(|s| ["-c", s]))
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        self.server = Some(server);
        let since = Instant::now();
        while !self.psql().args(["-c", "select 1"]).output().unwrap().status.success() {
            let ended = self.server.as_mut().unwrap().try_wait().unwrap();
            assert!(ended.is_none() && since.elapsed() < PATIENCE, "{ended:?}\n{}", self.log());
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.beside.join("log")).unwrap()
    }

    fn psql(&self) -> Command {
        let mut c = program("psql");
        c.args(["-X", "-At", "-v", "ON_ERROR_STOP=1", "-d", "postgres", "-h"]).arg(&self.beside);
        c
    }

    fn ask(&self, sql: &str) -> String {
        let out = self.psql().args(["-c", sql]).output().unwrap();
        let said = String::from_utf8_lossy(&out.stderr);
        assert!(out.status.success(), "{sql}: {said}\n{}", self.log());
        String::from_utf8_lossy(&out.stdout).trim().to_string()
    }

    /// Commits one row after the other until the server is gone. Returns the rows that the server confirmed.
    fn commit_rows(&self, from: u64) -> std::thread::JoinHandle<Vec<u64>> {
        let mut child =
            self.psql().stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        std::thread::spawn(move || {
            let (mut to, mut said) =
                (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
            let mut kept = Vec::new();
            for n in from.. {
                let sql = format!("insert into kept values ({n}, repeat('{n} ', 50));\n\\echo done {n}\n");
                if to.write_all(sql.as_bytes()).and_then(|()| to.flush()).is_err() {
                    break;
                }
                let mut line = String::new();
                while said.read_line(&mut line).is_ok_and(|got| got > 0) && line.trim() != format!("done {n}")
                {
                    line.clear();
                }
                if line.is_empty() {
                    break;
                }
                kept.push(n);
            }
            drop(to);
            let _ = child.wait();
            kept
        })
    }

    /// Ends the server by `signal`, or by SIGKILL if that does not end it.
    fn stop(&mut self, signal: rustix::process::Signal) {
        let Some(mut server) = self.server.take() else { return };
        let pid = rustix::process::Pid::from_child(&server);
        let _ = rustix::process::kill_process(pid, signal);
        let since = Instant::now();
        while server.try_wait().unwrap().is_none() && since.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_millis(20));
        }
        let _ = server.kill();
        server.wait().unwrap();
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.stop(rustix::process::Signal::QUIT);
    }
}

/// Checks that the history of every account adds up, and that no committed row is missing.
fn judge(cluster: &Cluster, kept: &BTreeSet<u64>) {
    let rows = cluster.ask("select n from kept where pad = repeat(n || ' ', 50)");
    let rows: BTreeSet<u64> = rows.lines().map(|l| l.parse().unwrap()).collect();
    let lost: Vec<_> = kept.difference(&rows).collect();
    assert!(lost.is_empty(), "{} of {} committed rows are lost: {lost:?}", lost.len(), kept.len());
    let sums = cluster.ask(
        "select count(distinct s) from (select sum(abalance) s from pgbench_accounts union all \
         select sum(tbalance) from pgbench_tellers union all select sum(bbalance) from pgbench_branches \
         union all select coalesce(sum(delta), 0) from pgbench_history) t",
    );
    assert_eq!(sums, "1", "pgbench's books do not balance");
}

#[test]
fn no_committed_row_is_lost() {
    if cannot_mount()
        || tidegate_testing::oracle::skip_or_fail("postgres")
        || tidegate_testing::oracle::skip_or_fail("pgbench")
    {
        return;
    }
    let mut rng = Rng(seed());
    let words = "allow_other,cache=32M";
    let mut rig = Rig::new(1024, words);
    let mut cluster = Cluster::init(&rig);
    cluster.start();
    let pgbench = |cluster: &Cluster, args: &[&str]| {
        let mut c = program("pgbench");
        c.args(args)
            .arg("-h")
            .arg(&cluster.beside)
            .arg("postgres")
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        c
    };
    assert!(pgbench(&cluster, &["-i", "-q"]).status().unwrap().success(), "{}", cluster.log());
    cluster.ask("create table kept (n bigint primary key, pad text)");
    let mut kept = BTreeSet::new();
    for round in 1..=number("TIDEGATE_PG_KILLS", 2) {
        let mut load = pgbench(&cluster, &["-c", "4", "-T", "600", "-n"]).spawn().unwrap();
        let clients: Vec<_> =
            (0..CLIENTS).map(|c| cluster.commit_rows((round * CLIENTS + c) << 32)).collect();
        std::thread::sleep(Duration::from_millis(1000 + rng.below(2000)));
        rig.kill();
        cluster.stop(rustix::process::Signal::QUIT);
        let _ = load.kill();
        load.wait().unwrap();
        let before = kept.len();
        clients.into_iter().for_each(|c| kept.extend(c.join().unwrap()));
        println!("round {round}: {} rows committed before the kill", kept.len() - before);
        rig.mount(words).unwrap();
        cluster.start();
        judge(&cluster, &kept);
    }
    assert!(!kept.is_empty(), "nothing was committed");
    cluster.ask("vacuum full pgbench_history");
    cluster.ask("reindex database postgres");
    cluster.stop(rustix::process::Signal::INT);
    let sums = program("pg_checksums").arg("--check").arg("-D").arg(&cluster.data).output().unwrap();
    assert!(sums.status.success(), "{}", String::from_utf8_lossy(&sums.stdout));
    drop(cluster);
    rig.finish();
}
