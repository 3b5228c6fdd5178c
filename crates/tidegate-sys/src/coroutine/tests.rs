use super::*;
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::Command;

fn stack() -> Stack {
    Stack::map(1 << 20).unwrap()
}

/// A coroutine that notes its steps.
fn steps(log: &Rc<RefCell<Vec<u32>>>, from: u32) -> Coroutine {
    let log = log.clone();
    Coroutine::new("steps", stack(), move || {
        for n in 0..3 {
            log.borrow_mut().push(from + n);
            assert!(suspend());
        }
    })
}

#[test]
fn they_take_turns() {
    let log = Rc::new(RefCell::new(Vec::new()));
    let (mut a, mut b) = (steps(&log, 10), steps(&log, 20));
    while !a.resume() {
        assert!(!b.resume());
    }
    assert_eq!(*log.borrow(), [10, 20, 11, 21, 12, 22]);
    assert!(!suspend(), "the caller is none");
    assert!(a.into_stack().is_some() && b.into_stack().is_none());
}

#[test]
fn a_coroutine_resumes_another() {
    let log = Rc::new(RefCell::new(Vec::new()));
    let of_inner = log.clone();
    let mut outer = Coroutine::new("outer", stack(), move || {
        let mut inner = steps(&of_inner, 0);
        while !inner.resume() {
            of_inner.borrow_mut().push(100);
            suspend();
        }
    });
    let turns = (0..).take_while(|_| !outer.resume()).count();
    assert_eq!((turns, &log.borrow()[..]), (3, &[0, 100, 1, 100, 2, 100][..]));
}

#[test]
fn a_panic_goes_on_in_the_resumer() {
    let mut broken = Coroutine::new("broken", stack(), || {
        suspend();
        std::panic::resume_unwind(Box::new("on purpose"));
    });
    assert!(!broken.resume());
    let panic = catch_unwind(AssertUnwindSafe(|| broken.resume())).unwrap_err();
    assert_eq!(panic.downcast_ref(), Some(&"on purpose"));
    assert!(!suspend() && broken.into_stack().is_some());
}

#[test]
fn only_a_suspended_one_keeps_what_it_has() {
    let held = Rc::new(());
    let holding = |suspends: bool| {
        let held = held.clone();
        Coroutine::new("holds", stack(), move || {
            if suspends {
                suspend();
            }
            drop(held);
        })
    };
    drop(holding(true));
    assert_eq!(Rc::strong_count(&held), 1, "one that has not begun");
    let mut done = holding(false);
    assert!(done.resume());
    drop(done);
    assert_eq!(Rc::strong_count(&held), 1);
    let mut suspended = holding(true);
    assert!(!suspended.resume());
    drop(suspended);
    assert_eq!(Rc::strong_count(&held), 2);
}

#[test]
fn a_stack_is_used_again_and_as_large_as_said() {
    /// Bytes of stack that so many calls need, at least.
    fn deep(calls: u32) -> u64 {
        let room = std::hint::black_box([calls; 64]);
        if calls == 0 { 0 } else { deep(calls - 1) + u64::from(room[7]) }
    }
    let mut stack = stack();
    for _ in 0..3 {
        let mut c = Coroutine::new("deep", stack, || assert_eq!(deep(1_000), 1_000 * 1_001 / 2));
        assert!(c.resume());
        stack = c.into_stack().unwrap();
    }
}

/// The overflow happens in a separate process, which it ends.
#[test]
fn an_overflow_is_told_by_name() {
    fn endless(n: u64) -> u64 {
        let room = std::hint::black_box([n; 512]);
        if n == u64::MAX { 0 } else { endless(n + 1) + room[3] }
    }
    const INSIDE: &str = "TIDEGATE_TEST_OVERFLOW";
    match std::env::var(INSIDE).as_deref() {
        Ok("coroutine") => _ = Coroutine::new("lost", stack(), || _ = endless(1)).resume(),
        Ok("thread") => {
            assert!(Coroutine::new("brief", stack(), || ()).resume());
            endless(1);
        }
        _ => {
            let me = std::env::current_exe().unwrap();
            for (what, told) in [
                ("coroutine", "task 'lost' has overflowed its stack"),
                ("thread", "an_overflow_is_told_by_name' (ID) has overflowed its stack"),
            ] {
                let mut command = Command::new(&me);
                command.args(["--exact", "coroutine::tests::an_overflow_is_told_by_name", "--nocapture"]);
                let output = command.env(INSIDE, what).output().unwrap();
                let errors = String::from_utf8_lossy(&output.stderr);
                let (told, rest) = told.split_once("(ID)").unwrap_or((told, ""));
                assert!(errors.contains(told) && errors.contains(rest), "{what}: {errors}");
                use std::os::unix::process::ExitStatusExt;
                assert_eq!(output.status.signal(), Some(libc::SIGABRT), "{what}");
            }
        }
    }
}
