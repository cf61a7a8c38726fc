// SPDX-License-Identifier: Apache-2.0

//! tokio's timers as a subject. A timeout is a Sleep in a box: it is registered
//! when it is polled first, and dropping it cancels. Threads of our own call;
//! the runtime's threads drive the timers and wake what is due.

mod common;
mod pair;
mod touch;

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tokio::runtime::Runtime;
use tokio::time::Sleep;

pub type Handle = Pin<Box<Sleep>>;

/// The waker is called when it is due.
pub fn schedule(waker: &Waker, delay: Duration) -> Handle {
	let mut sleep = Box::pin(tokio::time::sleep(delay));
	let poll = sleep.as_mut().poll(&mut Context::from_waker(waker));
	/* We were descheduled for so long that it was due meanwhile. */
	if poll == Poll::Ready(()) {
		waker.wake_by_ref();
	}
	sleep
}

fn main() {
	let mut arguments = std::env::args().skip(1);
	let workload = arguments.next().unwrap_or_default();
	let arguments: Vec<String> = arguments.collect();
	if arguments == ["about"] {
		/* What the script that built it knows. */
		println!("compiler {}", env!("PEER_COMPILER"));
		println!("flags --release, lto, codegen-units=1, panic=abort");
		println!("version tokio {}", env!("PEER_VERSION"));
		return;
	}
	let options = common::Options::read(arguments.into_iter());
	let runtime = Runtime::new().expect("a runtime");
	match workload.as_str() {
		"pair" => pair::run(&options, &runtime),
		"touch" => touch::run(&options, &runtime),
		_ => common::must(false, "no such workload"),
	}
}
