//! Records of tars beside names and times: ACLs and labels as text, sparse files, owners.

use super::tar_names::archive;
use crate::common::{Bench, has, is_root};
use std::fs;
use std::process::{Command, Stdio};

fn run(b: &Bench, program: &str, args: &[&str]) -> String {
    let out = Command::new(program).args(args).current_dir(b.dir.path()).output().unwrap();
    assert!(out.status.success(), "{program} {args:?}: {}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8(out.stdout).unwrap()
}

/// Writes the tar of `a.img` to `out.tar`.
fn tar(b: &Bench) {
    let to = fs::File::create(b.path("out.tar")).unwrap();
    assert!(b.command(&["tar", "a.img:/"]).stdout(to).stderr(Stdio::null()).status().unwrap().success());
}

#[test]
fn acls_are_those_that_the_stock_tar_restores() {
    if !is_root() || !["tar", "setfacl", "getfacl"].iter().all(has) {
        eprintln!("skipped: needs root, tar and the acl tools");
        assert!(std::env::var_os("CI").is_none());
        return;
    }
    let b = Bench::new();
    for dir in ["src/d", "gnu"] {
        fs::create_dir_all(b.path(dir)).unwrap();
    }
    for file in ["src/d/acl", "src/plain"] {
        fs::write(b.path(file), "x").unwrap();
    }
    run(&b, "setfacl", &["-m", "u:1234:rw,g:55:x,g::r,m::rwx,o::-", "src/d/acl"]);
    run(&b, "setfacl", &["-m", "d:u:1234:rwx,d:g::-", "src/d"]);
    let acls = |dir: &str| run(&b, "sh", &["-c", &format!("cd {dir} && getfacl -nR . | sort")]);
    b.ok(&["mkfs", "--from", "src", "a.img"]);
    tar(&b);
    run(&b, "tar", &["--acls", "--numeric-owner", "-xpf", "out.tar", "-C", "gnu"]);
    assert_eq!(acls("gnu"), acls("src"));
    assert!(acls("gnu").contains("default:user:1234:rwx"));
}

#[test]
fn labels_are_kept_as_attributes() {
    if !has("python3") {
        eprintln!("skipped: python3 is not installed");
        assert!(std::env::var_os("CI").is_none());
        return;
    }
    let b = Bench::new();
    let label = "system_u:object_r:etc_t:s0";
    archive(&b, &format!("add('f', pax_headers={{'RHT.security.selinux': '{label}'}})"));
    b.ok(&["mkfs", "--from", "x.tar", "a.img"]);
    tar(&b);
    let code = "import tarfile; h = tarfile.open('out.tar').getmember('./f').pax_headers\n\
                print(h['RHT.security.selinux'], h['SCHILY.xattr.security.selinux'].encode())";
    assert_eq!(run(&b, "python3", &["-c", code]), format!("{label} b'{label}\\x00'\n"));
}

#[test]
fn a_sparse_file_has_its_own_name_and_not_the_one_for_old_readers() {
    if !has("tar") {
        eprintln!("skipped: tar is not installed");
        return;
    }
    let b = Bench::new();
    let name = format!("d/{}", "long".repeat(40));
    fs::create_dir_all(b.path("src/d")).unwrap();
    fs::File::create(b.path("src").join(&name)).unwrap().set_len(4 << 20).unwrap();
    for version in ["0.0", "0.1", "1.0"] {
        let version = format!("--sparse-version={version}");
        run(&b, "tar", &["--sparse", &version, "--format=pax", "-cf", "x.tar", "-C", "src", "."]);
        b.ok(&["mkfs", "--force", "--from", "x.tar", "--size", "auto", "a.img"]);
        assert_eq!(b.ok(&["ls", "a.img:/d"]), format!("{}\n", &name[2..]), "{version}");
        assert_eq!(b.ok(&["ls", "a.img:/"]), "d\n", "{version}");
    }
}

#[test]
fn an_owner_that_no_volume_can_hold_is_refused() {
    if !has("python3") {
        eprintln!("skipped: python3 is not installed");
        assert!(std::env::var_os("CI").is_none());
        return;
    }
    let b = Bench::new();
    archive(&b, "add('f', pax_headers={'uid': '4294967301'})");
    let line = b.fails(&["mkfs", "--from", "x.tar", "a.img"], 1);
    assert!(line.contains("uid") && line.contains("4294967301"), "{line}");
    archive(&b, "add('f', pax_headers={'uid': '4294967294'})");
    b.ok(&["mkfs", "--from", "x.tar", "a.img"]);
}
