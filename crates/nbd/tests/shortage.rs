//! Clients' requests while the system gives no memory, in virtual time. It is one test: memory is
//! the process's.

#[path = "integration/common/mod.rs"]
#[expect(dead_code, reason = "others take more of it")]
mod common;

use common::{SIZE_BYTES, Stage, on_one};
use headpond_block::devices::RamDevice;
use headpond_block::memory::{ReservedMemory, has, set_aside, state};
use headpond_block::{BlockDevice, Buffer, Cause, DeviceError, Outcome, Request};
use headpond_nbd::client::NbdDevice;
use headpond_nbd::limits::Limits;
use headpond_testkit::ScarceMemory;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

#[global_allocator]
static MEMORY: ReservedMemory<ScarceMemory> = ReservedMemory::over(ScarceMemory);

const RESERVE: usize = 32 << 20;
/// Longer than what is received into the connection's own memory.
const LONG: usize = 256 << 10;
const NO_MEMORY: i32 = 12;

fn take_memory_away() {
    ScarceMemory::at_most(100 << 10);
    assert!(!has(8 << 20), "somebody notices");
}

/// A request that is under way, and how long it has taken when it ends.
async fn timed(stage: Rc<Stage>, client: Rc<NbdDevice>, request: Request) -> (Outcome, f64) {
    let begun = stage.runtime.now();
    let device: &dyn BlockDevice = &*client;
    let outcome = device.submit(request).await;
    (outcome, stage.runtime.now().since(begun).as_secs_f64())
}

struct Scene {
    stage: Rc<Stage>,
    client: Rc<NbdDevice>,
    data: Buffer,
}

impl Scene {
    async fn new(stage: Stage) -> Self {
        let client = Rc::new(stage.client().await);
        Self { stage: Rc::new(stage), client, data: Buffer::zeroed(LONG) }
    }

    fn begin(&self, request: Request) -> impl Future<Output = (Outcome, f64)> + use<> {
        let work = timed(Rc::clone(&self.stage), Rc::clone(&self.client), request);
        self.stage.runtime.spawn(work)
    }

    fn read(&self) -> Request {
        Request::read(0, self.data.clone())
    }

    fn write(&self) -> Request {
        Request::write(0, self.data.clone())
    }

    async fn seconds(&self, seconds: f64) {
        self.stage.runtime.sleep(Duration::from_secs_f64(seconds)).await;
    }

    fn in_flight(&self) -> Vec<usize> {
        self.stage.server.report().connections.iter().map(|it| it.in_flight).collect()
    }
}

fn has_no_memory(outcome: &Outcome) -> bool {
    matches!(outcome.as_ref().map_err(DeviceError::cause), Err(Cause::Os { errno: NO_MEMORY, .. }))
}

/// The first ones of a shortage wait like any other, and go on when there is memory.
async fn requests_wait_for_memory(scene: &Scene) {
    for request in [scene.read(), scene.write()] {
        take_memory_away();
        let under_way = scene.begin(request);
        scene.seconds(1.0).await;
        ScarceMemory::plenty();
        let (outcome, waited) = under_way.await;
        assert!(outcome.is_ok() && (1.0..1.2).contains(&waited), "{outcome:?} after {waited} s");
        assert!(!state().is_short);
    }
}

/// After five seconds it is refused, and what comes next sooner, until there is memory again.
async fn patience_ends(scene: &Scene) {
    take_memory_away();
    let (first, waited) = scene.begin(scene.write()).await;
    assert!(has_no_memory(&first) && (5.0..5.2).contains(&waited), "{first:?} after {waited} s");
    for request in [scene.read(), scene.write()] {
        let (next, waited) = scene.begin(request).await;
        assert!(has_no_memory(&next) && (0.04..0.2).contains(&waited), "{next:?} after {waited} s");
    }
    ScarceMemory::plenty();
    let (served, waited) = scene.begin(scene.write()).await;
    assert!(served.is_ok() && waited < 0.1, "{served:?} after {waited} s");
    assert_eq!(scene.in_flight(), [0]);
}

/// A flush that has come waits for nobody; one behind a request that waits has not come.
async fn flushes_do_not_wait(scene: &Scene) {
    let other = Rc::new(scene.stage.client().await);
    take_memory_away();
    let write = scene.begin(scene.write());
    scene.seconds(0.2).await;
    let behind = scene.begin(Request::flush());
    let (beside, waited) = timed(Rc::clone(&scene.stage), other, Request::flush()).await;
    assert!(beside.is_ok() && waited < 0.1, "{beside:?} after {waited} s");
    scene.seconds(1.0).await;
    ScarceMemory::plenty();
    let ((write, _), (behind, waited)) = (write.await, behind.await);
    assert!(write.is_ok() && behind.is_ok() && waited >= 1.0, "{write:?}, {behind:?}, {waited} s");
}

/// The server stops at once, and says so to whoever waits.
async fn a_stop_ends_the_waiting(scene: &Scene) {
    take_memory_away();
    let write = scene.begin(scene.write());
    scene.seconds(0.5).await;
    let begun = scene.stage.runtime.now();
    scene.stage.server.stop().await.expect("stopped");
    let took = scene.stage.runtime.now().since(begun).as_secs_f64();
    ScarceMemory::plenty();
    let (outcome, _) = write.await;
    assert!(
        outcome.as_ref().is_err_and(DeviceError::is_gone) && took < 0.5,
        "{outcome:?}, {took} s"
    );
}

/// Who has left is not waited for, and holds nothing.
async fn a_client_may_leave_while_it_waits(scene: Scene) {
    let Scene { stage, client, data } = scene;
    take_memory_away();
    let mut waiting = Box::pin(timed(Rc::clone(&stage), client, Request::write(0, data)));
    let is_waiting = poll_fn(|context| Poll::Ready(waiting.as_mut().poll(context).is_pending()));
    assert!(is_waiting.await);
    stage.runtime.sleep(Duration::from_secs_f64(0.5)).await;
    drop(waiting);
    stage.runtime.sleep(Duration::from_secs_f64(6.0)).await;
    ScarceMemory::plenty();
    assert!(stage.server.report().connections.is_empty());
}

/// On one executor: a connection that moves forgets how long it has waited.
fn story(seed: u64, tell: impl AsyncFnOnce(Stage)) {
    on_one(seed, |runtime, sim| async move {
        let device = Rc::new(RamDevice::new("ram", SIZE_BYTES));
        tell(Stage::new(runtime, sim, device, Limits::default())).await;
    });
}

#[test]
fn requests_of_clients_wait_for_memory_and_not_for_ever() {
    set_aside(RESERVE).unwrap();
    story(1, async |stage| requests_wait_for_memory(&Scene::new(stage).await).await);
    story(2, async |stage| patience_ends(&Scene::new(stage).await).await);
    story(3, async |stage| flushes_do_not_wait(&Scene::new(stage).await).await);
    story(4, async |stage| a_stop_ends_the_waiting(&Scene::new(stage).await).await);
    story(5, async |stage| a_client_may_leave_while_it_waits(Scene::new(stage).await).await);
    assert_eq!(state().reserve_used_bytes, 0);
}
