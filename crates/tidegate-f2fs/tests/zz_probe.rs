#![allow(clippy::disallowed_types, clippy::disallowed_methods, dead_code, missing_docs)]
#[path = "common/fuzz_body.rs"]
mod fuzz_body;
use fuzz_body::*;
use tidegate_vfs::*;
fn memory() -> usize {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    text.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() * 4
}
fn many(what: &str, f: impl Fn(&std::sync::Arc<Vfs>)) {
    let mut start = 0;
    for n in 0..230 {
        if n == 30 { start = memory(); }
        let d = clean().device();
        let v = mount(d).unwrap();
        f(&v);
        let w = std::sync::Arc::downgrade(&v);
        let fs = std::sync::Arc::downgrade(v.fs());
        let bdi = std::sync::Arc::downgrade(v.bdi());
        v.unmount().unwrap();
        drop(v);
        if n == 229 { println!("{what}: vfs {} fs {} bdi {}", w.strong_count(), fs.strong_count(), bdi.strong_count()); }
    }
    println!("{what}: {} KiB each", (memory() - start) as f64 / 200.0);
}
const R: &Cred = &Cred::ROOT;
#[test]
fn leak() {
    clean();
    many("nothing", |_| {});
    many("read", |v| { let f = v.open_path(R, b"/linked", OpenFlags::READ, 0).unwrap(); f.read_at(0, &mut [0; 65536]).unwrap(); });
    many("readdir", |v| { let d = v.resolve(R, b"/block-dir", true).unwrap(); v.entries(&d).unwrap(); });
    many("lookup", |v| { let d = v.resolve(R, b"/block-dir", true).unwrap(); for e in v.entries(&d).unwrap() { let _ = v.lookup(&d, &e.name); } });
    many("write", |v| { let f = v.open_path(R, b"/linked", OpenFlags::READ | OpenFlags::WRITE, 0).unwrap(); f.write_at(0, &mut [0; 65536]).unwrap(); });
    many("create", |v| { v.create(R, &v.root().unwrap(), b"q", 0o600).unwrap(); });
    many("unlink", |v| { v.unlink(R, &v.root().unwrap(), b"linked").unwrap(); });
    many("unlink holes", |v| { v.unlink(R, &v.root().unwrap(), b"holes").unwrap(); });
    many("attrs", |v| { let i = v.resolve(R, b"/attrs", true).unwrap(); v.setxattr(R, &i, b"user.a", Some(b"x"), XattrFlags::empty()).unwrap(); });
}
