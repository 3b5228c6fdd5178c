//! A queue to which only the completion of its last request holds a reference.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;
use tidegate_block::file::{Backend, OpenOptions, open};
use tidegate_block::*;

/// A device that tells when it is dropped.
struct Tells {
    below: Option<Arc<dyn Device>>,
    gone: Sender<()>,
}

impl Tells {
    fn below(&self) -> &Arc<dyn Device> {
        self.below.as_ref().unwrap()
    }
}

impl Device for Tells {
    fn info(&self) -> DeviceInfo<'_> {
        self.below().info()
    }
    fn execute(&self, rq: &mut Request) -> Result<(), Errno> {
        self.below().execute(rq)
    }
    fn submit(&self, rq: Request) {
        self.below().submit(rq);
    }
}

impl Drop for Tells {
    fn drop(&mut self) {
        drop(self.below.take());
        self.gone.send(()).unwrap();
    }
}

/// Ends the last request of a device, and checks that the device is dropped.
fn let_go_in_a_completion(backend: Backend, elevator: Elevator) -> Receiver<()> {
    let dir = tempfile::tempdir().unwrap();
    let options = OpenOptions { backend, create: Some(1 << 20), ..Default::default() };
    let (gone, is_gone) = channel();
    let below = Some(open(&dir.path().join("image"), options).unwrap());
    let device = Arc::new(Tells { below, gone });
    let queue = Arc::new(RequestQueue::with_elevator(device, QueueLimits::default(), elevator));
    let (go, may_go) = channel();
    let theirs = queue.clone();
    let page = Segment::pages(Arc::new(PageBuf::zeroed(1)), 0, 1);
    queue.submit(Bio::write(Sector(0), vec![page], BioFlags::empty()).on_end(move |_, _| {
        may_go.recv().unwrap();
        drop(theirs);
    }));
    drop(queue);
    go.send(()).unwrap();
    is_gone
}

#[test]
fn the_completion_of_its_last_request_lets_go_of_a_queue() {
    for backend in [Backend::Threads, Backend::Uring] {
        for elevator in [Elevator::None, Elevator::Wfq(WfqOptions::default())] {
            let gone = let_go_in_a_completion(backend, elevator);
            gone.recv_timeout(Duration::from_secs(30)).expect("the thread of a device waits for itself");
        }
    }
}
