// SPDX-License-Identifier: Apache-2.0

//! tokio's timers for C: see perf/subject/tokio.h. Threads of C call; the
//! runtime's threads drive the timers and wake what is due.

use std::cell::{Cell, UnsafeCell};
use std::ffi::{c_char, c_void};
use std::future::Future;
use std::mem::{forget, ManuallyDrop};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Arc;
use std::task::{Context, Wake, Waker};
use std::time::Duration;
use tokio::runtime::Runtime;
use tokio::time::{sleep, Sleep};

type Task = extern "C" fn(*mut c_void);

/// One reference is the waker's, and one its holder's, who drops the Sleep: it
/// has a handle, or else it is the waker.
pub struct Timeout {
	sleep: UnsafeCell<ManuallyDrop<Sleep>>,
	task: Task,
	arg: *mut c_void,
	held: bool,
}

/* The Sleep is its holder's, and C sees to it that it has one at a time. */
unsafe impl Send for Timeout {}
unsafe impl Sync for Timeout {}

/// A runtime that ends wakes all that is pending.
static STOPPING: AtomicBool = AtomicBool::new(false);

impl Wake for Timeout {
	fn wake(self: Arc<Self>) {
		if !STOPPING.load(Ordering::Relaxed) {
			(self.task)(self.arg);
		}
		if !self.held {
			unsafe { release(Arc::as_ptr(&self)) };
		}
	}
}

/// The Arc's block does not move, and so neither does what is in it.
unsafe fn pinned<'a>(timeout: *const Timeout) -> Pin<&'a mut Sleep> {
	Pin::new_unchecked(&mut *(*timeout).sleep.get())
}

unsafe fn release(timeout: *const Timeout) {
	ManuallyDrop::drop(&mut *(*timeout).sleep.get());
	drop(Arc::from_raw(timeout));
}

pub struct Subject {
	runtime: Runtime,
	number: u64,
}

static SUBJECTS: AtomicU64 = AtomicU64::new(0);

thread_local! {
	/// Which runtime this thread is in.
	static ENTERED: Cell<u64> = const { Cell::new(0) };
}

fn enter(subject: &Subject) {
	if ENTERED.get() != subject.number {
		forget(subject.runtime.enter());
		ENTERED.set(subject.number);
	}
}

#[no_mangle]
pub extern "C" fn subject_version() -> *const c_char {
	/* Known to the rule that builds it. */
	concat!(
		"tokio ",
		env!("PEER_VERSION"),
		", ",
		env!("PEER_COMPILER"),
		"\0"
	)
	.as_ptr()
	.cast()
}

#[no_mangle]
pub extern "C" fn subject_create(
	_tick_ns: u64,
	_capacity: u64,
) -> *mut Subject {
	STOPPING.store(false, Ordering::SeqCst);
	Box::into_raw(Box::new(Subject {
		runtime: Runtime::new().expect("a runtime"),
		number: SUBJECTS.fetch_add(1, Ordering::SeqCst) + 1,
	}))
}

/// # Safety
/// It was created, and nobody uses it any more.
#[no_mangle]
pub unsafe extern "C" fn subject_destroy(subject: *mut Subject) {
	STOPPING.store(true, Ordering::SeqCst);
	drop(Box::from_raw(subject));
}

/// # Safety
/// The pointers are what perf/subject/tokio.h says.
#[no_mangle]
pub unsafe extern "C" fn subject_schedule(
	subject: *const Subject,
	handle: *mut *const Timeout,
	task: Task,
	arg: *mut c_void,
	delay_ns: u64,
) {
	enter(&*subject);
	let held = !handle.is_null();
	let delay = Duration::from_nanos(delay_ns);
	let sleep = UnsafeCell::new(ManuallyDrop::new(sleep(delay)));
	let timeout = Arc::into_raw(Arc::new(Timeout {
		sleep,
		task,
		arg,
		held,
	}));
	if held {
		*handle = timeout;
	}
	/* It is the holder's reference: poll takes one of its own. */
	let waker = Waker::from(Arc::from_raw(timeout));
	let waker = ManuallyDrop::new(waker);
	let mut context = Context::from_waker(&waker);
	if pinned(timeout).poll(&mut context).is_ready() {
		/* We were descheduled for so long that it was due. */
		waker.wake_by_ref();
	}
}

/// # Safety
/// The handle is not used any more.
#[no_mangle]
pub unsafe extern "C" fn tokio_cancel(timeout: *const Timeout) {
	release(timeout);
}
